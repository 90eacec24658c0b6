"""The kernels of elementwise arrays, with what each promises. mlir-aie hosts them in `aie.iron.kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16

#: Lines of `activation.sigmoid` are multiples of this many numbers.
SIGMOID_STEP = 32


def _float32(tile: Any) -> np.ndarray:
    return np.asarray(tile).astype(np.float32)


def add(tile: int) -> Kernel:
    """y = a + b on lines of `tile` bfloat16."""
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, In, Out, Param),
        bindings=((3, tile),),
        reference=lambda a, b, n: _float32(a) + _float32(b),
        elementwise=True,
        ops=tile,
    )
    return Kernel.factory("eltwise.add_sized", (line, line, line, np.int32), contract, tile_size=tile)


def relu(tile: int) -> Kernel:
    """y = max(x, 0) on lines of `tile` bfloat16."""
    line = ObjectType.of(tile, bfloat16)
    contract = KernelContract(
        roles=(In, Out, Param),
        bindings=((2, tile),),
        reference=lambda x, n: np.maximum(_float32(x), 0),
        tolerance=Tolerance(exact=True),
        elementwise=True,
        ops=tile,
    )
    return Kernel.factory("eltwise.relu_sized", (line, line, np.int32), contract, tile_size=tile)


def silu(tile: int) -> Kernel:
    """y = x / (1 + exp(-x)) on lines of `tile` bfloat16; devices come within 8 % of it (published bf16 tanh kernels)."""
    line = ObjectType.of(tile, bfloat16)

    def reference(x: Any, n: int) -> np.ndarray:
        wide = _float32(x)
        with np.errstate(over="ignore"):
            return wide / (1 + np.exp(-wide))

    contract = KernelContract(
        roles=(In, Out, Param), bindings=((2, tile),), reference=reference, elementwise=True, ops=4 * tile
    )
    return Kernel.factory("activation.silu_sized", (line, line, np.int32), contract, tile_size=tile)


def sigmoid(tile: int) -> Kernel:
    """y = 1 / (1 + exp(-x)) on lines of `tile` bfloat16, a multiple of `SIGMOID_STEP`; of a tanh's accuracy, as SiLU's."""
    line = ObjectType.of(tile, bfloat16)

    def reference(x: Any, n: int) -> np.ndarray:
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(-_float32(x)))

    contract = KernelContract(
        roles=(In, Out, Param), bindings=((2, tile),), reference=reference, elementwise=True, ops=4 * tile
    )
    return Kernel.factory("activation.sigmoid", (line, line, np.int32), contract, tile_size=tile)
