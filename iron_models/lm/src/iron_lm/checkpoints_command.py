"""`iron checkpoints`: what a checkpoint holds, and one in another format."""

from __future__ import annotations

from typing import Any

import attrs
import click

from iron_core.aside import aside
from iron_core.cli import streams
from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_core.errors import printable
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.contents import contents
from iron_lm.checkpoints.recognise import describe
from iron_lm.conversion.conversion import Conversion
from iron_lm.options import invoke

#: Characters of a value of metadata, or of a tensor's name, in a table.
_CELL = 100


def main(argv: list[str]) -> int:
    """What files of weights hold; write them in another format.

    argv: the line behind the command; the exit status. IronError and click's errors come through to the caller.
    """
    return int(invoke(_checkpoints, argv) or 0)


def _reserving(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Standard output is the answer's alone from here on."""
    if value:
        streams.reserve()
    return value


_json = click.option("--json", "as_json", is_flag=True, callback=_reserving, help="JSON instead of text.")
_quantized_from = click.option("--quantized-from", metavar="KIND", help="What a Q4NX file was made from: Q4_1, Q4_0, minima.")
_reader = click.option("--reader", metavar="NAME", help="Who shall read it, of `iron plugins list --group checkpoints`.")
_gptq_zeros = click.option("--gptq-zeros", metavar="KIND", help="How a file of GPTQ's stores zero points: v1 (less one), v2.")
_verbose = click.option("--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")


@click.group("iron checkpoints", invoke_without_command=True)
@_verbose
@click.pass_context
def _checkpoints(ctx: click.Context) -> None:
    """Files of weights: what they hold, and one in another format."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@_checkpoints.command("show")
@click.argument("path", metavar="FILE")
@_reader
@_quantized_from
@_gptq_zeros
@_json
@_verbose
def _show(path: str, reader: str | None, quantized_from: str | None, gptq_zeros: str | None, as_json: bool) -> None:
    """A checkpoint's metadata and tensors: shapes, formats, bytes; and what of it is not read.

    FILE is a file or folder of any kind that a reader recognises, as `--checkpoint` of `iron-run` takes it.
    """
    checkpoint = Checkpoint.open(path, reader=reader, quantized_from=quantized_from, gptq_zeros=gptq_zeros)
    facts = contents(checkpoint)
    if as_json:
        print_json(facts)
        return
    click.echo(printable(describe(checkpoint)))
    if facts["metadata"]:
        click.echo()
        print_table(("entry", "value"), [(_cell(key), _cell(value)) for key, value in facts["metadata"].items()])
    if facts["tensors"]:
        click.echo()
        rows = [(_cell(one["name"]), _shape(one["shape"]), one["format"], one["bytes"]) for one in facts["tensors"]]
        print_table(("tensor", "shape", "format", "bytes"), rows)
        click.echo()
        sums = [(name, found["tensors"], found["bytes"]) for name, found in facts["formats"].items()]
        print_table(("format", "tensors", "bytes"), [*sums, ("all", len(facts["tensors"]), facts["bytes"])])
    if facts["refused"]:
        click.echo()
        print_table(("not read", "because"), [(_cell(one["name"]), printable(one["reason"])) for one in facts["refused"]])


@_checkpoints.command("convert")
@click.argument("path", metavar="IN")
@click.argument("out", metavar="OUT")
@click.option("--format", metavar="NAME", help="What to write: q4nx, or another that an installed reader writes.")
@click.option(
    "--int4",
    multiple=True,
    metavar="ROLES",
    help="Instead: the format that IN has, with the matrices of these parts in 4 bits, as --profile names them, by commas or repeated: "
    "attention, experts, shared-expert, feed-forward, delta-rule.",
)
@click.option("--int4-block", type=int, metavar="N", help="Numbers of a row that share a scale: 32, 64, 128 (the most that fit).")
@click.option("--force", is_flag=True, help="Replace OUT, if it is a folder that a conversion wrote.")
@_reader
@_quantized_from
@_gptq_zeros
@_json
@_verbose
def _convert(
    path: str,
    out: str,
    format: str | None,
    int4: tuple[str, ...],
    int4_block: int | None,
    force: bool,
    reader: str | None,
    quantized_from: str | None,
    gptq_zeros: str | None,
    as_json: bool,
) -> None:
    """Write a checkpoint as a new folder in another format, or with some of its matrices in 4 bits.

    IN is a file or folder of any kind that a reader recognises; OUT is a folder that is not there yet. Until it is whole it is
    OUT.partial, and the same command goes on where one that was cut short ended.
    """
    said: dict[str, Any] = dict(reader=reader, quantized_from=quantized_from, gptq_zeros=gptq_zeros)
    conversion = Conversion(path, out, format, int4=int4, int4_block=int4_block, replace=force, **said)
    try:
        with working(lambda: f"converting, {conversion.progress}"):
            found = conversion.run()
    except KeyboardInterrupt:
        if conversion.left_over:
            aside(printable(conversion.left_over))
        raise
    if as_json:
        print_json(attrs.asdict(found))
        return
    there = f", {found.kept} of them there already" if found.kept else ""
    click.echo(printable(f"{found.path}: {found.format}, {found.tensors} tensors{there}, {found.bytes} bytes"))


def _cell(value: Any) -> str:
    return printable(value, _CELL)


def _shape(shape: list[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"
