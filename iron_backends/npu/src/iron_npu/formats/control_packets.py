"""Control packets: words in a stream that a tile's control port makes writes and reads of registers of.

Bits of a packet's first word: 19..0 the register, 21..20 words less 1, 23..22 the operation, 28..24 the stream that the answer goes by.
Bit 31 makes the number of ones odd, as it does in the header of any packet of a packet-switched stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from iron_core.devices import ROW_SHIFT, WORD
from iron_npu.errors import ImageError
from iron_npu.formats.addresses import COLUMN_BITS, ROW_BITS
from iron_npu.formats.fields import ONES, Field, packed, unused, wrong

#: A write, a read whose words come back, a write that is answered.
OPERATIONS = WRITE, READ, ANSWERED = ("write", "read", "write-answered")
MOST = 4
_PARITY = 31
_FIELDS = (Field("address", 0, 0, ROW_SHIFT), Field("beats", 0, 20, 2), Field("operation", 0, 22, 2), Field("stream", 0, 24, 5))
_ROUTED = (Field("stream", 0, 0, 5), Field("type", 0, 12, 3), Field("row", 0, 16, ROW_BITS), Field("column", 0, 21, COLUMN_BITS))
#: Bits of either that mean nothing.
(_NOTHING,), (_NOTHING_ROUTED,) = unused(_FIELDS, 1), unused(_ROUTED, 1)


def with_parity(word: int) -> int:
    """The word with bit 31 set where the others' ones are even."""
    rest = word & ONES >> 1
    return rest | (rest.bit_count() + 1) % 2 << _PARITY


def _opened(word: int, fields: tuple[Field, ...], nothing: int, at: int, what: str) -> dict[str, int]:
    """The fields of a header. ImageError for parity that is even and for bits of `nothing`."""
    if word.bit_count() % 2 == 0:
        raise wrong(at, f"{what} {word:#010x} has {word.bit_count()} ones; legal: an odd number, by bit {_PARITY}")
    rest = word & nothing & ONES >> 1
    if rest:
        raise wrong(at, f"{what} has {rest:#010x} in bits that mean nothing; legal: 0")
    return {field.name: field.get([word]) for field in fields}


@attrs.frozen
class ControlPacket:
    """address: of the first register, a byte of the tile. data: what is written, none of a read. beats: words that are read.
    stream: the id of the stream that an answer goes by."""

    address: int
    data: tuple[int, ...] = ()
    operation: str = WRITE
    beats: int = 0
    stream: int = 0

    @property
    def length(self) -> int:
        """Registers that it is about."""
        return self.beats if self.operation == READ else len(self.data)

    def write(self) -> list[int]:
        """Its words. ImageError for what no packet holds."""
        if self.operation not in OPERATIONS:
            raise ImageError(f"operation {self.operation!r}; legal: {', '.join(OPERATIONS)}.")
        if not 1 <= self.length <= MOST or (self.data if self.operation == READ else self.beats):
            said = f"a {self.operation} of {len(self.data)} words and {self.beats} beats"
            raise ImageError(f"{said}; legal: 1 to {MOST} words, of a read as many beats.")
        if self.address % WORD:
            raise ImageError(f"register {self.address:#x}; legal: a multiple of {WORD}.")
        if any(not 0 <= n <= ONES for n in self.data):
            raise ImageError(f"data with a number outside 0 to {ONES}.")
        values = {"address": self.address, "beats": self.length - 1, "operation": OPERATIONS.index(self.operation), "stream": self.stream}
        return [with_parity(packed(_FIELDS, values, 1)[0]), *self.data]


@attrs.frozen
class PacketHeader:
    """The word in front of a packet in a packet-switched stream: its stream's id, its type, and the tile that it comes from."""

    stream: int
    type: int = 0
    column: int = 0
    row: int = 0

    @classmethod
    def read(cls, word: int, at: int = 0) -> PacketHeader:
        return cls(**_opened(word, _ROUTED, _NOTHING_ROUTED, at, "a packet's header"))

    def write(self) -> int:
        return with_parity(packed(_ROUTED, attrs.asdict(self), 1)[0])


def read_packets(words: Sequence[int]) -> Iterator[ControlPacket]:
    """The control packets that follow one another in words. ImageError names the byte where one breaks a rule."""
    at = 0
    while at < len(words):
        given = _opened(words[at], _FIELDS, _NOTHING, WORD * at, "a control packet's header")
        if given["operation"] >= len(OPERATIONS):
            raise wrong(WORD * at, f"operation {given['operation']}; legal: 0 to {len(OPERATIONS) - 1}, {', '.join(OPERATIONS)}")
        if given["address"] % WORD:
            raise wrong(WORD * at, f"register {given['address']:#x}; legal: a multiple of {WORD}")
        operation, beats = OPERATIONS[given["operation"]], given["beats"] + 1
        count = 0 if operation == READ else beats
        if at + 1 + count > len(words):
            raise wrong(WORD * at, f"a {operation} of {count} words, and {len(words) - at - 1} are left")
        data = tuple(words[at + 1 : at + 1 + count])
        yield ControlPacket(given["address"], data, operation, beats if operation == READ else 0, given["stream"])
        at += 1 + count
