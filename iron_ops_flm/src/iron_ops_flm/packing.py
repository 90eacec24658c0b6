"""In which order `flm.GEMM` reads B: what `pack_B` and `flm.DequantBFP` make, and a downloaded overlay's own."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core.errors import ParamError

#: Rows of K that a core takes at a time, for each width of C that it makes: others build and run, and are wrong.
CT_K = {16: 16, 32: 32, 64: 128, 128: 32}
#: Rows and columns of one step of a core's multiplier.
STEP = 8

#: Orders of B's axes, slowest first, once K is cut into (K / k_tile, k_tile / ct_k, ct_k / 8, 8) and N into
#: (N / tile_n, tile_n / 8, 8): axes 0 to 3 and 4 to 6.
BF16 = (4, 0, 1, 5, 2, 3, 6)
#: Eight consecutive k of one n are neighbours, to share an exponent; of eight n the values would differ more.
BFP16 = (4, 0, 1, 5, 2, 6, 3)
#: That of FastFlowLM's own overlay, in bfloat16.
SHIPPED = (4, 0, 1, 5, 3, 2, 6)


@attrs.frozen
class Packing:
    """How B, (K, N), is cut and walked. `order`: BF16, BFP16 or SHIPPED. ParamError for a width that has no `CT_K`, or a k_tile
    that is not whole cores' shares."""

    order: tuple[int, ...] = BF16
    tile_n: int = 64
    k_tile: int = 512

    def __attrs_post_init__(self) -> None:
        if self.tile_n not in CT_K:
            raise ParamError(f"tile_n={self.tile_n}; legal: {', '.join(map(str, CT_K))}.")
        if self.k_tile < 1 or self.k_tile % self.ct_k:
            raise ParamError(f"k_tile={self.k_tile}; legal with tile_n={self.tile_n}: a multiple of {self.ct_k}.")

    @property
    def ct_k(self) -> int:
        """Rows of K that a core takes at a time."""
        return CT_K[self.tile_n]

    def cut(self, K: int, N: int) -> tuple[int, ...]:
        """The sizes of the seven axes. ParamError where K or N is not whole tiles."""
        for name, size, tile in (("K", K, self.k_tile), ("N", N, self.tile_n)):
            if size < 1 or size % tile:
                raise ParamError(f"{name}={size}; legal: a multiple of {tile}.")
        return K // self.k_tile, self.k_tile // self.ct_k, self.ct_k // STEP, STEP, N // self.tile_n, self.tile_n // STEP, STEP

    def pack(self, B: Any) -> np.ndarray:
        """B, (K, N), in this order: flat, K * N numbers of its dtype."""
        return np.reshape(B, self.cut(*np.shape(B))).transpose(self.order).reshape(-1)

    def unpack(self, packed: Any, K: int, N: int) -> np.ndarray:
        """B, (K, N), of what `pack` made."""
        sizes = self.cut(K, N)
        walked = np.reshape(packed, [sizes[axis] for axis in self.order])
        return walked.transpose(np.argsort(self.order)).reshape(K, N)
