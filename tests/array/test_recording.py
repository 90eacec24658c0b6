"""Core functions run once, on symbolic handles; what they do is a program. What only Python could do is refused."""

from __future__ import annotations

import pytest

from iron_core.array import (
    Buffer,
    Lane,
    Lock,
    ObjectFifo,
    Tile,
    Worker,
    WorkerRuntimeBarrier,
    else_,
    if_,
    range_,
    set_rounding,
)
from iron_core.array.builder import building
from iron_core.array.expression import Binary, Const, Var
from iron_core.array.program import (
    Acquire,
    AcquireLock,
    Call,
    Element,
    For,
    If,
    Load,
    Local,
    RaiseBarrier,
    Release,
    ReleaseLock,
    SetRounding,
    Store,
    Subview,
    WaitBarrier,
    walk,
)
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError

LINE = ObjectType.of(64, "int32")


def recorded(core, *extra):
    """The program of one core between a fifo `a` that arrives and `y` that leaves; `extra` makes further arguments."""
    with building():
        a, y = ObjectFifo(LINE, name="a"), ObjectFifo(LINE, name="y")
        a.prod(tile=Lane("a", 0))
        y.cons(tile=Lane("y", 0))
        return Worker(core, [a.cons(), y.prod(), *[make() for make in extra]], name="core0").program


def test_a_loop_is_recorded_once():
    """Its body runs once, with a variable for the index."""
    runs = []

    def core(a, y):
        for i in range_(8):
            runs.append(i)
            a.acquire()
            a.release()

    (loop,) = recorded(core)
    assert runs == [Var("i0")]
    assert loop == For("i0", Const(0), Const(8), 1, (Acquire("a1", "a", "consume", 1), Release("a", "consume", 1)))


def test_loops_nest_and_take_bounds_that_the_core_knows():
    def core(a, y, words):
        n = words[0]
        for i in range_(2, n, 3):
            for j in range_(i):
                words[j] = i

    load, loop = recorded(core, lambda: Buffer(4, "int32", name="words"))
    assert load == Load("v0", Local("words", ObjectType.of(4, "int32")), Const(0))
    assert (loop.start, loop.stop, loop.step) == (Const(2), Var("v0"), 3)
    (inner,) = loop.body
    assert inner.stop == Var(loop.var) and inner.var != loop.var
    assert inner.body[0].value == Var(loop.var)


def test_branches_with_and_without_otherwise():
    def core(a, y, words):
        with if_(words[0] > 3):
            words[1] = 1
        with else_():
            words[1] = 2
        with if_(words[1].equals(2)):
            words[2] = 3

    _, first, _, second = recorded(core, lambda: Buffer(4, "int32", name="words"))
    assert first.condition == Binary("gt", Var("v0"), Const(3))
    assert [s.value for s in first.then] == [Const(1)] and [s.value for s in first.otherwise] == [Const(2)]
    assert isinstance(second, If) and second.otherwise == ()


def test_several_objects_are_a_list_the_oldest_first():
    def core(a, y):
        held = a.acquire(2)
        assert [h.memory for h in held] == [Element("a0", 0, LINE), Element("a0", 1, LINE)]
        held[1][5] = held[0][3]

    acquire, load, store = recorded(core)
    assert acquire.count == 2
    assert (load.memory.index, load.index, store.memory.index, store.index) == (0, Const(3), 1, Const(5))


def test_parts_of_memory_and_parts_of_parts():
    """`sub` counts numbers; a part of a part is a part of the whole."""

    def core(a, y):
        held = a.acquire()
        half = held.sub(32, (4, 8))
        assert half.type == ObjectType((4, 8), "int32")
        for i in range_(4):
            half.sub(i * 8, 8)[0] = 1

    program = recorded(core)
    store = next(s for s in walk(program) if isinstance(s, Store))
    assert isinstance(store.memory, Subview) and isinstance(store.memory.base, Element)
    assert str(store.memory.offset) == "(32 + (i1 * 8))"


def test_locks_barriers_and_rounding():
    lock = []

    def core(a, y, barrier):
        set_rounding("conv_even")
        barrier.wait_for_value(1)
        barrier.release_with_value(1)
        lock[0].acquire(2)
        lock[0].release()

    def barrier():
        lock.append(Lock(init=2, name="lock", tile=Tile("core")))
        return WorkerRuntimeBarrier(name="ready")

    assert recorded(core, barrier) == (
        SetRounding("conv_even"),
        WaitBarrier("ready_core0", 1),
        RaiseBarrier("ready_core0", 1),
        AcquireLock("lock", 2),
        ReleaseLock("lock", 1),
    )


def test_walk_goes_through_every_statement():
    def core(a, y, words):
        for _ in range_(2):
            with if_(words[0] > 0):
                words[0] = 1
            with else_():
                words[0] = 2

    kinds = [type(s).__name__ for s in walk(recorded(core, lambda: Buffer(1, "int32")))]
    assert kinds == ["For", "Load", "If", "Store", "Store"]


@pytest.mark.parametrize("act", [lambda: list(range_(3)), lambda: if_(Var("x")).__enter__(), lambda: set_rounding("floor")])
def test_what_belongs_in_a_core_is_refused_outside(act):
    with pytest.raises(DeclarationError, match="belong in a Worker's core function"):
        act()


def test_ends_are_acquired_in_a_core_function():
    with building():
        end = ObjectFifo(LINE).prod()
        for act in (end.acquire, end.release):
            with pytest.raises(DeclarationError, match="belong in a Worker's core function"):
                act()


def test_else_needs_its_if():
    def core(a, y):
        a.acquire()
        with else_():
            pass

    with pytest.raises(DeclarationError, match="right after an if_ block"):
        recorded(core)


def test_one_if_has_one_else():
    def core(a, y, words):
        with if_(words[0] > 0):
            words[0] = 1
        for _ in range(2):
            with else_():
                words[0] = 2

    with pytest.raises(DeclarationError, match="right after an if_ block"):
        recorded(core, lambda: Buffer(1, "int32"))


@pytest.mark.parametrize("step", [0, -1, 1.5])
def test_loops_go_upwards_in_whole_steps(step):
    def core(a, y):
        for _ in range_(0, 8, step):
            pass

    with pytest.raises(DeclarationError, match=f"range_ in steps of {step}; legal: a whole number of at least 1"):
        recorded(core)


@pytest.mark.parametrize(("bounds", "shown"), [((-1,), "-1"), ((4, 2), "4, 2")])
def test_a_loop_does_not_run_less_than_never(bounds, shown):
    """Where its bounds are numbers; 0 times is legal, for a count that is computed may be 0."""

    def core(a, y):
        for _ in range_(*bounds):
            pass

    with pytest.raises(DeclarationError, match=rf"range_\({shown}\) runs -\d times; legal: 0 times or more"):
        recorded(core)


def test_a_loop_is_not_left_early():
    """`break` and `return` would leave the recording, not the loop of the core."""

    def core(a, y):
        for _ in range_(8):
            a.acquire()
            a.release()
            break

    def back(a, y):
        for _ in range_(8):
            a.acquire()
            a.release()
            return

    for one in (core, back):
        with pytest.raises(DeclarationError, match=r"core0 leaves a range_ loop by `break` or `return`.*if_"):
            recorded(one)


def test_a_mode_of_rounding_that_no_core_has():
    def core(a, y):
        set_rounding("nearest")

    with pytest.raises(DeclarationError, match=r"set_rounding\('nearest'\); legal: 'conv_even', 'floor'"):
        recorded(core)


def test_a_core_reads_integers_only():
    """Floats are for kernels."""

    def core(a, y, table):
        table[0] = 1

    with pytest.raises(DeclarationError, match=r"reads and writes integers; this memory is 4 float32\. Call a kernel"):
        recorded(core, lambda: Buffer(4, "float32"))


def test_a_failing_core_function_leaves_no_recording_behind():
    def core(a, y):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        recorded(core)
    with pytest.raises(DeclarationError, match="belong in a Worker's core function"):
        list(range_(3))


def test_programs_are_data():
    """Two recordings of one function are equal and hash alike."""

    def core(a, y):
        for _ in range_(3):
            a.acquire()
            a.release()

    one, two = recorded(core), recorded(core)
    assert one == two and hash(one) == hash(two) and repr(one) == repr(two)
    assert not any(isinstance(s, Call) for s in walk(one))
