"""How two files of an image differ, on a ladder of what that means to whoever has one in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs

from iron_npu.errors import ImageError
from iron_npu.files.description import arguments, part_of
from iron_npu.files.opened import Opened
from iron_npu.formats.addresses import channel_at, descriptor_at, kind_of, split
from iron_npu.formats.fields import ONES
from iron_npu.formats.instructions import Stream
from iron_npu.formats.operations import Patch, UpdateRegister
from iron_npu.formats.parameters import ParameterTable
from iron_npu.formats.partition import Partition, PdiEntry
from iron_npu.formats.pdi import Command, Pdi, without_build
from iron_npu.formats.registers import RegisterModel, Transfer, interpret, same
from iron_npu.formats.sections import READERS, Rows, kind_name
from iron_npu.formats.xclbin import Section, XclbinFile

#: The rungs: the same but for what each build draws anew; other words for the same thing; it computes or moves something else; who
#: loads or runs it has to change.
VERDICTS = OK, REVIEW, KERNELS, FORMAT = ("OK", "REVIEW", "KERNELS", "FORMAT")
#: Tiles that a finding names.
_SHOWN = 6


@attrs.frozen
class Difference:
    """One difference, and the rung that it is on."""

    verdict: str
    what: str


def worst(findings: list[Difference]) -> str:
    """The verdict on two files: the highest rung of their differences."""
    return max((one.verdict for one in findings), key=VERDICTS.index, default=OK)


def compare(here: Opened, there: Opened) -> list[Difference]:
    """The differences of two files, the highest rung first."""
    if here.digest == there.digest:
        return []
    found: Iterator[Difference]
    match here.content, there.content:
        case XclbinFile() as a, XclbinFile() as b:
            found = _xclbins(a, b)
        case Stream() as a, Stream() as b:
            found = _streams(a, b)
        case ParameterTable() as a, ParameterTable() as b:
            found = _tables(a, b)
        case _:
            kinds = " and ".join(sorted({here.kind, there.kind}))
            found = iter([Difference(FORMAT, f"files of two kinds, {kinds}")])
    return sorted(found, key=lambda one: -VERDICTS.index(one.verdict))


def _said(what: str, a: Any, b: Any) -> str:
    return f"{what}: {a} and {b}"


# -- xclbins ---------------------------------------------------------------------------------------------


def _xclbins(a: XclbinFile, b: XclbinFile) -> Iterator[Difference]:
    anew = [name for name in ("unique_id", "timestamp", "uuid") if getattr(a.header, name) != getattr(b.header, name)]
    if anew:
        yield Difference(OK, f"drawn anew by each build: {', '.join(anew)}")
    for name in ("mode", "actions"):
        if getattr(a.header, name) != getattr(b.header, name):
            yield Difference(FORMAT, _said(name, getattr(a.header, name), getattr(b.header, name)))
    for name in ("version", "feature_timestamp", "interface", "vbnv", "debug_name", "reserved", "key_block"):
        if getattr(a.header, name) != getattr(b.header, name):
            yield Difference(REVIEW, f"the header's {name} differs")
    mine, yours = ({one.kind: one for one in file.sections} for file in (a, b))
    for kind in sorted(set(mine) ^ set(yours)):
        yield Difference(FORMAT, f"section {kind_name(kind)} is in one of them only")
    if list(mine) != list(yours) and set(mine) == set(yours):
        yield Difference(REVIEW, "the sections are in another order")
    for kind in mine:
        if kind in yours:
            yield from _sections(a, b, mine[kind], yours[kind])
    for one, other in ((a, b), (b, a)):
        if set(one.disagreements()) - set(other.disagreements()):
            yield Difference(REVIEW, f"the mirror of the {'first' if one is a else 'second'} says otherwise than its file")


def _sections(a: XclbinFile, b: XclbinFile, here: Section, there: Section) -> Iterator[Difference]:
    name = kind_name(here.kind)
    if here.name != there.name:
        yield Difference(REVIEW, _said(f"the name of section {name}", repr(here.name), repr(there.name)))
    if here.data == there.data:
        return
    try:
        if here.kind in READERS:
            yield _rows(name, *(READERS[here.kind].read(one.data, one.offset) for one in (here, there)))
        elif name == "AIE_PARTITION":
            yield from _partitions(*(Partition.read(one.data, one.offset) for one in (here, there)))
        elif name == "EMBEDDED_METADATA" and a.kernels() != b.kernels():
            yield Difference(FORMAT, "the kernels or their arguments differ in the metadata")
        else:
            yield Difference(REVIEW, f"section {name} differs")
    except ImageError as error:
        yield Difference(FORMAT, f"section {name} differs and is not read: {error}")


def _rows(name: str, a: Rows, b: Rows) -> Difference:
    """What a host binds by differs, or sizes and addresses alone."""

    def bound(rows: Rows) -> list[Any]:
        keys = ("tag", "name", "argument", "kernel", "memory", "kind", "used", "properties")
        return [tuple(getattr(row, key) for key in keys if hasattr(row, key)) for row in rows.rows]

    return Difference(FORMAT if bound(a) != bound(b) else REVIEW, f"section {name} differs")


def _partitions(a: Partition, b: Partition) -> Iterator[Difference]:
    for name in ("columns", "starts"):
        if getattr(a, name) != getattr(b, name):
            yield Difference(FORMAT, _said(name, getattr(a, name), getattr(b, name)))
    if len(a.pdis) != len(b.pdis) or any(one.groups != other.groups for one, other in zip(a.pdis, b.pdis, strict=False)):
        yield Difference(FORMAT, "the PDIs are of other groups or kernels")
    for name in ("name", "operations", "inference", "around"):
        if getattr(a, name) != getattr(b, name):
            yield Difference(REVIEW, _said(f"the partition's {name}", getattr(a, name), getattr(b, name)))
    for number, (one, other) in enumerate(zip(a.pdis, b.pdis, strict=False)):
        yield from _pdis(number, one, other)


def _pdis(number: int, a: PdiEntry, b: PdiEntry) -> Iterator[Difference]:
    if a.uuid != b.uuid:
        yield Difference(OK, f"drawn anew by each build: the uuid of PDI {number}")
    if a.image == b.image:
        return
    if without_build(a.image) == without_build(b.image):
        yield Difference(OK, f"drawn anew by each build: a word that nobody sets in PDI {number}")
        return
    try:
        here, there = Pdi.read(a.image), Pdi.read(b.image)
    except ImageError as error:
        yield Difference(FORMAT, f"PDI {number} differs and is not read: {error}")
        return
    if (here.id_code, here.extended, len(here.cdos)) != (there.id_code, there.extended, len(there.cdos)):
        yield Difference(FORMAT, f"PDI {number} is for another device or has other partitions")
    mine, yours = ([command for cdo in one.cdos for command in cdo.commands] for one in (here, there))
    words = _written(mine), _written(yours)
    for what, places in _where(*words).items():
        yield Difference(KERNELS, f"PDI {number}: {what} of {places} differs")
    waits = [[one for one in commands if not one.writes and one.name != "nop"] for commands in (mine, yours)]
    if waits[0] != waits[1]:
        yield Difference(KERNELS, f"PDI {number}: commands that do not write differ")
    elif words[0] == words[1]:
        yield Difference(REVIEW, f"PDI {number} is written otherwise, to the same effect")


def _written(commands: list[Command]) -> dict[int, tuple[int, int]]:
    """What registers are in the end: value and the bits that were written."""
    found: dict[int, tuple[int, int]] = {}
    for one in commands:
        for where, value, mask in one.writes:
            old, known = found.get(where, (0, 0))
            found[where] = old & ~mask & ONES | value & mask, known | mask
    return found


def _where(a: dict[int, Any], b: dict[int, Any]) -> dict[str, str]:
    """The tiles where two sets of registers differ, by part."""
    found: dict[str, Counter[str]] = {}
    for where in sorted(where for where in {*a, *b} if a.get(where) != b.get(where)):
        column, row, _ = split(where)
        found.setdefault(part_of(where), Counter())[f"{column},{row}"] += 1
    return {
        what: ", ".join(list(tiles)[:_SHOWN]) + (f" and {len(tiles) - _SHOWN} tiles more" if len(tiles) > _SHOWN else "")
        for what, tiles in found.items()
    }


# -- streams ---------------------------------------------------------------------------------------------


def _streams(a: Stream, b: Stream) -> Iterator[Difference]:
    if a.header != b.header:
        yield Difference(FORMAT, _said("the array", *(f"{h.family}, {h.columns} x {h.rows}" for h in (a.header, b.header))))
    if arguments(a) != arguments(b):
        yield Difference(FORMAT, _said("arguments", arguments(a), arguments(b)))
    if a.operations == b.operations:
        return
    try:
        (mine, here), (yours, there) = _effects(a), _effects(b)
    except ImageError as error:
        yield Difference(KERNELS, f"the operations differ: {error}")
        return
    if len(mine) != len(yours):
        yield Difference(KERNELS, _said("transfers and waits", len(mine), len(yours)))
    for number, (one, other) in enumerate(zip(mine, yours, strict=False)):
        if not same(one, other):
            shown = [step.spoken() if isinstance(step, Transfer) else step.line() for step in (one, other)]
            yield Difference(KERNELS, _said(f"step {number}", *shown))
            break
    else:
        if len(mine) == len(yours) and here == there:
            yield Difference(REVIEW, "the operations differ, to the same effect")
    if here != there:
        yield Difference(KERNELS, "what is written besides, or waited for, differs")


def _effects(stream: Stream) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A stream's steps, and the rest of what it does: words of other registers in the end, and operations that are no writes."""
    state = RegisterModel(stream.header.memory_rows)
    steps = interpret(stream, registers=state)
    besides = {}
    for where, value in state.words.items():
        _, row, offset = split(where)
        kind = kind_of(row, stream.header.memory_rows)
        if descriptor_at(kind, offset) is None and channel_at(kind, offset) is None:
            besides[where] = value
    kept = []
    for one in stream.operations:
        at_descriptor = isinstance(one, (Patch, UpdateRegister)) and not split(one.address)[1]
        if not at_descriptor and one.name not in ("write", "blockwrite", "maskwrite", "wait", "noop"):
            kept.append(one)
    return steps, (besides, tuple(kept))


# -- tables ----------------------------------------------------------------------------------------------


def _tables(a: ParameterTable, b: ParameterTable) -> Iterator[Difference]:
    mine, yours = ({entry.name: entry for entry in table.entries} for table in (a, b))
    for name in sorted(set(mine) ^ set(yours)):
        yield Difference(FORMAT, f"parameter {name} is in one of them only")
    for name in mine:
        if name in yours and mine[name] != yours[name]:
            yield Difference(FORMAT, f"parameter {name} has another word, type or kind")
    if mine == yours:
        yield Difference(REVIEW, "the same parameters in another order")
