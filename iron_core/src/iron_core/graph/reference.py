"""The reference run: a traced graph interpreted step by step in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from iron_core.declare.affine import bounded_shape, evaluate
from iron_core.declare.authored import authored
from iron_core.declare.formats import PackedArray, format_of
from iron_core.declare.rounding import round_to
from iron_core.errors import DeclarationError, ShapeError, printable
from iron_core.graph.call import as_arrays, sort_call, sort_values
from iron_core.graph.held import held
from iron_core.graph.signature import KEPT, NUMBER
from iron_core.graph.traced import Region, Tensor, TracedGraph, TracedStep, numbers
from iron_core.graph.weight import State
from iron_core.turn import Turn

#: Called after every step with the step, its operator at the call's bounds, the inputs it read and the exact
#: (unrounded) results.
OnStep = Callable[[TracedStep, Any, tuple[Any, ...], tuple[Any, ...]], None]


def empty(tensor: Tensor) -> Any:
    """Storage of an intermediate: NaN where a float was never written, so reading it shows."""
    dtype = tensor.format.dtype
    return tensor.format.zeros(tensor.shape) if dtype.kind in "iu" else np.full(tensor.shape, np.nan, dtype)


def view(array: Any, region: Region, shape: tuple[int, ...]) -> Any:
    """A region of a tensor's storage, under `shape`; writing to it writes the storage."""
    size = math.prod(shape)
    if isinstance(array, PackedArray):
        rows = array.data.reshape(-1, array.data.shape[-1])
        numbers = array.size // len(rows)  # of the tensor, in a row of its bytes
        part = rows[region.start // numbers : (region.start + size) // numbers]
        whole = region.shape if len(shape) == 1 else shape
        return PackedArray(part, whole, array.format)
    return array.reshape(-1)[region.start : region.start + size].reshape(shape)


def run_step(
    step: TracedStep, values: Mapping[str, int], storage: Mapping[str, Any], on_step: OnStep | None = None
) -> None:
    """Compute one step and write its outputs, rounded once, into `storage` (tensor name -> array)."""
    op = step.op
    bound = {b.member: b.expression.at(values) for b in step.bindings}
    extents = op.limits(bound)
    scratchpads = {m: n for m, n in bound.items() if m in op.scratchpads}
    small = op.bounded(**extents) if extents else op

    def cut(name: str) -> Any:
        region = step.operands[name]
        array = view(storage[region.tensor.name], region, op.shape(name))
        if extents:
            axes = op.operands[name].axes(op)
            if isinstance(array, PackedArray):
                axes = axes[:-1]  # blocks stay whole
            array = array[tuple(slice(extents[a]) if a in extents else slice(None) for a in axes)]
        return array

    inputs = tuple(cut(o.name) if o.name in step.operands else None for o in op.inputs)
    kept = {name: cut(name).copy() for name in op.partial}
    given = tuple(a.copy() if o.written and a is not None else a for o, a in zip(op.inputs, inputs, strict=True))
    with authored(op.base, "reference()"), np.errstate(all="ignore"):  # infinities and NaN are numbers, as on every backend
        result = small.reference(*given, **scratchpads, **kept)
    results = result if isinstance(result, tuple) else (result,)
    written = [o for o in op.outputs if o.present(op)]
    if on_step is not None:
        on_step(step, small, inputs, results)
    if len(results) != len(written):
        names = ", ".join(o.name for o in written)
        raise DeclarationError(f"{type(op).__name__}.reference() returned {len(results)} arrays; its outputs: {names}.")
    for operand, exact in zip(written, results, strict=True):
        target = cut(operand.name)
        if isinstance(target, PackedArray):
            target.data[...] = exact.data.reshape(target.data.shape)
            continue
        exact = np.asarray(exact)
        if exact.dtype.kind in "OUSMm":
            shown = printable(repr(exact.item() if exact.size == 1 else exact.dtype), 60)
            raise DeclarationError(f"{type(op).__name__}.reference() returned {shown} for {operand.name}; legal: an array of numbers.")
        if exact.size != target.size:
            raise DeclarationError(
                f"{type(op).__name__}.reference() returned {list(exact.shape)} for {operand.name}, which is {list(target.shape)}."
            )
        target[...] = round_to(exact, target.dtype).reshape(target.shape)


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
    values = numbers(traced.name, {v.name: v for v in traced.values}, values)
    for check in traced.checks:
        check.verify(values)
    for ids_check in traced.id_checks:
        ids_check.verify(inputs[ids_check.name], values)
    for tensor in (*traced.weights, *traced.states):
        if tensor.name not in residents:
            residents[tensor.name] = tensor.data if tensor.role == "weight" else tensor.format.zeros(tensor.shape)
    storage = dict(residents)
    storage.update({b.name: empty(b) for b in traced.intermediates})
    for tensor in traced.inputs:
        storage[tensor.name] = _placed(traced, tensor, inputs[tensor.name], values)
    for step in traced.steps:
        run_step(step, values, storage, on_step)
    outputs = []
    for region in traced.outputs:
        array = view(storage[region.tensor.name], region, region.shape)
        bounds = {a: evaluate(e, values) for a, e in region.bounds}
        outputs.append(array[tuple(slice(bounds.get(a)) for a in range(array.ndim))] if bounds else array)
    carried = {}
    for term in traced.carry:
        if isinstance(term.source, Region):
            carried[term.name] = int(view(storage[term.source.tensor.name], term.source, (1,))[0])
        else:
            carried[term.name] = evaluate(term.source, values)
    return outputs, carried


def _placed(traced: TracedGraph, tensor: Tensor, given: Any, values: Mapping[str, int]) -> Any:
    """A caller's tensor at the compiled shape; one cut to its bound leaves the rest unwritten."""
    given = given if isinstance(given, PackedArray) else np.asarray(given)
    if format_of(given) != tensor.format:
        raise ShapeError(f"{traced.name}: input {tensor.name} is {tensor.format}; got {format_of(given)}.")
    if tuple(given.shape) == tensor.shape:
        return given
    bounds = traced.bounds_of(tensor)
    cut = bounded_shape(tensor.shape, bounds, values)
    if tuple(given.shape) != cut:
        either = f", or {list(cut)} cut to its bound" if bounds else ""
        raise ShapeError(f"{traced.name}: input {tensor.name} is {list(tensor.shape)}{either}; got {list(given.shape)}.")
    array = empty(tensor)
    if isinstance(array, PackedArray):
        array.data[tuple(slice(n) for n in cut[:-1])] = given.data
    else:
        array[tuple(slice(n) for n in cut)] = given
    return array


def run_graph(graph: Any, tensors: tuple[Any, ...], values: dict[str, Any]) -> Any:
    """`Graph.reference`: trace at the tensors' shapes (or the compiled shapes they are cut from) and run.

    The graph keeps its traces and, by the identity of their storage, its states; threads take turns.
    """
    given, values = sort_call(type(graph), tensors, values)
    given = as_arrays(type(graph), given)
    fixed, values = sort_values(type(graph), values)
    shapes = compiled_shapes(graph, given) | fixed
    key = graph.signature(shapes)
    with _turn_of(graph):
        traces = graph.__dict__.setdefault("_reference_traces", {})
        if key not in traces:
            traces[key] = graph.trace(**shapes)
            if fixed and len(traces) > KEPT:
                del traces[next(iter(traces))]
        traced = traces[key]
        states = graph.__dict__.setdefault("_reference_states", {})
        states.update({b.key: (b.name, b.format.zeros(b.shape)) for b in traced.states if b.key not in states})
        residents = {b.name: states[b.key][1] for b in traced.states}
        outputs, carried = run(traced, given, values, residents)
        return pack(traced, outputs, carried)


def compiled_shapes(graph: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The input shapes of a reference run on these tensors: a compiled version's where they are cut from its, else theirs."""
    own = {name: (tuple(t.shape), format_of(t)) for name, t in given.items()}
    key = [(name, shape, format.name) for name, (shape, format) in own.items()]
    plans = [v for c in graph.__dict__.get("_compiled", {}).values() for v in c.plan.versions]
    if any([one for one in plan.signature if one[2] != NUMBER] == key for plan in plans):
        return own
    for plan in plans:
        if [port.name for port in plan.inputs] == list(own) and all(
            port.format == own[port.name][1] and _cut_from(own[port.name][0], port) for port in plan.inputs
        ):
            return {port.name: (port.shape, port.format) for port in plan.inputs}
    return own


def _cut_from(shape: tuple[int, ...], port: Any) -> bool:
    """Could this be the port's shape cut to some bound?"""
    free = {axis for axis, _ in port.bounds}
    return len(shape) == len(port.shape) and all(
        n == m or (axis in free and n <= m) for axis, (n, m) in enumerate(zip(shape, port.shape, strict=True))
    )


def states_of(graph: Any) -> dict[str, Any]:
    """The states of a graph's reference run, by name; zeros for those no call has touched."""
    with _turn_of(graph):
        states = graph.__dict__.setdefault("_reference_states", {})
        for key, (name, item) in held(graph).items():
            if isinstance(item, State) and key not in states:
                states[key] = (name, item.format.zeros(item.shape))
        return dict(states.values())


def _turn_of(graph: Any) -> Turn:
    return graph.__dict__.setdefault("_reference_turn", Turn(f"{type(graph).__name__}.reference"))


def pack(traced: Any, outputs: list[Any], carried: dict[str, int]) -> Any:
    """What a call returns: one output bare, several as a tuple, carried values last as a namespace."""
    if traced.carry:
        return (*outputs, SimpleNamespace(**carried))
    return outputs[0] if traced.single and len(outputs) == 1 else tuple(outputs)
