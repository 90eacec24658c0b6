"""`CompiledGraph`: the versions, weights, states and arena of one graph on one backend and device."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np

from iron_core.aside import aside
from iron_core.backends.choose import Choice, takes_keyword
from iron_core.backends.memory import beginning
from iron_core.cache.entry import About
from iron_core.cache.keys import digest
from iron_core.cache.store import Cache
from iron_core.compiled.kept_images import KeptImages
from iron_core.compiled.narrowing import Asked, Narrowed, Narrowing
from iron_core.compiled.planned import Planned
from iron_core.compiled.program import Program, Version
from iron_core.compiled.warm import WarmStart
from iron_core.declare.affine import bounded_shape
from iron_core.declare.authored import authored
from iron_core.declare.formats import PackedArray, format_of
from iron_core.declare.profile import active_profile, profile_of
from iron_core.declare.tensor import converted
from iron_core.devices import device, using_device
from iron_core.errors import CallError, UnknownName, UnsupportedError
from iron_core.graph.call import as_arrays, sort_call, sort_values
from iron_core.graph.fold import Fold, choose_folds
from iron_core.graph.graph import Graph
from iron_core.graph.pictured import Pictured
from iron_core.graph.reference import pack
from iron_core.graph.signature import NUMBER, Signature, describe_signature, numbers_of
from iron_core.graph.traced import TracedGraph
from iron_core.image.packaging import ELF, decide
from iron_core.image.plan import Resident, VersionPlan
from iron_core.image.planner import Draft, draft
from iron_core.lowering.answer import No
from iron_core.lowering.picks import Picks, picking
from iron_core.plugins.registry import labelled, wrong_answer


class CompiledGraph(Planned, Pictured):
    """A graph on one (backend, dev, boundaries, image, lowerings): call it on tensors and per-call values.

    Weights are stored once for all versions, and a state one version writes is where the next reads it.

    Threads may share it. Calls, loops, `read`, `write` and `load` take turns, whatever the version, and so do compiles,
    which wait for no call. Different compiled graphs run side by side. Between two steps of a loop, in `on_step`, everything
    may be done that may be done between two calls. Inside a step, in a reference that the host calls back, memory is in
    use: `read` gives what it holds at that point, `add` compiles, and everything else is a CallError. So is a call that
    could only wait for itself, through another graph's call-back on another thread.

    A forked child has its own copy of weights, states and arena, as they were at the fork: in the middle of a step, where
    another thread was in one.
    """

    def __init__(self, graph: Graph, choice: Choice, boundaries: str | None, image: str | None, picks: Picks) -> None:
        self.graph = graph
        self.options: dict[str, Any] = {}
        packaging = decide(choice.dev, type(graph).parameters().values, boundaries=boundaries, image=image)
        self._program = Program(type(graph).__name__, choice, packaging, picks)
        #: Versions met, by how many values and which tensors a call gave in order; one more keyword may be a tensor.
        self._calls: dict[tuple[Any, ...], Version] = {}
        self._fixed = bool(type(graph).parameters().dispatch)

    # -- what it is -----------------------------------------------------------------------------

    @property
    def versions(self) -> dict[Signature, Version]:
        """Compiled versions by signature, in the order they were compiled."""
        return self._program.versions

    # -- versions -------------------------------------------------------------------------------

    def add(self, **shapes: Any) -> Version:
        """The version of these input shapes, compiled unless it is there. Takes the options of the last compile()."""
        return self._add(shapes, self.options)

    def add_before_loop(self, **shapes: Any) -> Version:
        """As `add`, of a version that goes before the loop of the one without tensors, as a prompt's does: of a full ELF, where the backend
        can, it makes the first call of that loop (`feeds=`). What calls give is the same in any case."""
        loops = any(not _tensors(signature) for signature in self.versions)
        if loops and self.plan.packaging.image == ELF and takes_keyword(self.backend, "feeds"):
            with suppress(UnsupportedError):  # of what is not for `feeds=` too, which the host's way then says again
                return self._add(shapes, self.options | {"feeds": self})
        return self.add(**shapes)

    def _add(self, shapes: dict[str, Any], options: dict[str, Any]) -> Version:
        signature = self.graph.signature(shapes)
        if signature in self.versions:
            return self.versions[signature]
        with self._program.planning:  # another thread may have compiled it while we waited
            with self._profiled(options.get("profile")), picking(self._program.picks):
                return self.versions.get(signature) or self._compile(signature, shapes, dict(options))

    def _compile(self, signature: Signature, shapes: dict[str, Any], options: dict[str, Any]) -> Version:
        fold, cache_key = options.pop("fold", False), options.pop("cache_key", None)
        record, _ = options.pop("record", "memory"), options.pop("profile", None)
        if isinstance(options.get("feeds"), CompiledGraph):
            options["feeds"] = self._fed(options["feeds"])
        decided: Narrowed | None = None
        images: KeptImages | None = None
        if isinstance(options.get("coresident"), Narrowing):
            one, decided = self._narrowed(options["coresident"], shapes, fold)
            options["coresident"] = decided.packs
        elif cache_key is None:
            one = self._trace(shapes, fold)
        else:
            start = WarmStart(self.graph, self.backend, self.dev, signature, cache_key, fold, self._program.picks)
            kept = start.read()
            one = kept or self._trace(shapes, fold)
            if kept is None:
                start.keep(one)
            images = None if options else KeptImages(start)
        version = self._program.add(one, decided=decided, images=images, **options)
        if record == "disk":
            text, about = json.dumps(version.artifacts, indent=1), About("record", type(self.graph).__name__)
            Cache(self.backend.name).keep(digest("artifacts", text), "record.json", text.encode(), about=about)
        return version

    def _fed(self, other: CompiledGraph) -> Signature:
        """The version of a compiled graph that feeds= means: the one without tensors, which loops."""
        own = next((signature for signature in other.versions if not _tensors(signature)), None)
        if other is not self or own is None:
            why = "has no version without tensors" if other is self else "is another compiled graph, with states of its own"
            raise CallError(f"feeds={other!r} {why}. Legal: a version without tensors of {self!r}.")
        return own

    def _trace(self, shapes: dict[str, Any], fold: bool) -> Draft:
        traced = self.trace(**shapes)
        return draft(traced, *self._folds(traced)) if fold else draft(traced)

    def _narrowed(self, narrowing: Narrowing, shapes: dict[str, Any], fold: bool) -> tuple[Draft, Narrowed]:
        """A version as `coresident=` decides."""
        refused: list[tuple[Fold, str]] = []
        asked = Asked(self.trace(**shapes), self.backend, device(self.dev), self.packaging, self._accepts(refused), fold)
        with authored(narrowing, "narrowed()"):
            decided = narrowing.narrowed(asked)
        return draft(decided.traced, decided.folds, _refusals(refused, decided.folds)), decided

    def _folds(self, traced: TracedGraph) -> tuple[list[Fold], list[tuple[str, str]], str]:
        """Those the backend takes; per step that no fold took, why not: (fold, rule); and where there is none at all, that."""
        refused: list[tuple[Fold, str]] = []
        taken = choose_folds(traced, self._accepts(refused))
        why = _refusals(refused, taken)
        none = f"{self.backend.name} took none of {len(why)}:" if why else "no step of this graph may be folded into another."
        return taken, why, "" if taken else none

    def _accepts(self, refused: list[tuple[Fold, str]]) -> Callable[[Fold], bool]:
        """Does the backend take a fold? Those that it does not are noted with its rule."""

        def accepts(fold: Fold) -> bool:
            with authored(self.backend, "accepts()"), labelled(self.backend, "to say which folds it takes"):
                answer = self.backend.accepts(fold, self.plan.dev)
            if isinstance(answer, No):
                refused.append((fold, f"{answer.rule} {answer.nearest}".rstrip()))
            elif answer is False:
                refused.append((fold, f"{self.backend.name} takes no such fold"))
            elif answer is not True:
                raise wrong_answer(self.backend, "accepts()", answer, "True, False or No(rule)")
            return answer is True

        return accepts

    # -- calls ----------------------------------------------------------------------------------

    def __call__(self, *tensors: Any, **values: Any) -> Any:
        """Run the version of these tensors' shapes and dtypes; one that is not there is compiled, which stderr says.

        Tensors in the order of the body's inputs, None for an optional one left out; per-call values by keyword.
        Under a bound a tensor is given at its compiled shape or cut to the bound, and outputs come back cut.
        CallError for wrong names or counts, BoundsError for an index outside its view.
        """
        try:
            if self._fixed:
                raise KeyError  # a number is no part of what is looked up
            version = self._calls[len(values), *[(type(t), t.shape, t.dtype) for t in tensors]]
        except (KeyError, AttributeError, TypeError):
            version, tensors, values = self._find(tensors, values)
        outputs, carried = version.call(tensors, values)
        return pack(version.plan, outputs, carried)

    def loop(
        self, steps: int, /, on_step: Callable[[int, dict[str, int]], bool] | None = None, **values: int
    ) -> dict[str, int]:
        """Run the version without tensors `steps` times, each on the values the last one carried; returns the last carried.

        on_step(index, carried) is called after every step on this thread; True stops. There the graph is at rest: it may be
        called and looped, read and written, and the loop goes on with what it then holds. What it raises, or the handler of a
        signal while a step runs, ends the loop and arrives here with a note of how many steps were made, whole ones unless one
        takes over 0.1 s. CallError before a step on a carried value that its dtype cannot hold, BoundsError before one whose
        index is outside, NotFinite after one that could draw no token (see `Sample`): the steps before are made and stay.
        """
        body = type(self.graph).parameters()
        needed = [name for name in body.inputs if name not in body.optional]
        if needed:
            raise CallError(
                f"loop() runs a version that takes no tensor; {type(self.graph).__name__} takes {', '.join(needed)}."
            )
        fixed, rest = sort_values(type(self.graph), values)
        version = self.versions.get(self.graph.signature(fixed)) or self._announced(fixed)
        return version.loop(steps, rest, on_step)

    def load(self) -> CompiledGraph:
        """Load every version now instead of at its first call."""
        for version in self.versions.values():
            version.load()
        return self

    def _find(self, tensors: tuple[Any, ...], values: dict[str, Any]) -> tuple[Version, tuple[Any, ...], dict[str, Any]]:
        """The version of a call that was not seen before, with its tensors as arrays in port order."""
        given, values = sort_call(type(self.graph), tensors, values)
        given = as_arrays(type(self.graph), given)
        kinds = {value.name: value for value in type(self.graph).parameters().values}
        values = {name: kinds[name].number(n) if name in kinds else n for name, n in values.items()}
        fixed, values = sort_values(type(self.graph), values)
        arrays = tuple(given.values())
        shapes: dict[str, Any] = {name: (tuple(t.shape), format_of(t)) for name, t in given.items()}
        signature = self.graph.signature(shapes | fixed)
        version = self.versions.get(signature)
        if version is not None:
            dense = [t for t in arrays if not isinstance(t, PackedArray)]
            if not self._fixed and len(dense) == len(tensors) and not any(t is None for t in tensors):
                self._calls[len(values), *[(np.ndarray, t.shape, t.dtype) for t in dense]] = version
            return version, arrays, values
        for version in self.versions.values():
            if numbers_of(version.plan.signature) == fixed and _cut_version(version.plan, given, values):
                return version, arrays, values
        return self._announced(shapes | fixed), arrays, values

    def _announced(self, shapes: dict[str, Any]) -> Version:
        signature = self.graph.signature(shapes)
        if not any(_tensors(known) == _tensors(signature) for known in self.versions):  # another number is nothing new
            aside(f"iron: {type(self.graph).__name__}: compiling a version for {describe_signature(signature)}")
        return self.add(**shapes)

    # -- weights and states ---------------------------------------------------------------------

    def read(self, item: Any, rows: int | None = None) -> Any:
        """A copy of a weight's or state's content. `item`: its name, or the object the graph holds. rows: so many along its leading
        axis, from the first on; CallError for more than it has, or of one whose rows are packed."""
        name = self._name(item)
        self._begins(name, rows)
        return self._program.read(name, rows)

    def write(self, item: Any, tensor: Any, rows: int | None = None) -> None:
        """Replace a weight's or state's content for all versions, whole or not at all. Floats are rounded once to its dtype.

        rows: as in `read`; the others keep what they hold, and on the host the pages that they would take are not touched.
        ShapeError for another shape; CallError for what are no real numbers, and where an integer dtype has none near.
        """
        name = self._name(item)
        resident = self._begins(name, rows)
        if resident is not None and not resident.format.packed:
            tensor = converted(tensor, name, resident.shape, resident.format.dtype)
        self._program.write(name, tensor, rows)

    def _begins(self, name: str, rows: int | None) -> Resident | None:
        """The resident of this name, or its first `rows`."""
        resident = next((r for r in self.plan.residents if r.name == name), None)
        if resident is None or rows is None:
            return resident
        if resident.format.packed or not resident.shape or not isinstance(rows, int) or not 0 <= rows <= resident.shape[0]:
            legal = "leave rows out" if resident.format.packed or not resident.shape else f"0 to {resident.shape[0]}"
            raise CallError(f"rows={rows!r} of {name}; legal: {legal}.")
        return beginning(resident, rows)

    def _name(self, item: Any) -> str:
        if isinstance(item, str):
            return item
        key = getattr(item, "key", None)
        key = id(item) if key is None else key
        for resident in self.plan.residents:
            if resident.key == key:
                return resident.name
        raise UnknownName(f"{type(self.graph).__name__} holds no weight or state that is this {type(item).__name__}.")

    # -- the rest of the graph ------------------------------------------------------------------

    def reference(self, *tensors: Any, **values: Any) -> Any:
        """The same call in numpy; see `Graph.reference`."""
        return self.graph.reference(*tensors, **values)

    def trace(self, **shapes: Any) -> TracedGraph:
        """The steps of a version before planning, traced for its device (`current_device()` in the body); see `Graph.trace`."""
        with using_device(self.dev), self._profiled(self.options.get("profile")):
            return self.graph.trace(**shapes)

    def _profiled(self, given: Any) -> AbstractContextManager[Any]:
        """With the profile that was given, else the one that is entered, else the graph's own."""
        if given is None and active_profile() is None:
            given = self.graph.profile
        return nullcontext() if given is None else profile_of(given, self.dev)

    def __reduce__(self) -> Any:
        raise CallError(f"{self!r} is code and memory of this process; copy or pickle its graph, and compile that.")

    def __repr__(self) -> str:
        plan = self.plan
        return f"CompiledGraph({plan.name}, backend={plan.backend}, dev={plan.dev}, {len(plan.versions)} versions)"


def _refusals(refused: Sequence[tuple[Fold, str]], taken: Sequence[Fold]) -> list[tuple[str, str]]:
    """Refused folds of steps that run by themselves, each once, with the rule."""
    gone = {fold.gone for fold in taken}
    return list(dict.fromkeys((str(fold), rule) for fold, rule in refused if fold.gone not in gone))


def _tensors(signature: Signature) -> list[tuple[str, tuple[int, ...], str]]:
    return [one for one in signature if one[2] != NUMBER]


def _cut_version(plan: VersionPlan, given: Mapping[str, Any], values: Mapping[str, int]) -> bool:
    """Are these tensors a version's inputs, each whole or cut to this call's bound?"""
    if [port.name for port in plan.inputs] != list(given):
        return False
    for port in plan.inputs:
        tensor = given[port.name]
        if format_of(tensor) != port.format or len(tensor.shape) != len(port.shape):
            return False
        if tuple(tensor.shape) != port.shape:
            if any(expression.value not in values for _, expression in port.bounds):
                return False
            if tuple(tensor.shape) != bounded_shape(port.shape, port.bounds, values):
                return False
    return True
