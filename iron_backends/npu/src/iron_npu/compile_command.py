"""`iron compile`: what a graph or a model becomes for an NPU, without one and without the vendor's tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from iron_core.cli import streams
from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_core.cli.targets import compiled_graph
from iron_core.devices import device
from iron_core.errors import UnsupportedError
from iron_core.graph.signature import Signature, describe_signature
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.packaging import CONTEXTS, ELF, XCLBIN, each_step
from iron_npu.image.emitted import write_image
from iron_npu.image.image import Image
from iron_npu.image.making import image_of
from iron_npu.image.watchdog import check_estimate
from iron_npu.linked import linked
from iron_npu.settings import Settings

_HEADERS = ("version", "takes", "dispatches", "entries", "words", "buffers", "bytes")


def main(argv: list[str]) -> int:
    """Build a graph or model for an NPU, or print its MLIR.

    argv: the line behind the command; the exit status. IronError and click's errors come through to the caller.
    """
    with _compile.make_context("iron compile", list(argv)) as context:
        return int(_compile.invoke(context) or 0)


def _reserving(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Standard output is the answer's alone from here on."""
    if value:
        streams.reserve()
    return value


@click.command("iron compile", context_settings=dict(ignore_unknown_options=True))
@click.argument("target", metavar="FILE.py:NAME|MODEL")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@click.option("--dev", metavar="NAME", default="npu2", show_default=True, help="The NPU.")
@click.option("--emit", metavar="DIR", help="Write every module's MLIR there, and record.json, which says the rest.")
@click.option("--image", type=click.Choice([ELF, XCLBIN, CONTEXTS]), help="Default: as the device and the graph have it.")
@click.option("--each-step", "stepwise", is_flag=True, help="One dispatch per step instead of one per call.")
@click.option("--fold", is_flag=True, help="Take every fold that arrays take.")
@click.option("--json", "as_json", is_flag=True, callback=_reserving, help="The record, as JSON, instead of a table.")
@click.option("--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def _compile(
    target: str, argv: tuple[str, ...], dev: str, emit: str | None, image: str | None, stepwise: bool, fold: bool, as_json: bool
) -> int:
    """Make the whole image of a graph, all its versions: modules of MLIR, what they link, where every buffer is, how per-call words are
    made, and what a call dispatches. Where a backend estimates times, as the simulator does, a version with a run past the driver's
    watchdog is refused.

    FILE.py:NAME is a Graph, a class of one or a compiled graph; the rest of the line are its inputs, as x=512x64 or x=512x64:float32.
    MODEL is a model's name; the rest is its own line, as --checkpoint FILE or --random-weights 0, of which none are drawn.
    """
    if not device(dev).is_npu:
        raise UnsupportedError(f"--dev {dev}: it has no array, so there is no image to make. Legal: npu1, npu2 and their column variants.")
    options: dict[str, Any] = {"fold": True} if fold else {}
    options |= {"boundaries": each_step} if stepwise else {}
    options |= {"image": image} if image else {}
    with working("compiling"):
        compiled = compiled_graph(target, argv, backend="null", dev=dev, unread=True, **options)
    if not device(compiled.dev).is_npu:
        raise UnsupportedError(f"{target} was compiled for {compiled.dev}, which has no array. Legal: a graph, or one compiled for an NPU.")
    plan = compiled.plan
    with working("printing"):
        images = {version.signature: array_image(plan, version.signature) for version in plan.versions}
        made = image_of(plan, images, linked=linked(Settings.read()))
    with working("estimating"):
        times = _times(plan.name, images)
    with working("writing"):
        files = write_image(made, emit) if emit else []
    if as_json:
        print_json(made.record())
    else:
        _tell(made, times)
        if files:
            click.echo(f"\n{len(files)} files, {sum(file.stat().st_size for file in files)} bytes, in {emit}")
    return 0


def _times(graph: str, images: Mapping[Signature, ArrayImage]) -> dict[Signature, float]:
    """Microseconds of a call of each version, as far as they are estimated. UnsupportedError for one that the driver would end."""
    prices = {signature: check_estimate(graph, image) for signature, image in images.items()}
    return {signature: one.total_us for signature, one in prices.items() if one is not None}


def _tell(image: Image, times: Mapping[Signature, float]) -> None:
    """The image as tables, for people."""
    what = {ELF: "full ELF", XCLBIN: "chain of xclbins", CONTEXTS: "xclbin in a context of its own"}[image.kind]
    kernels = sum(len(binary.kernels) for binary in image.binaries)
    click.echo(f"{image.graph} on {image.dev}: {len(image.binaries)} {what}; modules: {len(image.modules)}, kernels: {kernels}\n")
    rows = [
        [
            version.name, describe_signature(version.signature), len(version.dispatches), version.entries or "-",
            len(version.words), len(version.regions), sum(nbytes for _, nbytes in version.regions),
            *([f"{times[version.signature] / 1e3:.4g}"] if times else []),
        ]
        for version in image.versions
    ]  # fmt: skip
    print_table((*_HEADERS, *(["at most, ms"] if times else [])), rows)
