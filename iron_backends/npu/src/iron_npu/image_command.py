"""`iron image inspect` and `iron image diff`: what files of an NPU's image hold, and how two of them differ."""

from __future__ import annotations

from typing import Any

import click

from iron_core.cli import streams
from iron_core.cli.table import print_json, print_table
from iron_core.errors import printable
from iron_npu.files.comparison import FORMAT, KERNELS, OK, REVIEW, compare, worst
from iron_npu.files.description import Facts, described
from iron_npu.files.opened import STREAM, XCLBIN, opened

#: Exit statuses of `iron image diff`; 1 and 2 are those of errors.
STATUSES = {OK: 0, REVIEW: 3, KERNELS: 4, FORMAT: 5}


def main(argv: list[str]) -> int:
    """What the files that an NPU runs hold.

    argv: the line behind the command; the exit status. IronError and click's errors come through to the caller.
    """
    with _image.make_context("iron image", list(argv)) as context:
        return int(_image.invoke(context) or 0)


def _reserving(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Standard output is the answer's alone from here on."""
    if value:
        streams.reserve()
    return value


_json = click.option("--json", "as_json", is_flag=True, callback=_reserving, help="JSON instead of tables.")
_verbose = click.option("--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")


@click.group("iron image", invoke_without_command=True)
@_verbose
@click.pass_context
def _image(ctx: click.Context) -> int:
    """Files of an NPU's image: xclbins, instruction streams (insts.bin) and tables of parameters (params.txt), told by their content."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return 0


def _say(*lines: str) -> None:
    """What files hold is somebody else's: fit for a terminal."""
    for line in lines:
        click.echo(printable(line))


def _table(headers: tuple[str, ...], rows: list[list[Any]]) -> None:
    print_table(headers, [[printable(cell) for cell in row] for row in rows])


@_image.command("inspect")
@click.argument("file")
@click.option("--operations", is_flag=True, help="Every operation of a stream, a line each, instead of the transfers it starts.")
@click.option("--full-elf", is_flag=True, help="The stream is a full ELF's: offsets into its arguments are as they stand.")
@_json
@_verbose
def _inspect(file: str, operations: bool, full_elf: bool, as_json: bool) -> int:
    """What a file holds. Exit status 1 where something in it is wrong: a section that is not read, a mirror that disagrees."""
    one = opened(file)
    facts = described(one, full_elf=full_elf)
    lines = list(one.content.lines()) if operations and one.kind == STREAM else []  # type: ignore[union-attr]
    if as_json:
        print_json(facts | ({"lines": lines} if operations else {}))
        return int(bool(facts["problems"]))
    _say(f"{facts['name']}: {facts['kind']}, {facts['bytes']} bytes, sha256 {facts['sha256'][:16]}")
    if lines:
        _say(*lines)
    elif one.kind == XCLBIN:
        _tell_xclbin(facts)
    elif one.kind == STREAM:
        _tell_stream(facts)
    else:
        _table(("parameter", "word", "type", "kind"), [list(entry.values()) for entry in facts["parameters"]])
    for problem in facts["problems"]:
        _say(f"wrong: {problem}")
    return int(bool(facts["problems"]))


def _tell_xclbin(facts: Facts) -> None:
    h = facts["header"]
    _say(f"version {h['version']}, uuid {h['uuid']}, timestamp {h['timestamp']}")
    click.echo()
    _table(("section", "name", "offset", "bytes"), [list(one.values()) for one in facts["sections"]])
    for kernel in facts["kernels"]:
        given = ", ".join(f"{one.get('name', '?')} {one.get('type', '?')} at {one.get('offset', '?')}" for one in kernel["arguments"])
        click.echo()
        _say(f"kernel {kernel.get('name', '?')}: {given or 'no arguments'}")
    part = facts.get("partition")
    if part is None:
        return
    starts = ", ".join(map(str, part["starts"])) or "none"
    click.echo()
    _say(f"partition {part['name']}: {part['columns']} columns, from column {starts} on")
    for number, pdi in enumerate(part["pdis"]):
        groups = ", ".join(f"{one['name']} of kernels {', '.join(map(hex, one['kernels'])) or 'none'}" for one in pdi["groups"])
        said = ", ".join(f"{count} {name}" for name, count in pdi.get("commands", {}).items())
        _say(f"PDI {number}: {pdi['bytes']} bytes, {groups or 'no groups'}; {said or 'not read'}")
        if pdi.get("tiles"):
            _table(("tile", "program bytes", "memory bytes", "registers"), [list(one.values()) for one in pdi["tiles"]])


def _tell_stream(facts: Facts) -> None:
    said = ", ".join(f"{count} {name}" for name, count in facts["operations"].items())
    _say(f"{facts['family']}, {facts['columns']} columns, {facts['rows']} rows; {said or 'no operations'}")
    _say(f"arguments {', '.join(map(str, facts['arguments'])) or 'none'}")
    for number, step in enumerate(facts["steps"]):
        _say(f"{number:4} {step}")


@_image.command("diff")
@click.argument("first")
@click.argument("second")
@_json
@_verbose
def _diff(first: str, second: str, as_json: bool) -> int:
    """How two files differ, each difference on its rung, and the highest: OK, the same but for what each build draws anew; REVIEW, other
    words for the same thing; KERNELS, it computes or moves something else; FORMAT, who loads or runs it has to change.

    Exit status 0 for OK, 3 for REVIEW, 4 for KERNELS, 5 for FORMAT.
    """
    found = compare(opened(first), opened(second))
    verdict = worst(found)
    rows: list[list[Any]] = [[one.verdict, one.what] for one in found]
    if as_json:
        print_json({"verdict": verdict, "findings": [dict(zip(("verdict", "what"), row, strict=True)) for row in rows]})
    else:
        if rows:
            _table(("rung", "what"), rows)
            click.echo()
        click.echo(verdict)
    return STATUSES[verdict]
