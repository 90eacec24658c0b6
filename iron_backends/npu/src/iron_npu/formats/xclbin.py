"""xclbins: the container that XRT loads, its header, its sections and the mirror behind them (`axlf` of XRT's `xclbin.h`)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs

from iron_npu.errors import ImageError
from iron_npu.formats import mirror as mirrors
from iron_npu.formats.fields import padded_text, part, text_of, wrong
from iron_npu.formats.partition import Partition
from iron_npu.formats.sections import KINDS, READERS, KernelMetadata, Rows, kernels_of, kind_name

MAGIC = b"xclbin2\0"
#: Bytes of the largest file that is read; the most sections that a header counts.
LARGEST, MOST = 1 << 30, 0xFFFF
_HEAD = struct.Struct("<8si28s256sQQQQHBBHH16s64s16s16sI4s")
_ENTRY = struct.Struct("<I16s4sQQ")
_ALIGNMENT = 8
_LENGTH_AT, _VBNV_AT, _DEBUG_AT, _COUNT_AT = 0x130, 0x160, 0x1B0, 0x1C0


@attrs.frozen
class XclbinHeader:
    """version: major, minor, patch. unique_id, timestamp and uuid are drawn anew by every build; an unsigned file's key block is ones."""

    unique_id: int = 0
    timestamp: int = 0
    feature_timestamp: int = 0
    version: tuple[int, int, int] = (2, 21, 75)
    mode: int = 0
    actions: int = 0
    interface: bytes = bytes(16)
    vbnv: str = ""
    uuid: bytes = bytes(16)
    debug_name: str = ""
    reserved: bytes = b"\xff" * 28
    key_block: bytes = b"\xff" * 256

    def texts(self) -> dict[str, str]:
        """As the mirror has them."""
        return {
            "Magic": MAGIC[:-1].decode(),
            "SignatureLength": struct.pack("<i", -1).hex(),
            "KeyBlock": self.key_block.hex(),
            "UniqueID": struct.pack("<Q", self.unique_id).hex(),
            "TimeStamp": str(self.timestamp),
            "FeatureRomTimeStamp": str(self.feature_timestamp),
            "Version": ".".join(map(str, self.version)),
            "Mode": str(self.mode),
            "InterfaceUUID": self.interface.hex(),
            "PlatformVBNV": self.vbnv,
            "XclBinUUID": self.uuid.hex(),
            "DebugBin": self.debug_name,
        }


@attrs.frozen
class Section:
    """A section: its kind's number, its name, often empty, and its bytes. offset: where it began in the file it was read from."""

    kind: int
    data: bytes
    name: str = ""
    offset: int = attrs.field(default=0, eq=False)


@attrs.frozen
class XclbinFile:
    """A header and sections in the order of the file. mirror: the bytes between its markers; None where there are none.

    Sections follow the table one by one, at multiples of 8 with zeros between, as XRT's writer has them.
    """

    header: XclbinHeader
    sections: tuple[Section, ...]
    mirror: bytes | None = None

    @classmethod
    def read(cls, data: bytes | memoryview) -> XclbinFile:
        """The file of these bytes. ImageError names the byte where it breaks a rule. What sections hold is read by others."""
        view = memoryview(data)
        if len(view) > LARGEST:
            raise ImageError(f"{len(view)} bytes; legal: an xclbin of at most {LARGEST}.")
        if bytes(view[: len(MAGIC)]) != MAGIC:
            raise wrong(0, f"it begins {bytes(view[: len(MAGIC)])!r}; legal: {MAGIC!r}")
        fields = _HEAD.unpack(part(view, 0, _HEAD.size, "the header"))
        _, signature, reserved, key, unique, length, timestamp, feature, patch, major, minor = fields[:11]
        mode, actions, interface, vbnv, uuid, debug, count, padding = fields[11:]
        if length != len(view):
            raise wrong(_LENGTH_AT, f"the header says {length} bytes; legal: the file's {len(view)}")
        if signature != -1:
            raise wrong(len(MAGIC), f"a signature of {signature} bytes; legal: -1, none")
        if any(padding):
            raise wrong(_COUNT_AT + 4, f"{padding.hex()} behind the count of sections; legal: zeros")
        header = XclbinHeader(
            unique, timestamp, feature, (major, minor, patch), mode, actions, interface, text_of(vbnv, _VBNV_AT, "the platform's name"),
            uuid, text_of(debug, _DEBUG_AT, "the debug file's name"), reserved, key,
        )  # fmt: skip
        if not 1 <= count <= MOST:
            raise wrong(_COUNT_AT, f"{count} sections; legal: 1 to {MOST}")
        part(view, _HEAD.size, count * _ENTRY.size, f"the table of {count} sections")
        sections, end = _sections(view, count)
        rest = bytes(view[end:])
        if not rest:
            return cls(header, sections)
        if not rest.startswith(mirrors.START) or not rest.endswith(mirrors.END) or len(rest) < len(mirrors.START) + len(mirrors.END):
            raise wrong(end, f"{len(rest)} bytes behind the last section that are no mirror; legal: a mirror between its markers, or none")
        return cls(header, sections, rest[len(mirrors.START) : -len(mirrors.END)])

    def write(self) -> bytes:
        """The file's bytes. ImageError for what its fields do not hold."""
        h = self.header
        if not 1 <= len(self.sections) <= MOST:
            raise ImageError(f"{len(self.sections)} sections; legal: 1 to {MOST}.")
        table, bodies = b"", b""
        first = _HEAD.size + _ENTRY.size * len(self.sections)
        try:
            for one in self.sections:
                bodies += bytes(-(first + len(bodies)) % _ALIGNMENT)
                place = first + len(bodies)
                table += _ENTRY.pack(one.kind, padded_text(one.name, 16, "a section's name"), bytes(4), place, len(one.data))
                bodies += one.data
            rest = b"" if self.mirror is None else mirrors.START + self.mirror + mirrors.END
            texts = padded_text(h.vbnv, 64, "the platform's name"), padded_text(h.debug_name, 16, "the debug file's name")
            for what, value, size in (("interface", h.interface, 16), ("uuid", h.uuid, 16), ("reserved", h.reserved, 28)):
                if len(value) != size:
                    raise ImageError(f"{what} of {len(value)} bytes; legal: {size}.")
            major, minor, patch = h.version
            head = _HEAD.pack(
                MAGIC, -1, h.reserved, h.key_block, h.unique_id, first + len(bodies) + len(rest), h.timestamp, h.feature_timestamp,
                patch, major, minor, h.mode, h.actions, h.interface, texts[0], h.uuid, texts[1], len(self.sections), bytes(4),
            )  # fmt: skip
        except struct.error as error:
            raise ImageError(f"an xclbin: {error}.") from None
        return head + table + bodies + rest

    def mirrored(self) -> XclbinFile:
        """The same file with a mirror that agrees with it."""
        plain = XclbinFile.read(attrs.evolve(self, mirror=None).write())
        raw = mirrors.written(plain.header.texts(), plain._listed())
        return attrs.evolve(plain, mirror=raw[len(mirrors.START) : -len(mirrors.END)])

    def disagreements(self) -> Iterator[str]:
        """A line for each thing that the mirror says otherwise than the file, or one that there is no mirror."""
        if self.mirror is None:
            yield "no mirror behind the sections"
        else:
            yield from mirrors.disagreements(self.mirror, self.header.texts(), self._listed())

    def _listed(self) -> list[tuple[int, str, int, bytes]]:
        return [(one.kind, one.name, one.offset, one.data) for one in self.sections]

    def section(self, name: str) -> Section | None:
        """The section of a kind, by the kind's name; None where there is none."""
        return next((one for one in self.sections if one.kind == KINDS[name]), None)

    def rows(self, name: str) -> Rows | None:
        """What a section of memories, kernels or connections holds. ImageError where it breaks a rule."""
        one = self.section(name)
        return None if one is None else READERS[one.kind].read(one.data, one.offset)

    def partition(self) -> Partition | None:
        """What the section AIE_PARTITION holds. ImageError where it breaks a rule."""
        one = self.section("AIE_PARTITION")
        return None if one is None else Partition.read(one.data, one.offset)

    def kernels(self) -> tuple[KernelMetadata, ...]:
        """The kernels that the metadata tells of."""
        one = self.section("EMBEDDED_METADATA")
        return () if one is None else kernels_of(one.data)


def _sections(view: memoryview, count: int) -> tuple[tuple[Section, ...], int]:
    """The sections of a table, and where the last one ends."""
    found: list[Section] = []
    seen: set[int] = set()
    end = _HEAD.size + count * _ENTRY.size
    for number in range(count):
        at = _HEAD.size + number * _ENTRY.size
        kind, name, padding, offset, size = _ENTRY.unpack_from(view, at)
        if any(padding):
            raise wrong(at + 20, f"section {number} has {padding.hex()} behind its name; legal: zeros")
        if kind in seen:
            raise wrong(at, f"section {number} is a second {kind_name(kind)}; legal: one of a kind")
        seen.add(kind)
        begin = end + -end % _ALIGNMENT
        if offset != begin:
            raise wrong(at + 24, f"section {number}, {kind_name(kind)}, begins at {offset:#x}; legal: {begin:#x}, behind the one before")
        if size > len(view) - offset:
            raise wrong(at + 32, f"section {number}, {kind_name(kind)}, has {size} bytes; legal: at most {max(0, len(view) - offset)}")
        if any(view[end:begin]):
            raise wrong(end, f"bytes in front of section {number} that are no section's; legal: zeros")
        found.append(Section(kind, bytes(view[offset : offset + size]), text_of(name, at + 4, "a section's name"), offset))
        end = offset + size
    return tuple(found), end
