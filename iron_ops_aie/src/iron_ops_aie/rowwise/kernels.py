"""The kernels of rowwise arrays, with what each promises. mlir-aie hosts them in `aie.iron.kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, Param, Tolerance, bfloat16

#: The smallest normal bfloat16: below it the devices give zero.
SMALLEST = 2.0**-126


def _float32(tile: Any) -> np.ndarray:
    return np.asarray(tile).astype(np.float32)


def rms_norm(cols: int, epsilon: float) -> Kernel:
    """y = x / sqrt(mean(x^2) + epsilon) of a row of `cols` bfloat16, the mean in float32; AIE2 comes within 1 ulp (measured)."""

    def reference(x: Any, n: int, epsilon: float) -> np.ndarray:
        wide = _float32(x)
        with np.errstate(invalid="ignore", divide="ignore"):
            return wide / np.sqrt((wide * wide).mean() + np.float32(epsilon))

    row = ObjectType.of(cols, bfloat16)
    contract = KernelContract(
        roles=(In, Out, Param, Param),
        bindings=((2, cols), (3, epsilon)),
        reference=reference,
        tolerance=Tolerance(terms=cols, ulps=1, absolute=SMALLEST),
        ops=4 * cols,
    )
    return Kernel.factory("norm.rms_norm_eps", (row, row, np.int32, np.float32), contract, tile_size=cols)


def rope(cols: int, halves: bool) -> Kernel:
    """A row of `cols` bfloat16, each pair turned by its (cosine, sine), interleaved in the second row; rounded once.

    halves: number i pairs with i + cols / 2; otherwise neighbours pair.
    """

    def reference(x: Any, angles: Any, n: int) -> np.ndarray:
        wide, table = _float32(x).reshape(-1), _float32(angles).reshape(-1)
        c, s = table[0::2], table[1::2]
        first, second = (slice(0, cols // 2), slice(cols // 2, cols)) if halves else (slice(0, cols, 2), slice(1, cols, 2))
        y = np.empty(cols, np.float32)
        y[first] = wide[first] * c - wide[second] * s
        y[second] = wide[first] * s + wide[second] * c
        return y

    row = ObjectType.of(cols, bfloat16)
    contract = KernelContract(
        roles=(In, In, Out, Param),
        bindings=((3, cols),),
        reference=reference,
        tolerance=Tolerance(terms=2),
        ops=3 * cols,
    )
    return Kernel.factory("datamovement.rope", (row, row, row, np.int32), contract, tile_size=cols, two_halves=halves)
