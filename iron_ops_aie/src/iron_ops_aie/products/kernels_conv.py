"""The kernel of arrays that convolve, with what it promises. mlir-aie hosts it in `aie.iron.kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Kernel, KernelContract, ObjectType, Out, bfloat16
from iron_core.array.kernel import STACK

#: Rows that one call sums over, and numbers that channels are multiples of.
TAPS, VECTOR = 5, 32


def depthwise_row(channels: int, arch: str) -> Kernel:
    """y = w0 x0 + ... + w4 x4 of rows of `channels` bfloat16: float32 sums in this order, rounded once.

    The five rows of weights come first, then the five of x, the oldest first; behind y two limits that it does not clamp to.
    """

    def reference(*rows: Any) -> np.ndarray:
        wide = [np.asarray(row).astype(np.float32) for row in rows[: 2 * TAPS]]
        total = np.zeros(channels, np.float32)
        for weight, x in zip(wide[:TAPS], wide[TAPS:], strict=True):
            total += weight * x  # the products are exact
        return total

    contract = KernelContract(
        roles=(*(In,) * 2 * TAPS, Out, In, In), reference=reference, ops=2 * TAPS * channels, stack=_stack(channels, arch)
    )
    row, limit = ObjectType.of(channels, bfloat16), ObjectType.of(1, np.float32)
    return Kernel.factory(
        "conv.dwconv1d_channels_last",
        (*(row,) * 2 * TAPS, row, limit, limit),
        contract,
        symbol="dwconv1d_channels_last_k5_bf16",
        channels=channels,
        clamp=False,
    )


def _stack(channels: int, arch: str) -> int:
    """Bytes of stack that a call needs: mlir-aie measured them for its builds. That for aie2 is unrolled over all channels."""
    if arch == "aie2":
        return STACK if channels <= 384 else 9 * channels
    return 1280 if channels % 64 == 0 else STACK
