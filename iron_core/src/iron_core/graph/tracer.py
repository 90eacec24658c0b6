"""Recording a body: one step per operator call on handles."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from iron_core.declare.formats import Format
from iron_core.declare.operator import Operator
from iron_core.declare.pattern import Pattern
from iron_core.errors import CallError, ShapeError, TraceError
from iron_core.graph.affine import Affine
from iron_core.graph.handle import Handle
from iron_core.graph.traced import Binding, Buffer, IdCheck, IndexCheck, PerCallValue, Region, TracedStep
from iron_core.graph.weight import State, Weight, _Resident, is_array

_CURRENT: contextvars.ContextVar[Tracer | None] = contextvars.ContextVar("iron_tracer", default=None)


def current() -> Tracer | None:
    """The trace in progress, if any."""
    return _CURRENT.get()


class Tracer:
    """One trace of one body: buffers made so far, steps in order, checks to hold before a call."""

    def __init__(self, names: dict[int, str], values: tuple[PerCallValue, ...]) -> None:
        self.names = names
        self.values = values
        self.steps: list[TracedStep] = []
        self.inputs: list[Buffer] = []
        self.residents: dict[int, Buffer] = {}
        self.intermediates: list[Buffer] = []
        self.checks: dict[tuple[Any, ...], IndexCheck] = {}
        self.id_checks: dict[str, IdCheck] = {}
        self._taken = set(names.values())
        self._counts: dict[str, int] = {}
        self._bound_members: dict[int, dict[str, Any]] = {}

    @contextmanager
    def active(self) -> Iterator[Tracer]:
        """Make this the current trace."""
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)

    def check(self, check: IndexCheck) -> None:
        """Note a condition on per-call values."""
        self.checks.setdefault((check.expression.key, check.extent, check.limit), check)

    def fresh(self, stem: str) -> str:
        """A name no weight, state, input or earlier buffer has."""
        while True:
            n = self._counts.get(stem, 0)
            self._counts[stem] = n + 1
            name = f"{stem}{n}"
            if name not in self._taken:
                self._taken.add(name)
                return name

    def input(self, name: str, shape: tuple[int, ...], format: Format) -> Handle:
        """A new input."""
        if name in self._taken:
            raise TraceError(f"input `{name}` has the name of a weight or state the graph holds; rename one.")
        self._taken.add(name)
        buffer = Buffer(name, "input", shape, format)
        self.inputs.append(buffer)
        return self._whole(buffer)

    def intermediate(self, stem: str, shape: tuple[int, ...], format: Format, bounds: dict[int, Affine]) -> Handle:
        buffer = Buffer(self.fresh(stem), "intermediate", shape, format)
        self.intermediates.append(buffer)
        return Handle(buffer, Pattern.whole(shape), bounds=bounds, tracer=self)

    def _whole(self, buffer: Buffer) -> Handle:
        return Handle(buffer, Pattern.whole(buffer.shape), tracer=self)

    def handle(self, item: Any) -> Handle:
        """The handle of what a body passes: a handle, a weight, a state, or an array the graph holds."""
        if isinstance(item, Handle):
            if item.tracer is not self:
                raise TraceError(f"{item} belongs to another trace; a handle lives only while its body is traced.")
            return item
        if is_array(item):
            item = Weight(item)
        if not isinstance(item, _Resident):
            raise TraceError(
                f"an operator is called on {type(item).__name__}; legal: handles, weights, states and arrays the graph holds."
            )
        key = item.key  # type: ignore[attr-defined]
        if key not in self.residents:
            role = "state" if isinstance(item, State) else "weight"
            name = self.names.get(key) or item.name or self.fresh("state" if role == "state" else "w")
            # What is named by its object keeps that object alive with the buffer.
            self.residents[key] = Buffer(name, role, item.shape, item.format, key, item if role == "state" else item.data)
        return self._whole(self.residents[key])


def record(operator: type[Operator] | Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a step of the current trace; returns its output handle, or a tuple of them.

    CallError outside a body, or for wrong operands; ShapeError and TraceError for tensors that do not fit.
    """
    cls = operator if isinstance(operator, type) else type(operator)
    tracer = current()
    if tracer is None:
        raise CallError(
            f"{cls.__name__} is called on tensors outside a graph body. Construct it by keyword "
            f"({cls.__name__}({', '.join(f'{k}=...' for k, f in cls.fields.items() if f.required)})), "
            "or call it inside Graph.body()."
        )
    return _Recording(tracer, cls, None if isinstance(operator, type) else operator, args, kwargs).run()


class _Recording:
    """The arguments of one call, sorted out step by step."""

    def __init__(
        self, tracer: Tracer, cls: type[Operator], instance: Operator | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.tracer, self.cls, self.instance = tracer, cls, instance
        self.handles: dict[str, Handle] = {}
        self.fields: dict[str, Any] = {}
        self.bindings: dict[str, Any] = {}
        self._sort(args, kwargs)

    def _sort(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cls, name = self.cls, self.cls.__name__
        needed = [o for o in cls.inputs if o.when is None]
        outs = [o for o in cls.outputs if o.role == "out"]
        if len(args) < len(needed) or len(args) > len(needed) + len(outs):
            up_to = f" to {len(needed) + len(outs)} (outputs last)" if outs else ""
            raise CallError(
                f"{name} takes {len(needed)}{up_to} tensors ({', '.join(o.name for o in needed + outs)}); got {len(args)}."
            )
        for operand, item in zip([*needed, *outs], args, strict=False):
            self.handles[operand.name] = self.tracer.handle(item)
        for key, item in kwargs.items():
            if key in cls.operands:
                if key in self.handles:
                    raise CallError(f"{name}: {key} is given twice.")
                if item is not None:
                    self.handles[key] = self.tracer.handle(item)
            elif key in cls.extents or key in cls.scratchpads:
                if not isinstance(item, (Affine, int)):
                    raise CallError(f"{name}: {key}= takes a per-call expression or an int; got {type(item).__name__}.")
                self.bindings[key] = item
            elif isinstance(item, Affine):
                raise TraceError(
                    f"{name}: {key}={item!r}: a field is fixed when the graph is traced and cannot follow a per-call value. "
                    f"What can: {', '.join([*cls.extents, *cls.scratchpads]) or 'nothing of this operator'}."
                )
            elif self.instance is not None:
                raise CallError(f"{name}: {key}= cannot change an operator that is made already.")
            else:
                self.fields[key] = item

    def run(self) -> Any:
        shapes = self._views()
        op = self.instance
        if op is None:
            op = self.cls.construct(self.cls.infer(shapes, self.fields))
        regions, bounds = self._regions(op)
        outputs = []
        for operand in op.outputs:
            if not operand.present(op):
                continue
            handle = self.handles.get(operand.name)
            if handle is None:
                handle = self._fresh(op, operand, bounds)
                regions[operand.name] = _region(handle, op.shape(operand.name))
            outputs.append(handle)
        self._ids()
        self._bind_once(op)
        bindings = tuple(Binding(m, e) for m, e in self.bindings.items() if isinstance(e, Affine))
        constants = {m: e for m, e in self.bindings.items() if not isinstance(e, Affine)}
        if constants:
            raise CallError(f"{self.cls.__name__}: {', '.join(constants)}= takes a per-call expression; use the operand's shape for a constant.")
        ordered = {name: regions[name] for name in op.operands if name in regions}
        self.tracer.steps.append(TracedStep(self.tracer.fresh(self.cls.__name__.lower()), op, ordered, bindings))
        return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

    # -- views ------------------------------------------------------------------------------------

    def _views(self) -> dict[str, tuple[tuple[int, ...], Format]]:
        """Shapes for inference; a view becomes a pattern of its whole buffer where the operator takes views."""
        shapes: dict[str, tuple[tuple[int, ...], Format]] = {}
        for name, handle in self.handles.items():
            operand = self.cls.operands[name]
            if operand.written and handle.buffer.role in ("input", "weight"):
                raise TraceError(f"{self.cls.__name__} writes {name}, but {handle} is an {handle.buffer.role} of the graph.")
            members = self.cls.accept_views.get(name)
            if members is None:
                if not handle.plain:
                    kind = "a gather" if handle.ids is not None else "offset per call" if handle.index is not None else "strided"
                    raise TraceError(f"{self.cls.__name__} takes whole tensors and {name} ({handle}) is {kind}; Copy it first.")
                shapes[name] = (handle.shape, handle.format)
                continue
            shapes[name] = (handle.buffer.shape, handle.format)
            self._view_fields(name, members, handle)
        for name, handle in list(self.handles.items()):
            if isinstance(handle.ids, Handle):
                ids = self.cls.accept_gather
                self.handles[ids] = handle.ids
                shapes[ids] = (handle.ids.shape, handle.ids.format)
        self._same_bound()
        return shapes

    def _view_fields(self, name: str, members: Any, handle: Handle) -> None:
        if handle.ids is not None:
            if self.cls.accept_gather is None or not self.cls.operands[name].read:
                raise TraceError(f"{self.cls.__name__}: {name} cannot be a gather; Copy(table[ids]) makes a tensor of it.")
            row = Pattern(0, handle.pattern.sizes[1:], handle.pattern.strides[1:])
            if isinstance(handle.ids, Handle):
                self.fields[members.rows] = handle.pattern.sizes[0]
            else:
                stride, start = handle.pattern.strides[0], handle.pattern.offset
                self.fields[members.pattern] = tuple(row.shifted(start + i * stride) for i in handle.ids)
        elif not (handle.plain and handle.size == handle.buffer.size):
            self.fields[members.pattern] = handle.pattern
        elif handle.bounds:
            self.fields[members.pattern] = handle.pattern
        if handle.index is not None:
            self.bindings[members.offset] = handle.index
        if handle.bounds:
            if len(handle.bounds) > 1:
                raise TraceError(f"{self.cls.__name__}: {name} ({handle}) is bounded on two axes; one per copy.")
            (axis, expression), = handle.bounds.items()
            self.bindings[members.valid] = expression
            if handle.ids is None:
                self.fields[members.axis] = axis

    def _same_bound(self) -> None:
        """What an operator that takes views writes is bounded as what it reads."""
        views = self.cls.accept_views
        source = next((self.handles[o.name] for o in self.cls.inputs if o.name in views and o.name in self.handles), None)
        if source is None:
            return
        for operand in self.cls.outputs:
            members = views.get(operand.name)
            if members is None:
                continue
            target = self.handles.get(operand.name)
            if target is not None and target.size != source.size:
                raise ShapeError(f"{self.cls.__name__}: {source} has {source.size} elements, {target} {target.size}.")
            if not source.bounds or (target is not None and target.bounds):
                continue
            if target is not None and target.shape != source.shape:
                raise TraceError(f"{self.cls.__name__}: {source} is bounded per call; give {target} its shape, or bound it alike.")
            (axis, expression), = source.bounds.items()
            self.fields[members.pattern] = Pattern.whole(source.shape) if target is None else target.pattern
            self.fields[members.axis] = axis
            self.bindings[members.valid] = expression

    def _ids(self) -> None:
        for handle in self.handles.values():
            if isinstance(handle.ids, Handle) and handle.ids.buffer.role == "input":
                ids = handle.ids
                self.tracer.id_checks[ids.buffer.name] = IdCheck(ids.buffer.name, handle.pattern.sizes[0], ids.bounds.get(0))

    # -- bounds -----------------------------------------------------------------------------------

    def _regions(self, op: Operator) -> tuple[dict[str, Region], dict[str, Affine]]:
        """Regions of the operands given, and per bounded field of the operator its expression."""
        regions: dict[str, Region] = {}
        bounds: dict[str, Affine] = {}
        for name, handle in self.handles.items():
            shape = op.shape(name)
            if name in self.cls.accept_views:
                buffer = handle.buffer
                regions[name] = Region(buffer, 0, buffer.shape)
                continue
            if handle.size != math.prod(shape) or (handle.ndim == len(shape) and handle.shape != shape):
                raise ShapeError(f"{self.cls.__name__}: {name} is {list(shape)}; got {handle}.")
            if handle.format != op.format(name):
                raise ShapeError(f"{self.cls.__name__}: {name} is {op.format(name)}; got {handle} of {handle.format}.")
            regions[name] = _region(handle, shape)
            if name == self.cls.accept_gather:
                continue
            for axis, expression in handle.bounds.items():
                self._bound(op, name, handle, axis, expression, bounds)
        for member, extent in self.cls.extents.items():
            if member in self.bindings and isinstance(self.bindings[member], Affine):
                bounds.setdefault(extent.field, self.bindings[member])
        return regions, bounds

    def _bound(self, op: Operator, name: str, handle: Handle, axis: int, expression: Affine, bounds: dict[str, Affine]) -> None:
        axes = op.operands[name].axes(op)
        if len(axes) == 1 and handle.ndim != 1:
            if math.prod(handle.shape[:axis]) != 1:
                raise TraceError(f"{self.cls.__name__}: {name} ({handle}) is flat here, and its bound is not on the leading axis.")
            scaled = expression * math.prod(handle.shape[axis + 1 :])
            field = axes[0]
        elif handle.ndim == len(axes):
            scaled, field = expression, axes[axis]
        else:
            lead = handle.ndim - len(axes)
            if axis < lead or handle.shape[lead:] != op.shape(name):
                raise TraceError(f"{self.cls.__name__}: {name} ({handle}) has another rank here, which hides its bound on axis {axis}.")
            scaled, field = expression, axes[axis - lead]
        member = next((m for m, e in self.cls.extents.items() if e.field == field), None)
        if member is None:
            raise TraceError(
                f"{self.cls.__name__}: axis {axis} of {name} ({handle}) is bounded per call, and {self.cls.__name__} has no bound on "
                f"{field}. It bounds: {', '.join(e.field for e in self.cls.extents.values()) or 'nothing'}."
            )
        held = bounds.setdefault(field, scaled)
        if held.key != scaled.key:
            raise ShapeError(f"{self.cls.__name__}: {field} is bounded by {held!r} and, through {name}, by {scaled!r}.")
        self.bindings[member] = scaled

    def _fresh(self, op: Operator, operand: Any, bounds: dict[str, Affine]) -> Handle:
        """A new output: of the first input's shape where both are flat and equally large, else as declared."""
        shape, format = op.shape(operand.name), op.format(operand.name)
        axes = operand.axes(op)
        stem = f"{self.cls.__name__.lower()}_{operand.name.lower()}"
        if len(axes) == 1:
            for source in op.inputs:
                handle = self.handles.get(source.name)
                if handle is not None and handle.size == math.prod(shape) and handle.ndim > 0:
                    return self.tracer.intermediate(stem, handle.shape, format, dict(handle.bounds))
        limited = {i: bounds[f] for i, f in enumerate(axes) if isinstance(f, str) and f in bounds}
        return self.tracer.intermediate(stem, shape, format, limited)

    def _bind_once(self, op: Operator) -> None:
        if self.instance is None:
            return
        held = self.tracer._bound_members.setdefault(id(op), {})
        for member, expression in self.bindings.items():
            key = expression.key if isinstance(expression, Affine) else expression
            if held.setdefault(member, key) != key:
                raise ShapeError(
                    f"{op!r} binds {member} to another expression at an earlier call; use two instances."
                )


def _region(handle: Handle, shape: tuple[int, ...]) -> Region:
    """A plain handle as an operand of this shape. Bounds are kept where the ranks agree."""
    bounds = tuple(sorted(handle.bounds.items()))
    return Region(handle.buffer, handle.pattern.offset, handle.shape, bounds)
