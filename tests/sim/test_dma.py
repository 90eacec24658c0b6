"""Data in motion: broadcast, split, join, forward, orders, repeats, padding, starting values, and the shim's queues."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from iron_core.array import Lane, ObjectFifo, Tile, Worker
from iron_core.array.descriptors import Descriptor
from iron_core.array.sequence import Await, Free, Transfer, Word
from iron_core.array.spec import check
from iron_core.declare.affine import Affine
from iron_sim.errors import QueueOverrun, Race, SimulationError

X = np.arange(256, dtype=np.int32)


@pytest.fixture
def sent(lab):
    """`sent(link, ...)`: x goes into fifo `a`, through what `link(consumer)` makes of it, through a core, and out as y."""

    def sent(link, a=64, b=64, x=X, out=256, dev="npu2", well_formed=True, a_options=None, **ends):
        def make():
            first = ObjectFifo(lab.line(a), name="a", **(a_options or {}))
            first.prod(tile=Lane("x", 0))
            second = link(first.cons())
            y = ObjectFifo(lab.line(b), name="y")
            y.cons(tile=Lane("y", 0))
            Worker(lab.relay, [second.cons(**ends), y.prod(), lab.copier(lab.line(b))])

        array = lab.frozen(make, dev)
        if well_formed:
            check(array)
        moves = lab.moved(lab.drain(0, "y", "y", out), lab.fill(1, "x", "a", x.size))
        return lab.run(array, moves, x=x, y=out)["y"]

    return sent


def numbers(shape, order):
    """X's first numbers in this shape, their axes in this order, flat."""
    return X[: np.prod(shape)].reshape(shape).transpose(order).ravel()


# -- links -----------------------------------------------------------------------------------------


def test_a_forward_changes_nothing_by_itself(sent):
    assert (sent(lambda a: a.forward()) == X).all()


def test_a_forward_sends_in_another_order(sent):
    """(size, stride) pairs, outermost first: here every object transposed."""
    got = sent(lambda a: a.forward(dims_to_stream=[(16, 1), (4, 16)]))
    assert (got == numbers((4, 4, 16), (0, 2, 1))).all()


def test_a_consumer_writes_in_another_order(sent):
    """The same walk on the way in: number i goes to where the walk's step i is."""
    got = sent(lambda a: a.forward(), dims_from_stream=[(16, 1), (4, 16)])
    assert (got == numbers((4, 16, 4), (0, 2, 1))).all()


def test_there_and_back(sent):
    walk = [(16, 1), (4, 16)]
    assert (sent(lambda a: a.forward(dims_to_stream=walk), dims_from_stream=walk) == X).all()


def test_a_forward_to_smaller_objects(sent):
    assert (sent(lambda a: a.forward(((64,), "int32")), a=128) == X).all()


def test_a_forward_to_larger_objects(sent):
    """The memory tile gathers them; its order walks the larger one."""
    got = sent(lambda a: a.forward(((128,), "int32"), dims_to_stream=[(64, 1), (2, 64)]), b=128)
    assert (got == numbers((2, 2, 64), (0, 2, 1))).all()


def test_a_forward_repeats(sent):
    got = sent(lambda a: a.forward(repeat_count=3), x=X[:128], out=384)
    assert (got == np.repeat(X[:128].reshape(2, 1, 64), 3, axis=1).ravel()).all()


@pytest.mark.parametrize("value", [0, 7])
def test_a_forward_pads(sent, value):
    """Numbers before and after every run of the walk."""

    def link(a):
        return a.forward(((80,), "int32"), dims_to_stream=[(4, 16), (16, 1)], pad_dimensions=[(0, 0), (1, 3)], pad_value=value)

    got = sent(link, b=80, x=X[:64], out=80)
    assert (got == np.pad(X[:64].reshape(4, 16), ((0, 0), (1, 3)), constant_values=value).ravel()).all()


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4).flatmap(lambda n: st.tuples(st.just((*n, 4)), st.permutations(range(len(n))))))
@settings(max_examples=40)
def test_any_order_of_axes(lab, drawn):
    """Runs of 4 numbers under axes in any order, as the memory tile sends them, and as the core's DMA writes them."""
    shape, order = drawn
    size = int(np.prod(shape))
    strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    order = (*order, len(shape) - 1)
    walk = [(shape[i], strides[i]) for i in order]

    def through(to_stream, from_stream):
        def make():
            a, y = ObjectFifo(lab.line(size), name="a"), ObjectFifo(lab.line(size), name="y")
            a.prod(tile=Lane("x", 0))
            y.cons(tile=Lane("y", 0))
            sent = a.cons().forward(dims_to_stream=to_stream)
            Worker(lab.relay, [sent.cons(dims_from_stream=from_stream), y.prod(), lab.copier(lab.line(size))])

        moves = lab.moved(lab.drain(0, "y", "y", size), lab.fill(1, "x", "a", size))
        return lab.run(lab.frozen(make), moves, x=np.arange(size, dtype=np.int32), y=size)["y"]

    numbers = np.arange(size, dtype=np.int32)
    assert (through(walk, ()) == numbers.reshape(shape).transpose(order).ravel()).all()
    back = np.empty(size, np.int32)
    back[numbers.reshape(shape).transpose(order).ravel()] = numbers
    assert (through((), walk) == back).all()
    assert (through(walk, walk) == numbers).all()


def parts(lab, offsets=(0, 32, 64), sizes=(32, 32, 64), **options):
    """A split of 128 numbers to three cores, and a join of what they make (each adds its number)."""

    def make():
        a, y = ObjectFifo(lab.line(128), name="a"), ObjectFifo(lab.line(128), name="y")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))
        types = [lab.line(n) for n in sizes]
        arriving = a.cons().split(offsets, types, **options)
        leaving = y.prod().join(offsets, types)
        for i, (one, other, type) in enumerate(zip(arriving, leaving, types, strict=True)):
            kernel = lab.kernel(f"add{i}", lambda x, i=i: x + 1000 * i, type, type)
            Worker(lab.relay, [one.cons(), other.prod(), kernel])

    return lab.frozen(make)


def test_a_split_and_a_join(lab):
    """Every core gets its part of every object, and puts its result there."""
    array = parts(lab)
    check(array)
    got = lab.run(array, lab.moved(lab.drain(0, "y", "y", 256), lab.fill(1, "x", "a", 256)), x=X, y=256)["y"]
    assert (got.reshape(2, 128) == X.reshape(2, 128) + 1000 * np.repeat([0, 1, 2], [32, 32, 64])).all()


def test_an_order_of_a_split_is_each_parts(lab):
    array = parts(lab, (0, 64), (64, 64), dims_to_stream=[(16, 1), (4, 16)])
    check(array)
    got = lab.run(array, lab.moved(lab.drain(0, "y", "y", 128), lab.fill(1, "x", "a", 128)), x=X, y=128)["y"]
    want = numbers((2, 4, 16), (0, 2, 1)).reshape(2, 64) + np.array([[0], [1000]])
    assert (got == want.ravel()).all()


def test_a_broadcast_reaches_every_core(lab):
    """And waits for the slowest: a core that takes two objects at a time gets the same ones."""

    def make():
        a = ObjectFifo(lab.line(64), name="a")
        a.prod(tile=Lane("x", 0))

        def pairs(a, y, copy):
            one, two = a.acquire(2)
            for held in (two, one):
                copy(held, y.acquire())
                y.release()
            a.release(2)

        for i, core in enumerate((lab.relay, pairs, lab.relay)):
            y = ObjectFifo(lab.line(64), name=f"y{i}")
            y.cons(tile=Lane("y", i))
            Worker(core, [a.cons(), y.prod(), lab.copier(lab.line(64))])

    moves = lab.moved(*(lab.drain(i, "y", f"y{i}", 256, 256 * i) for i in range(3)), lab.fill(3, "x", "a", 256))
    got = lab.run(lab.frozen(make), moves, x=X, y=768)["y"].reshape(3, 2, 2, 64)
    assert (got[0].ravel() == X).all() and (got[2].ravel() == X).all()
    assert (got[1, :, ::-1].ravel() == X).all()


def test_cores_pass_objects_on(lab):
    """Neighbours through shared memory, others through DMAs: the same numbers."""
    for places in ((None, None), (Tile("core", 0, 2), Tile("core", 0, 3)), (Tile("core", 0, 2), Tile("core", 1, 5))):

        def make(places=places):
            a, b, y = (ObjectFifo(lab.line(64), name=n) for n in ("a", "b", "y"))
            a.prod(tile=Lane("x", 0))
            y.cons(tile=Lane("y", 0))
            kernels = [lab.kernel(f"k{i}", lambda x, i=i: x * 2 + i, lab.line(64), lab.line(64)) for i in range(2)]
            Worker(lab.relay, [a.cons(), b.prod(), kernels[0]], tile=places[0])
            Worker(lab.relay, [b.cons(), y.prod(), kernels[1]], tile=places[1])

        got = lab.run(lab.frozen(make), lab.moved(lab.drain(0, "y", "y", 256), lab.fill(1, "x", "a", 256)), x=X, y=256)
        assert (got["y"] == 4 * X + 1).all()


def test_a_producer_may_see_larger_objects_than_its_consumers(lab):
    """`consumer_type`: one object leaves, four arrive."""

    def make():
        a, y = ObjectFifo(lab.line(64), name="a"), ObjectFifo(lab.line(16), name="y")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))
        b = ObjectFifo(lab.line(64), name="b", consumer_type=lab.line(16))
        Worker(lab.relay, [a.cons(), b.prod(), lab.copier(lab.line(64))])
        Worker(lab.relay, [b.cons(), y.prod(), lab.copier(lab.line(16), lambda x: x[::-1])])

    array = lab.frozen(make)
    check(array)
    got = lab.run(array, lab.moved(lab.drain(0, "y", "y", 128), lab.fill(1, "x", "a", 128)), x=X, y=128)
    assert (got["y"] == X[:128].reshape(8, 16)[:, ::-1].ravel()).all()


@pytest.mark.parametrize("places", [((0, 2), (0, 3)), ((0, 2), (1, 5))], ids=["neighbours", "apart"])
def test_objects_a_fifo_starts_with(lab, places):
    """A delay of two objects: the starting values come first, and the last two inputs stay for the next call."""

    def make():
        a, y = ObjectFifo(lab.line(4), name="a"), ObjectFifo(lab.line(4), name="y")
        delay = ObjectFifo(lab.line(4), name="delay", init_values=[(-1, -2, -3, -4), (-5, -6, -7, -8)])
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))
        for i, ends in enumerate(((a.cons(), delay.prod()), (delay.cons(), y.prod()))):
            Worker(lab.relay, [*ends, lab.copier(lab.line(4))], tile=Tile("core", *places[i]))

    array = lab.frozen(make)
    check(array)
    machine = lab.machine(array)
    before = -np.arange(1, 9)
    for call in range(3):
        x = X[:16] + 100 * call
        got = lab.run(machine, lab.moved(lab.drain(0, "y", "y", 16), lab.fill(1, "x", "a", 16)), x=x, y=16)["y"]
        assert (got == [*before, *x[:8]]).all()
        before = x[8:]


# -- what a call gives -----------------------------------------------------------------------------

AT, N = Word("at", "offset", Affine("at")), Word("n", "length", Affine("n"))


@pytest.fixture
def array(lab):
    return lab.frozen(lab.through(lab.line(16)))


def test_an_offset_of_the_call(lab, array):
    """Elements, added to where the transfer begins; both ways."""
    machine = lab.machine(array)
    moves = lab.moved(lab.drain(0, "y", "y", 32, 16, offset_by=AT), lab.fill(1, "x", "a", 32, 8, offset_by=AT))
    for at in (0, 100, 208):
        result = lab.run(machine, moves, {"at": at}, x=X, y=256)
        assert (result["y"][16 + at : 48 + at] == X[8 + at : 40 + at]).all()
        assert result.masks["y"].sum() == 224


def test_a_length_of_the_call(lab, array):
    """Units, from the transfer's beginning; of each execution, where it iterates."""
    machine = lab.machine(array)
    rows = Descriptor.of(0, ((4, 64), (1, 0), (4, 16), (16, 1)))  # four executions of 64
    for n in (1, 3, 4):
        moves = lab.moved(
            lab.drain(0, "y", "y", 256, length_by=Word("m", "length", Affine("n")), unit=64),
            Transfer(1, "fill", "x", "a", (rows,), False, None, N, 16),
        )
        result = lab.run(machine, moves, {"n": n, "m": n}, x=X, y=256)
        assert (result["y"][: 64 * n] == X.reshape(4, 64)[:, : 16 * n].ravel()).all()
        assert result.masks["y"][64 * n :].all()
        assert result.stats.elements("x") == result.stats.elements("y") == 64 * n


def test_a_cut_transfer_may_end_where_the_whole_one_would_not(lab, array):
    """Only what it moves must lie in the tensor: the first n of rows that begin at `at`."""
    moves = lab.moved(
        lab.drain(0, "y", "y", 256, length_by=N, unit=16), lab.fill(1, "x", "a", 256, offset_by=AT, length_by=N, unit=16)
    )
    assert (lab.run(array, moves, {"at": 224, "n": 2}, x=X, y=256)["y"][:32] == X[224:]).all()
    with pytest.raises(SimulationError, match="touches elements 224 to 271 of x, which has 256"):
        lab.run(array, moves, {"at": 224, "n": 3}, x=X, y=256)


# -- queues and races ------------------------------------------------------------------------------


def test_a_queue_holds_four_tasks(lab, array):
    moves = [lab.drain(0, "y", "y", 64)]
    moves += [lab.fill(1 + i, "x", "a", 16, 16 * i) for i in range(4)]
    assert (lab.run(array, [*moves, Await(0), *map(Free, range(1, 5))], x=X, y=64)["y"] == X[:64]).all()


def test_a_fifth_task_overruns_the_queue(lab, array):
    """Unless one has ended by then, which only a wait tells."""
    moves = [lab.drain(0, "y", "y", 80)]
    fills = [lab.fill(1 + i, "x", "a", 16, 16 * i, token=True) for i in range(5)]
    words = r"task 5 \(fill x\) is the 5th task on the shim channel that fills a, whose queue holds 4"
    with pytest.raises(QueueOverrun, match=words):
        lab.run(array, [*moves, *fills, Await(0)], x=X, y=80)
    waiting = [*moves, *fills[:4], Await(1), fills[4], Await(0), *map(Free, range(2, 6))]
    assert (lab.run(array, waiting, x=X, y=80)["y"] == X[:80]).all()


def test_two_drains_may_not_write_one_address_at_once(lab, array):
    moves = [lab.drain(0, "y", "y", 32), lab.drain(1, "y", "y", 32, 16), lab.fill(2, "x", "a", 64), Await(0), Await(1)]
    with pytest.raises(Race, match=r"task 1 \(drain y\) writes where task 0 \(drain y\), which is not done, writes too"):
        lab.run(array, moves, x=X, y=64)


def test_one_after_the_other_they_may(lab, array):
    moves = [lab.drain(0, "y", "y", 32), lab.fill(1, "x", "a", 64), Await(0), lab.drain(2, "y", "y", 32, 16), Await(2), Free(1)]
    assert (lab.run(array, moves, x=X, y=64)["y"][:48] == [*X[:16], *X[32:64]]).all()


def test_drains_that_interleave_do_not_race(lab):
    """Rows of one in the gaps of the other: addresses count, not ranges."""

    def make():
        for i in range(2):
            a, y = ObjectFifo(lab.line(16), name=f"a{i}"), ObjectFifo(lab.line(16), name=f"y{i}")
            a.prod(tile=Lane("x", i))
            y.cons(tile=Lane("y", i))
            Worker(lab.relay, [a.cons(), y.prod(), lab.copier(lab.line(16))])

    gaps = [Transfer(i, "drain", "y", f"y{i}", (Descriptor.of(16 * i, ((4, 32), (16, 1))),), True) for i in range(2)]
    fills = [lab.fill(2 + i, "x", f"a{i}", 64, 64 * i) for i in range(2)]
    got = lab.run(lab.frozen(make), lab.moved(*gaps, *fills), x=X, y=128)["y"]
    assert (got.reshape(4, 2, 16) == X[:128].reshape(2, 4, 16).transpose(1, 0, 2)).all()
