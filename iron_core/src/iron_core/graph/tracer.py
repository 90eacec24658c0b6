"""`Tracer`: one trace of one body."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from iron_core.declare.affine import Affine
from iron_core.declare.formats import Format
from iron_core.declare.pattern import Pattern
from iron_core.errors import FormatError, TraceError
from iron_core.graph.current import CURRENT
from iron_core.graph.handle import Handle
from iron_core.graph.held import names
from iron_core.graph.traced import IdCheck, IndexCheck, PerCallValue, Tensor, TracedStep
from iron_core.graph.weight import State, Weight, _Resident, is_array


class Tracer:
    """One trace of one body: tensors made so far, steps in order, checks to hold before a call."""

    def __init__(self, names: dict[int, str], values: tuple[PerCallValue, ...]) -> None:
        self.names = names
        self.values = values
        self.steps: list[TracedStep] = []
        self.inputs: list[Tensor] = []
        self.residents: dict[int, Tensor] = {}
        self.intermediates: list[Tensor] = []
        self.checks: dict[tuple[Any, ...], IndexCheck] = {}
        self.id_checks: dict[tuple[Any, ...], IdCheck] = {}
        #: What steps that are traced now are counted under in a profile.
        self.category = ""
        #: Per operator that was made by keyword, by identity: its bound members, and the key of what they are bound to.
        self.bound_members: dict[int, dict[str, Any]] = {}
        self._taken = set(names.values())
        self._placed: set[str] = set()
        self._inlined: dict[int, Any] = {}
        self._open: set[int] = set()
        self._counts: dict[str, int] = {}

    @contextmanager
    def active(self) -> Iterator[Tracer]:
        """Make this the current trace."""
        token = CURRENT.set(self)
        try:
            yield self
        finally:
            CURRENT.reset(token)

    @contextmanager
    def inside(self, graph: Any) -> Iterator[None]:
        """Trace the body of a graph called in this one; TraceError if that body is being traced already."""
        if id(graph) in self._open:
            raise TraceError(f"{type(graph).__name__}.body calls its own graph; loops over layers are Python loops.")
        self._open.add(id(graph))
        try:
            yield
        finally:
            self._open.discard(id(graph))

    @contextmanager
    def labelled(self, category: str) -> Iterator[None]:
        """Steps that are traced inside have this category, unless it is empty."""
        before, self.category = self.category, category or self.category
        try:
            yield
        finally:
            self.category = before

    def adopt(self, graph: Any) -> None:
        """Name what a graph called in this body holds, under its class's name, unless the tracing graph names it."""
        if id(graph) in self._inlined:
            return
        self._inlined[id(graph)] = graph
        held = {key: path for key, path in names(graph).items() if key not in self.names}
        stem, number = type(graph).__name__, 0
        while any(self._prefixed(stem, number, path) in self._taken for path in held.values()):
            number += 1
        for key, path in held.items():
            self.names[key] = self._prefixed(stem, number, path)
            self._taken.add(self.names[key])

    @staticmethod
    def _prefixed(stem: str, number: int, path: str) -> str:
        return f"{stem}{number or ''}.{path}"

    def check(self, check: IndexCheck) -> None:
        """Note a condition on per-call values, once however many steps have it: thirty layers index their caches alike."""
        self.checks.setdefault((check.expression.key, check.extent, check.limit), check)

    def fresh(self, stem: str) -> str:
        """A name no weight, state, input or earlier tensor has."""
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
        self._placed.add(name)
        tensor = Tensor(name, "input", shape, format)
        self.inputs.append(tensor)
        return self._whole(tensor)

    def intermediate(self, stem: str, shape: tuple[int, ...], format: Format, bounds: dict[int, Affine]) -> Handle:
        """What a step makes: a new tensor, named after its stem."""
        tensor = Tensor(self.fresh(stem), "intermediate", shape, format)
        self.intermediates.append(tensor)
        return Handle(tensor, Pattern.whole(shape), bounds=bounds, tracer=self)

    def _whole(self, tensor: Tensor) -> Handle:
        return Handle(tensor, Pattern.whole(tensor.shape), tracer=self)

    def handle(self, item: Any) -> Handle:
        """The handle of what a body passes: a handle, a weight, a state, or an array the graph holds."""
        if isinstance(item, Handle):
            if item.tracer is not self:
                raise TraceError(f"{item} belongs to another trace; a handle lives only while its body is traced.")
            return item
        if is_array(item):
            try:
                item = Weight(item)
            except FormatError as error:
                raise FormatError(f"{self.names.get(id(item), 'an array')} of the graph: {error}") from None
        if not isinstance(item, _Resident):
            raise TraceError(
                f"an operator is called on {type(item).__name__}; legal: handles, weights, states and arrays the graph holds. "
                "A setting goes by its name: Scale(x, factor=2.0)."
            )
        key = item.key  # type: ignore[attr-defined]
        if key not in self.residents:
            role = "state" if isinstance(item, State) else "weight"
            name = self.names.get(key) or item.name or self.fresh("state" if role == "state" else "w")
            if name in self._placed:
                raise TraceError(f"two tensors are named `{name}`; give each weight and state its own name=.")
            self._placed.add(name)
            # What is named by its object keeps that object alive with the tensor.
            self.residents[key] = Tensor(name, role, item.shape, item.format, key, item if role == "state" else item.data)
        return self._whole(self.residents[key])
