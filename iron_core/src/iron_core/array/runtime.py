"""`Runtime`: what an operator's `sequence(rt)` records its transfers, waits and words on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import attrs

from iron_core.array.descriptors import BdLimits, Descriptor, bounded, plan
from iron_core.array.design import ArrayDesign
from iron_core.array.gather import Gather
from iron_core.array.sequence import (
    Await,
    AwaitToken,
    Free,
    Sequence,
    SequenceArgument,
    SetBarrier,
    Step,
    Sync,
    Transfer,
    Word,
    WriteWord,
)
from iron_core.declare.affine import Affine
from iron_core.declare.formats import as_dtype
from iron_core.declare.link import offset_member
from iron_core.declare.pattern import Pattern
from iron_core.devices import QUEUE, SHARING, WORD, Device
from iron_core.errors import DeclarationError, Unresolvable

#: Transfers of one sequence; more would be instructions by the gigabyte.
TASKS = 1 << 16


def _affine(form: Affine | int) -> Affine:
    """A form that follows its member: a product or quotient by numbers other than 0 does."""
    assert isinstance(form, Affine)
    return form


class TaskGroup:
    """Transfers that are finished together: those waited for are awaited, then all are freed."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.tasks: list[tuple[int, bool]] = []

    def finish(self) -> None:
        """Await those that are waited for, then free the others. The group is empty afterwards."""
        for task, wait in self.tasks:
            if wait:
                self._runtime.add(Await(task))
        for task, wait in self.tasks:
            if not wait:
                self._runtime.add(Free(task))
        self.tasks.clear()


class Runtime:
    """Records one design's sequence. `bound`: members of the operator that calls give numbers for."""

    def __init__(self, op: Any, array: ArrayDesign, dev: Device, bound: Iterable[str]) -> None:
        self.op = op
        self.array = array
        self.dev = dev
        self.bound = frozenset(bound)
        self.steps: list[Step] = []
        self._words: dict[str, Word] = {}
        self._tasks = 0
        self._default = TaskGroup(self)
        self._queues: dict[str, list[tuple[int, int]]] = {}
        self._order: list[int] = []
        self._controls: dict[str, Gather] = {}

    def add(self, step: Step) -> None:
        self.steps.append(step)

    # -- words -----------------------------------------------------------------------------------

    def offset(self, member: str, *, step: int = 1, unit: tuple[int, int] = (1, 1)) -> Word | None:
        """The word of a `Scratchpad` member that moves an operand, or None where no call gives it.

        unit: (elements of the member, elements of the transfer) for an operand that moves in other units than it is
        indexed in. step: what the word must be a multiple of at every call.
        """
        if member not in self.bound:
            return None
        group, each = unit
        every = group * (step // math.gcd(step, each))
        return self._word(Word(member, "offset", _affine(Affine(member) // group * each), every))

    def count(self, member: str) -> Word | None:
        """A `Scratchpad` member as a transfer's count of units, or None where no call gives it."""
        return self._word(Word(member, "length", Affine(member))) if member in self.bound else None

    def tiles(self, extent: str, operand: str, per: int) -> Word | None:
        """The word that says how many units of `per` a bounded extent is, rounded up; None where it is not bounded."""
        if extent not in self.bound:
            return None
        return self._word(Word(f"{extent}_{operand}", "length", _affine(Affine(extent).ceildiv(per))))

    def value(self, name: str) -> int | Word:
        """A derived Value: a number, or a word where a bounded extent decides it."""
        form = self._form(name)
        return self._word(Word(name, "core", form)) if isinstance(form, Affine) else form

    def length(self, name: str) -> Word | None:
        """A derived Value as a transfer's count of units; None where no bounded extent decides it."""
        form = self._form(name)
        return self._word(Word(f"{name}_length", "length", form)) if isinstance(form, Affine) else None

    def _form(self, name: str) -> Affine | int:
        bounds = {member: Affine(member) for member in self.op.extents if member in self.bound}
        return self.op.values[name].form(self.op, bounds)

    def _word(self, word: Word) -> Word:
        known = self._words.setdefault(word.name, word)
        if known != word:
            raise DeclarationError(f"{type(self.op.base).__name__}: two per-call words are named {word.name}.")
        return word

    # -- what is written before the cores start ----------------------------------------------------

    def preamble(self) -> None:
        """Write the numbers cores read: first those that never change, then this call's, then open the barriers."""
        synced = []
        for data in self.array.values:
            number = self.value(data.name)
            for buffer, index in data.words:
                if isinstance(number, Word):
                    synced.append((buffer, index, number))
                else:
                    self.add(WriteWord(buffer, index, number))
        if synced:
            self.add(Sync(tuple(synced)))
        for lock in self.array.locks:
            if lock.kind == "barrier":
                self.add(SetBarrier(lock.name, 1))

    # -- gathers -----------------------------------------------------------------------------------

    def control(self, operand: str, gather: Gather) -> None:
        """From here on an operand of ids is the tensor of their control words; fills send parts of it."""
        self._controls[operand] = gather

    def await_token(self, fifo: str) -> None:
        """Wait until the oldest chain that control packets started on this fifo's channel, and nobody waited for, is done."""
        self.add(AwaitToken(fifo))

    # -- transfers ---------------------------------------------------------------------------------

    def group(self) -> TaskGroup:
        """A group of transfers of its own; see `fill(group=)`."""
        return TaskGroup(self)

    def fill(self, operand: str, lane: int, pattern: Pattern, **options: Any) -> int:
        """Send the elements of a pattern of an operand into a lane; see `transfer`."""
        return self.transfer("fill", operand, lane, pattern, **options)

    def drain(self, operand: str, lane: int, pattern: Pattern, **options: Any) -> int:
        """Write what leaves a lane to a pattern of an operand; see `transfer`."""
        return self.transfer("drain", operand, lane, pattern, **options)

    def transfer(
        self,
        way: str,
        operand: str,
        lane: int,
        pattern: Pattern | tuple[Descriptor, ...],
        *,
        via: str | None = None,
        wait: bool = False,
        group: TaskGroup | None = None,
        offset_by: Word | None = None,
        size_by: tuple[int, Word] | None = None,
        managed: bool = True,
    ) -> int:
        """One DMA task, planned within the shim's limits. Returns its number.

        pattern: elements of the operand. via: the operand whose lane carries it, where that is another. wait: the group
        awaits it. group: None is the sequence's own, finished at its end. offset_by: moves the pattern per call. size_by:
        (axis, word): the pattern's axis keeps `word` times its first step per call; the pattern must fit one descriptor.
        managed=False: in no group; waits are put where the channel's queue or its descriptors would run out.
        """
        lanes = self.array.lanes_of(via or operand)
        fifo = next((data.fifo for data in lanes if data.index == lane), None)
        if fifo is None:
            raise DeclarationError(f"{self.array.name}: {via or operand} has no lane {lane}; it has {len(lanes)}.")
        limits = self._limits(operand)
        unit = 1
        word = None
        where = f"{type(self.op.base).__name__}.{operand}, lane {lane}"
        offset_by = self._placed(way, operand, where, offset_by)
        try:
            if size_by is not None:
                axis, word = size_by
                assert isinstance(pattern, Pattern)
                one, unit = bounded(pattern, axis, limits)
                descriptors: tuple[Descriptor, ...] = (one,)
            elif isinstance(pattern, tuple):
                descriptors = pattern
                if operand in dict(self.op.placed) and len(pattern) > 1:
                    raise Unresolvable(f"{len(pattern)} descriptors, of which a call moves one. Legal: the copy by itself.")
            else:
                descriptors = plan(pattern, limits, single=offset_by is not None)
        except Unresolvable as error:
            raise Unresolvable(f"{where}: {error}") from None
        task = self._tasks
        self._tasks += 1
        if task >= TASKS:
            raise Unresolvable(f"{where}: a sequence of over {TASKS} transfers. Legal: larger tiles, or a smaller operator.")
        if not managed:
            self._meter(fifo, len(descriptors))
            self._queues.setdefault(fifo, []).append((task, len(descriptors)))
            self._order.append(task)
        else:
            (group or self._default).tasks.append((task, wait))
        self.add(
            Transfer(task, way, operand, fifo, descriptors, wait or not managed, offset_by, word, unit)
        )
        return task

    def _placed(self, way: str, operand: str, where: str, offset_by: Word | None) -> Word | None:
        """What moves a transfer, that of an output that calls place among them. Unresolvable where the sequence reads the output
        back or moves it itself."""
        if operand not in dict(self.op.placed):
            return offset_by
        if way == "fill" or offset_by is not None:
            does = "reads it back" if way == "fill" else "moves it per call"
            raise Unresolvable(f"{where}: its own sequence {does}, so no call can place it. Legal: the copy by itself.")
        return self.offset(offset_member(operand), step=max(1, WORD // self._argument(operand)[0].itemsize))

    def _meter(self, fifo: str, descriptors: int) -> None:
        """Await this channel's oldest tasks until one more of that many descriptors fits its queue and its share."""
        share = self.dev.shim.descriptors // SHARING  # type: ignore[union-attr]
        queue = self._queues.setdefault(fifo, [])
        while queue and (len(queue) >= QUEUE or sum(n for _, n in queue) + descriptors > share):
            task, _ = queue.pop(0)
            self._order.remove(task)
            self.add(Await(task))

    def single(self, operand: str, pattern: Pattern) -> bool:
        """Is a transfer of an operand's elements by this pattern one descriptor of a shim?"""
        try:
            plan(pattern, self._limits(operand), single=True)
        except Unresolvable:
            return False
        return True

    def _limits(self, operand: str) -> BdLimits:
        return BdLimits.of(self.dev.shim, self._argument(operand)[0].itemsize)  # type: ignore[arg-type]

    def _argument(self, operand: str) -> tuple[Any, int]:
        """dtype and elements of an operand's flat tensor; of a packed format what its bytes are moved as."""
        if operand in self._controls:
            return as_dtype("uint32"), self._controls[operand].words
        bound = getattr(self.op, operand)
        dtype = bound.format.streamed
        stored = bound.format.nbytes(bound.shape) // dtype.itemsize
        return dtype, dict(self.op.placed).get(operand, stored)

    def finish(self) -> None:
        """Await what is left of the drains, unmanaged ones and the sequence's own group; then free the unmanaged fills.

        In this order: what a fill sends has arrived for certain only once the outputs have.
        """
        ways = {step.task: step.way for step in self.steps if isinstance(step, Transfer)}
        fills = [task for task in self._order if ways[task] == "fill"]
        for task in self._order:
            if ways[task] == "drain":
                self.add(Await(task))
        self._default.finish()
        for task in fills:
            self.add(Free(task))
        self._order.clear()
        self._queues.clear()

    def freeze(self) -> Sequence:
        """The sequence as data, finished: every task of it is awaited or freed."""
        self.finish()
        arguments = []
        # Bits are moved as what the stream carries: an operand that rides another's is an argument of that one's numbers.
        moved = [step for step in self.steps if isinstance(step, Transfer) and step.operand not in self._controls]
        rides = {step.operand: self.array.fifo(step.fifo).type.dtype for step in moved}
        for name in self.op.present:
            dtype, size = self._argument(name)
            carried = rides.get(name, dtype)
            if carried.itemsize == dtype.itemsize:
                dtype = carried
            arguments.append(SequenceArgument(name, dtype.name, size, self._controls.get(name)))
        awaited = {step.task for step in self.steps if isinstance(step, Await)}
        steps = tuple(
            attrs.evolve(step, token=step.task in awaited) if isinstance(step, Transfer) else step for step in self.steps
        )
        return Sequence(tuple(arguments), tuple(self._words.values()), steps)
