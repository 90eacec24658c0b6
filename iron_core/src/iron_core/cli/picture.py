"""`iron picture`: a graph of a file, or a model by its command line, as a page, an SVG or Graphviz text."""

from __future__ import annotations

import contextlib
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from iron_core.backends.pricing import pricing_backend
from iron_core.cli.progress import working
from iron_core.cli.targets import compiled_graph
from iron_core.devices import device
from iron_core.errors import UnsupportedError, UsageError, printable
from iron_core.files import writable, write_whole
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
    options: dict[str, Any] = {"fold": True} if fold else {}
    with working("compiling"):
        try:
            compiled = compiled_graph(target, argv, backend=backend or _drawing(dev), dev=dev, **options)
        except UnsupportedError as error:
            if backend is not None or dev is None or not device(dev).is_npu:
                raise
            click.echo(f"drawn as it is planned, without prices: {error}", err=True)
            compiled = compiled_graph(target, argv, backend="null", dev=dev, **options)
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


def _drawing(dev: str | None) -> str | None:
    """The backend that draws a device nobody named one for: the first that prices images, else the one that plans; for a device
    without an array, or none, whichever runs graphs here."""
    if dev is None or not device(dev).is_npu:
        return None
    found = pricing_backend(dev)
    return "null" if found is None else found.name
