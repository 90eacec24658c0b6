"""An array on the simulator: what is filled into it is what comes out, call after call, and what a sequence may not do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from iron_core.array import Buffer, Lane, ObjectFifo, Tile, Worker, WorkerRuntimeBarrier, range_
from iron_core.array.sequence import Await, Free, SetBarrier, Sync, Transfer, Word, WriteWord
from iron_core.declare.affine import Affine
from iron_ops_aie import ElementwiseAdd
from iron_sim.errors import SimulationError
from iron_sim.run import simulate

X = np.arange(256, dtype=np.int32)


def passing(lab, n=256, **options):
    return lab.moved(lab.drain(0, "y", "y", n), lab.fill(1, "x", "a", n, **options))


@pytest.fixture
def array(lab):
    """One core that passes lines of 64 numbers on."""
    return lab.frozen(lab.through(lab.line(64)))


def test_what_goes_in_comes_out(lab, array):
    result = lab.run(array, passing(lab), x=X, y=256)
    assert (result["y"] == X).all() and not result.masks["y"].any()
    assert result.stats.calls == 4
    assert (result.stats.elements("x"), result.stats.elements("y")) == (256, 256)
    assert result.stats.moved == {("y", "y"): 256, ("x", "a"): 256}


def test_a_core_goes_on_from_call_to_call(lab, array):
    """One machine, two sequences: the second's statistics count the second's work."""
    machine = lab.machine(array)
    lab.run(machine, passing(lab), x=X, y=256)
    result = lab.run(machine, passing(lab, 128), x=X + 1, y=256)
    assert (result["y"][:128] == X[:128] + 1).all() and result.masks["y"][128:].all()
    assert result.stats.calls == 2 and result.stats.elements("x") == 128


def neighbours(lab):
    """Two cores that pass lines on through memory both reach, which no DMA touches."""

    def make():
        a, b, y = (ObjectFifo(lab.line(64), name=name) for name in "aby")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))
        Worker(lab.relay, [a.cons(), b.prod(), lab.copier(lab.line(64))], tile=Tile("core", 0, 2))
        Worker(lab.relay, [b.cons(), y.prod(), lab.copier(lab.line(64))], tile=Tile("core", 0, 3))

    return make


@pytest.mark.parametrize("make", [lambda lab: lab.through(lab.line(64)), neighbours], ids=["one core", "neighbours"])
def test_cores_go_on_from_one_sequence_to_the_next(lab, make):
    """Whatever they wait on: neighbours pass lines on by locks."""
    machine = lab.machine(lab.frozen(make(lab)))
    for more in (0, 1):
        result = lab.run(machine, passing(lab), x=X + more, y=256)
        assert (result["y"] == X + more).all() and result.stats.elements("y") == 256


def test_two_runs_are_equal():
    """In every bit, mask and statistic: nothing depends on the order of dictionaries, ids or time."""
    op = ElementwiseAdd(size=1 << 14, num_aie_columns=8)
    rng = np.random.default_rng(0)
    given = type(op).test.draw(op, rng)
    (y1, m1, s1), (y2, m2, s2) = (simulate(op, "npu2", given, {"valid": 9000}) for _ in range(2))
    assert y1["y"].tobytes() == y2["y"].tobytes() and (m1["y"] == m2["y"]).all()
    assert s1 == s2


CODE = """
import hashlib, sys
import numpy as np
from iron_core.devices import device
from iron_ops_aie import GEMM
from iron_sim.run import simulate
op = GEMM(M=128, K=64, N=128).resolved(device("npu2"))
given = GEMM.test.draw(op, np.random.default_rng(0))
outputs, _, stats = simulate(op, "npu2", given, trace=sys.argv[1])
print(hashlib.sha256(outputs["C"].tobytes() + open(sys.argv[1], "rb").read()).hexdigest(), stats)
"""


def test_two_processes_are_equal(tmp_path):
    """Whatever seed strings are hashed with: outputs, statistics, and the order of every event."""
    seen = {
        subprocess.run(
            [sys.executable, "-c", CODE, str(tmp_path / seed)],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_the_order_of_lanes_does_not_change_what_comes_out(lab):
    """Streams that are fed last end last, with the same numbers."""

    def make():
        for i in range(3):
            a, y = ObjectFifo(lab.line(32), name=f"a{i}"), ObjectFifo(lab.line(32), name=f"y{i}")
            a.prod(tile=Lane("x", i))
            y.cons(tile=Lane("y", i))
            Worker(lab.relay, [a.cons(), y.prod(), lab.copier(lab.line(32))])

    array = lab.frozen(make)
    drains = [lab.drain(i, "y", f"y{i}", 64, 64 * i) for i in range(3)]
    fills = [lab.fill(3 + i, "x", f"a{i}", 64, 64 * i) for i in range(3)]
    for order in (fills, fills[::-1]):
        assert (lab.run(array, lab.moved(*drains, *order), x=X, y=192)["y"] == X[:192]).all()


# -- words and barriers ----------------------------------------------------------------------------


def counting(a, y, copy, words, ready):
    """A core that passes on as many lines as its word says."""
    ready.wait_for_value(1)
    n = words[0]
    ready.release_with_value(1)
    for _ in range_(n):
        x, out = a.acquire(), y.acquire()
        copy(x, out)
        a.release()
        y.release()


def told(lab):
    words = [lambda: Buffer(2, "int32", name="words", use_write_rtp=True), lambda: WorkerRuntimeBarrier(name="ready")]
    return lab.frozen(lab.through(lab.line(64), counting, *words))


def test_a_core_does_what_its_words_say(lab):
    steps = [WriteWord("words", 0, 2), SetBarrier("ready_core0", 1), *passing(lab, 128)]
    assert lab.run(told(lab), steps, x=X, y=128).stats.calls == 2


def test_every_call_has_words_of_its_own(lab):
    """The re-armed barrier keeps the core from reading before they are written."""
    word = Word("n", "core", Affine("n"))
    machine = lab.machine(told(lab))
    for n in (3, 1, 4):
        steps = [Sync((("words", 0, word),)), SetBarrier("ready_core0", 1), *passing(lab, 64 * n)]
        result = lab.run(machine, steps, {"n": n}, x=X, y=256)
        assert result.stats.calls == n and (result["y"][: 64 * n] == X[: 64 * n]).all()


def test_a_core_that_has_nothing_to_do_does_nothing(lab):
    result = lab.run(told(lab), [WriteWord("words", 0, 0), SetBarrier("ready_core0", 1)], x=X, y=64)
    assert result.stats.calls == 0 and result.masks["y"].all()


# -- what a sequence may not do --------------------------------------------------------------------


def test_a_wait_needs_a_token(lab, array):
    steps = [lab.drain(0, "y", "y", 64, token=False), lab.fill(1, "x", "a", 64), Await(0), Free(1)]
    with pytest.raises(SimulationError, match=r"task 0 \(drain y\) is awaited and gives no token"):
        lab.run(array, steps, x=X, y=64)


@pytest.mark.parametrize("wait", [Await, Free])
def test_a_task_is_started_before_it_is_waited_for(lab, array, wait):
    with pytest.raises(SimulationError, match="task 7 is waited for and was never started"):
        lab.run(array, [wait(7)], x=X, y=64)


def test_a_task_is_started_once(lab, array):
    with pytest.raises(SimulationError, match="task 0 is started twice"):
        lab.run(array, [lab.drain(0, "y", "y", 64), lab.fill(0, "x", "a", 64)], x=X, y=64)


def test_a_fill_is_not_freed_while_its_data_moves(lab, array):
    """Nobody takes the lines, so the fill cannot have ended."""
    steps = [lab.fill(1, "x", "a", 256), Free(1), lab.drain(0, "y", "y", 256), Await(0)]
    with pytest.raises(SimulationError, match=r"task 1 \(fill x\) is freed while its data is still moving"):
        lab.run(array, steps, x=X, y=256)


def test_a_drain_is_awaited_not_freed(lab, array):
    """That its data has arrived is known from its token alone."""
    steps = [lab.drain(0, "y", "y", 64), lab.fill(1, "x", "a", 64, token=True), Await(1), Free(0)]
    with pytest.raises(SimulationError, match=r"task 0 \(drain y\) is freed; only an await tells that its data has arrived"):
        lab.run(array, steps, x=X, y=64)


def test_a_sequence_waits_for_what_it_started(lab, array):
    """A drain that nothing feeds is still open at the end."""
    with pytest.raises(SimulationError, match=r"the sequence ended and task 0 \(drain y\) has not: stream y waits for"):
        lab.run(array, [lab.drain(0, "y", "y", 64)], x=X, y=64)


def test_nothing_is_left_over(lab, array):
    """Two lines went in, one came out."""
    steps = [lab.drain(0, "y", "y", 64), lab.fill(1, "x", "a", 128, token=True), Await(0), Await(1)]
    with pytest.raises(SimulationError, match="the sequence ended and 1 objects are left that nobody took: stream y"):
        lab.run(array, steps, x=X, y=64)


@pytest.mark.parametrize("n", [32, 96])
def test_objects_are_moved_whole(lab, array, n):
    """A transfer that ends in the middle of one would leave the rest to the next call."""
    steps = [lab.fill(1, "x", "a", n, token=True), Await(1)]
    with pytest.raises(SimulationError, match="the sequence ended in the middle of an object: a lacks 32 numbers on stream a"):
        lab.run(array, steps, x=X, y=64)


def test_an_output_is_drained_whole(lab, array):
    steps = lab.moved(lab.drain(0, "y", "y", 32), lab.fill(1, "x", "a", 64))
    with pytest.raises(SimulationError, match="the sequence ended in the middle of an object: y has 32 numbers left to send"):
        lab.run(array, steps, x=X, y=64)


@pytest.mark.parametrize(("operand", "offset", "first"), [("x", 200, 200), ("y", 224, 224)])
def test_a_transfer_stays_in_its_tensor(lab, array, operand, offset, first):
    where = {operand: dict(offset=offset)}
    steps = lab.moved(lab.drain(0, "y", "y", 64, **where.get("y", {})), lab.fill(1, "x", "a", 64, **where.get("x", {})))
    words = rf"\({'fill x' if operand == 'x' else 'drain y'}\) touches elements {first} to {first + 63} of {operand}, which has 256"
    with pytest.raises(SimulationError, match=words):
        lab.run(array, steps, x=X, y=256)


def test_a_transfer_goes_to_a_fifo_with_that_end_on_a_shim(lab, array):
    with pytest.raises(SimulationError, match="task 0 is to drain a, which has no such end on a shim"):
        lab.run(array, [lab.drain(0, "y", "a", 64)], x=X, y=64)


def test_numbers_keep_their_size(lab, array):
    with pytest.raises(SimulationError, match="x of int8 on a, which carries int32"):
        lab.run(array, [lab.fill(0, "x", "a", 64)], x=X.astype(np.int8), y=64)


def test_numbers_of_one_size_are_the_same_bits(lab, array):
    """A float tensor through a fifo of integers: bits move, not values."""
    given = np.linspace(-1, 1, 64, dtype=np.float32)
    result = lab.run(array, passing(lab, 64), x=given, y=64)
    assert (result["y"].view(np.float32) == given).all()


def test_a_transfer_of_several_descriptors(lab, array):
    """They follow one another, in one task."""
    many = tuple(lab.descriptor(at, 64) for at in (128, 0, 192))
    steps = lab.moved(lab.drain(0, "y", "y", 192), Transfer(1, "fill", "x", "a", many))
    assert (lab.run(array, steps, x=X, y=192)["y"] == np.r_[128:192, 0:64, 192:256]).all()
