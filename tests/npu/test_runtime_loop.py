"""Loops on a simulated device: runs that leave the next one its words, one at a time or several."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.errors import BoundsError, CallError
from iron_npu.backend import NpuBackend
from iron_npu.errors import ContextLost, NpuError
from iron_ops_aie import Copy, Sample, SiLU
from iron_ops_aie.tokens.draw import ROW_WORDS, draw_words

F32 = np.float32
STEPS = 12


class Walk(iron.Graph):
    """A model of one table: the logits after a token are the token's row."""

    def __init__(self, vocab=8):
        self.table = iron.weight(np.random.default_rng(vocab).standard_normal((vocab, vocab)).astype(F32))
        self.logits, self.record = iron.state((vocab,), F32), iron.state((STEPS,), np.int32)
        self.draws = iron.state((STEPS, ROW_WORDS), np.int32)

    def body(self, *, token: iron.Carried[np.int32], position: iron.Carried[np.int32]):
        Copy(self.table[token], self.logits)
        _, drawn = Sample(self.logits, self.draws, self.record, row=position * ROW_WORDS, at=position)
        return iron.carry(token=drawn, position=position + 1)


class Copies(iron.Graph):
    """Rows of one state go to the other: the host knows the position of every step before the first."""

    def __init__(self):
        self.rows, self.copied = iron.state((STEPS, 64)), iron.state((STEPS, 64))

    def body(self, *, position: iron.Carried[np.int32]):
        Copy(SiLU(Copy(self.rows[position])), self.copied[position])
        return iron.carry(position=position + 1)


def walk(dev="npu2", backend=None):
    run = Walk().compile(backend=backend or NpuBackend(), dev=dev)
    rng = np.random.default_rng(5)
    run.write("draws", np.stack([draw_words(0.9, 8, int(rng.integers(1 << 53))) for _ in range(STEPS)]))
    return run


def copies(backend=None):
    run = Copies().compile(backend=backend or NpuBackend(), dev="npu2")
    run.write("rows", np.random.default_rng(2).standard_normal((STEPS, 64)).astype(bfloat16))
    return run


@pytest.fixture(scope="module")
def drawn():
    """What the simulator's loop draws."""
    run = walk(backend="sim")
    run.loop(STEPS, token=0, position=0)
    return run.read("record").tolist()


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_runs_of_a_loop_feed_one_another(xrt, depth):
    """As many are under way as may be; the host writes the words of the first, and waits."""
    run, want = copies(NpuBackend(depth=depth)), copies("sim")
    words = run.traffic.words
    assert run.loop(STEPS, position=0) == want.loop(STEPS, position=0) == dict(position=STEPS)
    assert run.read("copied").tobytes() == want.read("copied").tobytes()
    assert (xrt.flying, xrt.starts) == (depth, STEPS)
    assert run.traffic.words - words == 4 + 4, "one word and one value, of the first step"


def test_what_only_the_device_knows_is_waited_for(xrt, drawn):
    """A drawn token is an index: it is checked before the step that it picks a row for. The device made that step's words meanwhile."""
    run = walk()
    words = run.traffic.words
    assert run.loop(STEPS, token=0, position=0) == dict(token=drawn[-1], position=STEPS)
    assert run.read("record").tolist() == drawn
    assert (xrt.flying, xrt.starts) == (1, STEPS)
    assert run.traffic.words - words == 3 * 4 + 2 * 4, "three words and two values, of the first step"


@pytest.mark.parametrize("depth", [1, 3])
def test_an_index_is_checked_before_its_step(xrt, depth):
    """Those under way are seen to their end; the one that would leave its state does not begin."""
    run = copies(NpuBackend(depth=depth))
    with pytest.raises(BoundsError) as caught:
        run.loop(STEPS, position=2)
    assert caught.value.__notes__ == [f"The loop was ended after {STEPS - 2} of {STEPS} steps."]
    assert xrt.starts == STEPS - 2 and not xrt.queue and run.read("copied")[2:].any(axis=1).all()


def test_memory_is_at_rest_where_somebody_is_told(xrt, drawn):
    """Between two steps anything may be read, written and called; the device still makes its own next step."""
    run = walk()
    seen = []

    def told(index, now):
        seen.append(now["token"])
        kept = run.read("record")
        assert kept[: index + 1].tolist() == drawn[: index + 1] and not kept[index + 1 :].any()
        run(token=1, position=STEPS - 1)
        run.write("record", kept)
        return index == STEPS - 2

    run.loop(STEPS, told, token=0, position=0)
    assert seen == drawn[:-1] and xrt.flying == 1


def test_other_threads_have_their_turn_between_two_steps(xrt):
    """A graph that is called meanwhile does not wait for the end of a loop."""

    class Doubled(iron.Graph):
        def body(self, x):
            return SiLU(x)

    other, seen = Doubled().compile(backend=NpuBackend(), dev="npu2", x=(4096,)), []

    def told(index, now):
        thread = threading.Thread(target=lambda: seen.append(float(other(np.ones(4096, bfloat16))[0])))
        thread.start()
        thread.join(20)
        return index == 2

    copies().loop(STEPS, told, position=0)
    assert len(seen) == 3 and len(set(seen)) == 1


def test_what_ends_a_loop_leaves_nothing_under_way(xrt):
    """A run that fails while others follow it: these are waited for too, and the next call is well."""
    run = copies(NpuBackend(depth=3))
    xrt.faults.ends = {4: "ERROR"}
    with pytest.raises(NpuError, match="Copies: it ended in ERT_CMD_STATE_ERROR") as caught:
        run.loop(STEPS, position=0)
    assert caught.value.__notes__ == ["The loop was ended after 3 of 12 steps."]
    assert not xrt.queue and xrt.starts == 6
    (again,) = run(position=0)
    assert again.position == 1


def test_a_loop_goes_on_in_a_new_context(xrt, drawn):
    """Its words went with the old one; the host saw them."""
    run = walk()
    xrt.faults.lost = {3, 7}
    run.loop(STEPS, lambda index, now: False, token=0, position=0)
    assert run.read("record").tolist() == drawn and xrt.made == 3


def test_a_loop_of_several_at_once_does_not_guess(xrt):
    """The words of a step are in the scratchpad of a context that is lost: the loop ends, and says so."""
    run = copies()
    xrt.faults.lost = {5}
    with pytest.raises(ContextLost, match="Copies: its hardware context was lost"):
        run.loop(STEPS, position=0)
    assert not xrt.queue


def test_a_value_that_leaves_its_dtype_ends_the_loop(xrt):
    class Count(iron.Graph):
        def __init__(self):
            self.rows = iron.weight(np.zeros((4, 4), F32))

        def body(self, *, n: iron.Carried[np.int32]):
            Copy(self.rows[n // (1 << 30)])
            return iron.carry(n=n * 2)

    run = Count().compile(backend=NpuBackend(), dev="npu2")
    for told in (None, lambda index, now: False):
        with pytest.raises(CallError, match="n=2147483648 does not fit int32") as error:
            run.loop(9, told, n=1 << 29)
        assert error.value.__notes__ == ["The loop was ended after 2 of 9 steps."]
    assert not xrt.queue


class Prompted(Walk):
    """Its first logits may be given."""

    def body(self, x=None, *, token: iron.Carried[np.int32], position: iron.Carried[np.int32]):
        if x is None:
            Copy(self.table[token], self.logits)
        else:
            Copy(x, self.logits)
        _, drawn = Sample(self.logits, self.draws, self.record, row=position * ROW_WORDS, at=position)
        return iron.carry(token=drawn, position=position + 1)


def test_a_version_with_tensors_may_feed_the_loop_behind_it(xrt):
    """Its last step leaves the loop's first words in its feedback, and what is carried in the planes of both."""
    x = np.linspace(-1, 1, 8, dtype=F32)
    records = []
    for backend in (NpuBackend(), "sim"):
        graph = Prompted()
        run = graph.compile(backend=backend, dev="npu2")
        graph.compile(backend=backend, dev="npu2", feeds=run, x=((8,), F32))
        rng = np.random.default_rng(5)
        run.write("draws", np.stack([draw_words(0.9, 8, int(rng.integers(1 << 53))) for _ in range(STEPS)]))
        (carried,) = run(x, token=0, position=0)
        run.loop(STEPS - 1, token=carried.token, position=carried.position)
        records.append(run.read("record").tolist())
    assert records[0] == records[1]
