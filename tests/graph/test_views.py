"""Views of handles: what moves no data, what any operator takes, what only Copy takes; each equals numpy's view."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import BoundsError, ShapeError, TraceError
from iron_ops_aie import GEMV, Copy, SiLU

F32 = np.float32


class View(iron.Graph):
    """A copy of a view of the weight `w`."""

    def __init__(self, w, view):
        self.w = iron.weight(w)
        self.view = view

    def body(self):
        return Copy(self.view(self.w))


class Indexed(iron.Graph):
    """A copy of a view of `w` that follows `i`."""

    def __init__(self, w, view):
        self.w = iron.weight(w)
        self.view = view

    def body(self, *, i: iron.Scratchpad[np.int32]):
        return Copy(self.view(self.w, i))


@pytest.fixture
def w():
    return np.arange(4 * 6 * 8, dtype=F32).reshape(4, 6, 8)


VIEWS = {
    "whole": lambda a: a[...],
    "row": lambda a: a[2],
    "last row": lambda a: a[-1],
    "element": lambda a: a[1, 2, 3],
    "slice": lambda a: a[1:3],
    "slice from the end": lambda a: a[-2:],
    "a stop past the end": lambda a: a[2:100],
    "columns": lambda a: a[:, :, 2:5],
    "middle": lambda a: a[:, 3],
    "ellipsis": lambda a: a[..., 1],
    "ellipsis within": lambda a: a[1, ..., 2:4],
    "every second row": lambda a: a[::2],
    "every third column from the second on": lambda a: a[..., 1::3],
    "a step that the end does not divide": lambda a: a[:, 1:6:2],
    "a step past the end": lambda a: a[1:, ::9],
    "steps of steps": lambda a: a[::2][:, ::3, 1::2][1, :, ::2],
    "transpose of a step": lambda a: a[:, ::2].T[::3],
    "rows by an array, of a step": lambda a: a[1::2][np.array([1, 0, -1])],
    "slice of a slice": lambda a: a[1:4][0:2, 1:5][1],
    "reshape": lambda a: a.reshape(24, 8),
    "reshape with -1": lambda a: a.reshape(2, -1, 8),
    "reshape of rows": lambda a: a[1:3].reshape(12, 8)[5],
    "transpose": lambda a: a.transpose(2, 0, 1),
    "T": lambda a: a.T,
    "transpose of a slice": lambda a: a[:, 1:3].transpose(1, 0, 2)[0],
    "rows by an array": lambda a: a[np.array([3, 0, -1, 0])],
    "rows of a reshape by an array": lambda a: a.reshape(24, 8)[np.array([5, 23])],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_is_the_elements_numpy_sees(w, view):
    """Ints, slices, ellipsis, reshape, transpose and gathers fixed when tracing."""
    expected = view(w)
    got = View(w, view).reference()
    assert got.reshape(expected.shape).tolist() == expected.tolist()


INDEXED = {
    "row": lambda a, i: a[i],
    "middle": lambda a, i: a[:, i],
    "last axis": lambda a, i: a[..., i],
    "an expression": lambda a, i: a[:, 2 * i + 1],
    "with an int": lambda a, i: a[2, i],
    "with a slice": lambda a, i: a[1:3, i, 2:5],
    "two axes of one value": lambda a, i: a[i, i + 1],
    "of a reshape": lambda a, i: a.reshape(2, 12, 8)[1, i],
    "of a transpose": lambda a, i: a.transpose(2, 0, 1)[i],
    "slice, then index": lambda a, i: a[1:][i],
    "index, then index": lambda a, i: a[i][i],
    "step, then index": lambda a, i: a[:, 1::2][:, i],
    "index, then step": lambda a, i: a[i, ::2, ::3],
}


@pytest.mark.parametrize("view", INDEXED.values(), ids=INDEXED.keys())
def test_a_per_call_index_moves_the_view(w, view):
    """One trace serves every number."""
    graph = Indexed(w, view)
    for i in (0, 2, 1):
        expected = view(w, i)
        assert graph.reference(i=i).reshape(expected.shape).tolist() == expected.tolist()


def test_a_per_call_index_outside_its_view_is_refused_before_the_call(w):
    """The error names the index, the tensor, its number and what is legal."""
    graph = Indexed(w, lambda a, i: a[:, 2 * i + 1])
    with pytest.raises(BoundsError, match=r"index 2\*i \+ 1 on axis 1 of w \[4, 6, 8\] is 7 \(i=3\); legal: 0 to 5"):
        graph.reference(i=3)
    with pytest.raises(BoundsError, match="is -1"):
        graph.reference(i=-1)


def test_a_contiguous_part_is_what_any_operator_takes(w):
    """It is a region of its tensor; nothing is copied."""

    class Part(iron.Graph):
        def __init__(self):
            self.w = iron.weight(w)

        def body(self, x):
            return GEMV(self.w[2, 1:4], x)

    x = np.ones(8, F32)
    (step,) = Part().trace(x=((8,), F32)).steps
    region = step.operands["A"]
    assert (region.start, region.shape) == (2 * 48 + 8, (3, 8))
    assert Part().reference(x).tolist() == (w[2, 1:4] @ x).tolist()


@pytest.mark.parametrize(
    ("view", "what"),
    [
        (lambda x, i: x[:, 1], "strided"),
        (lambda x, i: x.T, "strided"),
        (lambda x, i: x[::2], "strided"),
        (lambda x, i: x[i], "offset per call"),
        (lambda x, i: x[np.array([1, 0])], "a gather"),
    ],
)
def test_every_other_view_is_for_copy(w, view, what):
    """Another operator says what the view is and that Copy takes it."""

    class Direct(iron.Graph):
        def __init__(self):
            self.w = iron.weight(w[0])

        def body(self, *, i: iron.Scratchpad[np.int32]):
            return SiLU(view(self.w, i))

    with pytest.raises(TraceError, match=f"{what}; Copy it first"):
        Direct().trace()


def test_a_view_across_rows_is_told_of_transpose(w):
    """What no array moves, for one number is no word: rows of the transposed tensor are moved by all."""

    class Across(iron.Graph):
        def __init__(self):
            self.w = iron.weight(w[0])

        def body(self):
            return SiLU(self.w[:, 2])

    with pytest.raises(TraceError, match="strided; Copy it first, or Transpose what it views"):
        Across().trace()


def test_as_strided_is_numpys():
    """Rows that overlap are read, rows that stand askew are written, of a part of a state; and no element is taken that is not there."""

    class Askew(iron.Graph):
        def __init__(self):
            self.kept = iron.state((5, 4), F32)

        def body(self, x):
            Copy(x, self.kept[1:].as_strided((3, 2), (5, 1), 1))
            return Copy(self.kept.reshape(20).as_strided((4, 3), (2, 1)))

    x, kept = np.arange(1, 7, dtype=F32).reshape(3, 2), np.zeros(20, F32)
    np.lib.stride_tricks.as_strided(kept[5:], (3, 2), (20, 4))[...] = x
    assert Askew().reference(x).tolist() == np.lib.stride_tricks.as_strided(kept, (4, 3), (8, 4)).tolist()
    for view, error in (
        (lambda a: a.as_strided((3, 64), (65, 1)), r"as_strided\(0\+3x64:65,1\) of w\[4, 6, 8\] takes elements 0 to 193; legal: 0 to 191"),
        (lambda a: a.as_strided((2,), (-1,)), "takes elements -1 to 0"),
        (lambda a: a.as_strided((2, 0), (1, 1)), "and some"),
        (lambda a: a.T.as_strided((2,), (1,)), "as_strided.. takes all of a tensor of numbers"),
    ):
        with pytest.raises((BoundsError, TraceError), match=error):
            View(np.zeros((4, 6, 8), F32), view).trace()


def test_copy_writes_into_every_second_row_of_a_state():
    """The rows between stay as they were."""

    class Odd(iron.Graph):
        def __init__(self):
            self.kv = iron.state((5, 3), F32)

        def body(self, x):
            Copy(x, self.kv[1::2])
            Copy(self.kv[1::2], self.kv[::2][:2])
            return Copy(self.kv)

    x = np.arange(1, 7, dtype=F32).reshape(2, 3)
    assert Odd().reference(x).tolist() == [*np.repeat(x, 2, 0).tolist(), [0, 0, 0]]


def test_copy_writes_into_a_view_of_a_state():
    """What the view does not cover stays as it was."""

    class Cache(iron.Graph):
        def __init__(self):
            self.kv = iron.state((2, 4, 3), F32)

        def body(self, x, *, pos: iron.Scratchpad[np.int32]):
            Copy(x, self.kv[:, pos])
            return Copy(self.kv)

    graph, expected = Cache(), np.zeros((2, 4, 3), F32)
    for pos in (1, 3, 1):
        x = np.random.default_rng(pos).standard_normal((2, 3)).astype(F32)
        expected[:, pos] = x
        assert graph.reference(x, pos=pos).tolist() == expected.tolist()


def test_copy_rounds_once_to_its_destinations_dtype():
    """A float32 row in a float16 cache."""

    class Narrow(iron.Graph):
        def __init__(self):
            self.kv = iron.state((2, 3), np.float16)

        def body(self, x):
            Copy(x, self.kv[1])
            return Copy(self.kv)

    x = np.array([0.1, 1 / 3, 70000.0], F32)
    with np.errstate(over="ignore"):
        assert Narrow().reference(x)[1].tolist() == x.astype(np.float16).tolist()


@pytest.mark.parametrize(
    ("view", "error", "message"),
    [
        (lambda a, i: a[4], BoundsError, "index 4 on axis 0"),
        (lambda a, i: a[-5], BoundsError, "legal: -4 to 3"),
        (lambda a, i: a[3:3], BoundsError, "is empty"),
        (lambda a, i: a[0, 0, 0, 0], BoundsError, "4 indices"),
        (lambda a, i: a[::-1], TraceError, "step -1; legal: a whole number of 1 or more"),
        (lambda a, i: a[::0], TraceError, "step 0; legal"),
        (lambda a, i: a[::i], TraceError, "step i; legal"),
        (lambda a, i: a[3:2:2], BoundsError, "is empty"),
        (lambda a, i: a[:i:2], TraceError, r"counts what a step leaves: x\[::2\]\[:i\], not x\[:i:2\]"),
        (lambda a, i: a[::2].reshape(96), TraceError, "is a view"),
        (lambda a, i: a[::2][2], BoundsError, r"legal: -2 to 1"),
        (lambda a, i: a[None], TraceError, "NoneType"),
        (lambda a, i: a[1.5], TraceError, "float"),
        (lambda a, i: a[i : i + 2], TraceError, "a per-call start is an index"),
        (lambda a, i: a[1:i], TraceError, "starts at 0"),
        (lambda a, i: a.reshape(5, 5), ShapeError, r"reshape of \[4, 6, 8\] to \[5, 5\]; legal: sizes of 1 or more that multiply to 192"),
        (lambda a, i: a.reshape(5, -1), ShapeError, r"to \[5, -1\]; legal: .* one of which may be -1"),
        (lambda a, i: a.reshape(-1, -1), ShapeError, r"to \[-1, -1\]; legal"),
        (lambda a, i: a.reshape(0, -1), ShapeError, r"to \[0, -1\]; legal"),
        (lambda a, i: a.reshape(-2, -96), ShapeError, r"to \[-2, -96\]; legal"),
        (lambda a, i: a.reshape(i, -1), TraceError, "cannot follow a per-call value"),
        (lambda a, i: a[:, 1].reshape(32), TraceError, "is a view"),
        (lambda a, i: a.transpose(0, 1), ShapeError, "name each axis once"),
        (lambda a, i: a[np.array([4])], BoundsError, "id 4"),
        (lambda a, i: a[np.array([[1]])], TraceError, "one dimension of integers"),
        (lambda a, i: a[np.array([1]), 2], TraceError, "takes whole rows"),
        (lambda a, i: a[i][np.array([1])], TraceError, "takes whole rows"),
        (lambda a, i: a[np.array([1])][0], TraceError, "before it is indexed"),
    ],
)
def test_what_is_no_view_is_refused(w, view, error, message):
    """Each names the key and what is legal."""
    with pytest.raises(error, match=message):
        Indexed(w, view).trace()


def test_one_view_follows_one_value(w):
    """Two values in one view have no common word."""

    class Two(iron.Graph):
        def __init__(self):
            self.w = iron.weight(w)

        def body(self, *, i: iron.Scratchpad[np.int32], j: iron.Scratchpad[np.int32]):
            return Copy(self.w[i, j])

    with pytest.raises(TraceError, match="follow different per-call values"):
        Two().trace()


def test_an_index_and_a_bound_of_one_view_may_follow_two_values(w):
    """A chunk of a table and the rows of it that a call has."""

    class Chunk(iron.Graph):
        def __init__(self):
            self.w = iron.weight(w)

        def body(self, *, chunk: iron.Scratchpad[np.int32], rows: iron.Scratchpad[np.int32]):
            return Copy(self.w.reshape(8, 3, 8)[chunk, :rows])

    graph = Chunk()
    for chunk, rows in ((0, 3), (5, 1), (7, 2)):
        assert graph.reference(chunk=chunk, rows=rows).tolist() == w.reshape(8, 3, 8)[chunk, :rows].tolist()


# -- block formats ----------------------------------------------------------------------------------


@pytest.fixture
def packed():
    return iron.Q4_0.quantize(np.random.default_rng(0).standard_normal((6, 64)).astype(F32))


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[2:5],
        lambda a: a[3],
        lambda a: a[1::2],
        lambda a: a[:, 32:],
        lambda a: a[1:3, :32],
        lambda a: a[np.array([5, 0, 5])],
        lambda a: a.reshape(2, 3, 64)[1],
    ],
)
def test_rows_of_a_block_tensor_move_as_they_are(packed, view):
    """Rows slice, columns only by whole blocks; the bytes are those of the source."""

    class Rows(iron.Graph):
        def __init__(self):
            self.w = packed

        def body(self, x):
            return GEMV(Copy(view(iron.weight(self.w))).reshape(-1, x.shape[0]), x)

    expected = view(packed.dequantize())
    x = np.random.default_rng(1).standard_normal(expected.shape[-1]).astype(F32)
    got = Rows().reference(x)
    assert np.allclose(got, expected.reshape(-1, x.size) @ x, atol=1e-4)


def test_a_per_call_row_of_a_block_tensor(packed):
    """The offset counts logical elements."""

    class Row(iron.Graph):
        def __init__(self):
            self.w = iron.weight(packed)

        def body(self, x, *, i: iron.Scratchpad[np.int32]):
            return GEMV(Copy(self.w[i]).reshape(1, 64), x)

    x = np.ones(64, F32)
    for i in (0, 5):
        assert np.allclose(Row().reference(x, i=i), packed.dequantize()[i] @ x, atol=1e-4)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda a, i: a[:, 16:48], "whole blocks of 32"),
        (lambda a, i: a[:, 3], "whole blocks of 32"),
        (lambda a, i: a[:, ::2], "whole blocks of 32"),
        (lambda a, i: a[:, :i], "whole blocks of 32"),
        (lambda a, i: a.T, "no transpose"),
        (lambda a, i: a.reshape(12, 32), "keeps its blocked axis"),
    ],
)
def test_a_block_is_never_cut(packed, view, message):
    """Columns by whole blocks, no transpose."""
    with pytest.raises(TraceError, match=message):
        Indexed(packed, view).trace()
