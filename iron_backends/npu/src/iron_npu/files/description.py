"""What a file of an image holds, as facts for JSON; what is wrong in it is among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs

from iron_npu.errors import ImageError
from iron_npu.files.opened import Opened
from iron_npu.formats.addresses import kind_of, part, split
from iron_npu.formats.instructions import Stream
from iron_npu.formats.operations import Patch
from iron_npu.formats.parameters import ParameterTable
from iron_npu.formats.partition import PdiEntry
from iron_npu.formats.pdi import Cdo, Pdi
from iron_npu.formats.registers import interpret
from iron_npu.formats.sections import Rows, kind_name
from iron_npu.formats.xclbin import XclbinFile

Facts = dict[str, Any]


def described(file: Opened, *, full_elf: bool = False) -> Facts:
    """name, kind, bytes, digest and problems of a file, and what its kind has. full_elf: a stream is one's, not an xclbin's."""
    facts: Facts = {"name": file.name, "kind": file.kind, "bytes": file.nbytes, "sha256": file.digest}
    problems: list[str] = []
    match file.content:
        case XclbinFile() as one:
            facts |= _xclbin(one, problems)
        case Stream() as one:
            facts |= _stream(one, problems, full_elf)
        case ParameterTable() as one:
            facts["parameters"] = [attrs.asdict(entry) for entry in one.entries]
    return facts | {"problems": problems}


def _tried(problems: list[str], read: Callable[[], Any], instead: Any) -> Any:
    try:
        return read()
    except ImageError as error:
        problems.append(str(error))
        return instead


def _xclbin(one: XclbinFile, problems: list[str]) -> Facts:
    h = one.header
    header = {
        "version": ".".join(map(str, h.version)), "unique_id": f"{h.unique_id:016x}", "timestamp": h.timestamp, "uuid": h.uuid.hex(),
        "interface": h.interface.hex(), "platform": h.vbnv, "mode": h.mode, "actions": h.actions,
    }  # fmt: skip
    sections = [{"kind": kind_name(s.kind), "name": s.name, "offset": s.offset, "bytes": len(s.data)} for s in one.sections]
    facts: Facts = {"header": header, "sections": sections}
    for what, section in (("memories", "MEM_TOPOLOGY"), ("places", "IP_LAYOUT"), ("connections", "CONNECTIVITY")):
        found: Rows | None = _tried(problems, lambda section=section: one.rows(section), None)  # type: ignore[misc]
        facts[what] = [attrs.asdict(row) for row in found.rows] if found else []
    facts["kernels"] = [{**kernel.attributes, "arguments": list(kernel.arguments)} for kernel in one.kernels()]
    part = _tried(problems, one.partition, None)
    if part is None:
        problems.append("no section AIE_PARTITION that is read")
    else:
        facts["partition"] = {
            "name": part.name, "columns": part.columns, "starts": list(part.starts), "operations_per_cycle": part.operations,
            "pdis": [_pdi(pdi, problems) for pdi in part.pdis],
        }  # fmt: skip
    problems += one.disagreements()
    return facts


def _pdi(entry: PdiEntry, problems: list[str]) -> Facts:
    facts: Facts = {"uuid": entry.uuid.hex(), "bytes": len(entry.image), "groups": [attrs.asdict(group) for group in entry.groups]}
    pdi: Pdi | None = _tried(problems, lambda: Pdi.read(entry.image), None)
    if pdi is None:
        return facts
    if any(cdo.checksum is not None for cdo in pdi.cdos):
        problems.append("the checksum of a CDO's header is another one")
    commands = Counter(command.name for cdo in pdi.cdos for command in cdo.commands)
    return facts | {"name": pdi.name, "id_code": f"{pdi.id_code:#x}", "commands": dict(commands), "tiles": tiles(pdi.cdos)}


def tiles(cdos: tuple[Cdo, ...]) -> list[Facts]:
    """What is written on each tile: bytes of its program and of its memory, and words of its registers."""
    found: dict[tuple[int, int], Counter[str]] = {}
    for where in {where for cdo in cdos for command in cdo.commands for where, _, _ in command.writes}:
        column, row, _ = split(where)
        found.setdefault((column, row), Counter())[part_of(where)] += 1
    return [
        {"tile": f"{column},{row}", "program": 4 * n["program"], "memory": 4 * n["memory"], "registers": n["registers"]}
        for (column, row), n in sorted(found.items())
    ]


def part_of(where: int) -> str:
    """Of which part of its tile an address is: "program", "memory" or "registers"."""
    _, row, offset = split(where)
    return part(kind_of(row), offset)


def _stream(one: Stream, problems: list[str], full_elf: bool) -> Facts:
    steps = _tried(problems, lambda: interpret(one, folded=not full_elf), ())
    return {
        "family": one.header.family, "columns": one.header.columns, "rows": one.header.rows, "memory_rows": one.header.memory_rows,
        "operations": dict(Counter(operation.name for operation in one.operations)),
        "arguments": arguments(one), "steps": [step.spoken() if hasattr(step, "executions") else step.line() for step in steps],
    }  # fmt: skip


def arguments(one: Stream) -> list[int]:
    """The numbers of the arguments that a stream patches in."""
    return sorted({operation.argument for operation in one.operations if isinstance(operation, Patch)})
