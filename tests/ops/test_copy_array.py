"""`Copy` on an array: the descriptors of its sequence walk what numpy says, or a rule says why they cannot."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from iron_core.array.build import build
from iron_core.array.descriptors import BdLimits
from iron_core.array.sequence import Await, Transfer
from iron_core.array.spec import check
from iron_core.array.words import number
from iron_core.declare.cases import cases
from iron_core.declare.domain import domains
from iron_core.declare.formats import Q4_1
from iron_core.declare.pattern import Pattern
from iron_core.devices import device
from iron_core.errors import BoundsError, Unresolvable
from iron_npu.mlir.printer import print_design
from iron_ops_aie import Copy
from iron_ops_aie.moving.copy_patterns import byte_pattern
from tests.npu.structural import require
from tests.ops.copies import DTYPES, copies, refused, views, walk

NPU2 = device("npu2")


def moved(design, op, members=None):
    """Per lane, the elements of x in the order they enter the array and those of y in the order they are written."""
    found = {}
    for name, way in (("x", "fill"), ("y", "drain")):
        for lane in design.array.lanes_of(name):
            parts = [np.zeros(0, np.int64)]
            for step in design.sequence.transfers():
                if step.fifo != lane.fifo:
                    continue
                assert (step.operand, step.way) == (name, way)
                shift = number(op, step.offset_by, members) if step.offset_by else 0
                length = number(op, step.length_by, members) * step.unit if step.length_by else None
                parts += [d.shifted(shift).addresses(length) for d in step.descriptors]
            found[name, lane.index] = np.concatenate(parts)
    return found


def legal(design, itemsize):
    """Every descriptor is one the shim takes, every transfer ends where an object does, and nothing waits in vain."""
    check(design)
    limits = BdLimits.of(NPU2.shim, itemsize)
    at = {}
    carried, live, tasks = {}, {}, {}
    for step in design.sequence.steps:
        if isinstance(step, Transfer):
            assert all(limits.why_not(d) is None for d in step.descriptors)
            tile = design.array.fifo(step.fifo).type
            assert step.elements % tile.elements == 0 and tile.nbytes <= 65536
            at[step.fifo] = at.get(step.fifo, 0) + step.elements
            carried[step.task] = (step.operand, step.fifo[1:], at[step.fifo])
            live.setdefault(step.fifo, []).append(step)
            assert len(live[step.fifo]) <= 4 and sum(len(s.descriptors) for s in live[step.fifo]) <= 4
            tasks[step.task] = step
        elif isinstance(step, Await):
            operand, lane, end = carried[step.task]
            other = {"x": "y", "y": "x"}[operand]
            assert at[f"{other}{lane}"] >= end, "it waits for what only a later step makes possible"
            fifo = tasks[step.task].fifo
            assert live[fifo].pop(0) is tasks[step.task]


def check_pairs(design, op, source, target, members=None):
    """The k-th element written is the k-th read, for every lane and all of them together."""
    found = moved(design, op, members)
    read, written = walk(source), walk(target)
    place = {int(at): k for k, at in enumerate(written)}
    seen = []
    for lane in range(design.array.lanes_of("x")[-1].index + 1):
        order = np.array([place[int(at)] for at in found["y", lane]], np.int64)
        assert (np.diff(order) > 0).all()
        assert (found["x", lane] == read[order]).all()
        seen += order.tolist()
    assert sorted(seen) == list(range(len(written)))


# -- views ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wild", [False, True], ids=["aligned", "wild"])
@given(st.data())
@settings(max_examples=300)
def test_a_view_is_walked_as_numpy_walks_it(wild, data):
    """Ranks 1 to 4, any strides, numbers of 1, 2 and 4 bytes: all of it in order, or refused by a rule."""
    fields = data.draw(copies(wild))
    try:
        op = Copy(**fields).resolved(NPU2)
        design = build(op, NPU2).design
    except Unresolvable as error:
        assert refused(error), str(error)
        event("refused")
        assert wild or fields["num_channels"] > 1 or "tile_size" in fields, "an aligned copy on one channel is always legal"
        return
    event("built")
    legal(design, np.dtype(fields["X"]).itemsize)
    check_pairs(design, op, op.src, op.dst)


@given(st.data())
@settings(max_examples=150)
def test_patterns_in_turn_are_walked_in_turn(data):
    """Rows in any order, repeated or evenly stepping; both sides may be several patterns."""
    dtype = data.draw(st.sampled_from(DTYPES))
    granule = max(1, 4 // np.dtype(dtype).itemsize)
    width = granule * data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=14))
    if data.draw(st.booleans()):
        rows = [base + k * 2 for base in rows[:4] for k in range(4)]
    src = tuple(Pattern(r * width, (width,), (1,)) for r in rows)
    places = data.draw(st.permutations(range(len(rows)))) if data.draw(st.booleans()) else range(len(rows))
    dst = tuple(Pattern(p * width, (width,), (1,)) for p in places)
    channels = data.draw(st.sampled_from((1, 2)))
    fields = dict(input_size=20 * width, output_size=len(rows) * width, src=src, dst=dst, X=dtype, num_channels=channels)
    try:
        op = Copy(**fields).resolved(NPU2)
        design = build(op, NPU2).design
    except Unresolvable as error:
        assert refused(error) and channels > 1, str(error)
        return
    legal(design, np.dtype(dtype).itemsize)
    check_pairs(design, op, src, dst)


def test_rows_that_step_evenly_are_one_transfer():
    """And runs that step evenly are one again: a grid of patches is one descriptor."""
    row = 8
    patches = tuple(Pattern(640 * i + 64 * j, (row,), (1,)) for i in range(3) for j in range(4))
    op = Copy(input_size=4096, src=patches, X=np.float32).resolved(NPU2)
    design = build(op, NPU2).design
    fills = [t for t in design.sequence.transfers() if t.way == "fill"]
    assert [d.sizes for t in fills for d in t.descriptors] == [(1, 3, 4, 8)]
    assert op.tile_size == 96


def test_many_rows_wait_for_earlier_ones_and_never_for_later_ones():
    """A trace-time gather of scattered rows needs more transfers than a channel holds."""
    rows = [(7 * k * k) % 64 for k in range(40)]
    op = Copy(input_size=64 * 16, src=tuple(Pattern(16 * r, (16,), (1,)) for r in rows), num_channels=2).resolved(NPU2)
    design = build(op, NPU2).design
    assert all(sum(step.fifo == fifo for step in design.sequence.transfers()) > 4 for fifo in ("x0", "x1"))
    legal(design, 2)
    check_pairs(design, op, op.src, Pattern.whole((640,)))


# -- per call ---------------------------------------------------------------------------------------

MEMBERS = ("in_offset", "out_offset", "src_valid", "dst_valid")


@given(st.data())
@settings(max_examples=200)
def test_a_call_moves_and_shortens_both_sides(data):
    """Offsets move the patterns, bounds keep the first n along their axes."""
    dtype = data.draw(st.sampled_from(DTYPES))
    itemsize = np.dtype(dtype).itemsize
    wide = 16 // itemsize
    rank = data.draw(st.integers(2, 4))
    outer = data.draw(st.integers(1, 3)) if rank > 3 else 1
    sizes = (outer, data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3)), wide * data.draw(st.integers(1, 3)))[-rank:]
    axis = {4: 1, 3: data.draw(st.integers(0, 1)), 2: 0}[rank]
    channels = data.draw(st.sampled_from((1, 1, 2)))
    src, dst = (data.draw(views(sizes, itemsize, False)) for _ in "xy")
    fields = dict(input_size=src.span[1] + 64, output_size=dst.span[1] + 64, src=src, dst=dst, src_axis=axis, dst_axis=axis)
    try:
        op = Copy(**fields, X=dtype, num_channels=channels).resolved(NPU2)
        design = build(op, NPU2, MEMBERS).design
    except Unresolvable as error:
        assert refused(error), str(error)
        event("refused")
        return
    event("built")
    n = data.draw(st.integers(1, sizes[axis]))
    step = max(1, 4 // itemsize)
    into, out = (step * data.draw(st.integers(0, 32 // step)) for _ in "xy")
    members = dict(in_offset=into, out_offset=out, src_valid=n, dst_valid=n)
    check_pairs(design, op, src.cut(axis, n).shifted(into), dst.cut(axis, n).shifted(out), members)
    for lane in moved(design, op, members).values():
        assert len(lane) % op.tile_size == 0


def test_an_offset_that_is_no_whole_word_is_refused_before_the_call():
    """Two bfloat16 are a word."""
    op = Copy(input_size=64, src=Pattern.whole((32,)), X=ml_dtypes.bfloat16).resolved(NPU2)
    (word,) = build(op, NPU2, {"in_offset"}).design.sequence.words
    assert number(op, word, {"in_offset": 6}) == 6
    with pytest.raises(BoundsError, match=r"in_offset is 7; .* multiple of 2. Nearest legal: 6 or 8"):
        number(op, word, {"in_offset": 7})


def test_an_empty_bound_is_refused_before_the_call():
    """Nothing is no transfer."""
    op = Copy(
        input_size=64, src=Pattern.whole((4, 16)), dst=Pattern.whole((4, 16)), src_axis=0, dst_axis=0, X=np.float32
    ).resolved(NPU2)
    words = build(op, NPU2, {"src_valid", "dst_valid"}).design.sequence.words
    for word in words:
        with pytest.raises(BoundsError, match="at least one tile"):
            number(op, word, {"src_valid": 0, "dst_valid": 0})


# -- bytes ------------------------------------------------------------------------------------------


def test_block_formats_move_as_bytes():
    """A column of blocks and an offset of rows, counted in bytes."""
    src = Pattern(32, (5, 32), (96, 1))
    op = Copy(input_size=960, src=src, X=Q4_1).resolved(NPU2)
    design = build(op, NPU2, {"in_offset"}).design
    assert [(p.dtype_name, p.elements) for p in design.sequence.arguments] == [("uint8", 600), ("uint8", 100)]
    legal(design, 1)
    check_pairs(design, op, byte_pattern(src.shifted(480), Q4_1), Pattern.whole((100,)), {"in_offset": 480})
    (word,) = design.sequence.words
    with pytest.raises(BoundsError, match=r"in_offset is 40; .* multiple of 32. Nearest legal: 32 or 64"):
        number(op, word, {"in_offset": 40})


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(input_size=96, X=np.float32, Y=np.int32), "X=float32 to Y=int32 makes other numbers. Legal: Y=float32"),
        (dict(input_size=90, X=np.float32, num_channels=4), "num_channels=4 does not divide the run of 90 .* num_channels=3 or 5"),
        (dict(input_size=96, X=np.float32, tile_size=36), "tile_size=36 is no object .* multiples of 96 .* tile_size=32 or 48"),
        (dict(input_size=96, X=np.int8, tile_size=6), "be a multiple of 4 .* Nearest legal: tile_size=4 or 8"),
        (dict(input_size=98, X=np.int8), "98 bytes; they must be whole 4-byte words"),
        (dict(input_size=1 << 20, X=np.float32, tile_size=1 << 16), "at most 16384. Nearest legal: tile_size=16384"),
        (dict(input_size=96, src=Pattern.whole((8, 12)), src_axis=0), "src_axis is given and dst_axis is not"),
        (
            dict(input_size=96, src=Pattern.whole((8, 12)), dst=Pattern.whole((8, 12)), src_axis=1, dst_axis=1, num_channels=2),
            "share out the innermost axis, which src_axis=1 bounds",
        ),
        (
            dict(input_size=96, src=Pattern.whole((8, 12)), dst=Pattern.whole((8, 12)), src_axis=0, dst_axis=0, tile_size=24),
            "tile_size=24 is no object .* multiples of 12",
        ),
        (dict(input_size=96, src=Pattern(1, (16,), (1,))), "offset 1 is 2 bytes; an offset must be whole 4-byte words"),
        (dict(input_size=96, src=Pattern(0, (16,), (2,))), "src=0.16:2: an innermost stride of 2; .* Legal: Transpose"),
        (dict(input_size=8, output_size=96, dst=Pattern(0, (8,), (12,))), "dst=0.8:12: an innermost stride of 12; .* Legal: Transpose"),
        (
            dict(input_size=96, src=Pattern(0, (4, 3, 8), (8, 32, 1)), src_axis=1, dst=Pattern.whole((4, 3, 8)), dst_axis=1, tile_size=24),
            "tile_size=24 is no object .* multiples of 8",
        ),
        (dict(input_size=96, src=Pattern(90, (4, 4), (-16, 1)), X=np.float32), "stride -16 of the 4 is negative"),
        (dict(input_size=4096, num_channels=32), "num_channels=32; npu2 has 16 shim channels each way"),
    ],
)  # fmt: skip
def test_what_no_array_takes_is_refused_in_words(fields, message):
    """The number used, the rule, and what would be legal."""
    with pytest.raises(Unresolvable, match=message):
        build(Copy(**fields), NPU2)


def test_a_bound_shortens_both_sides_or_none():
    """What is read and not written would never leave the array."""
    fields = dict(input_size=96, src=Pattern.whole((8, 12)), dst=Pattern.whole((8, 12)), src_axis=0, dst_axis=0)
    op = Copy(**fields, X=np.float32).resolved(NPU2)
    with pytest.raises(Unresolvable, match="src_valid alone is given per call"):
        build(op, NPU2, {"src_valid"})
    with pytest.raises(Unresolvable, match="src_valid is given per call and src_axis is not"):
        build(Copy(input_size=96, X=np.float32), NPU2, {"src_valid", "dst_valid"})


def test_every_case_of_its_own_is_built_or_refused_in_words():
    """As the operator's tests declare them, on both families."""
    built = 0
    for _, case, dev in cases([Copy], ("npu1", "npu2"), extensive=True):
        try:
            build(Copy(**case.fields), dev)
            built += 1
        except Unresolvable as error:
            assert refused(error) and not case.lower, str(error)
    assert built >= 10


def test_without_a_device_it_resolves_to_what_every_device_has():
    """One channel, and for a gather one feed."""
    assert Copy(input_size=4096, X=np.float32).resolved().num_channels == 1
    assert Copy(input_size=4096, gather=True, table_rows=64, rows=40).resolved().num_channels == 1


def test_tunables_to_try_are_legal():
    """A tuner's values build, or are refused by a rule."""
    op = Copy(input_size=4096, X=np.float32).resolved(NPU2)
    found = domains(op, NPU2)
    assert found["num_channels"] == (8, 4, 2, 1) and found["tile_size"] == (4096, 2048, 1024, 512)
    for channels in found["num_channels"]:
        for tile in found["tile_size"]:
            try:
                design = build(Copy(input_size=4096, X=np.float32, num_channels=channels, tile_size=tile), NPU2).design
            except Unresolvable as error:
                assert refused(error) and tile * channels > 4096
                continue
            legal(design, 4)
            assert len(design.array.fifos) == 2 * channels and not design.array.cores


# -- printed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        (dict(input_size=4096, X=np.float32, num_channels=4), ()),
        (dict(input_size=640, src=tuple(Pattern(16 * (k * k % 40), (16,), (1,)) for k in range(20)), num_channels=2), ()),
        (dict(input_size=640, src=Pattern.whole((4, 16)), dst=Pattern.whole((4, 16)), src_axis=0, dst_axis=0), MEMBERS),
        (dict(input_size=40000, src=Pattern(0, (70, 2, 3, 8), (400, 100, 20, 1)), X=np.float32), ("in_offset",)),
        (dict(input_size=800, gather=True, table_rows=50, rows=40, X=np.int8), ("out_offset",)),
    ],
)  # fmt: skip
def test_its_designs_are_printed_in_the_checked_form(fields, bound, dev):
    """Every array and sequence above has its MLIR."""
    design = build(Copy(**fields), dev, bound).design
    check(design)
    require(print_design(design).text)
