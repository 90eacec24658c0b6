"""`compile_graph`: the compiled graph of a graph and a choice of backend, device and packaging, made once and kept by the graph."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iron_core.aside import aside
from iron_core.backends.choose import Choice, check_keywords, choose
from iron_core.backends.protocol import Backend
from iron_core.compiled.graph import CompiledGraph
from iron_core.declare.profile import Profile
from iron_core.devices import Device
from iron_core.errors import CallError, DeclarationError
from iron_core.graph.graph import Graph
from iron_core.graph.signature import Signature
from iron_core.image.packaging import check_packaging
from iron_core.lowering.picks import Picks, picks_of
from iron_core.turn import Turn


def compile_graph(
    graph: Graph,
    *,
    dev: str | Device | None = None,
    backend: str | Backend | None = None,
    boundaries: str | None = None,
    image: str | None = None,
    verbose: bool = False,
    record: str = "memory",
    feeds: CompiledGraph | Signature | None = None,
    coresident: Any = None,
    fold: bool = False,
    profile: Profile | str | Path | None = None,
    cache_key: str | None = None,
    lowerings: Mapping[str, str] | None = None,
    **shapes: Any,
) -> CompiledGraph:
    """Plan and build one version of `graph`; returns its `CompiledGraph`.

    Compiling again with the same (backend, dev, boundaries, image, lowerings) adds a version to the same object. Shapes are
    by input name: `(dims)` is bfloat16, `((dims), dtype)` names another; an optional input left out is a version
    without it. `DispatchTime` values by name: a version is of one number of each; with no keyword at all the first call
    makes one. Needs no device: the version is loaded at its first call.

    backend: a name, which means its defaults, or a Backend with options, as `HostBackend(threads=2)`; else `IRON_BACKEND`, else
    the first available of npu and host. Backends compare by value.
    boundaries, image: see `iron_core.image.packaging`. verbose: print the plan's explanation on stderr.
    record: "memory" keeps the record of steps and buffers on the version's `artifacts`; "disk" writes it to the cache too.
    feeds: the compiled graph, or signature, of the version whose per-call words this one computes (default: its own).
    coresident: what decides each design's setting, the folds and which arrays share a configuration (see
    `iron_core.compiled.narrowing`), as `iron_tuner`'s JointNarrowing does; or such packs of arrays, each of their `array_key`s.
    UnsupportedError where the backend does not take these two.
    fold: take every admissible fold.
    profile: tunables for what the body's calls leave open: a Profile, a file, or a folder with a file for each device. Left out, the
    profile that is entered (`with profile:`), else the graph's attribute `profile`, if it has one.
    cache_key: digest of the model's sources and config. With it a warm start takes the plan from the cache and traces
    nothing, provided the graph holds the same weights and states by name.
    lowerings: where several distributions lower an operator, whose lowering is asked first, as {"host.GEMV": "iron-acme"}; over
    `IRON_LOWERINGS`, and that over the profile. One that does not take a step leaves it to the one whose name it is. Another choice is
    another `CompiledGraph`.
    """
    if not isinstance(record, str) or record not in ("memory", "disk"):
        raise CallError(f"record={record!r}: legal are 'memory' and 'disk'.")
    for name, flag in (("fold", fold), ("verbose", verbose)):
        if not isinstance(flag, bool):
            raise CallError(f"{name}={flag!r}; legal: True or False.")
    check_packaging(boundaries, image)
    chosen = choose(backend, dev)
    keywords = {name: given for name, given in (("feeds", feeds), ("coresident", coresident)) if given is not None}
    check_keywords(chosen.backend, keywords)
    picks = picks_of(lowerings).of_backend(chosen.backend.name)
    compiled = _compiled(graph, chosen, boundaries, image, picks)
    compiled.options = options = dict(fold=fold, cache_key=cache_key, record=record, profile=profile, **keywords)
    if not graph.parameters().dispatch or shapes:
        compiled._add(shapes, options)
    if verbose:
        aside(compiled.explain())
    return compiled


#: Its keywords; a body's input of such a name could not be given a shape.
_KEYWORDS = [name for name, one in inspect.signature(compile_graph).parameters.items() if one.kind is one.KEYWORD_ONLY]

#: Held while a graph's table of compiled graphs is looked up and changed.
_tables = Turn("the table of compiled graphs")


def _compiled(graph: Graph, chosen: Choice, boundaries: str | None, image: str | None, picks: Picks) -> CompiledGraph:
    """The object of these five for this graph, made if there is none; the graph keeps it."""
    for name in (*type(graph).parameters().inputs, *type(graph).parameters().dispatch):
        if name in _KEYWORDS:
            raise DeclarationError(f"{type(graph).__name__}.body: input {name} has the name of a keyword of compile(); rename it.")
    key = (chosen.backend, chosen.dev, boundaries, image, picks)
    with _tables:
        known: dict[Any, CompiledGraph] = graph.__dict__.get("_compiled", {})
        compiled = known.get(key) or CompiledGraph(graph, chosen, boundaries, image, picks)
        # Last is the one a plain call of the graph uses. A new table, so that whoever reads the old one may go on.
        graph.__dict__["_compiled"] = {k: other for k, other in known.items() if k != key} | {key: compiled}
    return compiled


def default_compiled(graph: Graph) -> CompiledGraph:
    """What a call of the graph itself runs on: the last one compiled, else the default backend and device."""
    known = graph.__dict__.get("_compiled")
    if known:
        return next(reversed(known.values()))
    chosen = choose()
    return _compiled(graph, chosen, None, None, picks_of(None).of_backend(chosen.backend.name))
