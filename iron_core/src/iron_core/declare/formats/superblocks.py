"""GGUF's blocks that planes do not describe: K-quants, superblocks of 256 numbers whose scales are themselves integers with a scale, and
those whose integers are places in a table. They are only read."""

from __future__ import annotations

import math

import attrs
import numpy as np

from iron_core.declare.formats.format import Format, PackedArray


@attrs.frozen
class SuperBlock(Format):
    """Rows cut into (super)blocks of `columns` numbers in `block_bytes` bytes, `group` of which share a scale (and a minimum). `halves` are
    the byte offsets of their float16 scales; `size`: of random bits, how large integers times scales that are integers too, root
    mean square."""

    name: str
    block_bytes: int
    halves: tuple[int, ...]
    size: int
    group: int = 32
    columns: int = 256

    @property
    def runs_as(self) -> str:  # type: ignore[override]
        return self.name

    @property
    def block(self) -> tuple[int, int]:
        return 1, self.columns

    @property
    def scale_offsets(self) -> tuple[tuple[int, np.dtype], ...]:
        return tuple((at, np.dtype(np.float16)) for at in self.halves)

    def _parts(self, data: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """float32: integers (groups, group), and the scale and what is subtracted, if anything is, of each group (groups, 1)."""
        given = PackedArray(data, shape, self)  # FormatError for what stores no tensor
        blocks = np.ascontiguousarray(given.data).reshape(-1, self.block_bytes)
        with np.errstate(invalid="ignore", over="ignore"):  # scales that are no numbers are found elsewhere
            q, scales, *less = _READ[self.name](blocks)
        return q.reshape(-1, self.group), scales.reshape(-1, 1), less[0].reshape(-1, 1) if less else None

    def dequantize(self, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """float32 of the logical shape: integers times scale, less the minimum, each rounded to float32 as the `gguf` package does."""
        values, scales, less = self._parts(data, shape)
        with np.errstate(invalid="ignore", over="ignore"):
            values *= scales
            if less is not None:
                values -= less
        return values.reshape(shape)

    def drawn(self, rng: np.random.Generator, shape: tuple[int, ...], spread: float = 1.0) -> PackedArray:
        """Random bits, every one of which says something, and float scales of both signs that make numbers about the size of `spread`."""
        data = rng.integers(0, 256, self.stored(shape), np.uint8)
        blocks = data.reshape(-1, self.block_bytes)
        for at in self.halves:
            numbers = rng.choice([-1, 1], len(blocks)) * rng.uniform(0.5, 2, len(blocks)) * spread / self.size
            blocks[:, at : at + 2] = numbers.astype(np.float16)[:, None].view(np.uint8)
        if not self.halves:  # an exponent, of which any byte is one
            blocks[:, 0] = np.clip(rng.integers(123, 127, len(blocks)) + round(math.log2(spread)), 0, 254)
        return PackedArray(data, shape, self)

    def fields(self, data: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        q, scales, less = self._parts(data, shape)
        by_row = (*shape[:-1], shape[-1] // self.group)
        return q.astype(np.int32).reshape(shape), scales.reshape(by_row), None if less is None else -less.reshape(by_row)

    def __str__(self) -> str:
        return self.name


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """float32 (n, 1): the float16 at byte `at` of each block."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _six_bits(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eight scales and eight minima, 6 bits each, in 12 bytes (n, 12): float32 (n, 8) twice.

    Bytes 0 to 3 hold scales 0 to 3, bytes 4 to 7 minima 0 to 3; their upper two bits and the nibbles of bytes 8 to 11
    are scales (low nibble) and minima (high nibble) 4 to 7.
    """
    first, second, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, rest & 15 | first >> 6 << 4], 1)
    minima = np.concatenate([second & 63, rest >> 4 | second >> 6 << 4], 1)
    return scales.astype(np.float32), minima.astype(np.float32)


#: Integers of all groups, a scale of each, and perhaps what is subtracted.
_Parts = tuple[np.ndarray, ...]


def _scaled(blocks: np.ndarray, q: np.ndarray) -> _Parts:
    """q (n, 8, 32), and each group's scale and minimum."""
    scales, minima = _six_bits(blocks[:, 4:16])
    return q, _half(blocks, 0) * scales, _half(blocks, 2) * minima


def _q4_k(blocks: np.ndarray) -> _Parts:
    """Two groups of 32 share 32 bytes: the first in their low nibbles, the second in the high ones."""
    nibbles = blocks[:, 16:].reshape(-1, 4, 32)
    q = np.empty((len(blocks), 8, 32), np.float32)
    q[:, 0::2] = nibbles & 15
    q[:, 1::2] = nibbles >> 4
    return _scaled(blocks, q)


def _q5_k(blocks: np.ndarray) -> _Parts:
    """As Q4_K, the fifth bit of number i of group g in bit g of byte i of 32 bytes before the nibbles."""
    nibbles, high = blocks[:, 48:].reshape(-1, 4, 32), blocks[:, 16:48]
    q = np.empty((len(blocks), 8, 32), np.float32)
    for g in range(8):
        part = nibbles[:, g // 2] & 15 if g % 2 == 0 else nibbles[:, g // 2] >> 4
        q[:, g] = part | (high >> g & 1) << 4
    return _scaled(blocks, q)


def _q6_k(blocks: np.ndarray) -> _Parts:
    """Halves of 128 numbers: 64 bytes of low nibbles (numbers 0 to 63, then 64 to 127), 32 bytes with two more bits of
    four numbers each, 32 apart; int8 scales of 16 numbers; the float16 scale last. 32 is zero."""
    low, high = blocks[:, :128].reshape(-1, 2, 2, 32), blocks[:, 128:192].reshape(-1, 2, 32)
    q = np.empty((len(blocks), 2, 4, 32), np.float32)
    for part in range(4):
        nibble = low[:, :, part % 2] & 15 if part < 2 else low[:, :, part % 2] >> 4
        q[:, :, part] = nibble | (high >> 2 * part & 3) << 4
    q -= 32
    scales = _half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    return q, scales


def _two_bits(packed: np.ndarray) -> np.ndarray:
    """float32 (n, 8, 32): halves of 128 numbers in 32 bytes each, number i + 32 k of a half in bits 2 k of its byte i."""
    q = np.empty((len(packed), 2, 4, 32), np.float32)
    for k in range(4):
        q[:, :, k] = packed.reshape(-1, 2, 32) >> 2 * k & 3
    return q.reshape(-1, 8, 32)


def _q2_k(blocks: np.ndarray) -> _Parts:
    """Sixteen bytes of a 4-bit scale (low) and minimum (high) for 16 numbers each, the numbers, both float16 scales."""
    q, both = _two_bits(blocks[:, 16:80]), blocks[:, :16]
    return q, _half(blocks, 80) * (both & 15).astype(np.float32), _half(blocks, 82) * (both >> 4).astype(np.float32)


def _q3_k(blocks: np.ndarray) -> _Parts:
    """32 bytes of third bits (group g's in bit g; where it is not set, 4 is subtracted), the lower two bits, sixteen 6-bit
    scales less 32 in 12 bytes (nibbles of the first eight, then two bits each of the last four), the float16 scale."""
    q, third, packed = _two_bits(blocks[:, 32:96]), blocks[:, :32], blocks[:, 96:108]
    for g in range(8):
        q[:, g] -= 4 - (third >> g & 1) * 4
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], 1)
    high = np.concatenate([packed[:, 8:] >> 2 * k & 3 for k in range(4)], 1)
    scales = (low | high << 4).astype(np.float32) - 32
    return q, _half(blocks, 108) * scales


#: The numbers of the formats whose 4 bits are a place in a table; MXFP4's, which are floats of 4 bits, twice each.
_FLOATS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
_TABLE = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _table(packed: np.ndarray, table: np.ndarray = _TABLE) -> np.ndarray:
    """float32 (n, groups, 32) of bytes (n, groups, 16): the first 16 numbers in low nibbles, the others in high ones."""
    return table[np.concatenate([packed & 15, packed >> 4], -1)]


def _iq4_nl(blocks: np.ndarray) -> _Parts:
    """A float16 scale and 32 places in the table."""
    return _table(blocks[:, None, 2:]), _half(blocks, 0)


def _mxfp4(blocks: np.ndarray) -> _Parts:
    """An exponent e, and 32 floats of 4 bits: 2^(e - 128) times twice each."""
    return _table(blocks[:, None, 1:], _FLOATS), np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)


def _iq4_xs(blocks: np.ndarray) -> _Parts:
    """The float16 scale, eight 6-bit scales less 32 (two upper bits each in 2 bytes, nibbles in 4), 256 places in the table."""
    upper = np.ascontiguousarray(blocks[:, 2:4]).view("<u2")
    high = np.concatenate([upper >> 2 * g & 3 for g in range(8)], 1)
    low = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], -1).reshape(-1, 8)
    scales = (low | high << 4).astype(np.float32) - 32
    return _table(blocks[:, 8:].reshape(-1, 8, 16)), _half(blocks, 0) * scales


Q2_K = SuperBlock("q2_k", 84, (80, 82), 24, 16)
Q3_K = SuperBlock("q3_k", 110, (108,), 59, 16)
Q4_K = SuperBlock("q4_k", 144, (0, 2), 427)
Q5_K = SuperBlock("q5_k", 176, (0, 2), 850)
Q6_K = SuperBlock("q6_k", 210, (208,), 1780, 16)
IQ4_NL = SuperBlock("iq4_nl", 18, (0,), 90, columns=32)
IQ4_XS = SuperBlock("iq4_xs", 136, (0,), 1700)
MXFP4 = SuperBlock("mxfp4", 17, (), 1, columns=32)
#: All of them.
SUPERBLOCKS = (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4)
_READ = {
    **{"q2_k": _q2_k, "q3_k": _q3_k, "q4_k": _q4_k, "q5_k": _q5_k, "q6_k": _q6_k},
    **{"iq4_nl": _iq4_nl, "iq4_xs": _iq4_xs, "mxfp4": _mxfp4},
}
