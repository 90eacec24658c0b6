"""Data that nobody wrote: it propagates, may be masked out, and is an error where it reaches what counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core import Auto, DType, In, Operator, Out, Param, Pattern, bfloat16
from iron_core.array import (
    Buffer,
    Kernel,
    KernelContract,
    Lane,
    ObjectFifo,
    Worker,
    WorkerRuntimeBarrier,
    if_,
    range_,
    set_rounding,
)
from iron_core.array.sequence import SetBarrier, Sync, Word, WriteWord
from iron_core.declare.affine import Affine
from iron_core.declare.rounding import widen
from iron_ops_aie import SiLU
from iron_sim.errors import Deadlock, PoisonError, SimulationError
from iron_sim.run import simulate

X = np.linspace(-2, 2, 64).astype(bfloat16)


# -- how far it goes -------------------------------------------------------------------------------


@pytest.fixture
def ran(lab):
    """`ran(reference, unwritten indices)`: what one core makes of two objects of 32 numbers."""

    def ran(reference, at, x=X, dtype="bfloat16"):
        array = lab.frozen(lab.through(lab.line(32, dtype), reference=reference))
        steps = lab.moved(lab.drain(0, "y", "y", 64), lab.fill(1, "x", "a", 64))
        return lab.run(array, steps, x=x, y=64, unwritten={"x": at})

    return ran


def test_what_was_never_drained_is_poison(lab):
    result = lab.run(lab.frozen(lab.through(lab.line(32, "bfloat16"))), [], x=X, y=64)
    assert result.masks["y"].all() and np.isnan(result["y"].astype(np.float32)).all()


def test_a_float_goes_as_far_as_its_kernel_takes_it(ran):
    """An elementwise kernel: number by number."""
    result = ran(lambda x: widen(x) * 2, [3, 40])
    assert np.flatnonzero(result.masks["y"]).tolist() == [3, 40]
    clean = ~result.masks["y"]
    assert (result["y"][clean] == (widen(X) * 2).astype(bfloat16)[clean]).all()


def test_a_sum_spreads_it_over_the_object(ran):
    result = ran(lambda x: np.full(32, widen(x).sum()), [3])
    assert result.masks["y"][:32].all() and not result.masks["y"][32:].any()


def test_what_a_kernel_masks_out_is_no_poison(ran):
    """As hardware would: a number that is chosen away was never used."""
    result = ran(lambda x: np.where(np.arange(32) % 4 == 3, 0, widen(x)), [3, 7, 35])
    assert not result.masks["y"].any()


def test_integers_have_no_nan(ran):
    """One unwritten integer of an input makes every output of the call poison."""
    result = ran(lambda x: np.zeros(32, np.int32), [3], x=np.arange(64, dtype=np.int32), dtype="int32")
    assert result.masks["y"][:32].all() and not result.masks["y"][32:].any()


def test_a_kernel_of_integers_may_say_how_far_it_goes(lab):
    """A running count: a number depends on those up to its own, whatever an input holds behind it."""
    line = lab.line(32, "int32")
    contract = KernelContract(roles=("in", "out"), reference=lambda x: x.cumsum(), poison=np.logical_or.accumulate)

    def make():
        a, y = ObjectFifo(line, name="a"), ObjectFifo(line, name="y")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))
        Worker(relay, [a.cons(), y.prod(), Kernel.inline("count", "", (line, line), contract)], name="core0")

    def relay(a, y, count):
        count(a.acquire(), y.acquire())
        a.release()
        y.release()

    steps = lab.moved(lab.drain(0, "y", "y", 64), lab.fill(1, "x", "a", 64))
    result = lab.run(lab.frozen(make), steps, x=np.ones(64, np.int32), y=64, unwritten={"x": [20]})
    assert np.flatnonzero(result.masks["y"]).tolist() == [*range(20, 32)]
    assert result["y"][:20].tolist() == [*range(1, 21)] and result["y"][32:].tolist() == [*range(1, 33)]


def test_memory_keeps_it_until_it_is_written(lab):
    """A buffer that is read before it was written, and after."""

    def core(a, y, copy, kept):
        x, out = a.acquire(), y.acquire()
        copy(kept, out)
        copy(x, kept)
        a.release()
        y.release()

    machine = lab.machine(lab.frozen(lab.through(lab.line(32, "bfloat16"), core, lambda: Buffer(32, "bfloat16"))))
    steps = lab.moved(lab.drain(0, "y", "y", 64), lab.fill(1, "x", "a", 64))
    first, second = (lab.run(machine, steps, x=X, y=64) for _ in range(2))
    assert first.masks["y"].tolist() == [True] * 32 + [False] * 32
    assert not second.masks["y"].any() and (second["y"][:32] == X[32:]).all()


# -- words and branches ----------------------------------------------------------------------------


def counting(a, y, copy, words, ready):
    ready.wait_for_value(1)
    n = words[0]
    ready.release_with_value(1)
    for _ in range_(n):
        copy(a.acquire(), y.acquire())
        a.release()
        y.release()


@pytest.fixture
def told(lab):
    extra = (lambda: Buffer(2, "int32", use_write_rtp=True, name="words"), lambda: WorkerRuntimeBarrier(name="ready"))
    return lab.frozen(lab.through(lab.line(32, "bfloat16"), counting, *extra))


def moves(lab, n):
    return lab.moved(lab.drain(0, "y", "y", 32 * n), lab.fill(1, "x", "a", 32 * n))


def test_a_word_that_was_not_written(lab, told):
    with pytest.raises(PoisonError, match="core0 reads word 0, which nobody wrote"):
        lab.run(told, [SetBarrier("ready_core0", 1), *moves(lab, 1)], x=X, y=64)


def test_a_barrier_that_is_opened_too_early(lab, told):
    """The core goes on at once: the word comes too late, whatever the order in which tests ran."""
    steps = [SetBarrier("ready_core0", 1), WriteWord("words", 0, 1), *moves(lab, 1)]
    with pytest.raises(PoisonError, match="core0 reads word 0, which nobody wrote"):
        lab.run(told, steps, x=X, y=64)


def test_a_word_of_the_call_before(lab, told):
    """On a machine that ran before, the early core reads the last call's number, and does that call's work."""
    word = Word("n", "core", Affine("n"))
    early = [SetBarrier("ready_core0", 1), Sync((("words", 0, word),))]
    right = [*early[::-1], *moves(lab, 1)]
    machine = lab.machine(told)
    lab.run(machine, right, {"n": 1}, x=X, y=64)
    with pytest.raises(Deadlock, match="core0"):
        lab.run(machine, [*early, *moves(lab, 2)], {"n": 2}, x=X, y=64)


def test_a_branch_on_what_nobody_wrote(lab):
    def core(a, y, copy):
        x, out = a.acquire(), y.acquire()
        with if_(x[5] > 0):
            copy(x, out)
        a.release()
        y.release()

    array = lab.frozen(lab.through(lab.line(32), core))
    steps = lab.moved(lab.drain(0, "y", "y", 32), lab.fill(1, "x", "a", 32))
    with pytest.raises(PoisonError, match="core0 reads word 5, which nobody wrote"):
        lab.run(array, steps, x=np.arange(32, dtype=np.int32), y=32, unwritten={"x": [5]})
    lab.run(array, steps, x=np.arange(32, dtype=np.int32), y=32, unwritten={"x": [6]})


# -- operators and graphs --------------------------------------------------------------------------


class Half(Operator):
    """Doubles `size` numbers; `written` of them are drained, the others never."""

    size: int = Param()
    written: int = Param()
    T: Any = DType(default=bfloat16)
    tile: int = Auto(default=32)
    x = In(size, dtype=T, tile=tile)
    y = Out(size, dtype=T, tile=tile)

    def array(self, target):
        tile = self.x.tile
        kernel = Kernel.inline("twice", "", [tile, tile], KernelContract(roles=("in", "out"), reference=lambda x: 2 * widen(x)))

        def core(x, y, kernel):
            set_rounding("conv_even")
            kernel(x.acquire(), y.acquire())
            x.release()
            y.release()

        x, y = ObjectFifo(tile, name="x"), ObjectFifo(tile, name="y")
        x.prod(tile=self.x.lane(0))
        y.cons(tile=self.y.lane(0))
        Worker(core, [x.cons(), y.prod(), kernel])

    def sequence(self, rt):
        rt.drain("y", 0, Pattern.whole((self.written,)), wait=True)
        rt.fill("x", 0, Pattern.whole((self.written,)))

    def reference(self, x):
        return 2 * widen(x)


def test_an_operators_outputs_are_marked():
    outputs, masks, _ = simulate(Half(size=128, written=96), "npu2", {"x": np.ones(128, bfloat16)})
    assert masks["y"].tolist() == [False] * 96 + [True] * 32 and (outputs["y"][:96] == 2).all()


def test_a_bound_leaves_the_rest_unwritten():
    op = SiLU(size=4096, tile_size=64, num_aie_columns=4)
    _, masks, _ = simulate(op, "npu2", {"x": np.ones(4096, bfloat16)}, {"valid": 1000})
    assert not masks["y"][:1024].any() and masks["y"][1024:].all()


class Doubled(iron.Graph):
    def __init__(self, written, then=lambda y: y):
        self.written = written
        self.then = then

    def body(self, x):
        return self.then(Half(x, written=self.written))


def test_an_output_that_was_not_written_is_refused():
    """The message says which output, and where."""
    run = Doubled(96).compile(backend="sim", dev="npu2", x=(128,))
    with pytest.raises(PoisonError, match=r"output .*\[96\] depends on data nobody wrote"):
        run(np.ones(128, bfloat16))


def test_poison_goes_through_steps():
    run = Doubled(96, then=SiLU).compile(backend="sim", dev="npu2", x=(128,))
    with pytest.raises(PoisonError, match=r"output .*\[96\] depends on data nobody wrote"):
        run(np.ones(128, bfloat16))


def test_poison_that_reaches_no_output_is_none_of_its_business():
    """A view of the part that was written."""
    run = Doubled(128).compile(backend="sim", dev="npu2", x=(128,))
    assert (np.asarray(run(np.ones(128, bfloat16))) == 2).all()
    run = Doubled(64, then=lambda y: SiLU(y[:64])).compile(backend="sim", dev="npu2", x=(128,))
    assert np.asarray(run(np.ones(128, bfloat16))).shape == (64,)


def test_an_error_inside_a_graph_names_its_step():

    class Broken(Half):
        def sequence(self, rt):
            rt.drain("y", 0, Pattern.whole((self.size,)), wait=True)

    class Graph(iron.Graph):
        def body(self, x):
            return Broken(x, written=1)

    run = Graph().compile(backend="sim", dev="npu2", x=(128,))
    with pytest.raises(SimulationError, match=r"step broken\w*: Broken on npu2 cannot go on:"):
        run(np.ones(128, bfloat16))
