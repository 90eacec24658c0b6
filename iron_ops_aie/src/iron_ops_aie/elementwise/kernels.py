"""The kernels of elementwise arrays, with what each promises. mlir-aie hosts them in `aie.iron.kernels`, but for `maximum` and
`scale`, which carry their own C++.

All are of lines of bfloat16. They compute in float32 and round once, but for those with a tanh of the cores' own in them,
which comes as close as `MEASURED` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16, widen
from iron_core.array.numbers import BFLOAT16, float32
from iron_ops_aie import logistic

_MAX = (
    BFLOAT16
    + """
extern "C" void KERNEL(const uint16_t *a, const uint16_t *b, uint16_t *y, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    float left = widen(a[i]);
    y[i] = left >= widen(b[i]) || left != left ? a[i] : b[i];
  }
}
"""
)

_SCALE = (
    BFLOAT16
    + """
extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t n, float factor) {
  for (int32_t i = 0; i < n; i++)
    y[i] = narrow(widen(x[i]) * factor);
}
"""
)

#: By factory, how far from its function npu2 was measured: this share of the sizes of both, or this much, whichever is more.
MEASURED = {"gelu_sized": (0.05, 0.020), "sigmoid": (0.08, 0.025), "silu_sized": (0.08, 0.035), "tanh": (0.05, 0.001)}


def measured_error(kernel: Kernel, exact: Any) -> np.ndarray:
    """How far from `exact` this kernel's output may be: an `array_error`."""
    share, least = MEASURED[kernel.data.factory.rpartition(".")[2]]
    return np.maximum(least, 2 * share * np.abs(widen(exact)))


def _unary(factory: str, tile: int, function: Callable[[np.ndarray], Any], **promised: Any) -> Kernel:
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, Out, Param), bindings=((2, tile),), reference=lambda x, n: function(float32(x)), elementwise=True, **promised
    )
    return Kernel.factory(factory, (line, line, np.int32), contract, tile_size=tile)


def _binary(factory: str, tile: int, function: Callable[[np.ndarray, np.ndarray], Any]) -> Kernel:
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, In, Out, Param),
        bindings=((3, tile),),
        reference=lambda a, b, n: function(float32(a), float32(b)),
        elementwise=True,
        ops=tile,
    )
    return Kernel.factory(factory, (line, line, line, np.int32), contract, tile_size=tile)


def add(tile: int) -> Kernel:
    """y = a + b."""
    return _binary("eltwise.add_sized", tile, np.add)


def mul(tile: int) -> Kernel:
    """y = a b."""
    return _binary("eltwise.mul_sized", tile, np.multiply)


def relu(tile: int) -> Kernel:
    """y = max(x, 0). A multiple of 32."""
    return _unary("eltwise.relu_sized", tile, lambda x: np.maximum(x, 0), tolerance=Tolerance(exact=True), ops=tile)


def silu(tile: int) -> Kernel:
    """y = x / (1 + exp(-x)). A multiple of 32."""
    return _unary("activation.silu_sized", tile, logistic.silu, ops=4 * tile)


def sigmoid(tile: int) -> Kernel:
    """y = 1 / (1 + exp(-x)). A multiple of 32."""
    return _unary("activation.sigmoid", tile, logistic.logistic, ops=4 * tile)


def gelu(tile: int) -> Kernel:
    """y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. A multiple of 32."""

    def function(x: np.ndarray) -> np.ndarray:
        root = np.float32(np.sqrt(2 / np.pi))
        with np.errstate(over="ignore"):
            return x / (1 + np.exp(-2 * root * (x * (1 + np.float32(0.044715) * x * x))))

    return _unary("activation.gelu_sized", tile, function, ops=10 * tile)


def tanh(tile: int) -> Kernel:
    """y = tanh x. A multiple of 32."""
    return _unary("activation.tanh", tile, np.tanh, ops=4 * tile)


def leaky_relu(tile: int, alpha: float) -> Kernel:
    """y = max(x, alpha x), alpha a bfloat16. A multiple of 32, at least 64."""
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, Out, Param, Param),
        bindings=((2, tile), (3, alpha)),
        reference=lambda x, n, alpha: np.maximum(float32(x), np.float32(alpha) * float32(x)),
        elementwise=True,
        ops=2 * tile,
    )
    return Kernel.factory("activation.leaky_relu", (line, line, np.int32, bfloat16), contract, tile_size=tile)


def axpy(tile: int, factor: float) -> Kernel:
    """y = factor a + b, factor a bfloat16. A multiple of 64."""
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, In, Param, Out, Param),
        bindings=((2, factor), (4, tile)),
        reference=lambda a, b, factor, n: np.float32(factor) * float32(a) + float32(b),
        elementwise=True,
        ops=2 * tile,
    )
    return Kernel.factory("datamovement.axpy", (line, line, np.float32, line, np.int32), contract, tile_size=tile)


def clamp(tile: int) -> Kernel:
    """y = min(max(x, low), high); low and high are given as a bfloat16's bits. A multiple of 32."""
    line = ObjectType.of(tile, bfloat16)

    def reference(x: Any, n: int, low: int, high: int) -> np.ndarray:
        least, most = (float(np.uint16(bits).view(bfloat16)) for bits in (low, high))
        return np.clip(float32(x), least, most)

    contract = KernelContract(
        roles=(In, Out, Param, Param, Param),
        bindings=((2, tile),),
        reference=reference,
        tolerance=Tolerance(exact=True),
        elementwise=True,
        ops=2 * tile,
    )
    return Kernel.factory("eltwise.clamp", (line, line, *(np.int32,) * 3), contract, tile_size=tile)


def maximum(tile: int) -> Kernel:
    """y = max(a, b); a NaN where either is one."""
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, In, Out, Param),
        bindings=((3, tile),),
        reference=lambda a, b, n: np.maximum(float32(a), float32(b)),
        tolerance=Tolerance(exact=True),
        elementwise=True,
        ops=tile,
    )
    return Kernel.inline("maximum", _MAX, (line, line, line, np.int32), contract)


def scale(tile: int, factor: float) -> Kernel:
    """y = factor x."""
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, Out, Param, Param),
        bindings=((2, tile), (3, factor)),
        reference=lambda x, n, factor: float32(x) * np.float32(factor),
        elementwise=True,
        ops=tile,
    )
    return Kernel.inline("scale", _SCALE, (line, line, np.int32, np.float32), contract)
