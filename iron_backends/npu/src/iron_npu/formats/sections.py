"""What sections of an xclbin hold: memories, kernels' places and their arguments' memories (XRT's `xclbin.h`)."""

from __future__ import annotations

import re
import struct
from typing import Any, ClassVar, Self

import attrs

from iron_npu.errors import ImageError
from iron_npu.formats.fields import padded_text, text_of, wrong

#: Kinds of sections by their names, those that an NPU's xclbin has.
KINDS = {
    "EMBEDDED_METADATA": 2, "MEM_TOPOLOGY": 6, "CONNECTIVITY": 7, "IP_LAYOUT": 8, "GROUP_TOPOLOGY": 26, "GROUP_CONNECTIVITY": 27,
    "AIE_PARTITION": 32,
}  # fmt: skip
NAMES = {number: name for name, number in KINDS.items()}
#: Bytes of the largest XML that is looked into.
LARGEST_XML = 1 << 20


def kind_name(kind: int) -> str:
    return NAMES.get(kind, str(kind))


class Rows:
    """A section that counts its rows: the count, padding, rows of one size each."""

    head: ClassVar[struct.Struct]
    row: ClassVar[struct.Struct]
    what: ClassVar[str]
    rows: tuple[Any, ...]

    @classmethod
    def read(cls, data: bytes | memoryview, base: int = 0) -> Self:
        """base: the byte of the file where the section begins. ImageError where it breaks a rule."""
        if len(data) < cls.head.size:
            raise wrong(base, f"{cls.what} of {len(data)} bytes; legal: at least {cls.head.size}")
        (count,) = cls.head.unpack_from(data)
        size = cls.head.size + count * cls.row.size
        if count < 0 or size != len(data):
            raise wrong(base, f"{cls.what} of {count} rows in {len(data)} bytes; legal: {cls.head.size} and {cls.row.size} for each row")
        places = range(cls.head.size, size, cls.row.size)
        return cls(tuple(cls.opened(cls.row.unpack_from(data, at), base + at) for at in places))  # type: ignore[call-arg]

    def write(self) -> bytes:
        """The section's bytes. ImageError for what its fields do not hold."""
        try:
            return self.head.pack(len(self.rows)) + b"".join(self.row.pack(*self.closed(one)) for one in self.rows)
        except struct.error as error:
            raise ImageError(f"{self.what}: {error}.") from None

    @classmethod
    def opened(cls, fields: tuple[Any, ...], at: int) -> Any:
        raise NotImplementedError

    def closed(self, one: Any) -> tuple[Any, ...]:
        raise NotImplementedError


@attrs.frozen
class Bank:
    """A memory. kind: 2 is host memory. size: in KiB. base: its first address."""

    tag: str
    size: int
    base: int = 0
    kind: int = 2
    used: int = 1


@attrs.frozen
class MemoryTopology(Rows):
    """The memories that kernels' arguments may lie in."""

    head, row, what = struct.Struct("<i4x"), struct.Struct("<BB6xQQ16s"), "a list of memories"
    rows: tuple[Bank, ...]

    @classmethod
    def opened(cls, fields: tuple[Any, ...], at: int) -> Bank:
        kind, used, size, base, tag = fields
        return Bank(text_of(tag, at + 24, "a memory's tag"), size, base, kind, used)

    def closed(self, one: Bank) -> tuple[Any, ...]:
        return one.kind, one.used, one.size, one.base, padded_text(one.tag, 16, "tag")


@attrs.frozen
class Place:
    """Where a kernel is. kind: 7 is one of the NPU's. properties: of these the kernel's id in bits 27..16, and 1, a DPU."""

    name: str
    kind: int = 7
    properties: int = 0
    base: int = (1 << 64) - 1

    @property
    def kernel_id(self) -> int:
        return self.properties >> 16 & 0xFFF


@attrs.frozen
class IpLayout(Rows):
    """The kernels."""

    head, row, what = struct.Struct("<i4x"), struct.Struct("<IIQ64s"), "a list of kernels"
    rows: tuple[Place, ...]

    @classmethod
    def opened(cls, fields: tuple[Any, ...], at: int) -> Place:
        kind, properties, base, name = fields
        return Place(text_of(name, at + 16, "a kernel's name"), kind, properties, base)

    def closed(self, one: Place) -> tuple[Any, ...]:
        return one.kind, one.properties, one.base, padded_text(one.name, 64, "name")


@attrs.frozen
class Connection:
    """An argument of a kernel lies in a memory: their numbers."""

    argument: int
    kernel: int
    memory: int


@attrs.frozen
class Connectivity(Rows):
    """Which memory each argument lies in."""

    head, row, what = struct.Struct("<i"), struct.Struct("<iii"), "a list of connections"
    rows: tuple[Connection, ...]

    @classmethod
    def opened(cls, fields: tuple[Any, ...], at: int) -> Connection:
        return Connection(*fields)

    def closed(self, one: Connection) -> tuple[Any, ...]:
        return one.argument, one.kernel, one.memory


#: What reads a section, by its kind.
READERS: dict[int, type[Rows]] = {
    KINDS["MEM_TOPOLOGY"]: MemoryTopology, KINDS["GROUP_TOPOLOGY"]: MemoryTopology, KINDS["IP_LAYOUT"]: IpLayout,
    KINDS["CONNECTIVITY"]: Connectivity, KINDS["GROUP_CONNECTIVITY"]: Connectivity,
}  # fmt: skip

_KERNEL = re.compile(rb"<kernel\s[^<>]{0,4096}>")
_ARGUMENT = re.compile(rb"<arg\s[^<>]{0,4096}>")
_ATTRIBUTE = re.compile(rb"([A-Za-z-]{1,64})=\"([^\"<>]{0,1024})\"")


@attrs.frozen
class KernelMetadata:
    """A kernel as the metadata's XML has it: its attributes, and those of its arguments in order."""

    attributes: dict[str, str]
    arguments: tuple[dict[str, str], ...]

    @property
    def name(self) -> str:
        return self.attributes.get("name", "")


def kernels_of(xml: bytes | memoryview) -> tuple[KernelMetadata, ...]:
    """The kernels of a section EMBEDDED_METADATA. Tags are looked for, nothing else of the XML."""
    text = bytes(xml[:LARGEST_XML])
    starts = list(_KERNEL.finditer(text))
    found = []
    for number, tag in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        arguments = tuple(_attributes(one.group()) for one in _ARGUMENT.finditer(text, tag.end(), end))
        found.append(KernelMetadata(_attributes(tag.group()), arguments))
    return tuple(found)


def _attributes(tag: bytes) -> dict[str, str]:
    return {key.decode(): value.decode("utf-8", "backslashreplace") for key, value in _ATTRIBUTE.findall(tag)}
