"""`iron picture`: a graph of a file, or a model by its command line, as a page, an SVG or Graphviz text."""

from __future__ import annotations

import contextlib
import inspect
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from iron_core.backends import choose
from iron_core.backends.pricing import Pricing
from iron_core.backends.protocol import Unavailable
from iron_core.cli.files import in_file, member
from iron_core.cli.progress import working
from iron_core.compiled.graph import CompiledGraph
from iron_core.declare.authored import authored
from iron_core.devices import device
from iron_core.errors import IronError, UnsupportedError, UsageError, printable
from iron_core.files import writable, write_whole
from iron_core.graph.graph import Graph
from iron_core.plugins.registry import registry
from iron_core.visualize import dot, html, picture
from iron_core.visualize.priced import prices

#: What a file's ending asks for.
ENDINGS = (".html", ".svg", ".dot")


def draw(
    target: str, argv: Sequence[str], *, backend: str | None, dev: str | None, fold: bool, output: str | None, opened: bool
) -> None:
    """Draw what `target` names into a file, and say where."""
    ending = Path(output).suffix if output else ".html"
    if ending not in ENDINGS:
        raise UsageError(f"-o {output}: its ending says what is drawn; legal: {', '.join(ENDINGS)}.")
    if output:
        with _written(output):
            writable(output)
    with working("compiling"):
        try:
            compiled = _compiled(target, list(argv), backend=backend or pricing(dev), dev=dev, fold=fold)
        except UnsupportedError as error:
            if backend is not None or dev is None or not device(dev).is_npu:
                raise
            click.echo(f"drawn as it is planned, without prices: {error}", err=True)
            compiled = _compiled(target, list(argv), backend="null", dev=dev, fold=fold)
    with working("drawing"):
        try:
            table: Any = prices(compiled)
        except UnsupportedError as error:
            click.echo(f"no prices: {error}", err=True)
            table = {}
        if ending == ".html":
            text = html(compiled, table=table)
        elif ending == ".svg":
            text = picture(compiled, table=next(iter(table.values()), None))
        else:
            text = dot(compiled, table=table)
    put(text, output or (None if opened else f"{compiled.plan.name}.html"), opened=opened)


def put(text: str, output: str | None, *, opened: bool) -> None:
    """Write a picture to a file (a temporary one for None), say where, and have it shown. UsageError where it cannot be written."""
    path = Path(output) if output else Path(tempfile.mkdtemp(prefix="iron-picture-")) / "picture.html"
    with _written(path):
        write_whole(path, text)
    click.echo(str(path))
    if opened and not webbrowser.open(path.resolve().as_uri()):
        click.echo("no browser was found to open it.", err=True)


@contextlib.contextmanager
def _written(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{printable(path, 200)}: {error.strerror}.") from None


def pricing(dev: str | None) -> str | None:
    """The backend that draws a device nobody named one for: the first that prices images, else the one that plans; for a device
    without an array, or none, whichever runs graphs here."""
    if dev is None or not device(dev).is_npu:
        return None
    for name in choose.names():
        try:
            found = choose.get(name)
            if isinstance(found, Pricing) and not isinstance(choose.probe(found), Unavailable) and dev in found.devices():
                return name
        except IronError:
            continue
    return "null"


def _compiled(target: str, argv: list[str], *, backend: str | None, dev: str | None, fold: bool) -> CompiledGraph:
    options: dict[str, Any] = {"fold": True} if fold else {}
    place = in_file(target)
    if place is not None:
        found = member(*place)
        if isinstance(found, type) and issubclass(found, Graph):
            found = _made(target, found)
        if isinstance(found, CompiledGraph):
            return found
        if not isinstance(found, Graph):
            raise UsageError(f"{target} is {found!r}; legal: a Graph, a Graph class that takes no arguments, or a CompiledGraph.")
        shapes: dict[str, Any] = {}
        for name, shape in map(_shape, argv):
            if name in shapes:
                raise UsageError(f"{name} is given twice; legal: an input once.")
            shapes[name] = shape
        return found.compile(backend=backend, dev=dev, **options, **shapes)
    model = registry().load("models", target)
    if not callable(getattr(model, "compiled", None)):
        raise UsageError(f"model `{target}` has no compiled(argv), which gives the graph of a command line; it cannot be drawn.")
    line = [*argv, *(["--backend", backend] if backend else []), *(["--dev", dev] if dev else [])]
    graph: CompiledGraph = model.compiled(line, **options)
    return graph


def _made(target: str, cls: type[Graph]) -> Graph:
    try:
        inspect.signature(cls).bind()
    except TypeError as error:
        raise UsageError(f"{target} is a class that takes arguments ({error}); legal: a graph that is made, or a class without.") from None
    with authored(cls, "__init__()"):
        return cls()


def _shape(text: str) -> tuple[str, Any]:
    """An input's shape, as `x=512x64` or `x=512x64:float32`, or a value's number, as `n=3`, which is a shape of one dimension too."""
    from iron_core.declare.formats import as_format

    name, equals, rest = text.partition("=")
    dims, colon, dtype = rest.partition(":")
    try:
        shape = tuple(int(n) for n in dims.split("x"))
    except ValueError:
        shape = ()
    if not name.isidentifier() or not equals or not shape:
        raise UsageError(f"{text!r}: an input is NAME=SHAPE or NAME=SHAPE:DTYPE, as x=512x64:float32.")
    return name, (shape, as_format(dtype).spec) if colon else shape
