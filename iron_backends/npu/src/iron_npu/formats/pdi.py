"""PDIs, the files that configure an array, and the CDO version 2 commands in them (bootgen's Versal headers; XRT's CDO format)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs

from iron_core.devices import WORD
from iron_npu.errors import ImageError
from iron_npu.formats.addresses import spoken
from iron_npu.formats.fields import ONES, bytes_of, padded_text, part, text_of, words_of, wrong

#: What a PDI begins with, and what identifies its header ("PPDI").
SYNC = bytes.fromhex("dd0000004433221188776655ccbbaa99")
_IDENTIFIED, _VERSION = 0x49445050, 0x00040000
#: Bytes of its headers; the word of an image's header that builds leave unset, and its checksum's.
_TABLE, _IMAGE, _PARTITION = 128, 64, 128
UNSET, CHECKSUM = 0x08, 0x3C
#: Of CDO: what its header begins with, words of it, the version read.
_CDO_WORDS, _CDO_MARK, _CDO_VERSION = 4, 0x004F4443, 0x200
_CDO_HEAD = 5
#: A command's payload is so long at most that its first word says it; longer ones have a word for it.
_SHORT = 254
_LONG = 0xFF
#: Commands by their code.
MASK_POLL, MASK_WRITE, WRITE, DELAY, DMA_WRITE, NOP = 0x101, 0x102, 0x103, 0x104, 0x105, 0x111
NAMES = {MASK_POLL: "mask-poll", MASK_WRITE: "mask-write", WRITE: "write", DELAY: "delay", DMA_WRITE: "dma-write", NOP: "nop"}
#: Words that a command has at least.
_LEAST = {MASK_POLL: 3, MASK_WRITE: 3, WRITE: 2, DELAY: 1, DMA_WRITE: 2}


@attrs.frozen
class Command:
    """One command: its code (the module's number and its own) and its words. long: the length has a word of its own."""

    code: int
    words: tuple[int, ...] = ()
    long: bool = False

    @property
    def name(self) -> str:
        return NAMES.get(self.code, f"command {self.code:#x}")

    @property
    def writes(self) -> tuple[tuple[int, int, int], ...]:
        """(address, value, mask) of the registers that it writes."""
        if self.code == WRITE:
            return ((self.words[0], self.words[1], ONES),)
        if self.code == MASK_WRITE:
            return ((self.words[0], self.words[2], self.words[1]),)
        if self.code == DMA_WRITE:
            return tuple((self.words[1] + WORD * k & ONES, value, ONES) for k, value in enumerate(self.words[2:]))
        return ()

    def line(self) -> str:
        if self.code == DMA_WRITE:
            return f"{self.name} {spoken(self.words[1])}, {len(self.words) - 2} words"
        if self.code == MASK_WRITE:
            return f"{self.name} {spoken(self.words[0])} = {self.words[2]:#x} where {self.words[1]:#x}"
        if self.code == WRITE:
            return f"{self.name} {spoken(self.words[0])} = {self.words[1]:#x}"
        return f"{self.name} {' '.join(f'{n:#x}' for n in self.words)}".rstrip()


@attrs.frozen
class Cdo:
    """Commands in order. checksum: of the header, None where it is right."""

    commands: tuple[Command, ...]
    checksum: int | None = None

    @classmethod
    def read(cls, words: tuple[int, ...], base: int = 0) -> Cdo:
        """base: the byte of the first word. Words behind its own are not looked at. ImageError where it breaks a rule."""
        if len(words) < _CDO_HEAD:
            raise wrong(base, f"a CDO of {len(words)} words; legal: at least the header's {_CDO_HEAD}")
        head, mark, version, length, checksum = words[:_CDO_HEAD]
        if (head, mark, version) != (_CDO_WORDS, _CDO_MARK, _CDO_VERSION):
            legal = f"{_CDO_WORDS}, {_CDO_MARK:#x}, {_CDO_VERSION:#x}"
            raise wrong(base, f"a CDO that begins {head}, {mark:#x}, {version:#x}; legal: {legal}, version 2")
        if length > len(words) - _CDO_HEAD:
            raise wrong(base + 12, f"a CDO of {length} words behind its header; legal: at most {len(words) - _CDO_HEAD}, which there are")
        commands = tuple(_commands(words[: _CDO_HEAD + length], base))
        right = ~sum(words[:_CDO_WORDS]) & ONES
        return cls(commands, None if checksum == right else checksum)

    def write(self) -> list[int]:
        """Its words. ImageError for a command that it does not hold."""
        words: list[int] = []
        for one in self.commands:
            if not 0 <= one.code <= 0xFFFF or any(not 0 <= n <= ONES for n in one.words):
                raise ImageError(f"{one.name}: a number that 16 bits (its code) or 32 (its words) do not hold.")
            if len(one.words) < _LEAST.get(one.code, 0) or (len(one.words) > _SHORT and not one.long):
                raise ImageError(f"{one.name} of {len(one.words)} words; legal: {_LEAST.get(one.code, 0)} to {_SHORT}, or long.")
            words += [one.code | _LONG << 16, len(one.words)] if one.long else [one.code | len(one.words) << 16]
            words += one.words
        head = [_CDO_WORDS, _CDO_MARK, _CDO_VERSION, len(words)]
        return [*head, ~sum(head) & ONES if self.checksum is None else self.checksum, *words]


def _commands(words: tuple[int, ...], base: int) -> Iterator[Command]:
    at = _CDO_HEAD
    while at < len(words):
        first, begin = words[at], at
        if first >> 24:
            raise wrong(base + WORD * at, f"a command that begins {first:#010x}; legal: 0 in its high byte")
        count, long = first >> 16 & _LONG, first >> 16 & _LONG == _LONG
        at += 1
        if long:
            if at == len(words):
                raise wrong(base + WORD * begin, "a command whose length is behind the end; legal: inside")
            count, at = words[at], at + 1
        code = first & 0xFFFF
        if count > len(words) - at or count < _LEAST.get(code, 0):
            name = NAMES.get(code, f"command {code:#x}")
            raise wrong(base + WORD * begin, f"{name} of {count} words; legal: {_LEAST.get(code, 0)} to {len(words) - at}, which are left")
        yield Command(code, words[at : at + count], long)
        at += count


@attrs.frozen
class Pdi:
    """A file that configures an array: the device's id, one image's name and the commands of its partitions.

    What its headers have besides is not kept: a file that is read and written is another one that does the same.
    """

    name: str
    cdos: tuple[Cdo, ...]
    id_code: int = 0x14CA8093
    extended: int = 1

    @classmethod
    def read(cls, data: bytes | memoryview, base: int = 0) -> Pdi:
        """base: the byte of the file where it begins. ImageError where it breaks a rule."""
        view = memoryview(data)
        if bytes(view[: len(SYNC)]) != SYNC:
            raise wrong(base, f"a PDI that begins {bytes(view[: len(SYNC)]).hex() or 'with nothing'}; legal: {SYNC.hex()}")
        table = part(view, len(SYNC), _TABLE, "a PDI's table of headers", base)
        _, images, image_at, count, partition_at, _, id_code = struct.unpack_from("<7I", table)
        (mark,), (extended,) = struct.unpack_from("<I", table, 0x28), struct.unpack_from("<I", table, 0x44)
        if mark != _IDENTIFIED:
            raise wrong(base + len(SYNC) + 0x28, f"a PDI identified by {mark:#010x}; legal: {_IDENTIFIED:#010x}")
        if images != 1:
            raise wrong(base + len(SYNC) + 4, f"a PDI of {images} images; legal: 1")
        image = part(view, WORD * image_at, _IMAGE, "the header of a PDI's image", base)
        name = text_of(image[0x10:0x20], base + WORD * image_at + 0x10, "the image's name")
        headers = part(view, WORD * partition_at, _PARTITION * count, "a PDI's table of partitions", base)
        cdos, left = [], len(view)
        for k in range(count):
            words, at = (struct.unpack_from("<I", headers, _PARTITION * k + offset)[0] for offset in (0x08, 0x20))
            body = part(view, WORD * at, WORD * words, f"partition {k} of a PDI", base)
            left -= len(body)
            if left < 0:
                raise wrong(base + WORD * at, f"partition {k} of a PDI has what others have; legal: partitions apart")
            cdos.append(Cdo.read(words_of(body), base + WORD * at))
        return cls(name, tuple(cdos), id_code, extended)

    def write(self) -> bytes:
        """A file with these commands. ImageError for what it does not hold."""
        bodies = [bytes_of(one.write()) for one in self.cdos]
        image_at = len(SYNC) + _TABLE
        partition_at = image_at + _IMAGE
        at = partition_at + _PARTITION * len(bodies)
        headers = b""
        for body in bodies:
            words = len(body) // WORD
            headers += struct.pack("<3I20xI88x", words, words, words, at // WORD) + bytes(4)
            at += len(body)
        table = bytearray(_TABLE)
        numbers = (_VERSION, 1, image_at // WORD, len(bodies), partition_at // WORD, 0, self.id_code)
        struct.pack_into("<7I", table, 0, *numbers)
        struct.pack_into("<I", table, 0x28, _IDENTIFIED)
        struct.pack_into("<I", table, 0x44, self.extended)
        image = struct.pack("<IIII", partition_at // WORD, len(bodies), 0, 0) + padded_text(self.name, 16, "the image's name")
        parts = (bytes(table), image.ljust(_IMAGE, b"\0"), *(headers[k : k + _PARTITION] for k in range(0, len(headers), _PARTITION)))
        return SYNC + b"".join(map(_summed, parts)) + b"".join(bodies)


def _summed(header: bytes) -> bytes:
    """A header with its checksum in its last word."""
    words = words_of(header)[:-1]
    return bytes_of([*words, ~sum(words) & ONES])


def without_build(data: bytes) -> bytes:
    """A PDI without what every build draws anew: the unset word of its image's header, and the checksum over that."""
    if data[: len(SYNC)] != SYNC or len(data) < len(SYNC) + _TABLE:
        return data
    (at,) = struct.unpack_from("<I", data, len(SYNC) + 8)
    masked = bytearray(data)
    for offset in (UNSET, CHECKSUM):
        place = WORD * at + offset
        if place + WORD <= len(data):
            masked[place : place + WORD] = bytes(WORD)
    return bytes(masked)
