"""Run lists: what the host's image holds, and the arrays the native loop reads.

A `PlanStep` becomes one or more `RunStep`s: a kernel (a build unit and filled slots) or a call-back that
runs the operator's reference. A `HostImage` is that list with its ports and is data only: it holds no
address, so the cache may keep it. `RunArrays` lays it out in memory as `iron_host.h` says.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from iron_core.declare.affine import Affine
from iron_core.declare.row import Row
from iron_core.errors import UnsupportedError
from iron_core.graph.signature import Signature
from iron_core.graph.traced import PerCallValue
from iron_core.image.plan import BufferRef, CarryTerm, PlanStep, Port, VersionPlan
from iron_host.build import Unit
from iron_host.kernel_call import Blocks, Constant, KernelCall, Member, Pointer
from iron_host.parts import Part
from iron_host.slots import MAX_FLOATS, MAX_INTS, MAX_POINTERS
from iron_host.tiles import Tiles

#: IRON_MAX_CARRIES of iron_host.h.
MAX_CARRIES = 64

# The structs of iron_host.h; every member is 8 bytes, so there is no padding.
_ROW = [(name, "<i8") for name in Row._fields]
STEP = np.dtype(
    [("kernel", "<u8"), ("p", "<u8", MAX_POINTERS), ("n", "<i8", MAX_INTS), ("f", "<f8", MAX_FLOATS)]
    + [("scratch", "<u8"), ("shared", "<u8"), ("base", "<u8", MAX_POINTERS)]
    + [(name, "<i8") for name in ("first_binding", "n_bindings", "scratch_bytes", "shared_bytes", "threads", "together", "work", "parts")]
)
BINDING = np.dtype([("slot", "<i8"), ("unit", "<i8"), *_ROW])
CARRY = np.dtype([("target", "<i8"), ("source", "<i8"), *_ROW, ("pointer", "<u8"), ("low", "<i8"), ("high", "<i8")])


@attrs.frozen
class Location:
    """A byte of some buffer. `space` as in `BufferRef`, or of the image: "constant" or "tiles", by number."""

    space: str
    index: int
    offset: int


@attrs.frozen(eq=False)
class RunStep:
    """One entry of a run list, of the step `plan`. `unit` None: a call-back that runs its operator's reference. `behind`: the steps
    that its kernel computes too.

    `bindings` are (slot, unit, expression), slots numbered as `iron_binding` does. `together`: the steps from this one on
    that run as one, none of which needs another; each has a share of the threads in proportion to its `work`.
    """

    plan: PlanStep
    unit: Unit | None
    pointers: tuple[Location | None, ...] = ()
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    bindings: tuple[tuple[int, int, Affine], ...] = ()
    scratch_bytes: int = 0
    shared_bytes: int = 0
    threads: int = 0
    parts: int = 0
    work: int = 0
    shares: str = ""
    together: int = 1
    behind: tuple[PlanStep, ...] = ()

    @property
    def plans(self) -> tuple[PlanStep, ...]:
        """Every step that it computes."""
        return (self.plan, *self.behind)

    @property
    def name(self) -> str:
        """The step's, which other entries of the list may have too."""
        return self.plan.name


@attrs.frozen(eq=False)
class HostImage:
    """One version, ready to be loaded: a run list, its constants, and the version's ports and values.

    spots: its buffers in the arena, as in `VersionPlan`. otherwise: by a step's name, how it is executed where that is not as the
    backend says of its operator.
    """

    name: str
    signature: Signature
    steps: tuple[RunStep, ...]
    constants: tuple[np.ndarray, ...]
    tiles: tuple[Tiles, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    values: tuple[PerCallValue, ...]
    carry: tuple[CarryTerm, ...]
    spots: tuple[tuple[int, int, int], ...] = ()
    otherwise: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def units(self) -> tuple[Unit, ...]:
        """Every kernel it needs, once."""
        needed = [step.unit for step in self.steps if step.unit is not None]
        return tuple(dict.fromkeys([*needed, *(tiles.unit for tiles in self.tiles)]))


class ImageBuilder:
    """Collects a version's run steps and constants. `weights`: the residents that may be put in tiles, by number."""

    def __init__(self, weights: Container[int] = ()) -> None:
        self.steps: list[RunStep] = []
        self.constants: list[np.ndarray] = []
        self.tiles: dict[Tiles, int] = {}
        self.weights = weights
        # The last step that prepared the shared area, while what it read and wrote still stands.
        self._prepared: tuple[RunStep, BufferRef] | None = None

    def add_callback(self, step: PlanStep) -> None:
        self._prepared = None  # Python may run another graph meanwhile
        self.steps.append(RunStep(step, None))

    def add_calls(self, part: Part, calls: Iterable[KernelCall]) -> None:
        """Add the kernel calls of a step, or of one with others behind it."""
        operands = part.operands
        for call in calls:
            made = self._run_step(part, operands, call)
            if call.shares == "writes" and self._prepared is not None and _alike(self._prepared[0], made):
                continue
            self.steps.append(made)
            if call.shares == "writes":
                self._prepared = made, operands[_name(call.slots.pointers[0])]
            elif call.shares != "reads" and call.shared_bytes:
                self._prepared = None
        if self._prepared is not None:
            written = [ref for step in part.steps for name, ref in step.operands.items() if step.op.operands[name].written]
            if any(ref.overlaps(self._prepared[1]) for ref in written):
                self._prepared = None

    def image(
        self, version: VersionPlan, name: str, apart: bool = False, otherwise: Mapping[str, str] | None = None
    ) -> HostImage:
        """What was added, ready to be loaded. apart: no step goes together with the next one. otherwise: as `HostImage`'s."""
        if len(version.carry) > MAX_CARRIES:
            raise UnsupportedError(f"{name}: {len(version.carry)} carried values; the host carries {MAX_CARRIES}.")
        return HostImage(
            name,
            version.signature,
            tuple(self.steps if apart else grouped(self.steps)),
            tuple(self.constants),
            tuple(self.tiles),
            version.inputs,
            version.outputs,
            version.values,
            version.carry,
            version.spots,
            dict(otherwise or {}),
        )

    def _run_step(self, part: Part, operands: Mapping[str, BufferRef], call: KernelCall) -> RunStep:
        bindings: list[tuple[int, int, Affine]] = []
        pointers: list[Location | None] = []
        given: list[int | Member] = list(call.slots.ints)
        for slot, pointer in enumerate(call.slots.pointers):
            if isinstance(pointer, Constant):
                self.constants.append(np.ascontiguousarray(pointer.array))
                pointers.append(Location("constant", len(self.constants) - 1, 0))
                continue
            if isinstance(pointer, Blocks):
                ref = operands[pointer.operand]
                tiled = ref.space == "resident" and ref.index in self.weights
                given[call.slots.table.place(pointer.says)] = int(tiled)
                if tiled:
                    tiles = Tiles(ref.index, ref.offset, ref.format, *pointer.size, pointer.panels)
                    pointers.append(Location("tiles", self.tiles.setdefault(tiles, len(self.tiles)), 0))
                    continue
                pointer = pointer.operand
            if isinstance(pointer, str):
                pointer = Pointer(pointer)
            if pointer is None:
                pointers.append(None)
                continue
            ref = operands[pointer.operand]
            pointers.append(Location(ref.space, ref.index, ref.offset + pointer.offset))
            if pointer.expression is not None:
                bindings.append((slot, pointer.unit, pointer.expression))
        ints = []
        for slot, number in enumerate(given):
            if isinstance(number, Member):
                bindings.append((MAX_POINTERS + slot, number.unit, number.expression))
                number = 0
            ints.append(int(number))
        return RunStep(
            part.step,
            call.unit,
            tuple(pointers),
            tuple(ints),
            call.slots.floats,
            tuple(bindings),
            call.scratch_bytes,
            call.shared_bytes,
            call.threads,
            call.parts,
            call.work,
            call.shares,
            behind=part.steps[1:],
        )


#: Of iron_host.h: steps that may go together.
TOGETHER = 8


def grouped(steps: Sequence[RunStep]) -> list[RunStep]:
    """The steps, with runs of them that need nothing of one another marked to go together.

    Only what several threads work on gains by it: one wait for all threads instead of several.
    """
    found: list[RunStep] = []
    group: list[RunStep] = []

    def close() -> None:
        if len(group) > 1:
            many = 0 if any(step.threads == 0 for step in group) else sum(step.threads for step in group)
            group[0] = attrs.evolve(group[0], together=len(group), threads=many)
        found.extend(group)
        group.clear()

    for step in steps:
        if not _joins(step) or len(group) == TOGETHER or any(_depends(step, other) for other in group):
            close()
        group.append(step)
        if not _joins(step):
            close()
    close()
    return found


def _joins(step: RunStep) -> bool:
    """May a step go together with others: a kernel of several threads that leaves the shared area as it is?"""
    return step.unit is not None and step.threads != 1 and (not step.shared_bytes or step.shares == "reads")


def _depends(a: RunStep, b: RunStep) -> bool:
    """Does one of two steps write what the other touches?"""
    for one in a.plans:
        for two in b.plans:
            for name, ref in one.operands.items():
                for other, theirs in two.operands.items():
                    if one.op.operands[name].written or two.op.operands[other].written:
                        if ref.overlaps(theirs):
                            return True
    return False


def _name(pointer: Any) -> str:
    return pointer.operand if isinstance(pointer, Pointer) else pointer


def _alike(a: RunStep, b: RunStep) -> bool:
    """Do two steps do the same to the same places?"""

    def what(step: RunStep) -> tuple[Any, ...]:
        follows = tuple((slot, unit, e.key) for slot, unit, e in step.bindings)
        return (step.unit, step.pointers, step.ints, step.floats, follows, step.shared_bytes)

    return what(a) == what(b)


class StepArrays:
    """Native steps that follow no per-call value, laid out by hand."""

    def __init__(self, steps: np.ndarray) -> None:
        self.steps = steps
        self.bindings: Any = np.zeros(1, BINDING)
        self.values, self.carries = np.zeros(1, np.int64), np.zeros(1, CARRY)


class RunArrays:
    """The native structs of an image.

    `places[(space, index)]` lists (view of words, word, byte offset): where the address of that buffer goes.
    """

    def __init__(self, image: HostImage, kernels: Mapping[Unit, int]) -> None:
        index = {value.name: i for i, value in enumerate(image.values)}
        self.steps = np.zeros(max(len(image.steps), 1), STEP)
        self._words = self.steps.view(np.uint64).data
        self.values = np.zeros(max(len(image.values), 1), np.int64)
        self.carries = np.zeros(max(len(image.carry), 1), CARRY)
        self.places: dict[tuple[str, int], list[tuple[Any, int, int]]] = {}
        rows: list[tuple[int, ...]] = []
        for i, step in enumerate(image.steps):
            self._fill_step(i, step, kernels[step.unit] if step.unit is not None else 0, len(rows))
            rows.extend((slot, unit, *e.row(0, index[e.value])) for slot, unit, e in step.bindings)
        self.bindings = np.array(rows or [(0, 0, *Row())], np.int64)
        for i, term in enumerate(image.carry):
            self._fill_carry(i, term, index, image)

    def _fill_step(self, i: int, step: RunStep, kernel: int, first_binding: int) -> None:
        row = self.steps[i]
        row["kernel"] = kernel
        row["n"][: len(step.ints)] = step.ints
        row["f"][: len(step.floats)] = step.floats
        row["first_binding"], row["n_bindings"] = first_binding, len(step.bindings)
        row["scratch_bytes"], row["shared_bytes"] = step.scratch_bytes, step.shared_bytes
        row["threads"], row["together"], row["work"], row["parts"] = step.threads, step.together, step.work, step.parts
        for slot, location in enumerate(step.pointers):
            if location is not None:
                for field in ("p", "base"):
                    word = (i * STEP.itemsize + STEP.fields[field][1]) // 8 + slot  # type: ignore[index]
                    self._add(location, self._words, word)

    def _fill_carry(self, i: int, term: CarryTerm, index: dict[str, int], image: HostImage) -> None:
        row = self.carries[i]
        row["target"] = index[term.name]
        row["low"], row["high"] = image.values[index[term.name]].range
        if isinstance(term.source, BufferRef):
            row["source"] = 2 if term.source.format.name == "uint32" else 1
            word = (i * CARRY.itemsize + CARRY.fields["pointer"][1]) // 8  # type: ignore[index]
            ref = term.source
            self._add(Location(ref.space, ref.index, ref.offset), self.carries.view(np.uint64).data, word)
        else:
            source = term.source
            made = source.row(0, index[source.value]) if isinstance(source, Affine) else Row.constant(source)
            for name, number in made._asdict().items():
                row[name] = number

    def _add(self, location: Location, words: memoryview, word: int) -> None:
        self.places.setdefault((location.space, location.index), []).append((words, word, location.offset))
