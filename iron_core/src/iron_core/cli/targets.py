"""`FILE.py:NAME` or a model's name with its line: the compiled graph that commands of graphs are about."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from iron_core.cli.files import in_file, member
from iron_core.compiled.graph import CompiledGraph
from iron_core.declare.authored import authored
from iron_core.errors import UsageError
from iron_core.graph.graph import Graph
from iron_core.plugins.registry import registry


def compiled_graph(
    target: str, argv: Sequence[str], *, backend: str | None, dev: str | None, unread: bool = False, **options: Any
) -> CompiledGraph:
    """What `target` names, compiled and not loaded. argv: a graph's inputs, or a model's own line. options: of `Graph.compile`.

    unread: a model whose line asks for random weights has none that could be read: shapes are enough. UsageError for what names no
    graph.
    """
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
        raise UsageError(f"model `{target}` has no compiled(argv), which gives the graph of a command line.")
    if unread and any(word.partition("=")[0] == "--random-weights" for word in argv):
        options["unread"] = True
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
