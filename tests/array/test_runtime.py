"""What sequence(rt) records: transfers within the shim's limits, who waits for whom, and the words of a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core import Auto, DType, Extent, In, Operator, Out, Param, Pattern, Scratchpad, Value
from iron_core.array import ObjectFifo, Worker, range_
from iron_core.array.build import build, build_array
from iron_core.array.descriptors import Descriptor
from iron_core.array.runtime import Runtime
from iron_core.array.sequence import Await, Free, SequenceArgument, SetBarrier, Sync, Transfer, Word, WriteWord
from iron_core.declare.affine import Affine
from iron_core.devices import QUEUE, device
from iron_core.errors import DeclarationError, Unresolvable


class Lines(Operator):
    """`size` numbers through two lanes; each core counts its lines and knows a fixed number besides."""

    size: int = Param()
    T: Any = DType(default=np.int32)
    line: int = Auto(default=64)
    lanes: int = Auto(default=2)
    valid = Extent(size)
    count = Value(derive=lambda op: -(-op.valid // (op.lanes * op.line)))
    seven = Value(derive=lambda op: op.line + 7)
    x = In(size, dtype=T, tile=line, per=lanes)
    table = In(64, dtype=T)
    at = Scratchpad(np.int32, within=x)
    y = Out(size, dtype=T, tile=line, per=lanes)

    def reference(self, x, table, *, at=0):
        return x

    def array(self, target):
        def core(x, y, n, seven=None):
            for _ in range_(n):
                x.acquire()
                y.acquire()
                x.release()
                y.release()

        for i in range(self.lanes):
            x, y = ObjectFifo(self.x.tile, name=f"x{i}"), ObjectFifo(self.y.tile, name=f"y{i}")
            x.prod(tile=self.x.lane(i))
            y.cons(tile=self.y.lane(i))
            Worker(core, [x.cons(), y.prod()], values=[self.count] if i else [self.count, self.seven], name=f"core{i}")


def runtime(bound=(), **fields):
    """A runtime of `Lines(size=1024)` to record on."""
    op = Lines(**{"size": 1024, **fields}).resolved("npu2")
    return Runtime(op, build_array(op, "npu2").array, device("npu2"), bound)


def whole(n, offset=0):
    return Pattern.whole((n,), offset)


def kinds(rt):
    return [type(step).__name__ for step in rt.freeze().steps]


# -- words -----------------------------------------------------------------------------------------


def test_the_preamble_writes_what_never_changes_then_this_calls_words_then_opens_the_barriers():
    rt = runtime({"valid"})
    rt.preamble()
    word = Word("count", "core", Affine("valid").ceildiv(128))
    assert rt.freeze().steps == (
        WriteWord("words_core0", 1, 71),
        Sync((("words_core0", 0, word), ("words_core1", 0, word))),
        SetBarrier("ready_core0", 1),
        SetBarrier("ready_core1", 1),
    )
    assert rt.freeze().words == (word,)


def test_without_bounds_every_number_is_written_as_it_is():
    rt = runtime()
    rt.preamble()
    assert rt.freeze().steps[:3] == (
        WriteWord("words_core0", 0, 8),
        WriteWord("words_core1", 0, 8),
        WriteWord("words_core0", 1, 71),
    )
    assert rt.freeze().words == ()


def test_members_that_no_call_gives_have_no_word():
    rt = runtime()
    assert rt.offset("at") is rt.count("at") is rt.tiles("valid", "x", 64) is rt.length("count") is None
    assert rt.value("count") == 8


def test_words_of_members_that_calls_give():
    rt = runtime({"valid", "at"})
    assert rt.offset("at") == Word("at", "offset", Affine("at"))
    assert rt.tiles("valid", "x", 64) == Word("valid_x", "length", Affine("valid").ceildiv(64))
    assert rt.length("count") == Word("count_length", "length", Affine("valid").ceildiv(128))
    assert rt.length("seven") is None and rt.value("seven") == 71
    assert runtime({"at"}).offset("at", step=4, unit=(32, 20)) == Word("at", "offset", Affine("at") // 32 * 20, 32)
    assert [w.name for w in rt.freeze().words] == ["at", "valid_x", "count_length"]


def test_a_transfer_may_be_asked_about_before_it_is_recorded():
    """One descriptor steps over 2^20 words at most, whatever the sequence does then."""
    rt = runtime()
    for step, single in ((1 << 20, True), ((1 << 20) + 1, False)):
        assert rt.single("x", Pattern(0, (2, 2, 8), (8, step, 1))) is single
    assert kinds(rt) == []


def test_one_name_is_one_word():
    rt = runtime({"at"})
    rt.offset("at")
    with pytest.raises(DeclarationError, match="Lines: two per-call words are named at"):
        rt.count("at")


# -- transfers -------------------------------------------------------------------------------------


def test_a_transfer_names_its_lane_and_descriptor():
    rt = runtime()
    assert rt.drain("y", 1, whole(512, 512), wait=True) == 0
    assert rt.fill("x", 1, whole(512, 512)) == 1
    line = Descriptor(512, (1, 1, 1, 512), (0, 0, 0, 1))
    assert rt.freeze().steps == (
        Transfer(0, "drain", "y", "y1", (line,), token=True),
        Transfer(1, "fill", "x", "x1", (line,)),
        Await(0),
        Free(1),
    )


def test_an_operand_may_ride_down_anothers_lane():
    rt = runtime()
    rt.fill("table", 0, whole(64), via="x")
    (transfer,) = rt.freeze().transfers()
    assert (transfer.operand, transfer.fifo) == ("table", "x0")


@pytest.mark.parametrize(
    ("operand", "lane", "words"), [("x", 2, "Lines: x has no lane 2; it has 2"), ("table", 0, "table has no lane 0; it has 0")]
)
def test_a_lane_that_the_array_does_not_have(operand, lane, words):
    with pytest.raises(DeclarationError, match=words):
        runtime().fill(operand, lane, whole(64))


def test_ready_made_descriptors_are_taken_as_they_are():
    rt = runtime()
    given = (Descriptor(0, (1, 1, 1, 64), (0, 0, 0, 1)), Descriptor(512, (1, 1, 1, 64), (0, 0, 0, 1)))
    rt.fill("x", 0, given)
    assert rt.freeze().transfers()[0].descriptors == given and rt.freeze().transfers()[0].elements == 128


def test_an_offset_of_the_call_moves_the_whole_transfer():
    rt = runtime({"at"})
    rt.fill("x", 0, whole(64), offset_by=rt.offset("at"))
    assert rt.freeze().transfers()[0].offset_by == Word("at", "offset", Affine("at"))


def test_a_length_of_the_call_counts_steps_of_an_axis():
    rt = runtime({"valid"})
    rt.fill("x", 0, Pattern(0, (8, 64), (128, 1)), size_by=(0, rt.tiles("valid", "x", 128)))
    (transfer,) = rt.freeze().transfers()
    assert (transfer.unit, transfer.length_by.name, transfer.elements) == (64, "valid_x", 512)


@pytest.mark.parametrize(
    ("pattern", "options", "words"),
    [
        (Pattern(0, (8, 3), (4, 1)), dict(size_by=0), r"one unit of axis 0 is 3 elements, 12 bytes; .* whole 16 bytes"),
        (Pattern(0, (2, 2, 2, 2, 2), (512, 200, 70, 20, 1)), dict(offset_by=True), "a transfer set per call must be one descriptor"),
        (Pattern(0, (8,), (-1,)), {}, "is negative; a descriptor only steps forward"),
    ],
)
def test_what_no_shim_can_do_names_the_operand_and_lane(pattern, options, words):
    rt = runtime({"valid", "at"})
    if "size_by" in options:
        options = dict(size_by=(options["size_by"], rt.tiles("valid", "x", 1)))
    if "offset_by" in options:
        options = dict(offset_by=rt.offset("at"))
    with pytest.raises(Unresolvable, match=rf"Lines.x, lane 1: .*{words}"):
        rt.fill("x", 1, pattern, **options)


# -- waiting ---------------------------------------------------------------------------------------


def test_a_group_awaits_what_is_waited_for_then_frees_the_rest():
    rt = runtime()
    group = rt.group()
    rt.drain("y", 0, whole(64), wait=True, group=group)
    rt.fill("x", 0, whole(64), group=group)
    group.finish()
    rt.drain("y", 0, whole(64, 64), wait=True)
    steps = rt.freeze().steps
    assert [type(s).__name__ for s in steps] == ["Transfer", "Transfer", "Await", "Free", "Transfer", "Await"]
    assert [s.task for s in steps] == [0, 1, 0, 1, 2, 2]


def test_a_group_finishes_once():
    rt = runtime()
    group = rt.group()
    rt.fill("x", 0, whole(64), group=group)
    group.finish()
    group.finish()
    assert kinds(rt) == ["Transfer", "Free"]


def test_unmanaged_transfers_wait_where_the_queue_would_run_out():
    """A channel's oldest task is awaited before a fifth; what is left is awaited at the end, drains first, fills freed."""
    rt = runtime()
    for i in range(QUEUE + 2):
        rt.drain("y", 0, whole(64, 64 * i), managed=False)
        rt.fill("x", 0, whole(64, 64 * i), managed=False)
    steps = rt.freeze().steps
    running = {"y0": [], "x0": []}
    fifo = {s.task: s.fifo for s in steps if isinstance(s, Transfer)}
    for step in steps:
        if isinstance(step, Transfer):
            running[step.fifo].append(step.task)
            assert len(running[step.fifo]) <= QUEUE
        else:
            assert running[fifo[step.task]].pop(0) == step.task
    assert running == {"y0": [], "x0": []}
    tail = steps[-2 * QUEUE :]
    assert [type(s) for s in tail] == [Await] * QUEUE + [Free] * QUEUE
    assert [s.task for s in tail if isinstance(s, Await)] == [2 * i for i in range(2, QUEUE + 2)]


def test_unmanaged_fills_are_freed_after_the_drains_of_the_sequences_group():
    """What a fill sends has arrived for certain only once the outputs have."""
    rt = runtime()
    rt.drain("y", 0, whole(64), wait=True)
    rt.fill("x", 0, whole(64), managed=False)
    assert [type(step) for step in rt.freeze().steps] == [Transfer, Transfer, Await, Free]


def test_unmanaged_transfers_keep_to_their_share_of_the_descriptors():
    """Four channels share sixteen: two of two descriptors each are all that one may have under way."""
    rt = runtime()
    two = tuple(Descriptor(at, (1, 1, 1, 64), (0, 0, 0, 1)) for at in (0, 512))
    for _ in range(3):
        rt.fill("x", 0, two, managed=False)
    assert kinds(rt) == ["Transfer", "Transfer", "Await", "Transfer", "Free", "Free"]


def test_only_what_is_awaited_gives_a_token():
    rt = runtime()
    for _ in range(QUEUE + 1):
        rt.fill("x", 0, whole(64), managed=False)
    assert [t.token for t in rt.freeze().transfers()] == [True, False, False, False, False]


# -- arguments -------------------------------------------------------------------------------------


def test_every_operand_is_a_flat_tensor():
    want = (SequenceArgument("x", "int32", 1024), SequenceArgument("table", "int32", 64), SequenceArgument("y", "int32", 1024))
    assert runtime().freeze().arguments == want


def test_a_sequence_is_part_of_the_design():
    design = build(Lines(size=1024), "npu2", {"valid"}).design
    assert [w.name for w in design.sequence.words] == ["count", "valid_y", "valid_x"]
    assert [t.way for t in design.sequence.transfers()] == ["drain", "drain", "fill", "fill"]
