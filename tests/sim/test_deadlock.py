"""Where nothing can go on, the report names every blocked actor, what it waits for and who should have provided it."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from iron_core.array import Buffer, Lane, Lock, ObjectFifo, Tile, Worker, WorkerRuntimeBarrier
from iron_core.array.build import build
from iron_core.array.sequence import Await, Free, SetBarrier, WriteWord
from iron_core.errors import IronError
from iron_ops_aie import ElementwiseAdd
from iron_sim.errors import Deadlock
from iron_sim.machine import Machine
from iron_sim.run import regions_of

X = np.arange(128, dtype=np.int32)


def report(run):
    """The lines of the deadlock that `run()` ends in: the first, and what follows as a set."""
    with pytest.raises(Deadlock) as caught:
        run()
    first, *rest = str(caught.value).splitlines()
    return first, {line.strip() for line in rest}


def moves(lab, n=64, filled=None):
    return [lab.drain(0, "y", "y", n), lab.fill(1, "x", "a", filled or n), Await(0), Free(1)]


def test_an_input_that_is_too_short(lab):
    """The drain waits for a line that nobody fills."""
    array = lab.frozen(lab.through(lab.line(64)))
    first, rest = report(lambda: lab.run(array, moves(lab, 128, 64), x=X, y=128))
    assert first == "Made on npu2 cannot go on:"
    assert rest == {
        "the sequence waits for task 0 (drain y) on y, which stream y gives",
        "stream y waits for a filled object of y, which core0 gives",
        "core0 waits for 1 filled object of a, which stream a gives",
        "stream a waits for a task on the shim channel that fills a, which the sequence gives",
    }


def test_a_core_between_its_ends(lab):
    """It holds an input and waits for room that a missing drain should make."""
    array = lab.frozen(lab.through(lab.line(32)))
    steps = [lab.fill(1, "x", "a", 256, token=True), Await(1)]
    _, rest = report(lambda: lab.run(array, steps, x=np.tile(X, 2), y=64))
    assert rest == {
        "the sequence waits for task 1 (fill x) on a, which stream a gives",
        "core0 waits for 1 empty object of y, which stream y gives",
        "stream a waits for an empty object of a, which core0 gives",
        "stream y waits for a task on the shim channel that drains y, which the sequence gives",
    }


def test_a_core_that_asks_for_more_than_it_gets(lab):
    """Two objects at a time of a stream of three."""

    def core(a, y, copy):
        held = a.acquire(2)
        copy(held[0], y.acquire())
        y.release()
        a.release(2)

    array = lab.frozen(lab.through(lab.line(32), core))
    _, rest = report(lambda: lab.run(array, moves(lab, 64, 96), x=X, y=64))
    assert "core0 waits for 2 filled objects of a, which stream a gives" in rest


def test_a_barrier_that_nobody_sets(lab):
    """A core that rests before its first wait is blocked like any other, where the sequence waits for its work."""

    def core(a, y, copy, words, ready):
        ready.wait_for_value(1)
        ready.release_with_value(1)
        copy(a.acquire(), y.acquire())
        a.release()
        y.release()

    extra = (lambda: Buffer(1, "int32", use_write_rtp=True, name="words"), lambda: WorkerRuntimeBarrier(name="ready"))
    array = lab.frozen(lab.through(lab.line(64), core, *extra))
    _, rest = report(lambda: lab.run(array, [WriteWord("words", 0, 1), *moves(lab)], x=X, y=64))
    assert "core0 waits for barrier ready_core0 at 1, which the sequence gives" in rest
    assert lab.run(array, [SetBarrier("ready_core0", 1), *moves(lab)], x=X, y=64).stats.calls == 1


def test_a_core_that_has_ended(lab):
    machine = lab.machine(lab.frozen(lab.through(lab.line(64), while_true=False)))
    lab.run(machine, moves(lab), x=X, y=64)
    _, rest = report(lambda: lab.run(machine, moves(lab), x=X, y=64))
    assert rest >= {"stream y waits for a filled object of y, which core0 gives", "core0 has ended"}


def test_a_lock_that_nobody_gives(lab):
    def make():
        lock = Lock(name="turn", tile=Tile("core", 0, 2))
        a, y = ObjectFifo(lab.line(64), name="a"), ObjectFifo(lab.line(64), name="y")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))

        def core(a, y, copy):
            lock.acquire(2)
            lab.relay(a, y, copy)

        Worker(core, [a.cons(), y.prod(), lab.copier(lab.line(64))], tile=Tile("core", 0, 2))

    _, rest = report(lambda: lab.run(lab.frozen(make), moves(lab), x=X, y=64))
    assert "core0 waits for lock turn at 2 or more, which another core gives" in rest


def test_two_cores_that_wait_for_each_other(lab):
    """Each would fill the other's input first."""

    def make():
        a, y = ObjectFifo(lab.line(64), name="a"), ObjectFifo(lab.line(64), name="y")
        there, back = ObjectFifo(lab.line(64), name="there"), ObjectFifo(lab.line(64), name="back")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))

        def first(back, a, there, copy):
            back.acquire()
            copy(a.acquire(), there.acquire())
            for end in (back, a, there):
                end.release()

        def second(there, back, y, copy):
            held = there.acquire()
            copy(held, back.acquire())
            copy(held, y.acquire())
            for end in (there, back, y):
                end.release()

        Worker(first, [back.cons(), a.cons(), there.prod(), lab.copier(lab.line(64))], name="first")
        Worker(second, [there.cons(), back.prod(), y.prod(), lab.copier(lab.line(64))], name="second")

    _, rest = report(lambda: lab.run(lab.frozen(make), moves(lab), x=X, y=64))
    assert "first waits for 1 filled object of back, which stream back gives" in rest
    assert "second waits for 1 filled object of there, which stream there gives" in rest


def test_a_broadcast_waits_for_every_consumer(lab):
    """One consumer whose output nobody drains stops the other."""

    def make():
        a = ObjectFifo(lab.line(16), name="a")
        a.prod(tile=Lane("x", 0))
        for i in range(2):
            y = ObjectFifo(lab.line(16), name=f"y{i}")
            y.cons(tile=Lane("y", i))
            Worker(lab.relay, [a.cons(), y.prod(), lab.copier(lab.line(16))], name=f"core{i}")

    steps = [lab.drain(0, "y", "y0", 128), lab.fill(1, "x", "a", 128), Await(0)]
    _, rest = report(lambda: lab.run(lab.frozen(make), steps, x=X, y=128))
    assert "core1 waits for 1 empty object of y1, which stream y1 gives" in rest
    assert "stream a waits for an empty object of a, which core1 gives" in rest
    assert "stream y1 waits for a task on the shim channel that drains y1, which the sequence gives" in rest


def test_a_whole_array_without_one_of_its_fills(lab):
    """Every core that can work does; the one that cannot is named."""
    op = ElementwiseAdd(size=4096, num_aie_columns=4)
    design, kernels = build(op, "npu2")
    regions = regions_of(design, type(op).test.draw(op, np.random.default_rng(0)))
    steps = tuple(s for s in design.sequence.steps if getattr(s, "fifo", "") != "b2" and type(s).__name__ != "Free")
    sequence = attrs.evolve(design.sequence, steps=steps)
    first, rest = report(lambda: Machine(design.array, kernels).run(sequence, regions, {}))
    assert first == "ElementwiseAdd on npu2 cannot go on:"
    assert {line.split(" waits")[0] for line in rest if line.startswith("core")} == {"core2"}
    assert "core2 waits for 1 filled object of b2, which stream b2 gives" in rest


def test_errors_are_irons():
    """`except IronError` and `except RuntimeError` take them all."""
    from iron_sim import errors

    for error in (errors.Deadlock, errors.Race, errors.QueueOverrun, errors.PoisonError):
        assert issubclass(error, errors.SimulationError) and issubclass(error, IronError) and issubclass(error, RuntimeError)
