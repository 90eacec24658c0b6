"""Making an ELF or an xclbin in a folder: the commands of a request one after the other, and what they leave, under names of ours."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from iron_core.errors import CallError
from iron_npu.errors import ToolError
from iron_npu.image.image import Module
from iron_npu.tools import command, program_size
from iron_npu.tools.command import ADDRESSED, FILES, PARAMETERS, Driver
from iron_npu.tools.programs import AIE_OPT, AIE_TRANSLATE, AIECC, Program
from iron_npu.tools.request import ELF, XCLBIN, Request
from iron_npu.tools.run import Runner

#: Where a folder says which streams it has.
STREAMS = "streams.json"


def steps(request: Request, driver: Driver, work: Path) -> Iterator[tuple[Module, list[str]]]:
    """Each module with its command. Module n works in `n`, and leaves what it makes in `n/out`."""
    before: Path | None = None
    for index, (module, entry) in enumerate(request.links):
        place = work / str(index)
        source, out = place / "design.mlir", place / "out"
        if request.format == ELF:
            yield module, command.full_elf(driver, source, out)
        else:
            yield module, command.xclbin(driver, source, out, entry, before=before, dynamic=module.dynamic)
        before = out / FILES[XCLBIN]


def make(
    request: Request,
    objects: Sequence[Mapping[str, Path]],
    driver: Driver,
    runner: Runner,
    tools: Mapping[str, Program],
    place: Path,
    folder: Path,
) -> None:
    """Run what a request takes in `place`; what it gives goes to `folder`. objects: by name, those that each module links."""
    made: list[dict[str, object]] = []
    sizes: dict[str, int] = {}
    last = place
    for index, (module, line) in enumerate(steps(request, driver, place)):
        last = place / str(index)
        (last / "out").mkdir(parents=True)
        (last / "design.mlir").write_text(module.text, encoding="utf-8")
        for file, path in objects[index].items():
            shutil.copy(path, last / file)
        runner.run(line, last)
        if request.format == XCLBIN:
            made += _streams(module, index, runner, tools, last, folder)
        elves = [path for path in last.rglob("*.elf") if path.name != FILES[ELF]]
        sizes.update({(f"{index}_" if len(request.links) > 1 else "") + core: n for core, n in _sizes(elves, runner).items()})
    file = FILES[request.format]
    shutil.copy(_only(last, file, runner), folder / file)
    table = _found(last, PARAMETERS)
    if request.format == ELF and table is not None:
        shutil.copy(table, folder / PARAMETERS)
    (folder / STREAMS).write_text(json.dumps(made), encoding="utf-8")
    (folder / program_size.FILE).write_text(json.dumps(sizes), encoding="utf-8")


def _sizes(elves: list[Path], runner: Runner) -> dict[str, int]:
    try:
        return program_size.sizes_of(elves)
    except CallError as error:
        raise ToolError(AIECC, runner.design, str(error)) from None


def _streams(
    module: Module, index: int, runner: Runner, tools: Mapping[str, Program], last: Path, folder: Path
) -> list[dict[str, object]]:
    """Copy each sequence's stream, or the C++ that makes those of all; what `Stream` says of each."""
    made: list[dict[str, object]] = []
    header = f"{index}_streams.h"
    if module.dynamic:
        lowered = last / "lowered.mlir"
        runner.run(command.lower_dynamic(str(tools[AIE_OPT].path), _only(last, ADDRESSED, runner), lowered), last)
        runner.run(command.translate_dynamic(str(tools[AIE_TRANSLATE].path), lowered, last / header), last)
        shutil.copy(_only(last, header, runner, AIE_TRANSLATE), folder / header)
    for sequence in module.sequences:
        name = header if module.dynamic else f"{index}_{sequence}.bin"
        if not module.dynamic:
            shutil.copy(_stream(module, sequence, last, runner), folder / name)
        made.append({"kernel": index, "sequence": sequence, "path": name, "dynamic": module.dynamic})
    return made


def _stream(module: Module, sequence: str, last: Path, runner: Runner) -> Path:
    """The file of a sequence's instructions: by its device and name, or the only one there is."""
    name = command.stream_file(module.device, sequence)
    path = _found(last, name)
    others = sorted(last.rglob("insts*.bin"))
    if path is None and len(module.sequences) == len(others) == 1:
        path = others[0]
    if path is None:
        there = ", ".join(one.name for one in others) or "none"
        raise ToolError(AIECC, runner.design, f"it made no {name} and reported no error; of these it made {there}")
    return path


def _only(folder: Path, name: str, runner: Runner, tool: str = AIECC) -> Path:
    path = _found(folder, name)
    if path is None:
        raise ToolError(tool, runner.design, f"it made no {name} and reported no error")
    return path


def _found(folder: Path, name: str) -> Path | None:
    """A file somewhere below a folder; what lies in `out` first."""
    return next(iter([*sorted((folder / "out").rglob(name)), *sorted(folder.rglob(name))]), None)
