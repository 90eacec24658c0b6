"""The reference run: a traced graph interpreted step by step in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from iron_core.declare.formats import BlockQuant, Dense, PackedArray
from iron_core.declare.rounding import round_to
from iron_core.errors import BoundsError, CallError, ShapeError
from iron_core.graph.affine import evaluate
from iron_core.graph.traced import Buffer, Region, TracedGraph, TracedStep

#: Called after every step with the step, its operator at the call's bounds, the inputs it read and the exact
#: (unrounded) results.
OnStep = Callable[[TracedStep, Any, tuple[Any, ...], tuple[Any, ...]], None]


def empty(buffer: Buffer) -> Any:
    """Storage of an intermediate: NaN where a float was never written, so reading it shows."""
    if isinstance(buffer.format, BlockQuant):
        return _zeros(buffer)
    assert isinstance(buffer.format, Dense)
    dtype = buffer.format.dtype
    return np.zeros(buffer.shape, dtype) if dtype.kind in "iu" else np.full(buffer.shape, np.nan, dtype)


def _zeros(buffer: Buffer) -> Any:
    if isinstance(buffer.format, BlockQuant):
        rows = (*buffer.shape[:-1], buffer.format.row_bytes(buffer.shape[-1]))
        return PackedArray(np.zeros(rows, np.uint8), buffer.shape, buffer.format)
    return np.zeros(buffer.shape, buffer.format.dtype)


def view(array: Any, region: Region, shape: tuple[int, ...]) -> Any:
    """A region of a buffer's storage, under `shape`; writing to it writes the storage."""
    size = math.prod(shape)
    if isinstance(array, PackedArray):
        columns = array.shape[-1]
        rows = array.data.reshape(-1, array.data.shape[-1])
        part = rows[region.start // columns : region.start // columns + size // columns]
        whole = region.shape if len(shape) == 1 else shape
        return PackedArray(part, whole, array.format)
    return array.reshape(-1)[region.start : region.start + size].reshape(shape)


def run_step(
    step: TracedStep, values: Mapping[str, int], storage: Mapping[str, Any], on_step: OnStep | None = None
) -> None:
    """Compute one step and write its outputs, rounded once, into `storage` (buffer name -> array)."""
    op = step.op
    bound = {b.member: b.expression.at(values) for b in step.bindings}
    extents = {op.extents[m].field: n for m, n in bound.items() if m in op.extents}
    scratchpads = {m: n for m, n in bound.items() if m in op.scratchpads}
    small = op.bounded(**extents) if extents else op

    def cut(name: str) -> Any:
        region = step.operands[name]
        array = view(storage[region.buffer.name], region, op.shape(name))
        if extents and not isinstance(array, PackedArray):
            axes = op.operands[name].axes(op)
            array = array[tuple(slice(extents[a]) if a in extents else slice(None) for a in axes)]
        elif extents and isinstance(array, PackedArray):
            axes = op.operands[name].axes(op)
            if axes[0] in extents:
                array = array[: extents[axes[0]]]
        return array

    inputs = tuple(cut(o.name) if o.name in step.operands else None for o in op.inputs)
    kept = {name: _copy(cut(name)) for name in op.partial}
    given = tuple(_copy(a) if o.written else a for o, a in zip(op.inputs, inputs, strict=True))
    result = small.reference(*given, **scratchpads, **kept)
    results = result if isinstance(result, tuple) else (result,)
    written = [o for o in op.outputs if o.present(op)]
    if on_step is not None:
        on_step(step, small, inputs, results)
    for operand, exact in zip(written, results, strict=True):
        target = cut(operand.name)
        if isinstance(target, PackedArray):
            target.data[...] = exact.data.reshape(target.data.shape)
        else:
            target[...] = round_to(exact, target.dtype).reshape(target.shape)


def _copy(array: Any) -> Any:
    return PackedArray(array.data.copy(), array.shape, array.format) if isinstance(array, PackedArray) else array.copy()


def check_call(traced: TracedGraph, values: Mapping[str, int], ids: Mapping[str, Any]) -> None:
    """Refuse wrong per-call values, indices outside their views and ids outside their tables, before anything runs.

    ids: the arrays of the inputs that `traced.id_checks` names.
    """
    known = [v.name for v in traced.values]
    if set(values) != set(known):
        missing = [n for n in known if n not in values]
        unknown = [n for n in values if n not in known]
        what = f"needs {', '.join(missing)}" if missing else f"has no per-call value {', '.join(unknown)}"
        raise CallError(f"{traced.name} {what}. Per-call values: {', '.join(known) or 'none'}.")
    for check in traced.checks:
        at = check.expression.at(values)
        if at < 0 or at + check.extent > check.limit:
            raise BoundsError(f"{check.what} is {at}; legal: 0 to {check.limit - check.extent}.")
    for check in traced.id_checks:
        row = np.asarray(ids[check.name]).reshape(-1)
        if check.bound is not None:
            row = row[: evaluate(check.bound, values)]
        bad = row[(row < -check.limit) | (row >= check.limit)]
        if bad.size:
            raise BoundsError(f"{traced.name}: {check.name} holds id {bad[0]}; legal: {-check.limit} to {check.limit - 1}.")


def run(
    traced: TracedGraph,
    inputs: Mapping[str, Any],
    values: Mapping[str, int],
    residents: dict[str, Any],
    on_step: OnStep | None = None,
) -> tuple[list[Any], dict[str, int]]:
    """Run one version once.

    inputs: by name, at their compiled shape or cut to their bounds. residents: weights and states by name, states
    written in place; missing ones are added (weights from the trace, states as zeros). Returns the outputs, cut to
    their bounds, and the carried values' next numbers.
    """
    check_call(traced, values, inputs)
    for buffer in (*traced.weights, *traced.states):
        if buffer.name not in residents:
            residents[buffer.name] = buffer.data if buffer.role == "weight" else _zeros(buffer)
    storage = dict(residents)
    storage.update({b.name: empty(b) for b in traced.intermediates})
    for buffer in traced.inputs:
        storage[buffer.name] = _placed(buffer, inputs[buffer.name])
    for step in traced.steps:
        run_step(step, values, storage, on_step)
    outputs = []
    for region in traced.outputs:
        array = view(storage[region.buffer.name], region, region.shape)
        if not isinstance(array, PackedArray):
            bounds = {a: evaluate(e, values) for a, e in region.bounds}
            array = array[tuple(slice(bounds.get(a)) for a in range(array.ndim))]
        outputs.append(array)
    carried = {}
    for term in traced.carry:
        if isinstance(term.source, Region):
            carried[term.name] = int(view(storage[term.source.buffer.name], term.source, (1,))[0])
        else:
            carried[term.name] = evaluate(term.source, values)
    return outputs, carried


def _placed(buffer: Buffer, given: Any) -> Any:
    """A caller's tensor at the compiled shape; one cut to its bound leaves the rest unwritten."""
    if isinstance(given, PackedArray):
        return given
    given = np.asarray(given)
    if given.shape == buffer.shape:
        return given
    if given.ndim != len(buffer.shape) or any(n > m for n, m in zip(given.shape, buffer.shape, strict=True)):
        raise ShapeError(f"input {buffer.name} is {list(buffer.shape)}; got {list(given.shape)}.")
    array = empty(buffer)
    array[tuple(slice(n) for n in given.shape)] = given
    return array


def run_graph(graph: Any, tensors: tuple[Any, ...], values: dict[str, Any]) -> Any:
    """`Graph.reference`: trace at the tensors' shapes (or the compiled shapes they are cut from) and run.

    States live in `graph._reference_residents`, by name, from one call to the next.
    """
    from iron_core.graph.compiled import compiled_shapes
    from iron_core.graph.graph import shapes_of

    given = shapes_of(type(graph), tensors)
    given = {n: t if isinstance(t, PackedArray) else np.asarray(t) for n, t in given.items()}
    traces = graph.__dict__.setdefault("_reference_traces", {})
    residents = graph.__dict__.setdefault("_reference_residents", {})
    shapes = compiled_shapes(graph, given)
    key = graph.signature(shapes)
    if key not in traces:
        traces[key] = graph.trace(**shapes)
    traced = traces[key]
    outputs, carried = run(traced, given, values, residents)
    return pack(traced, outputs, carried)


def pack(traced: Any, outputs: list[Any], carried: dict[str, int]) -> Any:
    """What a call returns: one output bare, several as a tuple, carried values last as a namespace."""
    from types import SimpleNamespace

    if traced.carry:
        return (*outputs, SimpleNamespace(**carried))
    return outputs[0] if traced.single and len(outputs) == 1 else tuple(outputs)
