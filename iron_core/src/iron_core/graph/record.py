"""Calling an operator on handles: one step of the trace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core.declare.affine import Affine
from iron_core.declare.construct import construct
from iron_core.declare.field import Field
from iron_core.declare.formats import Format
from iron_core.declare.infer import infer
from iron_core.declare.operator import Operator
from iron_core.declare.pattern import Pattern
from iron_core.errors import CallError, ShapeError, TraceError
from iron_core.graph.current import current
from iron_core.graph.handle import Handle
from iron_core.graph.members import reach
from iron_core.graph.traced import Binding, IdCheck, IndexCheck, Region, TracedStep, rebound
from iron_core.graph.tracer import Tracer


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
                self._bind(key, item)
            elif isinstance(item, Affine):
                raise TraceError(
                    f"{name}: {key}={item!r}: a field is fixed when the graph is traced and cannot follow a per-call value. "
                    f"What can: {', '.join([*cls.extents, *cls.scratchpads]) or 'nothing of this operator'}."
                )
            elif self.instance is not None:
                raise CallError(f"{name}: {key}= cannot change an operator that is made already.")
            elif key == "dtype" and key not in cls.fields:
                for output in outs:
                    if isinstance(output.dtype, Field):
                        self.fields[output.dtype.name] = item
            else:
                self.fields[key] = item

    def _bind(self, member: str, item: Any) -> None:
        """A per-call number given by keyword."""
        name = self.cls.__name__
        if any(member in (m.offset, m.valid) for m in self.cls.accept_views.values()):
            raise CallError(f"{name}: {member}= follows from the view; index or bound the tensor instead: x[pos], x[:n].")
        if isinstance(item, Affine):
            self.bindings[member] = item
        elif item is not None and not (member in self.cls.scratchpads and isinstance(item, int) and item == 0):
            raise CallError(f"{name}: {member}={item!r}: a per-call expression goes there; for a constant, slice the operand.")

    def run(self) -> Any:
        shapes = self._views()
        op = self.instance
        if op is None:
            op = construct(self.cls, infer(self.cls, shapes, self.fields))
        else:
            self._made_for(op)
        if op.binary is not None:
            raise TraceError(
                f"{self.cls.__name__}: {op.binary} is a binary that runs by itself, and the steps of a graph are built together. Legal: "
                "OperatorImage(op), outside a graph."
            )
        self._check_members(op)
        regions, bounds = self._regions(op)
        self._apart(op, regions)
        outputs = []
        for operand in op.outputs:
            if not operand.present(op):
                continue
            handle = self.handles.get(operand.name)
            if handle is None:
                handle = self._fresh(op, operand, bounds)
                regions[operand.name] = handle.region()
            outputs.append(handle)
        self._ids()
        self._bind_once(op)
        bindings = tuple(Binding(m, e) for m, e in self.bindings.items())
        ordered = {name: regions[name] for name in op.operands if name in regions}
        self.tracer.steps.append(TracedStep(self.tracer.fresh(self.cls.__name__.lower()), op, ordered, bindings, self.tracer.category))
        return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

    def _made_for(self, op: Operator) -> None:
        """An instance that was made by keyword has the operands and views of this call."""
        name = self.cls.__name__
        for operand in op.operands.values():
            if operand.present(op) and operand.read and operand.name not in self.handles:
                raise CallError(f"{name}: this instance has {operand.name}; give it.")
            if operand.when is not None and not operand.present(op) and operand.name in self.handles:
                raise CallError(f"{name}: this instance has no {operand.name} ({operand.when.name}=False).")
        for field, value in self.fields.items():
            if getattr(op, field) != value:
                raise ShapeError(f"{name}: this instance has {field}={getattr(op, field)}, and the call's view is {value}.")

    def _check_members(self, op: Operator) -> None:
        """Conditions on the numbers given by keyword; those of views are noted where the view is taken."""
        views = {member for view in self.cls.accept_views.values() for member in (view.offset, view.valid)}
        for member, expression in self.bindings.items():
            within = None if member in views else reach(op, member)
            if within is not None:
                self.tracer.check(IndexCheck(f"{self.cls.__name__}({member}={expression!r})", expression, *within))

    # -- views ------------------------------------------------------------------------------------

    def _views(self) -> dict[str, tuple[tuple[int, ...], Format]]:
        """Shapes for inference; a view becomes a pattern of its whole tensor where the operator takes views."""
        shapes: dict[str, tuple[tuple[int, ...], Format]] = {}
        for name, handle in self.handles.items():
            operand = self.cls.operands[name]
            if operand.written and handle.tensor.role in ("input", "weight"):
                raise TraceError(f"{self.cls.__name__} writes {name}, but {handle} is {handle.tensor.a_role} of the graph.")
            members = self.cls.accept_views.get(name)
            if members is None:
                if not handle.plain:
                    kind = "a gather" if handle.ids is not None else "offset per call" if handle.index is not None else "strided"
                    across = handle.pattern.sizes and handle.pattern.sizes[-1] > 1 and handle.pattern.strides[-1] != 1
                    other = ", or Transpose what it views" if across else ""
                    raise TraceError(f"{self.cls.__name__} takes whole tensors and {name} ({handle}) is {kind}; Copy it first{other}.")
                shapes[name] = (handle.shape, handle.format)
                continue
            shapes[name] = (handle.tensor.shape, handle.format)
            self._view_fields(name, members, handle)
        ids = self.cls.accept_gather
        for handle in list(self.handles.values()):
            if ids is not None and isinstance(handle.ids, Handle):
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
        elif not (handle.plain and handle.size == handle.tensor.size):
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
        """An operator that takes views moves what it reads to what it writes: both have the same bound."""
        views = self.cls.accept_views
        reader = next((o.name for o in self.cls.inputs if o.name in views and o.name in self.handles), None)
        if reader is None:
            return
        source = self.handles[reader]
        for operand in self.cls.outputs:
            if operand.name not in views:
                continue
            target = self.handles.get(operand.name)
            if target is not None and target.size != source.size:
                raise ShapeError(f"{self.cls.__name__}: {source} has {source.size} elements, {target} {target.size}.")
            if target is None or not target.bounds:
                self._bound_alike(operand.name, target, source)
            elif source.bounds:
                if _amount(source) != _amount(target):
                    raise ShapeError(f"{self.cls.__name__}: {source} and {target} are bounded differently; bound both alike.")
            elif source.ids is not None:
                raise TraceError(f"{self.cls.__name__}: {target} is bounded per call; bound the ids of the gather instead.")
            else:
                self._bound_alike(reader, source, target)

    def _bound_alike(self, name: str, handle: Handle | None, other: Handle) -> None:
        """Bound one side as the other is; None is an output yet to be made, of the other's shape."""
        if not other.bounds:
            return
        pattern, bounds = Pattern.whole(other.shape), dict(other.bounds)
        if handle is not None:
            pattern = handle.pattern
            moved = bounds if handle.shape == other.shape else rebound(other.shape, bounds, handle.shape)
            if moved is None:
                raise TraceError(f"{self.cls.__name__}: {other} is bounded per call; give {handle} its shape, or bound it alike.")
            bounds = moved
        members = self.cls.accept_views[name]
        ((axis, expression),) = bounds.items()
        self.fields[members.pattern] = pattern
        self.fields[members.axis] = axis
        self.bindings[members.valid] = expression

    def _ids(self) -> None:
        for handle in self.handles.values():
            if isinstance(handle.ids, Handle) and handle.ids.tensor.role == "input":
                ids, bound = handle.ids, handle.ids.bounds.get(0)
                check = IdCheck(ids.tensor.name, handle.pattern.sizes[0], bound, ids.pattern.offset, ids.size)
                key = None if bound is None else bound.key
                self.tracer.id_checks[check.name, check.limit, key, check.start, check.count] = check

    def _apart(self, op: Operator, regions: dict[str, Region]) -> None:
        """A step does not write over what it reads, but an elementwise one in place."""
        for name, out in regions.items():
            if op.operands[name].role != "out":
                continue
            for other, read in regions.items():
                if not op.operands[other].read or not out.overlaps(read):
                    continue
                target, source = self.handles[name].pattern, self.handles[other].pattern
                if name in self.cls.accept_views:
                    clash = target != source and _clash(target, source, self.bindings, self.cls.accept_views.values())
                else:
                    alike = target.offset == source.offset and target.size == source.size
                    clash = not (self.cls.elementwise and alike)
                if clash:
                    raise TraceError(
                        f"{self.cls.__name__} writes {name} ({self.handles[name]}) over {other}, which it reads; Copy one of them first."
                    )

    # -- bounds -----------------------------------------------------------------------------------

    def _regions(self, op: Operator) -> tuple[dict[str, Region], dict[str, Affine]]:
        """Regions of the operands given, and per bounded field of the operator its expression."""
        regions: dict[str, Region] = {}
        bounds = {e.field: self.bindings[m] for m, e in self.cls.extents.items() if m in self.bindings}
        for name, handle in self.handles.items():
            shape = op.shape(name)
            if name in self.cls.accept_views:
                tensor = handle.tensor
                if tensor.size != math.prod(shape):
                    raise ShapeError(f"{self.cls.__name__}: {name} is {list(shape)}; got a view of {tensor}.")
                self._same_format(op, name, handle)
                regions[name] = handle.region() if handle.whole else Region(tensor, 0, tensor.shape)
                continue
            if handle.size != math.prod(shape) or (handle.ndim == len(shape) and handle.shape != shape):
                raise ShapeError(f"{self.cls.__name__}: {name} is {list(shape)}; got {handle}.")
            self._same_format(op, name, handle)
            regions[name] = handle.region()
            if name == self.cls.accept_gather:
                continue
            for axis, expression in handle.bounds.items():
                self._bound(op, name, handle, axis, expression, bounds)
        return regions, op.limits(self.bindings)

    def _same_format(self, op: Operator, name: str, handle: Handle) -> None:
        if handle.format != op.format(name):
            raise ShapeError(f"{self.cls.__name__}: {name} is {op.format(name)}; got {handle} of {handle.format}.")

    def _bound(self, op: Operator, name: str, handle: Handle, axis: int, expression: Affine, bounds: dict[str, Affine]) -> None:
        axes = op.operands[name].axes(op)
        if len(axes) == 1 and handle.ndim != 1:
            if math.prod(handle.shape[:axis]) != 1:
                raise TraceError(f"{self.cls.__name__}: {name} ({handle}) is flat here, and its bound is not on the leading axis.")
            scaled = expression.times(math.prod(handle.shape[axis + 1 :]))
            field = axes[0]
        elif handle.ndim == len(axes):
            scaled, field = expression, axes[axis]
        else:
            lead = handle.ndim - len(axes)
            if axis < lead or handle.shape[lead:] != op.shape(name):
                raise TraceError(f"{self.cls.__name__}: {name} ({handle}) has another rank here, which hides its bound on axis {axis}.")
            scaled, field = expression, axes[axis - lead]
        member = next((m for m, e in self.cls.extents.items() if field in (e.field, *e.multiples)), None)
        if member is not None and self.cls.extents[member].field != field:
            base = self.cls.extents[member].field
            ratio = getattr(op, field) // getattr(op, base)
            whole = scaled.exactly(ratio)
            if whole is None:
                raise TraceError(
                    f"{self.cls.__name__}: {field}, bounded by {scaled!r} through {name}, is {ratio} times {base} on every call."
                )
            scaled, field = whole, base
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
        """A new output: a flat one of the shape of an equally large flat input (one that is bounded, if any is); else as declared."""
        shape, format = op.shape(operand.name), op.format(operand.name)
        axes = operand.axes(op)
        stem = f"{self.cls.__name__.lower()}_{operand.name.lower()}"
        limited = {i: bounds[f] for i, f in enumerate(axes) if isinstance(f, str) and f in bounds}
        if len(axes) == 1:
            size = math.prod(shape)
            alike = [self.handles[o.name] for o in op.inputs if o.name in self.handles and len(o.axes(op)) == 1]
            alike = [h for h in alike if h.size == size and h.ndim > 0]
            if alike:
                model = next((h for h in alike if h.bounds), alike[0])
                held = dict(model.bounds) or rebound(shape, limited, model.shape)
                if held is None:
                    raise TraceError(
                        f"{self.cls.__name__}: {limited[0]!r} elements of {list(model.shape)} are not whole rows; bound the operand: x[:n]."
                    )
                return self.tracer.intermediate(stem, model.shape, format, held)
        return self.tracer.intermediate(stem, shape, format, limited)

    def _bind_once(self, op: Operator) -> None:
        if self.instance is None:
            return
        held = self.tracer.bound_members.setdefault(id(op), {})
        for member, expression in self.bindings.items():
            key = expression.key if isinstance(expression, Affine) else expression
            if held.setdefault(member, key) != key:
                raise ShapeError(
                    f"{op!r} binds {member} to another expression at an earlier call; use two instances."
                )


def _amount(handle: Handle) -> Any:
    """What a bounded view moves, so that two views can be compared."""
    ((axis, expression),) = handle.bounds.items()
    if math.prod(handle.shape[:axis]) == 1:
        return expression.times(math.prod(handle.shape[axis + 1 :])).key
    return axis, handle.shape, expression.key


def _clash(a: Pattern, b: Pattern, bindings: dict[str, Any], members: Any) -> bool:
    """Do two views of one tensor share an element? Views that move per call are taken as apart."""
    if any(m.offset in bindings for m in members):
        return False
    (low, high), (start, stop) = a.span, b.span
    if high <= start or stop <= low:
        return False
    flat = np.arange(max(high, stop))
    return bool(np.intersect1d(a.view(flat), b.view(flat)).size)
