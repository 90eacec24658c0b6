"""The kernels of rowwise arrays, with what each promises. mlir-aie hosts them in `aie.iron.kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, InOut, Kernel, KernelContract, Loop, ObjectType, Out, Param, Tolerance, bfloat16, round_to
from iron_core.array.numbers import float32

#: The smallest normal bfloat16: below it the devices give zero.
SMALLEST = 2.0**-126
#: log2 e, and the lowest number, as the kernels of Softmax have them: in bfloat16.
LOG2E, LOWEST = 1.4453125, -(2 - 2.0**-7) * 2.0**127


def rms_norm(cols: int, epsilon: float) -> Kernel:
    """y = x / sqrt(mean(x^2) + epsilon) of a row of `cols` bfloat16, the mean in float32; AIE2 comes within 1 ulp (measured)."""

    def reference(x: Any, n: int, epsilon: float) -> np.ndarray:
        wide = float32(x)
        with np.errstate(invalid="ignore", divide="ignore"):
            return wide / np.sqrt((wide * wide).mean() + np.float32(epsilon))

    row = ObjectType.of(cols, bfloat16)
    contract = KernelContract(
        roles=(In, Out, Param, Param),
        bindings=((2, cols), (3, epsilon)),
        reference=reference,
        tolerance=Tolerance(terms=cols, ulps=1, absolute=SMALLEST),
        ops=4 * cols,
        # Squares added up, the root of their mean, and the row again.
        loops=(Loop(times=-(-cols // 16), reads=32, chain=2), Loop(times=1, chain=8), Loop(times=-(-cols // 16), reads=32, writes=32)),
    )
    return Kernel.factory("norm.rms_norm_eps", (row, row, np.int32, np.float32), contract, tile_size=cols)


def softmax(cols: int) -> Kernel:
    """The first n of a row of `cols` bfloat16 become powers of two of (x - max) log2 e, over their sum; the rest stays.

    As AIE2P computes: log2 e is held in bfloat16; the powers, one over their sum, and the quotients are rounded to bfloat16.
    """

    def reference(x: Any, y: Any, n: int) -> np.ndarray:
        out = float32(y).reshape(-1).copy()
        counted = float32(x).reshape(-1)[:n]
        with np.errstate(over="ignore"):
            exponents = counted * np.float32(LOG2E) - counted.max() * np.float32(LOG2E)
        powers = float32(round_to(np.exp2(exponents), bfloat16))
        out[:n] = powers * float32(round_to(1 / powers.sum(), bfloat16))
        return out

    row = ObjectType.of(cols, bfloat16)
    contract = KernelContract(roles=(In, InOut, Param), reference=reference, tolerance=Tolerance(terms=cols, ulps=4), ops=4 * cols)
    return Kernel.factory("activation.softmax", (row, row, np.int32), contract, tile_size=cols)


def mask(cols: int) -> Kernel:
    """Numbers `first` to before `last` of a row become the lowest bfloat16, whose power is 0. Of the softmax's object."""

    def reference(x: Any, first: int, last: int) -> np.ndarray:
        out = float32(x).reshape(-1).copy()
        out[first:last] = LOWEST
        return out

    contract = KernelContract(roles=(InOut, Param, Param), reference=reference, tolerance=Tolerance(exact=True), ops=0)
    row = ObjectType.of(cols, bfloat16)
    return Kernel.factory("activation.softmax", (row, np.int32, np.int32), contract, symbol="mask_bf16", tile_size=cols)


def rope(cols: int, halves: bool) -> Kernel:
    """A row of `cols` bfloat16, each pair turned by its (cosine, sine), interleaved in the second row; rounded once.

    halves: number i pairs with i + cols / 2; otherwise neighbours pair.
    """

    def reference(x: Any, angles: Any, n: int) -> np.ndarray:
        wide, table = float32(x).reshape(-1), float32(angles).reshape(-1)
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
        # 16 pairs a turn: both rows in, apart into their parts; a product, and one that is added to it, for each of the two.
        loops=(Loop(times=-(-cols // 32), reads=128, writes=64, chain=2, scalar=2),),
    )
    return Kernel.factory("datamovement.rope", (row, row, row, np.int32), contract, tile_size=cols, two_halves=halves)
