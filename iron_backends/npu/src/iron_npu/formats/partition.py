"""The section AIE_PARTITION of an xclbin: the columns an image takes, and its PDIs (`aie_partition` of XRT's `xclbin.h`)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import attrs

from iron_npu.errors import ImageError
from iron_npu.formats.fields import part, text_of, wrong

_HEAD = struct.Struct("<B3xII4xQQH6xII72xII56x")
_PDI = struct.Struct("<16sIIII64x")
_GROUP = struct.Struct("<IB3xQIIII64x")
_COLUMN, _KERNEL, _BEFORE = struct.Struct("<H"), struct.Struct("<Q"), struct.Struct("<I")
_SCHEMA = 0
#: Bytes of the longest name that is looked for.
_LONGEST = 256


@attrs.frozen
class CdoGroup:
    """What a PDI does for some kernels. kind: 1 is the first to be loaded. before: ids of groups that are loaded before it."""

    name: str
    kind: int = 1
    pdi_id: int = 1
    kernels: tuple[int, ...] = ()
    before: tuple[int, ...] = ()


@attrs.frozen
class PdiEntry:
    """A PDI of the partition: its id of this build, its file, its groups."""

    uuid: bytes
    image: bytes
    groups: tuple[CdoGroup, ...] = ()


@attrs.frozen
class Partition:
    """columns: how many it takes. starts: the columns that it may start at. operations: per cycle, as a rate is made of."""

    name: str
    columns: int
    starts: tuple[int, ...]
    pdis: tuple[PdiEntry, ...]
    operations: int = 2048
    inference: int = 0
    around: int = 0

    @classmethod
    def read(cls, data: bytes | memoryview, base: int = 0) -> Partition:
        """base: the byte of the file where the section begins. ImageError where it breaks a rule."""
        return _Reader(memoryview(data), base).partition()

    def write(self) -> bytes:
        """The section's bytes, arrays at multiples of 8. ImageError for what its fields do not hold."""
        try:
            return _Writer().partition(self)
        except struct.error as error:
            raise ImageError(f"a partition: {error}.") from None


class _Reader:
    """Arrays are anywhere in the section; together they are no longer than it, so no two share what they have."""

    def __init__(self, data: memoryview, base: int) -> None:
        self.data, self.base = data, base
        self.left = len(data)

    def array(self, count: int, at: int, record: struct.Struct, what: str) -> Iterator[tuple[Any, ...]]:
        """The records of an array."""
        size = count * record.size
        self.take(size, at, what)
        return record.iter_unpack(part(self.data, at, size, what, self.base))

    def take(self, size: int, at: int, what: str) -> None:
        if size > self.left:
            raise wrong(self.base + min(at, len(self.data)), f"{what} has {size} bytes, and {self.left} are no other array's")
        self.left -= size

    def text(self, at: int, what: str) -> str:
        if not 0 <= at < len(self.data):
            raise wrong(self.base, f"{what} is at byte {at:#x} of {len(self.data):#x}; legal: inside")
        raw = bytes(self.data[at : at + _LONGEST])
        end = raw.find(0)
        return text_of(raw if end < 0 else raw[: end + 1], self.base + at, what)

    def partition(self) -> Partition:
        if len(self.data) < _HEAD.size:
            raise wrong(self.base, f"a partition of {len(self.data)} bytes; legal: at least {_HEAD.size}")
        self.left -= _HEAD.size
        schema, name, operations, inference, around, columns, starts, start_at, pdis, pdi_at = _HEAD.unpack_from(self.data)
        if schema != _SCHEMA:
            raise wrong(self.base, f"a partition of schema {schema}; legal: {_SCHEMA}")
        found = tuple(column for (column,) in self.array(starts, start_at, _COLUMN, "the list of start columns"))
        entries = tuple(self.pdi(*one) for one in list(self.array(pdis, pdi_at, _PDI, "the list of PDIs")))
        return Partition(self.text(name, "the partition's name"), columns, found, entries, operations, inference, around)

    def pdi(self, uuid: bytes, size: int, at: int, groups: int, group_at: int) -> PdiEntry:
        self.take(size, at, "a PDI")
        image = bytes(part(self.data, at, size, "a PDI", self.base))
        made = tuple(self.group(*one) for one in list(self.array(groups, group_at, _GROUP, "a PDI's list of groups")))
        return PdiEntry(uuid, image, made)

    def group(self, name: int, kind: int, pdi_id: int, kernels: int, kernel_at: int, before: int, before_at: int) -> CdoGroup:
        return CdoGroup(
            self.text(name, "a group's name"),
            kind,
            pdi_id,
            tuple(n for (n,) in self.array(kernels, kernel_at, _KERNEL, "a group's list of kernels")),
            tuple(n for (n,) in self.array(before, before_at, _BEFORE, "a group's list of groups before it")),
        )


class _Writer:
    """Arrays follow the head in the order they are met, a list before what its records point to."""

    def __init__(self) -> None:
        self.data = bytearray(_HEAD.size)

    def room(self, size: int) -> int:
        """Where `size` new bytes begin."""
        self.data += bytes(-len(self.data) % 8)
        at = len(self.data)
        self.data += bytes(size)
        return at

    def put(self, raw: bytes) -> int:
        at = self.room(len(raw))
        self.data[at : at + len(raw)] = raw
        return at

    def text(self, text: str) -> int:
        raw = text.encode("utf-8", "surrogatepass")
        if 0 in raw or len(raw) >= _LONGEST:
            raise ImageError(f"name {text!r}: {len(raw)} bytes; legal: at most {_LONGEST - 1}, none of them NUL.")
        return self.put(raw + b"\0")

    def partition(self, one: Partition) -> bytes:
        starts = self.put(b"".join(_COLUMN.pack(column) for column in one.starts))
        pdis = self.room(_PDI.size * len(one.pdis))
        for number, pdi in enumerate(one.pdis):
            image = self.put(pdi.image)
            groups = self.room(_GROUP.size * len(pdi.groups))
            for k, group in enumerate(pdi.groups):
                _GROUP.pack_into(self.data, groups + k * _GROUP.size, *self.group(group))
            if len(pdi.uuid) != 16:
                raise ImageError(f"a PDI's uuid of {len(pdi.uuid)} bytes; legal: 16.")
            _PDI.pack_into(self.data, pdis + number * _PDI.size, pdi.uuid, len(pdi.image), image, len(pdi.groups), groups)
        name = self.text(one.name)
        counts = (one.columns, len(one.starts), starts, len(one.pdis), pdis)
        _HEAD.pack_into(self.data, 0, _SCHEMA, name, one.operations, one.inference, one.around, *counts)
        return bytes(self.data)

    def group(self, one: CdoGroup) -> tuple[int, ...]:
        kernels = self.put(b"".join(_KERNEL.pack(n) for n in one.kernels))
        before = self.put(b"".join(_BEFORE.pack(n) for n in one.before))
        return self.text(one.name), one.kind, one.pdi_id, len(one.kernels), kernels, len(one.before), before
