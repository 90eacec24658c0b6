"""`Repeat` and `Transpose`: rows repeated, rows made columns."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.infer import infer
from iron_core.errors import ParamError, ShapeError
from iron_ops_aie import ElementwiseAdd, Repeat, Transpose

F32 = np.float32


def test_each_row_is_repeated_in_place(rng):
    """Row r becomes rows r * repeat to (r + 1) * repeat - 1, bit for bit."""
    x = rng.standard_normal((3, 4)).astype(F32)
    y = Repeat(rows=3, cols=4, repeat=2, T=F32).reference(x)
    assert y.tolist() == [x[0].tolist()] * 2 + [x[1].tolist()] * 2 + [x[2].tolist()] * 2


def test_a_bound_on_rows_bounds_the_output_in_proportion(rng):
    """n rows in, n * repeat rows out, and what reads them knows."""

    class Twice(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            y = Repeat(x[:n], repeat=3)
            return ElementwiseAdd(y, y)

    x = rng.standard_normal((4, 5)).astype(F32)
    graph = Twice()
    (out,) = graph.trace(x=(x.shape, F32)).outputs
    assert out.shape == (12, 5) and [(a, repr(e)) for a, e in out.bounds] == [(0, "3*n")]
    for n in (1, 2, 4):
        assert (graph.reference(x, n=n) == np.repeat(x[:n] * 2, 3, 0)).all()


def test_a_bounded_repeat_may_write_into_a_state(rng):
    """The rows past the bound stay as they were."""

    class Into(iron.Graph):
        def __init__(self):
            self.s = iron.state((8, 5), F32)

        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            Repeat(x[:n], self.s, repeat=2)
            return ElementwiseAdd(self.s, self.s)

    x = rng.standard_normal((4, 5)).astype(F32)
    y = Into().reference(x, n=3)
    assert (y[:6] == 2 * np.repeat(x[:3], 2, 0)).all() and not y[6:].any()


def test_a_wrong_repeat_is_refused():
    """Below one, or an output of another height."""
    with pytest.raises(ParamError, match="repeat=0; legal: 1 or more"):
        Repeat(rows=3, cols=4, repeat=0)
    with pytest.raises(ParamError, match="out_rows=7, and the other fields make it 6"):
        Repeat(rows=3, cols=4, repeat=2, out_rows=7)


def test_rows_become_columns(rng):
    """Of one matrix, or of each of several."""
    x = rng.standard_normal((3, 2, 5)).astype(F32)
    assert (Transpose(M=2, N=5, T=F32).reference(x[0]) == x[0].T).all()
    y = Transpose(M=2, N=5, num_batches=3, T=F32).reference(x)
    assert y.shape == (3, 5, 2) and all((y[i] == x[i].T).all() for i in range(3))


def test_transposing_twice_is_nothing(rng):
    """Any dtype: it moves bits."""
    x = rng.integers(-9, 9, (4, 6)).astype(np.int8)
    once = Transpose(M=4, N=6, T=np.int8).reference(x)
    assert (Transpose(M=6, N=4, T=np.int8).reference(once) == x).all()


def test_blocks_do_not_turn():
    """A block format has no columns to make rows of; the message says how to get numbers."""
    with pytest.raises(ShapeError, match="x takes dense numbers; Dequant makes them"):
        infer(Transpose, {"x": ((4, 32), iron.Q4_1)}, {})
