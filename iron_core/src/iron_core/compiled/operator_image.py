"""`OperatorImage`: one operator alone as a callable, through the same plan, backends and cache as a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from iron_core.backends.choose import choose
from iron_core.backends.protocol import Backend
from iron_core.compiled.planned import Planned
from iron_core.compiled.program import Program, Version
from iron_core.declare.affine import Affine, bounded_shape
from iron_core.declare.formats import PackedArray, format_of
from iron_core.declare.rules import require_operator
from iron_core.declare.tensor import plain
from iron_core.devices import Device
from iron_core.errors import CallError, FormatError, ShapeError
from iron_core.graph.members import checks, whole
from iron_core.graph.traced import Binding, PerCallValue
from iron_core.image.packaging import decide
from iron_core.image.plan import BufferRef, PlanStep, Port, Resident, VersionPlan
from iron_core.image.planner import Draft
from iron_core.lowering.picks import picks_of


class OperatorImage(Planned):
    """`OperatorImage(op)(*inputs, **numbers)`: the operator's outputs, one bare or several as a tuple.

    Inputs are the operands it reads, in declaration order (an absent optional one is left out), at their declared
    shapes. What an operator writes only in part (Copy's destination) may be given behind them; it starts as zeros
    otherwise. An operand written in place comes back as the output it is; the caller's array stays as it was. Last, outputs
    may be given, numpy arrays as the image makes them: they are filled, and are what comes back.

    numbers: the operator's `Scratchpad` members, 0 unless given (of a gather not where its table begins), and the extents named in
    `bounds`, whole unless given. Under a bound an input is given whole or cut, and outputs come back cut. Calls from several
    threads take turns.

    backend, dev, boundaries, image, lowerings: as for `compile_graph`. CallError, ShapeError, BoundsError.
    """

    def __init__(
        self,
        op: Any,
        *,
        bounds: Iterable[str] = (),
        backend: str | Backend | None = None,
        dev: str | Device | None = None,
        boundaries: str | None = None,
        image: str | None = None,
        lowerings: Mapping[str, str] | None = None,
    ) -> None:
        require_operator(op, "OperatorImage()")
        self.op = op
        self.bounds = tuple(bounds)
        unknown = [member for member in self.bounds if member not in op.extents]
        if unknown:
            legal = ", ".join(op.extents) or "none"
            raise CallError(f"{type(op).__name__} has no extent {unknown[0]}. Its extents: {legal}.")
        chosen = choose(backend, dev.name if isinstance(dev, Device) else dev)
        draft = self._draft()
        packaging = decide(chosen.dev, draft.version.values, boundaries=boundaries, image=image)
        self._program = Program(draft.name, chosen, packaging, picks_of(lowerings).of_backend(chosen.backend.name))
        self._version: Version = self._program.add(draft)

    # An operand the operator writes without writing all of it must hold something first, so it is a state:
    # written before the call and read back after it. Any other operand is a port.

    @property
    def _kept(self) -> tuple[str, ...]:
        op = self.op
        return tuple(o.name for o in op.outputs if o.present(op) and (o.read or o.name in op.partial))

    def _draft(self) -> Draft:
        op = self.op
        fields = op.limits({member: Affine(member) for member in self.bounds})

        def bounded(name: str) -> tuple[tuple[int, Affine], ...]:
            axes = enumerate(op.operands[name].axes(op))
            return tuple((axis, fields[field]) for axis, field in axes if field in fields)

        kept = self._kept
        reads = [o.name for o in op.inputs if o.present(op) and o.name not in kept]
        writes = [o.name for o in op.outputs if o.present(op) and o.name not in kept]
        spaces = {"input": reads, "output": writes, "resident": list(kept)}
        operands = {}
        for name in op.present:
            space = next(space for space, names in spaces.items() if name in names)
            index = spaces[space].index(name)
            operands[name] = BufferRef(space, index, 0, op.shape(name), op.format(name), bounded(name))
        members = (*op.scratchpads, *self.bounds)
        bindings = tuple(Binding(member, Affine(member)) for member in members if self._bindable(member))
        step = PlanStep(type(op).__name__.lower(), op, operands, bindings)
        version = VersionPlan(
            signature=tuple((name, op.shape(name), op.format(name).name) for name in reads),
            steps=(step,),
            inputs=tuple(Port(name, op.shape(name), op.format(name), bounded(name)) for name in reads),
            outputs=tuple(Port(name, op.shape(name), op.format(name), bounded(name)) for name in writes),
            values=tuple(PerCallValue(binding.member, "scratchpad", "int32") for binding in bindings),
            checks=checks(op, (binding.member for binding in bindings)),
        )
        residents = tuple(
            Resident(name, "state", op.shape(name), op.format(name), None, key) for key, name in enumerate(kept)
        )
        return Draft(type(op).__name__, version, residents, ())

    def _bindable(self, member: str) -> bool:
        """A view's bound says nothing without a view, nor where a table begins that ids are of."""
        op = self.op
        for operand, view in op.accept_views.items():
            if member == view.valid:
                return getattr(op, view.axis) is not None
            if member == view.offset:
                return not (op.accept_gather in op.present and op.operands[operand].read)
        return True

    @property
    def image(self) -> Any:
        """What the backend made of it."""
        return self._version.image

    def __call__(self, *tensors: Any, **numbers: int) -> Any:
        op, kept = self.op, self._kept
        given = [o for o in op.inputs if o.present(op)]
        starts = [o for o in op.outputs if o.present(op) and o.name in kept and not o.read]
        made_whole = [o for o in op.outputs if o.present(op) and o.name not in kept]
        further = [*starts, *made_whole]
        if not len(given) <= len(tensors) <= len(given) + len(further):
            extra = f" (and {', '.join(o.name for o in further)})" if further else ""
            names = ", ".join(o.name for o in given)
            raise CallError(f"{type(op).__name__} takes {len(given)} tensors: {names}{extra}; got {len(tensors)}.")
        arrays = {
            o.name: plain(t, f"{type(op).__name__}: {o.name}")
            for o, t in zip((*given, *starts), tensors, strict=False)
        }
        values = self._values(numbers)
        into = dict(zip((o.name for o in made_whole), tensors[len(given) + len(starts) :], strict=False))
        for name, array in into.items():
            self._fillable(name, array, values)
        for (one, array), (other, beside) in combinations(into.items(), 2):
            if np.shares_memory(array, beside):
                raise ShapeError(f"{type(op).__name__}: {one} and {other} are given to be filled and share memory; legal: two arrays.")
        starts_at = {name: self._start(name, arrays.get(name)) for name in kept}
        ports = [self._checked(port, arrays[port.name], values) for port in self._version.plan.inputs]
        with self._program.turn:  # all three, so that no other thread's call comes between
            for name, start in starts_at.items():
                self._program.write(name, start)
            outputs, _ = self._version.call(ports, values)
            made = dict(zip((port.name for port in self._version.plan.outputs), outputs, strict=True))
            for name in kept:
                made[name] = self._program.read(name)
        for name, array in into.items():
            np.copyto(array, made[name])
        results = tuple(into.get(o.name, made[o.name]) for o in op.outputs if o.present(op))
        return results[0] if len(results) == 1 else results

    def _values(self, numbers: Mapping[str, int]) -> dict[str, int]:
        op = self.op
        legal = {value.name: value for value in self._version.plan.values}
        unknown = [name for name in numbers if name not in legal]
        if unknown:
            hint = f" Name it in bounds=({unknown[0]!r},) to bound it per call." if unknown[0] in op.extents else ""
            raise CallError(f"{type(op).__name__} takes no {unknown[0]}=. Its numbers: {', '.join(legal) or 'none'}.{hint}")
        return {name: kind.number(numbers.get(name, whole(op, name))) for name, kind in legal.items()}

    def _start(self, name: str, given: Any) -> Any:
        """What an operand that is written in part holds before the call."""
        shape, format = self.op.shape(name), self.op.format(name)
        if given is None:
            return format.zeros(shape)
        if self._format(name, given) != format or given.size != np.prod(shape, dtype=int):
            raise ShapeError(f"{type(self.op).__name__}: {name} is {list(shape)} {format}; got {list(given.shape)} {format_of(given)}.")
        return given if isinstance(given, PackedArray) else given.reshape(shape)

    def _fillable(self, name: str, array: Any, values: Mapping[str, int]) -> None:
        """ShapeError unless a call's output, cut to its bounds, can be put into an array that was given for it."""
        port = next(port for port in self._version.plan.outputs if port.name == name)
        shape, where = bounded_shape(port.shape, port.bounds, values), f"{type(self.op).__name__}: {name}"
        if port.format.packed or not isinstance(array, np.ndarray):
            what = "a tensor of a packed format is not filled" if port.format.packed else f"got {type(array).__name__}"
            raise ShapeError(f"{where} is given to be filled: {what}. Legal: a numpy array, or nothing.")
        if array.dtype != port.format.dtype or array.shape != shape or not array.flags.writeable:
            locked = "" if array.flags.writeable else ", read-only"
            raise ShapeError(f"{where} is {list(shape)} {port.format}, to be filled; got {list(array.shape)} {array.dtype}{locked}.")

    def _format(self, name: str, tensor: Any) -> Any:
        try:
            return format_of(tensor)
        except FormatError as error:
            raise ShapeError(f"{type(self.op).__name__}: {name} is {self.op.format(name)}; {error}") from None

    def _checked(self, port: Port, tensor: Any, values: Mapping[str, int]) -> Any:
        """A tensor at the port's shape; a flat operand takes any shape of as many elements."""
        where = f"{type(self.op).__name__}: {port.name} is {list(port.shape)} {port.format}"
        if self._format(port.name, tensor) != port.format:
            raise ShapeError(f"{where}; got {format_of(tensor)}.")
        if tuple(tensor.shape) == port.shape:
            return tensor
        shape = bounded_shape(port.shape, port.bounds, values)
        for want in (port.shape, shape):
            if len(want) == 1 and tensor.size == want[0] and not isinstance(tensor, PackedArray):
                return tensor.reshape(want)
        if tuple(tensor.shape) != shape:
            either = f", or cut to this call's bounds {list(shape)}" if port.bounds else ""
            raise ShapeError(f"{where}{either}; got {list(tensor.shape)}.")
        return tensor

    def __repr__(self) -> str:
        return f"OperatorImage({self.op!r}, backend={self.plan.backend}, dev={self.plan.dev})"
