"""A core's program on a clock of its own work: what it waits for and what it gives, in order, loops in closed form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.array.expression import Binary, Const, Expr, Var, apply, variables
from iron_core.array.program import Acquire, Block, For, If, Load, Local, Release, Statement, Store, walk

#: Kinds of events: a wait for consumed objects, a release of produced ones; and, of an end whose room a core holds all of, the wait
#: for room or objects and the release that lets others come.
WAIT, GIVE, TAKE, FREE = range(4)

#: An end of a fifo as a core has it: (fifo, "produce" or "consume").
CoreEnd = tuple[str, str]
#: What a core reads: (buffer, index) -> number.
Words = Mapping[tuple[str, int], int]


@attrs.frozen(eq=False)
class Track:
    """One run of a program, event by event.

    kinds: WAIT and so on. ends: of which end, by its number. counts: which object of that end, 1 the run's first. work: cycles the core
    has worked until then. passed: objects each end gives or takes in a whole run, `cycles` its work.
    """

    kinds: np.ndarray
    ends: np.ndarray
    counts: np.ndarray
    work: np.ndarray
    passed: np.ndarray
    cycles: float
    _places: dict[tuple[int, int], np.ndarray] = attrs.field(factory=dict, init=False, repr=False)

    def places(self, kind: int, end: int) -> np.ndarray:
        """Where the events of a kind at an end are."""
        found = self._places.get((kind, end))
        if found is None:
            found = self._places[kind, end] = np.flatnonzero((self.kinds == kind) & (self.ends == end))
        return found

    @property
    def size(self) -> int:
        return int(self.ends.size)

    def times(self, n: int) -> Track:
        """One run after the other, `n` in all."""
        if n == 1:
            return self
        turns = np.repeat(np.arange(n), self.size)
        ends = np.tile(self.ends, n)
        counts = np.tile(self.counts, n) + turns * self.passed[ends]
        work = np.tile(self.work, n) + turns * self.cycles
        return Track(np.tile(self.kinds, n), ends, counts, work, self.passed * n, self.cycles * n)

    def stalled(self, ends: Mapping[int, float]) -> Track:
        """The same where what these ends release comes back only after so many cycles, for a core holds all the room there is."""
        work, cycles = self.work, self.cycles
        for end, after in ends.items():
            takes, frees = self.places(TAKE, end), self.places(FREE, end)
            if not takes.size:
                continue
            before = np.searchsorted(frees, takes) - 1  # the last release before
            told = before >= 0
            idle = np.maximum(0.0, after - (work[takes[told]] - work[frees[before[told]]]))
            added = np.zeros(self.size)
            added[takes[told]] = idle
            added = np.cumsum(added)
            work, cycles = work + added, cycles + float(added[-1] if added.size else 0.0)
        return self if work is self.work else Track(self.kinds, self.ends, self.counts, work, self.passed, cycles)


def _joined(parts: list[Track], ends: int) -> Track:
    if len(parts) == 1:
        return parts[0]
    passed, cycles = np.zeros(ends, np.int64), 0.0
    counts, work = [], []
    for part in parts:
        counts.append(part.counts + passed[part.ends])
        work.append(part.work + cycles)
        passed = passed + part.passed
        cycles += part.cycles
    if not parts:
        nothing = np.zeros(0, np.int64)
        return Track(nothing, nothing, nothing, nothing.astype(float), passed, cycles)
    kinds, names = (np.concatenate([getattr(part, one) for part in parts]) for one in ("kinds", "ends"))
    return Track(kinds, names, np.concatenate(counts), np.concatenate(work), passed, cycles)


def track(
    program: Block,
    ends: Mapping[CoreEnd, int],
    words: Words,
    cost: Callable[[Statement], float],
    waited: frozenset[int],
    depths: Mapping[int, int],
) -> Track:
    """One run of a program of which the sequence has written these words.

    waited: ends at which it waits for objects or room. depths: objects there is room for, of each end that DMAs serve. cost: cycles of
    a statement; of a loop, those of a turn. A number that a core takes out of an object counts as 0, for nothing moves data here.
    """
    return _Walker(ends, words, cost, waited, depths, _steering(program)).block(program)


def _steering(program: Block) -> frozenset[str]:
    """Names of the variables that decide what is run."""
    found: set[str] = set()
    loads: dict[str, frozenset[str]] = {}
    for statement in walk(program):
        if isinstance(statement, For):
            found |= variables(statement.start) | variables(statement.stop)
        elif isinstance(statement, If):
            found |= variables(statement.condition)
        elif isinstance(statement, Load):
            loads[statement.name] = variables(statement.index)
        elif isinstance(statement, Store):
            found |= variables(statement.index) | variables(statement.value)
    while True:
        more = {name for load, names in loads.items() if load in found for name in names} - found
        if not more:
            return frozenset(found)
        found |= more


class _Walker:
    def __init__(
        self,
        ends: Mapping[CoreEnd, int],
        words: Words,
        cost: Callable[[Statement], float],
        waited: frozenset[int],
        depths: Mapping[int, int],
        steering: frozenset[str],
    ) -> None:
        self.ends = ends
        self.words = dict(words)
        self.cost = cost
        self.waited = waited
        self.depths = depths
        self.steering = steering
        self.variables: dict[str, int] = {}
        self.held = [0] * len(ends)

    def block(self, block: Block) -> Track:
        parts: list[Track] = []
        flat = _Flat(len(self.ends))
        for statement in block:
            if isinstance(statement, For | If):
                if flat.used:
                    parts.append(flat.track())
                    flat = _Flat(len(self.ends))
                parts += self._loop(statement) if isinstance(statement, For) else self._choice(statement)
                continue
            if isinstance(statement, Acquire):
                end = self.ends[statement.fifo, statement.port]
                if self.held[end] >= statement.count:
                    continue
                self.held[end] = statement.count
                if statement.count == self.depths.get(end):
                    flat.note(TAKE, end)
                if end in self.waited:
                    flat.wait(end, statement.count)
            elif isinstance(statement, Load):
                self.variables[statement.name] = self._read(statement)
            elif isinstance(statement, Store):
                self._write(statement)
            flat.add(self.cost(statement))
            if isinstance(statement, Release):
                end = self.ends[statement.fifo, statement.port]
                self.held[end] -= statement.count
                flat.release(end, statement.count, statement.port == "produce")
                if end in self.depths:
                    flat.note(FREE, end)
        if flat.used or not parts:
            parts.append(flat.track())
        return _joined(parts, len(self.ends))

    def _loop(self, loop: For) -> list[Track]:
        turns = range(self.number(loop.start), self.number(loop.stop), loop.step)
        if not turns:
            return []
        turn = _Flat(len(self.ends))
        turn.add(self.cost(loop))
        before = turn.track()
        if loop.var not in self.steering and not any(isinstance(inner, Store) for inner in walk(loop.body)):
            self.variables[loop.var] = turns[0]
            return [_joined([before, self.block(loop.body)], len(self.ends)).times(len(turns))]
        found = []
        for at in turns:
            self.variables[loop.var] = at
            found += [before, self.block(loop.body)]
        return found

    def _choice(self, choice: If) -> list[Track]:
        turn = _Flat(len(self.ends))
        turn.add(self.cost(choice))
        return [turn.track(), self.block(choice.then if self.number(choice.condition) else choice.otherwise)]

    # -- numbers -----------------------------------------------------------------------------------

    def number(self, e: Expr) -> int:
        if isinstance(e, Const):
            return int(e.value)
        if isinstance(e, Var):
            return self.variables[e.name]
        assert isinstance(e, Binary)
        return apply(e.op, self.number(e.left), self.number(e.right))

    def _read(self, load: Load) -> int:
        if not isinstance(load.memory, Local):
            return 0
        return self.words.get((load.memory.buffer, self.number(load.index)), 0)

    def _write(self, store: Store) -> None:
        if isinstance(store.memory, Local):
            self.words[store.memory.buffer, self.number(store.index)] = self.number(store.value)


class _Flat:
    """Statements without a loop."""

    def __init__(self, ends: int) -> None:
        self._events: list[tuple[int, int, int, float]] = []
        self._passed = [0] * ends
        self._work = 0.0

    @property
    def used(self) -> bool:
        return bool(self._events) or self._work > 0

    def add(self, cycles: float) -> None:
        self._work += cycles

    def wait(self, end: int, count: int) -> None:
        self._events.append((WAIT, end, self._passed[end] + count, self._work))

    def note(self, kind: int, end: int) -> None:
        self._events.append((kind, end, self._passed[end], self._work))

    def release(self, end: int, count: int, gives: bool) -> None:
        self._passed[end] += count
        if gives:
            self._events.append((GIVE, end, self._passed[end], self._work))

    def track(self) -> Track:
        columns: Any = zip(*self._events, strict=True) if self._events else ((),) * 4
        kinds, ends, counts, work = columns
        return Track(
            np.array(kinds, np.int64),
            np.array(ends, np.int64),
            np.array(counts, np.int64),
            np.array(work, float),
            np.array(self._passed, np.int64),
            self._work,
        )
