"""Cores: recorded programs run as recorded, kernels round as the core is set, and misuse stops with the core's name."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from iron_core import bfloat16
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
    maximum,
    minimum,
    range_,
    set_rounding,
)
from iron_core.array.program import Acquire, Release
from iron_core.array.sequence import Await, SetBarrier, WriteWord
from iron_core.declare.rounding import round_to
from iron_sim.errors import SimulationError

X = np.arange(256, dtype=np.int32)


@pytest.fixture
def ran(lab):
    """`ran(core, *extra, x=..., out=...)`: what comes out of one core between `a` and `y` of 64 integers each."""

    def ran(core, *extra, x=X, out=256, machine=None, reference=None, steps=()):
        machine = machine or lab.machine(lab.frozen(lab.through(lab.line(64), core, *extra, reference=reference)))
        moved = lab.moved(lab.drain(0, "y", "y", out), lab.fill(1, "x", "a", x.size))
        return lab.run(machine, [*steps, *moved], x=x, y=out)["y"]

    return ran


# -- what programs mean ----------------------------------------------------------------------------


def test_loops_branches_loads_and_stores(ran):
    """Odd numbers are doubled, even ones clamped; sums of the numbers before go into a buffer."""

    def core(a, y, copy, sums):
        x, out = a.acquire(), y.acquire()
        sums[0] = 0
        for i in range_(64):
            v = x[i]
            with if_((v % 2).equals(1)):
                out[i] = v * 2
            with else_():
                out[i] = minimum(maximum(v, 10), 100) + sums[0] // 64
            sums[0] = sums[0] + v
        a.release()
        y.release()

    before = np.concatenate([np.cumsum(part) - part for part in X.reshape(4, 64)])
    want = np.where(X % 2 == 1, 2 * X, np.clip(X, 10, 100) + before // 64)
    assert (ran(core, lambda: Buffer(1, "int32")) == want).all()


def test_loops_in_steps_and_from_a_start(ran):
    def core(a, y, copy):
        x, out = a.acquire(), y.acquire()
        for i in range_(64):
            out[i] = 0
        for i in range_(3, 60, 5):
            out[i] = x[i]
        a.release()
        y.release()

    want = np.zeros(64, np.int32)
    want[3:60:5] = X[3:60:5]
    assert (ran(core, x=X[:64], out=64) == want).all()


def test_parts_of_objects(ran, lab):
    """Quarter by quarter, in the opposite order."""
    quarter = lab.copier(lab.line(16), lambda x: x + 1)

    def core(a, y, copy):
        x, out = a.acquire(), y.acquire()
        for i in range_(4):
            quarter(x.sub(i * 16, 16), out.sub(48 - i * 16, 16))
        a.release()
        y.release()

    assert (ran(core) == X.reshape(4, 4, 16)[:, ::-1].ravel() + 1).all()


def test_several_objects_held_the_oldest_first(lab):
    """A window of two: acquiring counts what is held already, releasing gives the oldest on."""

    def core(a, y, copy):
        for _ in range_(3):
            old, new = a.acquire(2)
            out = y.acquire()
            out[0] = new[0] - old[0]
            a.release()
            y.release()
        a.release()

    def make():
        a, y = ObjectFifo(lab.line(4), name="a", depth=3), ObjectFifo(lab.line(4), name="y")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))
        Worker(core, [a.cons(), y.prod(), None])

    x = np.array([1, 0, 0, 0, 4, 0, 0, 0, 9, 0, 0, 0, 16, 0, 0, 0], np.int32)
    result = lab.run(lab.frozen(make), lab.moved(lab.drain(0, "y", "y", 12), lab.fill(1, "x", "a", 16)), x=x, y=12)
    assert result["y"][::4].tolist() == [3, 5, 7]


def test_scalars_reach_the_kernel(ran, lab):
    scaled = lab.kernel("scale", lambda x, n: x * n, lab.line(64), "int32", lab.line(64))

    def core(a, y, copy, kernel):
        for i in range_(4):
            kernel(a.acquire(), i + 1, y.acquire())
            a.release()
            y.release()

    assert (ran(core, lambda: scaled) == X * np.repeat([1, 2, 3, 4], 64)).all()


def test_what_a_kernel_reads_and_writes(ran, lab):
    """An InOut tile keeps a running sum in a buffer; two outputs are a tuple."""
    acc = lab.kernel("acc", lambda s, x: (s + x, -x), lab.line(64), lab.line(64), lab.line(64), roles=("inout", "in", "out"))

    def core(a, y, copy, kept, scratch):
        x, out = a.acquire(), y.acquire()
        acc(kept, x, scratch)
        copy(kept, out)
        a.release()
        y.release()

    zeros = lambda: Buffer(64, "int32", initial_value=[0] * 64)  # noqa: E731
    got = ran(core, zeros, lambda: Buffer(64, "int32"))
    assert (got == np.cumsum(X.reshape(4, 64), axis=0).ravel()).all()


def test_a_buffer_keeps_its_content_from_call_to_call(ran, lab):
    """Initial values are written once, when the array is configured."""

    def core(a, y, copy, kept):
        x, out = a.acquire(), y.acquire()
        kept[0] = kept[0] + x[0]
        out[0] = kept[0]
        a.release()
        y.release()

    machine = lab.machine(lab.frozen(lab.through(lab.line(64), core, lambda: Buffer(1, "int32", initial_value=[100]))))
    one = np.ones(64, np.int32)
    assert [int(ran(None, x=one, out=64, machine=machine)[0]) for _ in range(3)] == [101, 102, 103]


def test_a_worker_that_runs_once(lab):
    """`while_true=False`: what comes later is not taken."""
    array = lab.frozen(lab.through(lab.line(64), while_true=False))
    machine = lab.machine(array)
    steps = lab.moved(lab.drain(0, "y", "y", 64), lab.fill(1, "x", "a", 64))
    assert (lab.run(machine, steps, x=X, y=64)["y"] == X[:64]).all()
    with pytest.raises(SimulationError, match="stream y"):
        lab.run(machine, steps, x=X, y=64)


def test_locks_order_two_cores_over_shared_memory(lab):
    """One core writes a buffer and gives the lock, its neighbour takes it and reads."""

    def make():
        here, there = Tile("core", 0, 2), Tile("core", 0, 3)
        full, empty = Lock(name="full", tile=here), Lock(name="empty", init=1, tile=here)
        a, y = ObjectFifo(lab.line(4), name="a"), ObjectFifo(lab.line(4), name="y")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))
        shared = ObjectFifo(lab.line(4), name="shared")

        def first(a, out):
            empty.acquire()
            x, o = a.acquire(), out.acquire()
            o[0] = x[0] * 2
            a.release()
            out.release()
            full.release()

        def second(x, y):
            full.acquire()
            i, o = x.acquire(), y.acquire()
            o[0] = i[0] + 1
            x.release()
            y.release()
            empty.release()

        Worker(first, [a.cons(), shared.prod()], tile=here)
        Worker(second, [shared.cons(), y.prod()], tile=there)

    result = lab.run(
        lab.frozen(make), lab.moved(lab.drain(0, "y", "y", 16), lab.fill(1, "x", "a", 16)), x=X[:16], y=16
    )
    assert result["y"][::4].tolist() == [1, 9, 17, 25]


# -- rounding --------------------------------------------------------------------------------------

#: float32 numbers between two bfloat16 neighbours, of both signs, and one on a tie.
BETWEEN = np.array([1.001, -1.001, 1.0035, -1.0035, 1 + 2**-8, -(1 + 2**-8), 1 + 3 * 2**-8, 0.0], np.float32)


def rounded(lab, mode, **contract):
    """The bits that a core stores for BETWEEN as bfloat16, with set_rounding(mode) where one is given."""
    tile = lab.line(8, "bfloat16")
    made = lab.kernel("made", lambda x: BETWEEN, tile, tile, **contract)

    def core(a, y, copy):
        if mode:
            set_rounding(mode)
        made(a.acquire(), y.acquire())
        a.release()
        y.release()

    array = lab.frozen(lab.through(tile, core))
    steps = lab.moved(lab.drain(0, "y", "y", 8), lab.fill(1, "x", "a", 8))
    return lab.run(array, steps, x=np.zeros(8, bfloat16), y=8)["y"]


def test_a_fresh_core_rounds_down(lab):
    """Toward minus infinity: what no kernel is written for, so every core sets its mode."""
    down = rounded(lab, None)
    assert (down.astype(np.float32) <= BETWEEN).all() and (down.view(np.uint16) == rounded(lab, "floor").view(np.uint16)).all()
    assert down[1].astype(np.float32) < -1.001 < -1.0


def test_conv_even_rounds_to_the_nearest(lab):
    even = rounded(lab, "conv_even")
    assert (even.view(np.uint16) == round_to(BETWEEN, bfloat16).view(np.uint16)).all()
    assert even[4] == 1 and even[5] == -1 and even[6].astype(np.float32) == 1 + 2**-6
    assert (even.view(np.uint16) != rounded(lab, None).view(np.uint16)).sum() == 4


def test_a_kernel_that_sets_the_mode_itself(lab):
    assert (rounded(lab, None, rounding="conv_even").view(np.uint16) == rounded(lab, "conv_even").view(np.uint16)).all()


def test_the_mode_stays_set(lab):
    """From one object to the next and from call to call, until it is set anew."""
    tile = lab.line(8, "bfloat16")
    made = lab.kernel("made", lambda x: BETWEEN, tile, tile)

    def core(a, y, copy):
        for mode in (None, "conv_even", None, "floor"):
            if mode:
                set_rounding(mode)
            made(a.acquire(), y.acquire())
            a.release()
            y.release()

    machine = lab.machine(lab.frozen(lab.through(tile, core, while_true=True)))
    steps = lab.moved(lab.drain(0, "y", "y", 32), lab.fill(1, "x", "a", 32))
    fresh, even = rounded(lab, None).tobytes(), rounded(lab, "conv_even").tobytes()
    for _ in range(2):
        y = lab.run(machine, steps, x=np.zeros(32, bfloat16), y=32)["y"].reshape(4, 8)
        assert [row.tobytes() for row in y] == [fresh, even, even, fresh]


# -- misuse ----------------------------------------------------------------------------------------


def stopped(words, run):
    with pytest.raises(SimulationError, match=words):
        run()


def test_releasing_what_is_not_held(ran):
    def core(a, y, copy):
        a.acquire()
        a.release(2)

    stopped("core0 releases 2 of a and holds 1", lambda: ran(core))


def test_acquiring_more_than_there_are(lab):
    """An end with a depth of its own has that many objects."""

    def core(a):
        a.acquire(3)

    def make():
        a = ObjectFifo(lab.line(64), name="a")
        a.prod(tile=Lane("x", 0))
        Worker(core, [a.cons(2)], name="core0")

    stopped("core0 acquires 3 of a, whose end there has 2 buffers", lambda: lab.machine(lab.frozen(make)))


def test_a_core_that_goes_on_holding(ran, lab):
    def core(a, y, copy):
        x, out = a.acquire(), y.acquire()
        copy(x, out)
        y.release()

    stopped("the sequence ended and core0 still holds a", lambda: ran(core, x=X[:64], out=64))


def test_a_core_in_the_middle_of_its_program(ran, lab):
    """Four lines make a pass; three were given."""

    def core(a, y, copy):
        for _ in range_(4):
            copy(a.acquire(), y.acquire())
            a.release()
            y.release()

    words = "the sequence ended and core0 is in the middle of its program, waiting for 1 filled object of a"
    stopped(words, lambda: ran(core, x=X[:192], out=192))


@pytest.mark.parametrize(
    ("index", "words"), [(64, "reads number 64 of a memory of 64"), (-1, "reads number -1 of a memory of 64")]
)
def test_reading_outside_of_memory(ran, index, words):
    def core(a, y, copy, words):
        x, out = a.acquire(), y.acquire()
        words[0] = index
        out[0] = x[words[0]]

    stopped(f"core0 {words}", lambda: ran(core, lambda: Buffer(1, "int32")))


def test_writing_outside_of_memory(ran):
    def core(a, y, copy):
        x, out = a.acquire(), y.acquire()
        for i in range_(65):
            out[i] = x[0]

    stopped("core0 writes number 64 of a memory of 64", lambda: ran(core))


def test_a_part_that_leaves_its_memory(ran, lab):
    quarter = lab.copier(lab.line(16))

    def core(a, y, copy):
        x, out = a.acquire(), y.acquire()
        for i in range_(5):
            quarter(x.sub(i * 16, 16), out.sub(0, 16))

    stopped("core0 uses numbers 64 to 79 of a memory of 64", lambda: ran(core))


def test_a_reference_gives_one_result_per_output(ran, lab):
    two = lab.kernel("two", lambda x: (x, x), lab.line(64), lab.line(64))

    def core(a, y, copy, kernel):
        kernel(a.acquire(), y.acquire())

    stopped(r"kernel two_\w+: its reference gave 2 results for 1 outputs", lambda: ran(core, lambda: two))
    half = lab.kernel("half", lambda x: x[:32], lab.line(64), lab.line(64))
    stopped(r"kernel half_\w+: its reference gave \[32\] for argument 1, 64 int32", lambda: ran(core, lambda: half))
    one = lab.kernel("one", lambda x: 1, lab.line(64), lab.line(64))
    stopped(r"kernel one_\w+: its reference gave \[\] for argument 1, 64 int32", lambda: ran(core, lambda: one))


def test_a_core_that_never_waits(lab):
    def core(a, y, copy, words):
        words[0] = 1

    array = lab.frozen(lab.through(lab.line(64), core, lambda: Buffer(1, "int32")))
    stopped("core0 runs forever and waits for nothing", lambda: lab.machine(array))


def test_an_end_on_another_tile(lab):
    """A design written by hand: a recorded one cannot."""
    array = lab.frozen(lab.through(lab.line(64)))
    (core,) = array.cores
    program = (Acquire("a9", "a", "produce", 1), Release("a", "produce", 1))
    changed = attrs.evolve(array, cores=(attrs.evolve(core, program=program),))
    stopped("core0 uses the produce end of a, which is on another tile", lambda: lab.machine(changed))


def test_a_barrier_that_is_not_rearmed_is_passed_again(lab):
    """The core goes round again on old words, and is caught in the middle."""

    def core(a, y, copy, words, ready):
        ready.wait_for_value(1)
        for _ in range_(words[0]):
            copy(a.acquire(), y.acquire())
            a.release()
            y.release()

    extra = (lambda: Buffer(1, "int32", use_write_rtp=True, name="words"), lambda: WorkerRuntimeBarrier(name="ready"))
    array = lab.frozen(lab.through(lab.line(64), core, *extra))
    steps = [WriteWord("words", 0, 1), SetBarrier("ready_core0", 1), lab.drain(0, "y", "y", 64), lab.fill(1, "x", "a", 64), Await(0)]
    stopped("core0 is in the middle of its program", lambda: lab.run(array, steps, x=X, y=64))


@pytest.mark.parametrize("what", ["//", "%"])
def test_a_negative_number_is_not_divided(ran, what):
    """A core rounds its quotient toward zero and Python down: the simulator stops rather than take a side."""

    def core(a, y, copy):
        x, out = a.acquire(), y.acquire()
        less = x[0] - 7
        out[0] = less // 4 if what == "//" else less % 4
        for i in range_(1, 64):
            out[i] = 0
        a.release()
        y.release()

    stopped("core0 divides -7 by 4; legal: numbers that are not negative, by positive ones", lambda: ran(core))


def test_a_tile_reference_that_fails(ran, lab):
    """Scalars that lead out of a tile stop the run with the kernel's name, not in the middle of numpy."""

    def behind(x, at):
        y = np.zeros(64, np.int32)
        y[at : at + 16] = x[:16]
        return y

    kernel = lab.kernel("behind", behind, lab.line(64), "int32", lab.line(64))

    def core(a, y, copy, kernel):
        kernel(a.acquire(), 64, y.acquire())
        a.release()
        y.release()

    stopped(r"core0: the tile reference of kernel behind_\w+ failed with scalars \[64\]", lambda: ran(core, lambda: kernel))
