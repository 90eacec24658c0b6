"""Bits of 32-bit words by name, and bytes that are read without trusting a length."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from iron_core.devices import WORD
from iron_npu.errors import ImageError

ONES = 0xFFFFFFFF


def wrong(at: int, rule: str) -> ImageError:
    """What is wrong at a byte of a file."""
    return ImageError(f"byte {at:#x}: {rule}.")


@attrs.frozen
class Field:
    """`bits` bits from bit `low` of word `word` on; 64 are two words, the low one first."""

    name: str
    word: int
    low: int = 0
    bits: int = 32

    def get(self, words: Sequence[int]) -> int:
        value = words[self.word] >> self.low
        if self.bits == 64:
            value |= words[self.word + 1] << 32
        return value & (1 << self.bits) - 1

    def put(self, words: list[int], value: int) -> None:
        """ImageError for a number that these bits do not hold."""
        if type(value) is not int or not 0 <= value < 1 << self.bits:
            raise ImageError(f"{self.name}={value!r}: {self.bits} bits hold it; legal: 0 to {(1 << self.bits) - 1}.")
        words[self.word] |= value << self.low & ONES
        if self.bits == 64:
            words[self.word + 1] |= value >> 32


def unused(fields: Iterable[Field], count: int) -> list[int]:
    """For each of `count` words a mask of the bits that no field has."""
    masks = [ONES] * count
    for field in fields:
        for k in range(-(-field.bits // 32)):
            width = min(field.bits - 32 * k, 32)
            masks[field.word + k] &= ~((1 << width) - 1 << (field.low if k == 0 else 0)) & ONES
    return masks


def packed(fields: Iterable[Field], values: Mapping[str, Any], count: int) -> list[int]:
    """`count` words with these values in the fields, 0 elsewhere."""
    words = [0] * count
    for field in fields:
        field.put(words, values[field.name])
    return words


def words_of(data: bytes | memoryview) -> tuple[int, ...]:
    """The 32-bit words of bytes, little-endian; the rest of a last one is left out."""
    count = len(data) // WORD
    return struct.unpack_from(f"<{count}I", data)


def bytes_of(words: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def part(data: memoryview, at: int, size: int, what: str, base: int = 0) -> memoryview:
    """`size` bytes from `at` on. ImageError unless they are there. base: where `data` begins in its file."""
    if at < 0 or size < 0 or at + size > len(data):
        raise wrong(base + min(at, len(data)), f"{what} is bytes {at:#x} to {at + size:#x} of {len(data):#x}; legal: inside")
    return data[at : at + size]


def text_of(raw: bytes | memoryview, at: int, what: str) -> str:
    """A text that ends with a NUL in its field. ImageError for one that does not, or is no UTF-8."""
    found = bytes(raw)
    end = found.find(0)
    if end < 0:
        raise wrong(at, f"{what} has no end: {len(found)} bytes without a NUL; legal: at most {len(found) - 1} and a NUL")
    if any(found[end:]):
        raise wrong(at + end, f"{what} goes on behind its NUL; legal: zeros")
    try:
        return found[:end].decode()
    except UnicodeDecodeError:
        raise wrong(at, f"{what} is {found[:end]!r}; legal: UTF-8") from None


def padded_text(text: str, size: int, what: str) -> bytes:
    """A text with its NUL in a field of `size` bytes. ImageError for one that does not fit or has a NUL in it."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) >= size or 0 in raw:
        raise ImageError(f"{what}={text!r}: {len(raw)} bytes; legal: at most {size - 1}, none of them NUL.")
    return raw.ljust(size, b"\0")
