"""`Packed`: the format of a B that lies as `flm.GEMM` reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from iron_core import BFP16EBS8, Format, PackedArray, bfloat16, round_to
from iron_core.declare.formats.numbers import real_numbers
from iron_core.errors import FormatError, ParamError
from iron_ops_flm.packing import BF16, BFP16, SHIPPED, Packing

_KINDS: dict[tuple[int, ...], str] = {BF16: "bf16", BFP16: "bfp16", SHIPPED: "shipped"}


@attrs.frozen
class Packed(Format):
    """A matrix (K, N) in the order of a `Packing`: bfloat16, or in the order BFP16 blocks of eight along K (bfp16ebs8).

    A matrix comes whole. Formats of other tiles are other formats, so a B that is packed for one is refused by the other.
    """

    packing: Packing = attrs.field(factory=Packing)

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"flm_{_KINDS[self.packing.order]}_{self.packing.k_tile}x{self.packing.tile_n}"

    @property
    def blocks(self) -> bool:
        """Do numbers share exponents?"""
        return self.packing.order == BFP16

    @property
    def streamed(self) -> np.dtype:
        return np.dtype(np.uint8) if self.blocks else bfloat16

    @property
    def block(self) -> tuple[int, int]:
        return self.packing.k_tile, self.packing.tile_n

    @property
    def block_bytes(self) -> int:
        numbers = self.packing.k_tile * self.packing.tile_n
        return BFP16EBS8.row_bytes(numbers) if self.blocks else numbers * bfloat16.itemsize

    @property
    def by_rows(self) -> bool:
        return False

    def unit(self, shape: tuple[int, ...]) -> tuple[int, int]:
        return shape[-2], shape[-1]

    def stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) < 2:
            raise FormatError(f"{self.name}: shape {tuple(shape)}; legal: (K, N).")
        *lead, down, across = super().stored(shape)
        return (*lead, down * across)

    def dequantize(self, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        data = PackedArray(data, shape, self).data
        matrices = [self._numbers(one) for one in data.reshape(-1, data.shape[-1])]
        return np.stack([self.packing.unpack(one, *shape[-2:]) for one in matrices]).reshape(shape)

    def _numbers(self, raw: np.ndarray) -> np.ndarray:
        """float32, as they lie."""
        if not self.blocks:
            return raw.view(bfloat16).astype(np.float32)
        return BFP16EBS8.dequantize(raw, (raw.size // BFP16EBS8.block_bytes * BFP16EBS8.block[1],))

    def quantize(self, values: Any, rounding: str = "conv_even") -> PackedArray:
        """Numbers (..., K, N), each rounded to bfloat16 or with its seven neighbours along K, packed.

        rounding: of blocks, as `iron.BFP16EBS8` has it.
        """
        values = real_numbers(values, f"{self.name}: quantize()")
        self.stored(values.shape)  # FormatError unless it is whole tiles
        matrices = [self.packing.pack(one) for one in values.reshape(-1, *values.shape[-2:])]
        raw = [BFP16EBS8.quantize(one, rounding).data if self.blocks else round_to(one, bfloat16).view(np.uint8) for one in matrices]
        return PackedArray(np.stack(raw), values.shape, self)

    # -- somebody else's packing ---------------------------------------------------------------------

    def check(self, pack: Callable[[np.ndarray], Any]) -> None:
        """ParamError unless a function packs as this format does: by what it makes of a known matrix, (2 k_tile, 2 tile_n)."""
        known = known_matrix(2 * self.packing.k_tile, 2 * self.packing.tile_n)
        made = _digest(pack(known))
        if made != _digest(self.quantize(known)):
            orders = [Packed(attrs.evolve(self.packing, order=order)) for order in _KINDS]
            names = {_digest(order.quantize(known)): f"the order of {order.name}" for order in orders}
            names |= {_digest(known): "the rows of (K, N), not packed", _digest(known.T): "the rows of (N, K), not packed"}
            raise ParamError(f"B is packed in {names.get(made, 'an order unknown here')}; legal: that of {self.name}, as pack_B() has it.")


def known_matrix(K: int, N: int) -> np.ndarray:
    """bfloat16 (K, N), in which no two orders look alike."""
    at = np.arange(K * N, dtype=np.int64) * 40503 % 65521 - 32760
    return round_to(at.astype(np.float64) / 4096, bfloat16).reshape(K, N)


def _digest(packed: Any) -> str:
    raw = np.ascontiguousarray(getattr(packed, "data", packed) if isinstance(packed, PackedArray) else packed)
    return hashlib.sha256(raw.tobytes()).hexdigest()
