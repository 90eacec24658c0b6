"""Bounds: how many rows a call has, through reshapes and operators, checked before every call."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import BoundsError, CallError, ShapeError, TraceError
from iron_core.graph.traced import PerCallValue
from iron_ops_aie import GEMM, MHA, Copy, ElementwiseAdd, ElementwiseMul, RMSNorm, RoPE, SiLU, Softmax

F32 = np.float32


def bounded(body, values=("n",), **held):
    """A graph whose body takes x, y=None and the values named."""
    lines = ", ".join(f"{v}: iron.Scratchpad[np.int32]" for v in values)
    scope = {"iron": iron, "np": np, "inner": body}
    exec(f"def body(self, x, y=None, *, {lines}): return inner(self, x, y, {', '.join(values)})", scope)
    graph = type("Bounded", (iron.Graph,), {"body": scope["body"]})()
    for name, item in held.items():
        setattr(graph, name, item)
    return graph


def outputs(graph, **shapes):
    """Per output its shape and bounds."""
    return [(r.shape, {a: repr(e) for a, e in r.bounds}) for r in graph.trace(**shapes).outputs]


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((8, 6)).astype(F32)


# -- through views ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "low", "high"), [("int32", -(2**31), 2**31 - 1), ("uint32", 0, 2**32 - 1)])
def test_a_per_call_value_holds_what_its_dtype_does(dtype, low, high):
    """The least and the largest number are taken, and the next ones are refused."""
    value = PerCallValue("n", "scratchpad", dtype)
    assert (value.number(low), value.number(high)) == (low, high)
    for beyond in (low - 1, high + 1):
        with pytest.raises(CallError, match=f"n={beyond} does not fit {dtype}; legal: {low} to {high}"):
            value.number(beyond)


@pytest.mark.parametrize(
    ("view", "shape", "bounds"),
    [
        (lambda h, n: h[:n], (8, 6), {0: "n"}),
        (lambda h, n: h[: n + 1], (8, 6), {0: "n + 1"}),
        (lambda h, n: h[:, :n], (8, 6), {1: "n"}),
        (lambda h, n: h[:n][:n], (8, 6), {0: "n"}),
        (lambda h, n: h[:n][:], (8, 6), {0: "n"}),
        (lambda h, n: h[:n][::2], (4, 6), {0: "(n + 1) // 2"}),
        (lambda h, n: h[: n // 4 + 1][1::2], (4, 6), {0: "(n + 4) // 8"}),
        (lambda h, n: h[::2][:, :n], (4, 6), {1: "n"}),
        (lambda h, n: h[:, 1::2][:, :n], (8, 3), {1: "n"}),
        (lambda h, n: h[:n].reshape(48), (48,), {0: "6*n"}),
        (lambda h, n: h[:n].reshape(16, 3), (16, 3), {0: "2*n"}),
        (lambda h, n: h[:n].reshape(8, 2, 3), (8, 2, 3), {0: "n"}),
        (lambda h, n: h[:n].reshape(1, 8, 6), (1, 8, 6), {1: "n"}),
        (lambda h, n: h[:n].reshape(1, 8, 6).reshape(8, 6), (8, 6), {0: "n"}),
        (lambda h, n: h[: 2 * n].reshape(4, 12), (4, 12), {0: "n"}),
        (lambda h, n: h[: 2 * n].reshape(12, 4), (12, 4), {0: "3*n"}),
        (lambda h, n: h[: n // 2 * 2].reshape(4, 12), (4, 12), {0: "(n) // 2"}),
    ],
)
def test_a_bound_travels_with_the_view(view, shape, bounds):
    """A leading bound is rescaled by a reshape, as long as it stays whole rows."""
    graph = bounded(lambda self, x, y, n: SiLU(view(x, n)) if view(x, n).plain and 1 not in view(x, n).bounds else Copy(view(x, n)))
    assert outputs(graph, x=((8, 6), F32)) == [(shape, bounds)]


@pytest.mark.parametrize(
    "view",
    [
        lambda h, n: h[:n].reshape(4, 12),
        lambda h, n: h[: 2 * n + 1].reshape(4, 12),
        lambda h, n: h[: n // 2].reshape(4, 12),
        lambda h, n: h[:, :n].reshape(48),
    ],
)
def test_a_bound_that_would_end_inside_a_row_does_not_reshape(view):
    """A floor would drop elements without a word."""
    with pytest.raises(TraceError, match="whole rows"):
        bounded(lambda self, x, y, n: SiLU(view(x, n))).trace(x=((8, 6), F32))


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda h, n: h[:n][: n + 1], "bounded by n already"),
        (lambda h, n: h[:n][1:3], "take it whole, index it"),
        (lambda h, n: h[:n][2::2], r"step through it: x\[1::2\]"),
        (lambda h, n: h[:n][-1], r"say n - 1"),
        (lambda h, n: h[:n][np.array([0])], "unbounded table"),
    ],
)
def test_a_bounded_axis_is_taken_whole_or_indexed(view, message):
    """Anything else would need to know the number."""
    with pytest.raises(TraceError, match=message):
        bounded(lambda self, x, y, n: Copy(view(x, n))).trace(x=((8, 6), F32))


def test_a_step_through_a_bounded_axis_takes_those_there_are(x):
    """Every third row of n, from each of the first three on: together they are the n."""
    parts = [bounded(lambda self, x, y, n, i=i: Copy(x[:n][i::3])) for i in range(3)]
    for n in range(9):
        assert [part.reference(x, n=n).tolist() for part in parts] == [x[:n][i::3].tolist() for i in range(3)]


def test_an_index_into_a_bounded_axis_is_one_of_the_rows_a_call_has(x):
    """x[:n][n - 1] is the last row; x[:n][3] needs a fourth."""
    last = bounded(lambda self, x, y, n: Copy(x[:n][n - 1]))
    assert last.reference(x, n=3).tolist() == x[2].tolist()
    with pytest.raises(BoundsError):
        last.reference(x, n=0)
    fourth = bounded(lambda self, x, y, n: Copy(x[:n][3]))
    assert fourth.reference(x, n=4).tolist() == x[3].tolist()
    with pytest.raises(BoundsError, match=r"behind index 3: is -1 \(n=3\)"):
        fourth.reference(x, n=3)
    with pytest.raises(BoundsError, match="index n on axis 0"):
        bounded(lambda self, x, y, n: Copy(x[:n][n])).trace(x=((8, 6), F32))


def test_a_bound_is_checked_before_every_call(x):
    """Above the extent and below zero; the error names value and limit."""
    graph = bounded(lambda self, x, y, n: SiLU(x[:n]))
    with pytest.raises(BoundsError, match=r"bound n on axis 0 of x \[8, 6\] is 9 \(n=9\); legal: 0 to 8"):
        graph.reference(x, n=9)
    with pytest.raises(BoundsError):
        graph.reference(x, n=-1)


# -- through operators ------------------------------------------------------------------------------


def test_each_bounded_axis_meets_an_extent_of_the_operator(x):
    """A GEMM bounds M through A and keeps the bound on C."""
    graph = bounded(lambda self, x, y, n: GEMM(x[:n], self.w, b_col_maj=True), w=np.ones((5, 6), F32))
    assert outputs(graph, x=((8, 6), F32)) == [((8, 5), {0: "n"})]
    for n in (3, 8, 1, 0):
        assert np.allclose(graph.reference(x, n=n), (x @ np.ones((6, 5), F32))[:n])


def test_an_axis_the_operator_cannot_bound_is_refused():
    """The error names the axis, the field and what the operator does bound."""
    with pytest.raises(TraceError, match=r"axis 1 of x .* no bound on cols\. It bounds: rows"):
        bounded(lambda self, x, y, n: RMSNorm(x[:, :n])).trace(x=((8, 6), F32))


def test_two_operands_that_disagree_on_a_bound_are_refused():
    """Both expressions are named."""
    with pytest.raises(ShapeError, match=r"bounded by 6\*n and, through b, by 6\*n \+ 6"):
        bounded(lambda self, x, y, n: ElementwiseAdd(x[:n], y[: n + 1])).trace(x=((8, 6), F32), y=((8, 6), F32))


@pytest.mark.parametrize("first", [True, False])
def test_one_bounded_operand_bounds_a_flat_output(x, first):
    """Whichever of the two it is; the other may be whole."""
    graph = bounded(lambda self, x, y, n: ElementwiseMul(x[:n], y) if first else ElementwiseMul(x, y[:n]))
    assert outputs(graph, x=((8, 6), F32), y=((8, 6), F32)) == [((8, 6), {0: "n"})]
    assert np.allclose(graph.reference(x, x, n=2), (x * x)[:2])


def test_a_bound_in_heads_and_rows_at_once(x):
    """RoPE over n rows of several heads with n rows of angles; attention over them with its own bound on the keys."""
    q = np.random.default_rng(1).standard_normal((4, 2 * 8)).astype(F32)
    angles = np.tile(np.array([1, 0], F32), (4, 4))

    def body(self, x, y, n):
        turned = RoPE(x[:n].reshape(8, 8), y[:n]).reshape(4, 2, 8)
        return MHA(turned, turned, turned, heads_interleaved=True, kv_interleaved=True)

    graph = bounded(body)
    assert outputs(graph, x=((4, 16), F32), y=((4, 8), F32)) == [((4, 2, 8), {0: "n"})]
    whole = graph.reference(q, angles, n=4)
    for n in (1, 3):
        assert np.allclose(graph.reference(q, angles, n=n), whole[:n], atol=1e-6)


def test_rows_past_a_bound_are_never_read(x):
    """Whatever stands there, the result is the same."""
    graph = bounded(lambda self, x, y, n: Softmax(RMSNorm(SiLU(x[:n]))))
    poisoned = x.copy()
    poisoned[5:] = np.nan
    assert graph.reference(poisoned, n=5).tolist() == graph.reference(x, n=5).tolist()


# -- copies -----------------------------------------------------------------------------------------


def test_a_copy_keeps_the_bound_of_what_it_reads(x):
    """On any axis; the output is cut alike."""
    rows = bounded(lambda self, x, y, n: Copy(x[:n]))
    assert rows.reference(x, n=3).tolist() == x[:3].tolist()
    columns = bounded(lambda self, x, y, n: Copy(x[:, :n]))
    assert columns.reference(x, n=3).tolist() == x[:, :3].tolist()
    turned = bounded(lambda self, x, y, n: Copy(x[:n].T))
    assert turned.reference(x, n=3).tolist() == x[:3].T.tolist()
    stepped = bounded(lambda self, x, y, n: Copy(x[1::2][:n]))
    assert stepped.reference(x, n=3).tolist() == x[1::2][:3].tolist()


def test_a_bound_counts_what_a_step_leaves(x):
    """Of every second of 8 rows there are 4; the input is read further than the bound, so it is given whole."""
    stepped = bounded(lambda self, x, y, n: Copy(x[::2][:n]))
    traced = stepped.trace(x=((8, 6), F32))
    assert traced.bounds_of(traced.inputs[0]) == ()
    assert stepped.reference(x, n=4).tolist() == x[::2].tolist()
    with pytest.raises(BoundsError, match="legal: 0 to 4"):
        stepped.reference(x, n=5)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, s, n: Copy(x[:n], s),
        lambda x, s, n: Copy(x, s[:n]),
        lambda x, s, n: Copy(x[:n], s[:n]),
        lambda x, s, n: Copy(x[:n].reshape(8, 2, 3), s.reshape(8, 2, 3)),
        lambda x, s, n: Copy(x[:n], s.reshape(8, 2, 3)),
        lambda x, s, n: Copy(x[:n].reshape(48), s[:n]),
        lambda x, s, n: (Copy(x[:n, ::2], s[:, ::2]), Copy(x[:n, 1::2], s[:, 1::2])),
    ],
)
def test_a_bounded_copy_writes_the_rows_a_call_has(x, write):
    """A bound on one side bounds the other; the rest of the state stays."""

    def body(self, x, y, n):
        write(x, self.s, n)
        return Copy(self.s)

    graph, expected = bounded(body, s=iron.state((8, 6), F32)), np.zeros((8, 6), F32)
    for n in (5, 2):
        expected[:n] = (x + n)[:n]
        assert graph.reference((x + n).astype(F32), n=n).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (lambda x, s, n: Copy(x[:n], s[: n + 1]), ShapeError, "bounded differently"),
        (lambda x, s, n: Copy(x[:, :n], s[:n]), ShapeError, "bounded differently"),
        (lambda x, s, n: Copy(x[:n], s.reshape(4, 12)), TraceError, "bound it alike"),
        (lambda x, s, n: Copy(x[:n, :n], s), TraceError, "bounded on two axes"),
        (lambda x, s, n: Copy(x, s[1:]), ShapeError, "48 elements"),
    ],
)
def test_sides_of_a_copy_that_do_not_match_are_refused(write, error, message):
    """By size or by bound."""
    with pytest.raises(error, match=message):
        bounded(lambda self, x, y, n: write(x, self.s, n), s=iron.state((8, 6), F32)).trace(x=((8, 6), F32))


# -- tensors of a call ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        lambda self, x, y, n: SiLU(x[:n]),
        lambda self, x, y, n: Copy(x[:n]),
        lambda self, x, y, n: ElementwiseAdd(SiLU(x[:n]), x[:n].reshape(48)),
    ],
)
def test_an_input_may_be_given_cut_to_its_bound(x, body):
    """Where every use has that bound."""
    graph = bounded(body)
    traced = graph.trace(x=((8, 6), F32))
    assert [(a, repr(e)) for a, e in traced.bounds_of(traced.inputs[0])] == [(0, "n")]
    graph.compile(backend="reference", x=((8, 6), F32))
    assert graph.reference(x[:3], n=3).tolist() == graph.reference(x, n=3).tolist()


def test_an_input_that_is_also_read_whole_is_given_whole(x):
    """It has no bound to be cut to."""
    graph = bounded(lambda self, x, y, n: (SiLU(x[:n]), SiLU(x)))
    traced = graph.trace(x=((8, 6), F32))
    assert traced.bounds_of(traced.inputs[0]) == ()


def test_a_tensor_cut_elsewhere_is_refused(x):
    """The error gives both legal shapes."""
    from iron_core.graph.reference import run

    traced = bounded(lambda self, x, y, n: SiLU(x[:n])).trace(x=((8, 6), F32))
    with pytest.raises(ShapeError, match=r"input x is \[8, 6\], or \[4, 6\] cut to its bound; got \[3, 6\]"):
        run(traced, {"x": x[:3]}, {"n": 4}, {})
    with pytest.raises(ShapeError, match="input x is float32; got bfloat16"):
        run(traced, {"x": x.astype(iron.bfloat16)}, {"n": 4}, {})
