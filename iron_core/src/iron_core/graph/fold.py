"""Folds: steps that may run inside another step. Found by what the operators declare; a backend accepts or not.

A fold changes where a number is computed, never how it is rounded: folded equals unfolded bit for bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import attrs

from iron_core.graph.traced import Region, TracedGraph, TracedStep


@attrs.frozen(eq=False)
class Folded:
    """A step as part of another. `at`: its input that is the tile. `operand`: the result of the step before it that this is
    (behind a step), or the input of the step behind it that it makes (in front of one)."""

    step: TracedStep
    at: str
    operand: str


@attrs.frozen(eq=False)
class Joined:
    """A step with all that is folded into it: steps in front of an operand, behind its result, and the copy that says where
    the result goes. Those of a chain stand in the order they apply."""

    step: TracedStep
    prepare: tuple[Folded, ...] = ()
    finish: tuple[Folded, ...] = ()
    placed: Folded | None = None

    def also(self, other: Joined) -> Joined:
        """This one with what is folded into another: behind what is behind it, in front of what is in front."""
        return attrs.evolve(
            self,
            prepare=(*other.prepare, *self.prepare),
            finish=(*self.finish, *other.finish),
            placed=other.placed or self.placed,
        )


@attrs.frozen
class Fold:
    """One step inside another. Steps are named; `operators` are theirs, the producer's first.

    kind "finish": the one consumer, elementwise or rowwise, is applied to the producer's result before it is stored.
    kind "prologue": the producer, elementwise or rowwise, is computed by each consumer as it reads; each is linear in
    the operand that takes it. kind "placed": the one consumer, a copy, becomes where the producer stores its result.

    `source` is the producer's output, `at` per consumer its operand that reads it. The intermediate between them is
    not stored. `runs_at` names the step at whose place the folded one runs (for a prologue, each consumer's own).

    `joined` is what a backend judges: each step that it folds into (the producer, of a chain the first step; for a
    prologue every consumer), with this fold and those that were taken before. It is empty in a plan.
    """

    kind: str
    producer: str
    consumers: tuple[str, ...]
    at: tuple[str, ...]
    source: str
    runs_at: str
    operators: tuple[Any, ...] = attrs.field(default=(), eq=False, repr=False)
    joined: tuple[Joined, ...] = attrs.field(default=(), eq=False, repr=False)

    @property
    def gone(self) -> str:
        """The step that is no step of its own any more."""
        return self.producer if self.kind == "prologue" else self.consumers[0]

    def __str__(self) -> str:
        if self.kind == "prologue":
            return f"{self.producer} into the prologue of {', '.join(self.consumers)}"
        how = "the finish" if self.kind == "finish" else "the store"
        return f"{self.consumers[0]} into {how} of {self.producer}"


def find_folds(traced: TracedGraph) -> list[Fold]:
    """Every fold that the contract allows, each on its own, in step order. Some exclude others: see `choose_folds`."""
    return list(FoldFinder(traced).folds)


def choose_folds(traced: TracedGraph, accepts: Callable[[Fold], bool], finder: FoldFinder | None = None) -> list[Fold]:
    """The folds to take together: those a backend accepts, as many as go together. It is asked about one after another, each
    with `joined`, and what it accepts is taken. finder: the trace's, of whoever chooses several times.

    A step is folded away once. Steps folded into one another run at one place (`runs_at`), where everything they read
    is there and nothing they write is awaited earlier. Finishes are taken first, then placements, then prologues.
    """
    finder = finder or FoldFinder(traced)
    order = {"finish": 0, "placed": 1, "prologue": 2}
    number = {step.name: i for i, step in enumerate(traced.steps)}
    group = {i: [i] for i in range(len(traced.steps))}
    place = list(range(len(traced.steps)))
    joined = {step.name: Joined(step) for step in traced.steps}
    host: dict[str, str] = {}  # of a step that is folded away behind another: the chain's first
    gone: set[str] = set()
    taken = []
    for fold in sorted(finder.folds, key=lambda f: order[f.kind]):
        if fold.gone in gone:
            continue
        producer, consumers = number[fold.producer], [number[c] for c in fold.consumers]
        if fold.kind == "prologue":
            into, turn = fold.consumers, None
            free = len(group[producer]) == 1 and gone.isdisjoint(fold.consumers)
            if not free or not all(finder.readable(producer, c, place) for c in consumers):
                continue
        else:
            into = (host.get(fold.producer, fold.producer),)
            members = sorted({*group[producer], *group[consumers[0]]})
            turn = finder.meeting(members, place)
            if turn is None or (fold.kind == "placed" and not finder.apart(group[producer], consumers[0])):
                continue
        both = tuple(joined[name].also(alone) for name, alone in zip(into, fold.joined, strict=True))
        if not accepts(attrs.evolve(fold, joined=both)):
            continue
        joined.update(zip(into, both, strict=True))
        gone.add(fold.gone)
        if turn is not None:
            host[fold.gone] = into[0]
            for member in members:
                group[member], place[member] = members, turn
        taken.append(fold)
    runs_at = {step.name: traced.steps[place[i]].name for i, step in enumerate(traced.steps)}
    return [
        attrs.evolve(fold, joined=(), runs_at=fold.runs_at if fold.kind == "prologue" else runs_at[fold.producer])
        for fold in taken
    ]


class FoldFinder:
    """What a trace's steps read and write, and which of them may join."""

    def __init__(self, traced: TracedGraph) -> None:
        self.traced = traced
        self.steps = traced.steps
        self.in_order = range(len(self.steps))
        #: tensor -> (step number, operand name) of every mention
        self.uses: dict[int, list[tuple[int, str]]] = {}
        for i, step in enumerate(self.steps):
            for name, region in step.operands.items():
                self.uses.setdefault(id(region.tensor), []).append((i, name))
        regions = [*traced.outputs, *(c.source for c in traced.carry if isinstance(c.source, Region))]
        self.returned = {id(region.tensor) for region in regions}
        self.calls = Counter(id(step.op) for step in self.steps)
        self._known: dict[int, tuple[frozenset[int], frozenset[int]]] = {}

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """Every fold that the contract allows, each on its own, in step order."""
        folds = []
        for i, step in enumerate(self.steps):
            written = [n for n in step.operands if step.op.operands[n].written]
            if len(written) != 1 or self.calls[id(step.op)] != 1 or step.op.accept_views:
                continue
            made = step.operands[written[0]]
            readers = self._readers(i, made)
            if readers is None:
                continue
            if len(readers) == 1:
                ((j, name),) = readers
                for kind, legal in (("finish", self._finish), ("placed", self._placed)):
                    at = self.meeting([i, j], self.in_order)
                    if at is not None and legal(made, self.steps[j], name) and (kind == "finish" or self.apart([i], j)):
                        folds.append(self._fold(kind, i, written[0], readers, self.steps[at].name))
            if self._prologue(i, made, readers):
                folds.append(self._fold("prologue", i, written[0], readers, self.steps[readers[0][0]].name))
        return tuple(folds)

    def _fold(self, kind: str, producer: int, source: str, readers: Sequence[tuple[int, str]], runs_at: str) -> Fold:
        step, steps = self.steps[producer], [self.steps[j] for j, _ in readers]
        at = tuple(name for _, name in readers)
        if kind == "prologue":
            tile = self._tile(step, step.operands[source])
            assert tile is not None
            joined = [Joined(other, prepare=(Folded(step, tile, name),)) for other, name in zip(steps, at, strict=True)]
        else:
            part = Folded(steps[0], at[0], source)
            joined = [Joined(step, finish=(part,)) if kind == "finish" else Joined(step, placed=part)]
        return Fold(
            kind,
            step.name,
            tuple(s.name for s in steps),
            at,
            source,
            runs_at,
            (step.op, *(s.op for s in steps)),
            tuple(joined),
        )

    def _readers(self, i: int, made: Region) -> list[tuple[int, str]] | None:
        """Who reads what step i made: a whole intermediate that it alone writes, that stays inside and is read whole,
        once by each reader, by operators called once. None where it is anything else."""
        tensor = made.tensor
        if tensor.role != "intermediate" or id(tensor) in self.returned or not made.whole:
            return None
        mentions = self.uses[id(tensor)]
        readers = [(j, name) for j, name in mentions if j != i]
        each = Counter(j for j, _ in mentions)
        for j, name in readers:
            step = self.steps[j]
            operand = step.op.operands[name]
            if j < i or operand.written or each[j] > 1 or self.calls[id(step.op)] != 1 or not step.operands[name].whole:
                return None
        return readers if readers and each[i] == 1 else None

    # -- the three kinds --------------------------------------------------------------------------

    def _finish(self, made: Region, consumer: TracedStep, name: str) -> bool:
        op = consumer.op
        written = [n for n in consumer.operands if op.operands[n].written]
        if not (op.elementwise or op.rowwise) or len(written) != 1 or op.operands[written[0]].role != "out":
            return False
        out, tile = consumer.operands[written[0]], consumer.operands[name]
        if out.tensor.role != "intermediate" or not out.whole or out.size != made.size:
            return False
        for other, region in consumer.operands.items():
            alike = region.size == out.size and region.format == out.format and region.whole
            if op.operands[other].read and other != name and not alike:
                return False
        if any(binding.member not in op.extents for binding in consumer.bindings):
            return False
        if made.bounds or tile.bounds or out.bounds or consumer.bindings:
            others = [r for n, r in consumer.operands.items() if op.operands[n].read]
            return all(_bounded_alike(made, region) for region in (*others, out))
        return True

    def _prologue(self, i: int, made: Region, readers: Sequence[tuple[int, str]]) -> bool:
        step = self.steps[i]
        if not (step.op.elementwise or step.op.rowwise) or step.bindings or made.bounds:
            return False
        if self._tile(step, made) is None:
            return False
        return all(
            name in self.steps[j].op.linear_in and not self.steps[j].operands[name].bounds and self.readable(i, j, self.in_order)
            for j, name in readers
        )

    def _tile(self, step: TracedStep, made: Region) -> str | None:
        """The input that is a prologue's tile: the first of the size and format of what it makes."""
        fits = (n for n, r in step.operands.items() if step.op.operands[n].read and (r.size, r.format) == (made.size, made.format))
        return next(fits, None)

    def _placed(self, made: Region, consumer: TracedStep, name: str) -> bool:
        op = consumer.op
        read, members = op.accept_views.get(name), dict(op.accept_views)
        if read is None or len(members) != 2 or made.bounds:
            return False
        members.pop(name)
        ((_, written),) = members.items()
        if op.accept_gather is not None and op.accept_gather in consumer.operands:
            return False
        pattern = getattr(op, written.pattern)
        bound = {binding.member for binding in consumer.bindings}
        if getattr(op, read.pattern) is not None or not bound <= {written.offset}:
            return False
        return pattern is None or (not isinstance(pattern, tuple) and pattern.contiguous)

    # -- order ------------------------------------------------------------------------------------

    def _conflicts(self, i: int) -> tuple[frozenset[int], frozenset[int]]:
        """Steps that write what step i reads; steps that touch what it writes or write what it reads."""
        if i not in self._known:
            step = self.steps[i]
            feeding, touching = set(), set()
            for name, region in step.operands.items():
                mine = step.op.operands[name]
                for k, other in self.uses[id(region.tensor)]:
                    theirs = self.steps[k].op.operands[other]
                    if k == i or not (mine.written or theirs.written) or not region.overlaps(self.steps[k].operands[other]):
                        continue
                    touching.add(k)
                    if mine.read and theirs.written:
                        feeding.add(k)
            self._known[i] = frozenset(feeding), frozenset(touching)
        return self._known[i]

    def readable(self, i: int, consumer: int, place: Sequence[int]) -> bool:
        """Does step i read the same where `consumer` runs? `place` says at whose turn each step runs."""
        return all((i < k) == (place[consumer] < place[k]) for k in self._conflicts(i)[0])

    def apart(self, members: Sequence[int], copy: int) -> bool:
        """Does none of these steps read what a copy writes, and would read while it is written?"""
        into = self.steps[copy].written()
        read = (r for i in members for n, r in self.steps[i].operands.items() if self.steps[i].op.operands[n].read)
        return not any(region.overlaps(written) for region in read for written in into)

    def meeting(self, members: Sequence[int], place: Sequence[int]) -> int | None:
        """The first of these steps at whose turn all of them may run, in their order; None where there is none.

        They may where no step that is not one of them, and shares with one of them a tensor that either writes, would
        come on the other side of it.
        """
        mine = set(members)
        pairs = [(i, k) for i in members for k in self._conflicts(i)[1] if k not in mine]
        return next((at for at in members if all((i < k) == (at < place[k]) for i, k in pairs)), None)


def _bounded_alike(a: Region, b: Region) -> bool:
    keys = [{axis: expression.key for axis, expression in r.bounds} for r in (a, b)]
    return a.shape == b.shape and keys[0] == keys[1]
