"""Well-formed core programs, found by running each on all its paths at once.

What is followed: how many objects of each fifo end are held, which of them every acquisition named, which barriers were
waited for, and whether the rounding mode was set. Held counts are small, so the states of a program are few: a loop is run
until it brings no new one, a program that starts over until its end is like the end before. A core may go on holding
objects from one pass to the next (weights it keeps), if every path of every pass leaves it holding the same.
"""

from __future__ import annotations

import attrs

from iron_core.array.design import ArrayDesign, BufferData, CoreData, FifoData
from iron_core.array.expression import Binary, Const, Expr, evaluate, variables
from iron_core.array.kernel import KernelData
from iron_core.array.pools import place_of, reaches
from iron_core.array.program import (
    Acquire,
    AcquireLock,
    Block,
    Call,
    Element,
    For,
    If,
    Load,
    Local,
    Memory,
    RaiseBarrier,
    Release,
    ReleaseLock,
    SetRounding,
    Statement,
    Store,
    Subview,
    WaitBarrier,
    walk,
)
from iron_core.declare.formats import as_dtype
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError

#: dtypes that a store rounds to.
ROUNDED = ("bfloat16", "float16")
#: Passes of a loop or program after which held counts must have settled.
_SETTLED = 64

FifoEnd = tuple[str, str]


@attrs.frozen
class State:
    """held: objects per (fifo, port), none left out but zeros. named: per acquisition in scope, objects given on since.
    waited, pending: barriers passed in this pass, and those not yet re-armed. rounding: it was set. known: conditions that
    this path found true or false, while their variables live."""

    held: tuple[tuple[FifoEnd, int], ...] = ()
    named: tuple[tuple[str, int], ...] = ()
    waited: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    rounding: bool = False
    known: frozenset[tuple[Expr, bool]] = frozenset()

    def count(self, end: FifoEnd) -> int:
        return dict(self.held).get(end, 0)

    def holding(self, end: FifoEnd, count: int) -> State:
        rest = {**dict(self.held), end: count}
        return attrs.evolve(self, held=tuple(sorted((k, n) for k, n in rest.items() if n)))

    def gave(self, name: str, count: int) -> State:
        return attrs.evolve(self, named=tuple(sorted({**dict(self.named), name: count}.items())))

    def without(self, names: set[str]) -> State:
        if not names:
            return self
        known = frozenset(fact for fact in self.known if not variables(fact[0]) & names)
        return attrs.evolve(self, named=tuple((name, n) for name, n in self.named if name not in names), known=known)


States = frozenset[State]


def check_core(array: ArrayDesign, core: CoreData) -> None:
    """DeclarationError at the first rule that a core's program breaks."""
    _Program(array, core).run()


class _Program:
    def __init__(self, array: ArrayDesign, core: CoreData) -> None:
        self.array, self.core = array, core
        self.what = f"core {core.name}"
        self.fifos = {fifo.name: fifo for fifo in array.fifos}
        self.buffers = {buffer.name: buffer for buffer in array.buffers}
        self.locks = {lock.name: lock for lock in array.locks}
        self.kernels = {kernel.symbol: kernel for kernel in array.kernels}
        self.acquired: dict[str, Acquire] = {}
        self.scope: set[str] = set()
        self.numbers: dict[str, int] = {}  # loop variables whose number is known
        for statement in walk(core.program):
            name = getattr(statement, "name", None) or getattr(statement, "var", None)
            if name is not None:
                if name in self.scope:
                    self.refuse(f"two variables named {name}")
                self.scope.add(name)
            if isinstance(statement, Acquire):
                self.acquired[statement.name] = statement
        self.scope.clear()

    def refuse(self, words: str) -> None:
        raise DeclarationError(f"{self.what}: {words}.")

    def run(self) -> None:
        start: States = frozenset({State()})
        ends: list[States] = []
        for _ in range(_SETTLED if self.core.forever else 1):
            end = self.block(self.core.program, start)
            self._over(end)
            ends.append(end)
            start = frozenset(attrs.evolve(s, waited=frozenset(), named=(), known=frozenset()) for s in end)
            if len(ends) > 1 and ends[-1] == ends[-2]:
                break
        if self.core.forever and ends[0] and {s.held for s in ends[0]} != {s.held for s in ends[-1]}:
            self._unsteady(ends[0] | ends[-1])

    def _over(self, states: States) -> None:
        """At the end of a pass."""
        for state in states:
            if state.pending:
                name = min(state.pending)
                self.refuse(f"it waits for barrier {name} without re-arming it; call release_with_value after reading the words")
        if len({state.held for state in states}) > 1:
            self._unsteady(states)

    def _unsteady(self, states: States) -> None:
        ends = sorted({end for state in states for end, _ in state.held})
        for end in ends:
            counts = sorted({state.count(end) for state in states})
            if len(counts) > 1:
                fifo, way = end
                self.refuse(
                    f"a pass ends with {' or '.join(map(str, counts))} objects of fifo {fifo} ({way}) held; "
                    "release them, so that every path of every pass ends alike"
                )

    # -- statements --------------------------------------------------------------------------------

    def block(self, block: Block, states: States) -> States:
        """The states after a block; what it names is out of scope then."""
        before = set(self.scope)
        for statement in block:
            states = self.statement(statement, states)
        inner, self.scope = self.scope - before, before
        return frozenset(state.without(inner) for state in states)

    def statement(self, s: Statement, states: States) -> States:
        if isinstance(s, For):
            return self.loop(s, states)
        if isinstance(s, If):
            return self.branch(s, states)
        if isinstance(s, Load):
            self.reads(s.index)
            self.number(s.memory, s.index)
            after = frozenset(self.touch(s.memory, state) for state in states)
            self.scope.add(s.name)
            return after
        if isinstance(s, Store):
            self.reads(s.index)
            self.reads(s.value)
            self.number(s.memory, s.index)
            return frozenset(self.touch(s.memory, state) for state in states)
        if isinstance(s, Acquire):
            self.end(s.fifo, s.port, s.count)
            self.scope.add(s.name)
            end = (s.fifo, s.port)
            return frozenset(st.holding(end, max(st.count(end), s.count)).gave(s.name, 0) for st in states)
        if isinstance(s, Release):
            self.end(s.fifo, s.port, s.count)
            return frozenset(self.release(s, state) for state in states)
        if isinstance(s, Call):
            return self.call(s, states)
        if isinstance(s, SetRounding):
            return frozenset(attrs.evolve(state, rounding=True) for state in states)
        return self.lock(s, states)

    def branch(self, s: If, states: States) -> States:
        """Both ways, unless the path knows the condition from before or its variables are numbers."""
        self.reads(s.condition)
        ways: dict[bool, States] = {}
        for truth, body in ((True, s.then), (False, s.otherwise)):
            if variables(s.condition) <= self.numbers.keys():
                taken = states if bool(evaluate(s.condition, self.numbers)) == truth else frozenset()
            else:
                taken = frozenset(state for state in states if (s.condition, not truth) not in state.known)
            ways[truth] = self.block(body, taken)
        if ways[True] == ways[False]:
            return ways[True]
        return frozenset(
            attrs.evolve(state, known=state.known | {(s.condition, truth)}) for truth in ways for state in ways[truth]
        )

    def loop(self, s: For, states: States) -> States:
        self.reads(s.start)
        self.reads(s.stop)
        if s.step < 1:
            self.refuse(f"a loop in steps of {s.step}; legal: at least 1")
        trips = None
        if isinstance(s.start, Const) and isinstance(s.stop, Const):
            trips = max(0, -(-int(s.stop.value - s.start.value) // s.step))
        counted = trips is not None and trips <= _SETTLED and any(
            isinstance(inner, If) and s.var in variables(inner.condition) for inner in walk(s.body)
        )
        every, now, rounds = states, states, 0
        while trips is None or rounds < trips:
            self.scope.add(s.var)
            if counted and isinstance(s.start, Const):
                self.numbers[s.var] = int(s.start.value) + rounds * s.step
            after = frozenset(state.without({s.var}) for state in self.block(s.body, now))
            self.scope.discard(s.var)
            self.numbers.pop(s.var, None)
            rounds += 1
            settled = after <= every if trips is None else after == now and not counted
            every, now = every | after, after
            if settled:
                break
            if rounds == _SETTLED and (trips is None or trips > _SETTLED):
                self.refuse(f"what a loop over {s.var} holds does not settle in {_SETTLED} rounds")
        return every if trips is None else now

    def release(self, s: Release, state: State) -> State:
        end = (s.fifo, s.port)
        held = state.count(end)
        if s.count > held:
            self.refuse(f"release({s.count}) of fifo {s.fifo} ({s.port}) where {held} objects are held; acquire them first")
        state = state.holding(end, held - s.count)
        for name, gone in state.named:
            one = self.acquired[name]
            if (one.fifo, one.port) == end:
                state = state.gave(name, min(one.count, gone + s.count))
        return state

    def lock(self, s: Statement, states: States) -> States:
        if isinstance(s, (WaitBarrier, RaiseBarrier)):
            name, kind = s.barrier, "barrier"
        else:
            assert isinstance(s, (AcquireLock, ReleaseLock))
            name, kind = s.lock, "lock"
        known = self.locks.get(name)
        if known is None or known.kind != kind:
            self.refuse(f"{name} is no {kind} of the array")
        assert known is not None
        if known.tile != self.core.tile and not (kind == "lock" and self.near(known.tile)):
            self.refuse(f"{kind} {name} is on {known.tile}, not on the core's own {self.core.tile}; pass it to the worker")
        if isinstance(s, WaitBarrier):
            if any(name in state.pending for state in states):
                self.refuse(f"it waits for barrier {name} again before re-arming it; call release_with_value in between")
            return frozenset(
                attrs.evolve(state, waited=state.waited | {name}, pending=state.pending | {name}) for state in states
            )
        if isinstance(s, RaiseBarrier):
            if s.value < 1:
                self.refuse(f"release_with_value({s.value}) leaves barrier {name} open; legal: at least 1")
            if not all(name in state.pending for state in states):
                self.refuse(f"it re-arms barrier {name} without having waited for it")
            return frozenset(attrs.evolve(state, pending=state.pending - {name}) for state in states)
        if s.value < 1:
            self.refuse(f"lock {name} by {s.value}; legal: at least 1")
        return states

    def near(self, tile: str) -> bool:
        here, there = place_of(self.array, self.core.tile), place_of(self.array, tile)
        return here is not None and there is not None and reaches(here, there)

    def call(self, s: Call, states: States) -> States:
        kernel = self.kernels.get(s.kernel)
        if kernel is None:
            self.refuse(f"{s.kernel} is no kernel of the array")
        assert kernel is not None
        if len(s.args) != len(kernel.arguments):
            self.refuse(f"kernel {s.kernel} takes {len(kernel.arguments)} arguments; {len(s.args)} are given")
        for i, (given, wanted) in enumerate(zip(s.args, kernel.arguments, strict=True)):
            self.argument(s.kernel, i, given, wanted)
        memories = [arg for arg in s.args if not isinstance(arg, Expr)]
        for memory in memories:
            states = frozenset(self.touch(memory, state) for state in states)
        stored = _rounds(kernel)
        if stored and not all(state.rounding for state in states):
            self.refuse(
                f"kernel {s.kernel} stores {stored} before the rounding mode is set, and a fresh core rounds down; "
                'start the core function with set_rounding("conv_even")'
            )
        return states

    def argument(self, symbol: str, i: int, given: Memory | Expr, wanted: ObjectType | str) -> None:
        if isinstance(wanted, str):
            if not isinstance(given, Expr):
                self.refuse(f"kernel {symbol}, argument {i} is a scalar {wanted}; memory is given")
            assert isinstance(given, Expr)
            if as_dtype(wanted).kind in "iu":
                self.reads(given)
            elif not isinstance(given, Const):
                self.refuse(f"kernel {symbol}, argument {i} is a {wanted}; {given} is computed on the core. Legal: a number")
            return
        if isinstance(given, Expr):
            self.refuse(f"kernel {symbol}, argument {i} is {wanted}; a number is given")
        have = given.type  # type: ignore[union-attr]
        if (have.dtype_name, have.elements) != (wanted.dtype_name, wanted.elements):
            self.refuse(f"kernel {symbol}, argument {i} is {wanted}; {have} is given")

    # -- what statements use -----------------------------------------------------------------------

    def reads(self, e: Expr) -> None:
        """Its variables are in scope, and it computes with integers."""
        if not _integral(e):
            self.refuse(f"{e} computes with a float; legal: integers")
        unknown = sorted(variables(e) - self.scope)
        if unknown:
            self.refuse(f"{e} reads {unknown[0]} outside of the loop or branch that makes it")

    def end(self, name: str, port: str, count: int) -> FifoData:
        """This core has that end of the fifo."""
        fifo = self.fifos.get(name)
        if fifo is None:
            self.refuse(f"{name} is no fifo of the array")
        assert fifo is not None
        tiles = (fifo.producer,) if port == "produce" else fifo.consumers
        if port not in ("produce", "consume") or self.core.tile not in tiles:
            self.refuse(f"it uses fifo {name} ({port}), whose end is on {', '.join(tiles)}, not on its own {self.core.tile}")
        if any(link.tile == self.core.tile and name in (*link.sources, *link.targets) for link in self.array.links):
            self.refuse(f"it uses fifo {name}, whose end on this tile belongs to a link")
        if count < 1:
            self.refuse(f"fifo {name} ({port}): {count} objects; legal: at least 1")
        return fifo

    def buffer(self, name: str) -> BufferData:
        known = self.buffers.get(name)
        if known is None or known.tile != self.core.tile:
            where = "no buffer of the array" if known is None else f"on {known.tile}, not on the core's own {self.core.tile}"
            self.refuse(f"buffer {name} is {where}; pass it to the worker")
        assert known is not None
        return known

    def number(self, memory: Memory, index: Expr) -> None:
        """A core itself reads and writes integers, inside their memory."""
        if memory.type.dtype.kind not in "iu":
            self.refuse(f"it reads or writes a number of {memory.type} itself; legal: integers")
        if isinstance(index, Const) and not 0 <= index.value < memory.type.elements:
            self.refuse(f"number {index} of memory that has {memory.type.elements}")

    def touch(self, memory: Memory, state: State) -> State:
        """Memory is used: it is held, of its declared type, and written words are read after a wait."""
        if isinstance(memory, Subview):
            self.reads(memory.offset)
            base = memory.base
            if base.type.dtype_name != memory.type.dtype_name:
                self.refuse(f"a part of {base.type} as {memory.type}; legal: the same dtype")
            start = int(memory.offset.value) if isinstance(memory.offset, Const) else 0
            if start < 0 or start + memory.type.elements > base.type.elements:
                self.refuse(f"{memory.type.elements} numbers from number {start} of {base.type} on; they reach outside")
            return self.touch(base, state)
        if isinstance(memory, Local):
            known = self.buffer(memory.buffer)
            if known.type != memory.type:
                self.refuse(f"buffer {known.name} is {known.type}; it is used as {memory.type}")
            if known.written and not state.waited:
                self.refuse(f"it uses words of buffer {known.name} before it waits; call wait_for_value(1) on its barrier first")
            return state
        self.held(memory, state)
        return state

    def held(self, memory: Element, state: State) -> None:
        one = self.acquired.get(memory.acquired)
        if one is None or memory.acquired not in self.scope:
            self.refuse(f"an object of fifo {one.fifo if one else memory.acquired} is used outside of where it is acquired")
        assert one is not None
        fifo = self.fifos[one.fifo]
        kind = fifo.type_at(0 if one.port == "produce" else 1)
        if memory.type != kind:
            self.refuse(f"objects of fifo {one.fifo} are {kind}; one is used as {memory.type}")
        gone = dict(state.named)[memory.acquired]
        if not gone <= memory.index < one.count or memory.index - gone >= state.count((one.fifo, one.port)):
            self.refuse(f"object {memory.index} of fifo {one.fifo} ({one.port}) is used after it was released")


def _integral(e: Expr) -> bool:
    if isinstance(e, Binary):
        return _integral(e.left) and _integral(e.right)
    return not isinstance(e, Const) or isinstance(e.value, int)


def _rounds(kernel: KernelData) -> str:
    """The dtype a kernel rounds to as its core is set; empty where it rounds to none, or sets the mode itself."""
    if kernel.rounding != "core":
        return ""
    for role, kind in zip(kernel.roles, kernel.arguments, strict=True):
        if role in ("out", "inout") and isinstance(kind, ObjectType) and kind.dtype_name in ROUNDED:
            return kind.dtype_name
    return ""
