"""`Copy`: what it reads, what it writes, in which order, and how numbers are rounded on the way."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from iron_core.declare.formats import Q4_0, Q4_1, Q8_0, PackedArray
from iron_core.declare.pattern import Pattern
from iron_core.errors import ParamError, ShapeError
from iron_ops_aie import Copy

F32 = np.dtype(np.float32)


def walk(pattern):
    """The elements of a pattern, one after the other."""
    for index in itertools.product(*(range(n) for n in pattern.sizes)):
        yield pattern.offset + sum(i * s for i, s in zip(index, pattern.strides, strict=True))


def naive(x, y, source, target):
    """Element by element."""
    places = itertools.chain(*(walk(p) for p in target))
    numbers = itertools.chain(*(walk(p) for p in source))
    for to, at in zip(places, numbers, strict=True):
        y[to] = x[at]
    return y


patterns = st.lists(st.tuples(st.integers(1, 4), st.integers(-7, 7)), min_size=1, max_size=4)


@st.composite
def pattern(draw, sizes=None):
    """A pattern that starts where none of its elements is below zero."""
    sizes = sizes or tuple(n for n, _ in draw(patterns))
    strides = tuple(draw(st.integers(-7, 7)) for _ in sizes)
    low = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True) if s < 0)
    return Pattern(draw(st.integers(0, 5)) - low, sizes, strides)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_pattern_is_read_in_the_order_it_walks(data):
    """Strides may be negative or zero, and elements may be read twice."""
    src = data.draw(st.lists(pattern(), min_size=1, max_size=3).map(tuple))
    size = max(p.span[1] for p in src)
    x = np.arange(size, dtype=np.int32)
    op = Copy(input_size=size, src=src, X=np.int32)
    y = np.zeros(op.output_size, np.int32)
    want = naive(x, y.copy(), src, (Pattern.whole((op.output_size,)),))
    assert (op.reference(x, y=y) == want).all()


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_pattern_without_overlap_is_written_in_the_order_it_walks(data):
    """What it does not touch stays as it was."""
    dst = data.draw(pattern())
    touched = list(walk(dst))
    assume(len(set(touched)) == len(touched))
    size = dst.span[1] + 3
    x = np.arange(1, dst.size + 1, dtype=np.int32)
    y = np.full(size, -1, np.int32)
    op = Copy(input_size=dst.size, output_size=size, dst=dst, X=np.int32)
    assert (op.reference(x, y=y.copy()) == naive(x, y, (Pattern.whole((dst.size,)),), (dst,))).all()


def test_a_whole_copy_needs_no_pattern():
    """The output is as large as the input unless a pattern says otherwise."""
    op = Copy(input_size=6, X=np.float32)
    assert op.output_size == 6 and op.y.dtype == np.float32
    assert op.reference(np.arange(6, dtype=F32), y=np.zeros(6, F32)).tolist() == [0, 1, 2, 3, 4, 5]
    assert Copy(input_size=35, src=Pattern(2, (3, 4), (10, 1))).output_size == 12


def test_offsets_move_both_patterns():
    """`in_offset` and `out_offset` count elements from where each pattern starts."""
    op = Copy(input_size=12, output_size=9, src=Pattern(1, (2, 2), (3, 1)), dst=Pattern(0, (4,), (2,)), X=np.int32)
    y = op.reference(np.arange(12, dtype=np.int32), y=np.zeros(9, np.int32), in_offset=5, out_offset=1)
    assert y.tolist() == [0, 6, 0, 7, 0, 9, 0, 10, 0]


def test_an_offset_that_leaves_the_buffer_is_refused():
    """As any pattern that does."""
    op = Copy(input_size=4, X=np.int32)
    with pytest.raises(ShapeError, match="touches elements 1 to 4 of a buffer of 4"):
        op.reference(np.zeros(4, np.int32), y=np.zeros(4, np.int32), in_offset=1)


def test_a_bound_keeps_the_first_of_an_axis():
    """Both sides are bounded; each says on which axis of its pattern."""
    op = Copy(
        input_size=12, output_size=12, src=Pattern(0, (3, 4), (1, 3)), dst=Pattern(0, (3, 4), (4, 1)),
        src_axis=0, dst_axis=0, X=np.int32,
    )  # fmt: skip
    x = np.arange(12, dtype=np.int32).reshape(4, 3)
    y = op.reference(x, y=np.full(12, -1, np.int32), src_valid=2, dst_valid=2).reshape(3, 4)
    assert (y[:2] == x.T[:2]).all() and (y[2] == -1).all()
    assert (op.reference(x, y=np.full(12, -1, np.int32), src_valid=0, dst_valid=0) == -1).all()


def test_a_bound_without_an_axis_or_of_another_size_is_refused():
    """A mover never guesses what to leave out."""
    x, y = np.zeros(12, np.int32), np.zeros(12, np.int32)
    with pytest.raises(ParamError, match="needs the axis it bounds"):
        Copy(input_size=12, X=np.int32).reference(x, y=y, src_valid=3)
    op = Copy(input_size=12, src=Pattern.whole((3, 4)), dst=Pattern.whole((3, 4)), src_axis=0, dst_axis=0, X=np.int32)
    with pytest.raises(ShapeError, match="8 elements read, 12 to write"):
        op.reference(x, y=y, src_valid=2)


def test_copying_within_one_buffer_reads_before_it_writes():
    """Source and destination may overlap."""
    x = np.arange(8, dtype=np.int32)
    op = Copy(input_size=8, output_size=8, src=Pattern(0, (6,), (1,)), dst=Pattern(2, (6,), (1,)), X=np.int32)
    assert op.reference(x, y=x).tolist() == [0, 1, 0, 1, 2, 3, 4, 5]


# -- gathers ----------------------------------------------------------------------------------------


def test_a_gather_reads_rows_by_id():
    """Negative ids count from the end; ids past the table are its nearest row."""
    table = np.arange(20, dtype=F32).reshape(5, 4)
    op = Copy(input_size=20, gather=True, table_rows=5, rows=6, X=np.float32)
    ids = np.array([0, 4, -1, -5, 9, -9], np.int32)
    y = op.reference(table, ids, y=np.zeros(op.output_size, F32)).reshape(6, 4)
    assert (y == table[[0, 4, 4, 0, 4, 0]]).all()


def test_a_bounded_gather_takes_the_first_ids():
    """The ids past the bound are not looked at."""
    table = np.arange(20, dtype=F32).reshape(5, 4)
    op = Copy(input_size=20, gather=True, table_rows=5, rows=3, X=np.float32, dst=Pattern.whole((3, 4)), dst_axis=0)
    y = op.reference(table, np.array([2, 1, 77], np.int32), y=np.full(12, -1, F32), src_valid=2, dst_valid=2)
    assert (y.reshape(3, 4) == [*table[[2, 1]].tolist(), [-1] * 4]).all()


def test_a_gather_known_when_tracing_is_a_tuple_of_patterns():
    """Rows in turn, from anywhere."""
    table = np.arange(20, dtype=F32).reshape(5, 4)
    op = Copy(input_size=20, src=tuple(Pattern(4 * i, (4,), (1,)) for i in (3, 0, 3)), X=np.float32)
    assert (op.reference(table, y=np.zeros(12, F32)).reshape(3, 4) == table[[3, 0, 3]]).all()


# -- numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [ml_dtypes.bfloat16, np.float16])
def test_numbers_are_rounded_once_to_nearest_even(to, rng):
    """float32 to a half format, as ml_dtypes and numpy round; back again it is exact."""
    x = np.concatenate([rng.standard_normal(1000) * 10.0 ** rng.integers(-8, 8, 1000), [0.0, -0.0, np.inf, -np.inf]])
    x = x.astype(F32)
    y = Copy(input_size=x.size, X=np.float32, Y=to).reference(x, y=np.zeros(x.size, to))
    with np.errstate(over="ignore"):
        assert y.tobytes() == x.astype(to).tobytes()
    assert Copy(input_size=x.size, X=to, Y=np.float32).reference(y, y=np.zeros(x.size, F32)).tobytes() == y.astype(F32).tobytes()


def test_halfway_cases_go_to_even():
    """In both half formats."""
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], F32)
    bf16 = Copy(input_size=3, X=np.float32, Y="bfloat16").reference(x, y=np.zeros(3, ml_dtypes.bfloat16))
    assert bf16.astype(F32).tolist() == [1.0, 1 + 2**-6, 1 + 2**-7]
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11], F32)
    f16 = Copy(input_size=2, X=np.float32, Y=np.float16).reference(x, y=np.zeros(2, np.float16))
    assert f16.astype(F32).tolist() == [1.0, 1 + 2**-9]


def test_a_float_becomes_the_nearest_integer():
    """Ties go to even and what is out of range to the nearest end."""
    x = np.array([0.5, 1.5, -2.5, 300.0, -1e9], F32)
    assert Copy(input_size=5, X=np.float32, Y=np.int8).reference(x, y=np.zeros(5, np.int8)).tolist() == [0, 2, -2, 127, -128]


def test_equal_dtypes_move_bits():
    """A NaN's payload arrives as it left."""
    bits = np.array([0x7FC12345, 0xFFA00001], np.uint32)
    y = Copy(input_size=2, X=np.float32).reference(bits.view(F32), y=np.zeros(2, F32))
    assert (y.view(np.uint32) == bits).all()


# -- block formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [Q4_0, Q4_1, Q8_0])
def test_packed_rows_move_as_bytes(format, rng):
    """Rows, blocks of columns and gathered rows keep their bytes."""
    x = format.quantize(rng.standard_normal((5, 96)).astype(F32))

    def empty(rows, columns):
        return PackedArray(np.zeros((rows, format.row_bytes(columns)), np.uint8), (rows, columns), format)

    whole = Copy(input_size=480, X=format)
    assert (whole.reference(x, y=empty(5, 96)).data == x.data).all()
    column = Copy(input_size=480, src=Pattern(32, (5, 32), (96, 1)), X=format)
    block = format.block_bytes
    assert (column.reference(x, y=empty(5, 32)).data == x.data[:, block : 2 * block]).all()
    rows = Copy(input_size=480, gather=True, table_rows=5, rows=2, X=format)
    assert (rows.reference(x, np.array([-1, 0]), y=empty(2, 96)).data == x.data[[4, 0]]).all()
    row = Copy(input_size=480, src=Pattern(0, (96,), (1,)), X=format)
    assert (row.reference(x, y=empty(1, 96), in_offset=3 * 96).data == x.data[3]).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(input_size=96, X=Q4_1, Y=np.float32), "from q4_1 to float32 is not a copy. Dequant makes numbers"),
        (dict(input_size=96, X=Q4_1, Y=Q4_0), "from q4_1 to q4_0 is not a copy"),
        (dict(input_size=96, X=Q4_1, src=Pattern(16, (32,), (1,))), "does not take whole blocks of 32 in order"),
        (dict(input_size=96, X=Q4_1, src=Pattern(0, (32,), (2,))), "does not take whole blocks of 32 in order"),
        (dict(input_size=96, X=Q4_1, src=Pattern(0, (3, 16), (32, 1))), "does not take whole blocks of 32 in order"),
        (dict(input_size=96, src=Pattern(90, (7,), (1,))), "src=90[+]7:1 touches elements 90 to 96 of 96"),
        (dict(input_size=96, src=Pattern(0, (2,), (-1,))), "touches elements -1 to 0 of 96"),
        (dict(input_size=4, output_size=8, dst=Pattern(5, (4,), (1,))), "dst=5[+]4:1 touches elements 5 to 8 of 8"),
        (dict(input_size=4, dst=Pattern(0, (3,), (1,))), "src has 4 elements, dst 3; they move one for one"),
        (dict(input_size=4, output_size=8, dst=Pattern(0, (2, 2), (0, 1))), "writes elements more than once"),
        (dict(input_size=10, gather=True, table_rows=3, rows=2), "table_rows=3 does not divide input_size=10"),
        (dict(input_size=10, gather=True, table_rows=0, rows=2), "table_rows=0 does not divide"),
        (dict(input_size=9, gather=True, table_rows=3, rows=2, src=Pattern.whole((9,))), "src= and ids exclude each other"),
    ],
)  # fmt: skip
def test_a_wrong_copy_is_refused(fields, message):
    """The message shows the pattern and the buffer."""
    with pytest.raises(ParamError, match=message):
        Copy(**fields)
