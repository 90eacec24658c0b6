"""Operators on rows: `RMSNorm`, `LayerNorm`, `RoPE`, `Softmax`, `RowwiseAdd`; and on single numbers: `SiLU`, add and multiply."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iron_core.declare.formats import bfloat16
from iron_core.declare.infer import infer
from iron_core.errors import ParamError, ShapeError
from iron_ops_aie import ElementwiseAdd, ElementwiseMul, LayerNorm, RMSNorm, RoPE, RowwiseAdd, SiLU, Softmax

F32 = np.float32


# -- RMSNorm ----------------------------------------------------------------------------------------


def test_rows_are_divided_by_their_root_mean_square(rng):
    """Row by row, epsilon inside the root."""
    x = rng.standard_normal((4, 6)).astype(F32)
    y = RMSNorm(rows=4, cols=6, epsilon=0.5, T=F32).reference(x)
    for r in range(4):
        mean = sum(float(v) ** 2 for v in x[r]) / 6
        assert np.allclose(y[r], x[r] / math.sqrt(mean + 0.5), rtol=1e-6)


def test_a_weighted_row_is_rounded_before_it_is_multiplied():
    """In bfloat16 the normalised row is a row of bfloat16 numbers; the product is exact until it is stored."""
    x = np.array([[1.0, 2.0, 3.0, 5.0]], bfloat16)
    weight = np.array([1.0, 3.0, -0.5, 1.5], F32)
    op = RMSNorm(rows=1, cols=4, weighted=True, W=F32)
    row = np.array([1.0, 2.0, 3.0, 5.0]) / math.sqrt(39 / 4 + 1e-5)
    want = row.astype(F32).astype(bfloat16).astype(np.float64) * weight
    assert op.reference(x, weight)[0].tolist() == want.tolist()
    assert (want != row * weight).any()


def test_a_weight_sets_its_flag_and_keeps_its_dtype():
    """`RMSNorm(x, weight=w)`; the output is of the activations' dtype."""
    op = RMSNorm(rows=1, cols=4)
    shapes = {"x": ((1, 4), op.x.format), "weight": ((4,), RMSNorm(rows=1, cols=4, T=F32).x.format)}
    made = RMSNorm(**infer(RMSNorm, shapes, {}))
    assert made.weighted and made.weight.dtype == F32 and made.y.dtype == bfloat16
    assert op.present == ("x", "y")


def test_a_row_of_zeros_stays_zero():
    """Epsilon keeps it from dividing by zero; without one the row has no norm."""
    zeros = np.zeros((1, 4), F32)
    assert not RMSNorm(rows=1, cols=4, T=F32).reference(zeros).any()
    assert np.isnan(RMSNorm(rows=1, cols=4, epsilon=0.0, T=F32).reference(zeros)).all()


# -- LayerNorm --------------------------------------------------------------------------------------


def test_rows_are_centred_and_divided_by_their_spread(rng):
    """Row by row, epsilon inside the root, then the weight and the bias of each column."""
    x, weight, bias = (rng.standard_normal(shape).astype(F32) for shape in ((4, 6), 6, 6))
    y = LayerNorm(rows=4, cols=6, epsilon=0.5, weighted=True, biased=True, T=F32).reference(x, weight, bias)
    for r in range(4):
        row = [float(v) for v in x[r]]
        mean = sum(row) / 6
        var = sum((v - mean) ** 2 for v in row) / 6
        want = [(v - mean) / math.sqrt(var + 0.5) * float(w) + float(b) for v, w, b in zip(row, weight, bias, strict=True)]
        assert np.allclose(y[r], want, rtol=1e-12)


def test_weight_and_bias_come_alone_or_together(rng):
    """Each sets its own flag, and they share a dtype, which need not be that of x; the output has x's."""
    x, vector = ((1, 4), LayerNorm(rows=1, cols=4).x.format), ((4,), LayerNorm(rows=1, cols=4, T=F32).x.format)
    for given in ({}, {"weight": vector}, {"bias": vector}, {"weight": vector, "bias": vector}):
        made = LayerNorm(**infer(LayerNorm, {"x": x, **given}, {}))
        assert made.present == ("x", *given, "y") and (made.weighted, made.biased) == ("weight" in given, "bias" in given)
        assert made.y.dtype == bfloat16 and (not given or made.W == F32)
    row, shift = rng.standard_normal((1, 4)).astype(F32), np.arange(4, dtype=F32)
    alone = LayerNorm(rows=1, cols=4, biased=True, T=F32).reference(row, None, shift)
    assert (alone == LayerNorm(rows=1, cols=4, T=F32).reference(row) + shift).all()


def test_what_all_numbers_of_a_row_have_in_common_is_lost(rng):
    """However large it is beside how far they spread; a row of equal numbers becomes zeros, with epsilon 0 it has no norm."""
    x = rng.integers(-8, 8, (3, 5)).astype(F32)
    op = LayerNorm(rows=3, cols=5, T=F32)
    assert np.allclose(op.reference(x + F32(2**20)), op.reference(x), rtol=1e-9, atol=1e-9)
    equal = np.full((3, 5), 7.0, F32)
    assert not op.reference(equal).any()
    assert np.isnan(LayerNorm(rows=3, cols=5, epsilon=0.0, T=F32).reference(equal)).all()


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_a_bound_leaves_the_rows_it_keeps_as_they_are(rows, rng):
    """A row's answer does not depend on how many there are."""
    x, weight = rng.standard_normal((4, 7)).astype(F32), rng.standard_normal(7).astype(F32)
    op = LayerNorm(rows=4, cols=7, weighted=True, T=F32)
    assert (op.bounded(rows=rows).reference(x[:rows], weight) == op.reference(x, weight)[:rows]).all()


@pytest.mark.parametrize("op", [RMSNorm, LayerNorm])
@pytest.mark.parametrize("epsilon", [-1e-5, math.nan, math.inf])
def test_an_epsilon_that_is_no_small_number_is_refused(op, epsilon):
    """Zero is legal, for rows known not to be zero, or not to be equal numbers."""
    with pytest.raises(ParamError, match=rf"{op.__name__}: epsilon=.*; legal: a finite number that is not negative"):
        op(rows=1, cols=4, epsilon=epsilon)


# -- RoPE -------------------------------------------------------------------------------------------


def turned(x, angles, method):
    """Each pair as a complex number, times the angle's."""
    y = np.zeros(x.shape)
    rows, cols = x.shape
    per = rows // len(angles)
    for r in range(rows):
        for i in range(cols // 2):
            c, s = (float(v) for v in angles[r // per, 2 * i : 2 * i + 2])
            a, b = (i, i + cols // 2) if method == 0 else (2 * i, 2 * i + 1)
            z = complex(x[r, a], x[r, b]) * complex(c, s)
            y[r, a], y[r, b] = z.real, z.imag
    return y


@pytest.mark.parametrize("method", [0, 1])
@pytest.mark.parametrize("angle_rows", [1, 2, 6])
def test_pairs_turn_by_their_angle(method, angle_rows, rng):
    """Halves or neighbours; an angle row serves consecutive rows."""
    op = RoPE(rows=6, cols=8, angle_rows=angle_rows, method_type=method, T=F32)
    x, angles = rng.standard_normal((6, 8)).astype(F32), rng.standard_normal((angle_rows, 8)).astype(F32)
    assert np.allclose(op.reference(x, angles), turned(x, angles, method), rtol=1e-12, atol=1e-12)


def test_the_two_layouts_are_one_rotation_of_reordered_numbers(rng):
    """Neighbours of a row with its halves interleaved turn as its halves do."""
    x, angles = rng.standard_normal((3, 8)).astype(F32), rng.standard_normal((3, 8)).astype(F32)
    mixed = x.reshape(3, 2, 4).swapaxes(1, 2).reshape(3, 8)
    halves = RoPE(rows=3, cols=8, T=F32).reference(x, angles)
    neighbours = RoPE(rows=3, cols=8, method_type=1, T=F32).reference(mixed, angles)
    assert (neighbours.reshape(3, 4, 2).swapaxes(1, 2).reshape(3, 8) == halves).all()


def test_a_rotation_keeps_lengths(rng):
    """cos and sin of an angle move a pair on its circle."""
    turn = rng.uniform(0, 7, (5, 4))
    angles = np.stack([np.cos(turn), np.sin(turn)], -1).reshape(5, 8)
    x = rng.standard_normal((5, 8))
    y = RoPE(rows=5, cols=8, T=F32).reference(x, angles)
    assert np.allclose(np.linalg.norm(y, axis=1), np.linalg.norm(x, axis=1))


@pytest.mark.parametrize(("rows", "angle_rows"), [(4, 2), (2, 1), (0, 0), (2, 3), (3, 2)])
def test_under_bounds_an_angle_row_serves_as_many_rows(rows, angle_rows, rng):
    """Two heads a position stay two heads; a table that is not cut with the rows is read from its start."""
    op = RoPE(rows=6, cols=8, angle_rows=3, T=F32)
    x, angles = rng.standard_normal((6, 8)).astype(F32), rng.standard_normal((3, 8)).astype(F32)
    small = op.bounded(rows=rows, angle_rows=angle_rows)
    assert (small.reference(x[:rows], angles[:angle_rows]) == op.reference(x, angles)[:rows]).all()


def test_rows_without_an_angle_are_refused(rng):
    """A call whose bounds leave too few angles says so."""
    op = RoPE(rows=6, cols=8, angle_rows=3, T=F32).bounded(rows=6, angle_rows=2)
    with pytest.raises(ShapeError, match="6 rows at a call that has angles for 4; bound both alike"):
        op.reference(np.zeros((6, 8), F32), np.zeros((2, 8), F32))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(rows=6, cols=7), r"cols=7 is odd; numbers turn in pairs\. Nearest legal cols: 6 or 8\."),
        (dict(rows=6, cols=8, angle_rows=4), r"angle_rows=4 does not divide rows=6\. Legal: a divisor of it\."),
        (dict(rows=6, cols=8, angle_rows=0), "angle_rows=0"),
        (dict(rows=6, cols=8, method_type=2), "method_type=2; legal: 0 .halves., 1 .neighbours."),
        (dict(rows=6, cols=8, A=np.int32), "A=int32; legal: float32"),
    ],
)
def test_wrong_rotations_are_refused(fields, message):
    """Each rule with the number that breaks it."""
    with pytest.raises(ParamError, match=message):
        RoPE(**fields)


# -- Softmax ----------------------------------------------------------------------------------------


def test_a_row_becomes_its_shares(rng):
    """Exponentials over their sum, whatever is added to the row."""
    x = rng.uniform(-4, 4, (3, 5)).astype(F32)
    op = Softmax(rows=3, cols=5, T=F32)
    y = op.reference(x)
    for r in range(3):
        weights = [math.exp(float(v)) for v in x[r]]
        assert np.allclose(y[r], np.array(weights) / sum(weights), rtol=1e-12)
    assert np.allclose(op.reference(x + 16.0), y, rtol=1e-5)
    assert op.reference(np.full((3, 5), 1e30, F32)).tolist() == [[0.2] * 5] * 3


@pytest.mark.parametrize("n", [1, 3, 5])
def test_what_does_not_count_is_exactly_zero(n, rng):
    """As a field, or per call through `valid_cols`; what stands there is not looked at."""
    x = rng.standard_normal((3, 5)).astype(F32)
    x[:, n:] = np.nan
    field = Softmax(rows=3, cols=5, vector_size=n, T=F32)
    call = Softmax(rows=3, cols=5, T=F32).bounded(vector_size=n)
    for op in (field, call):
        y = op.reference(x)
        assert not y[:, n:].any()
        assert (y[:, :n] == Softmax(rows=3, cols=n, T=F32).reference(x[:, :n])).all()


def test_bounds_may_leave_nothing(rng):
    """No numbers that count: zeros. No rows: none."""
    x = rng.standard_normal((3, 5)).astype(F32)
    op = Softmax(rows=3, cols=5, T=F32)
    assert op.bounded(vector_size=0).reference(x).tolist() == [[0.0] * 5] * 3
    assert op.bounded(rows=0).reference(x[:0]).shape == (0, 5)


def test_a_masked_number_has_no_share():
    """Minus infinity is a mask."""
    x = np.array([[0.0, -np.inf, 0.0]], F32)
    assert Softmax(rows=1, cols=3, T=F32).reference(x).tolist() == [[0.5, 0.0, 0.5]]


@pytest.mark.parametrize("n", [0, 6, -1])
def test_a_part_of_a_row_is_one_to_all_of_it(n):
    """The message gives the row's length."""
    with pytest.raises(ParamError, match=f"vector_size={n}; legal: 1 to cols=5"):
        Softmax(rows=3, cols=5, vector_size=n)


# -- sums, products, SiLU ---------------------------------------------------------------------------


def test_one_vector_is_added_to_every_row(rng):
    """A projection's bias."""
    x, vector = rng.standard_normal((3, 4)).astype(F32), rng.standard_normal(4).astype(F32)
    assert (RowwiseAdd(rows=3, cols=4, T=F32).reference(x, vector) == x.astype(float) + vector.astype(float)).all()


@pytest.mark.parametrize(("cls", "f"), [(ElementwiseAdd, lambda a, b: a + b), (ElementwiseMul, lambda a, b: a * b)])
def test_numbers_meet_one_by_one(cls, f, rng):
    """Exact until it is stored; operands of any shape, integers too."""
    a, b = rng.standard_normal((2, 3, 4)).astype(F32), rng.standard_normal((2, 3, 4)).astype(F32)
    op = cls(size=24, T=F32)
    assert (op.reference(a, b) == f(a.astype(float), b.astype(float))).all()
    assert cls(size=2, T=np.int32).reference(np.array([2**30, -3]), np.array([2, 5])).tolist() == [f(2**30, 2), f(-3, 5)]
    assert op.bounded(size=0).reference(a.reshape(-1)[:0], b.reshape(-1)[:0]).size == 0


def test_silu_is_x_times_its_sigmoid():
    """From far below zero, where it vanishes, to far above, where it is x."""
    x = np.array([-1e4, -90.0, -1.0, 0.0, 1.0, 20.0, 1e4], F32)
    want = [v / (1 + math.exp(-v)) if v > -700 else 0.0 for v in x.tolist()]
    assert np.allclose(SiLU(size=7, T=F32).reference(x), want, rtol=1e-12, atol=1e-300)


def test_the_contract_grants_what_float32_cannot_hold():
    """Where float32's exp leaves its range, zero is right: for SiLU far below zero, for a share far below the largest."""
    x = np.array([-87.0, -88.8, -200.0], F32)
    silu = SiLU(size=3, T=F32)
    got = silu.reference(x).astype(F32)
    got[1:] = 0
    silu.check(got, silu.reference(x), x)
    x = np.array([[0.0, -87.4, -150.0]], F32)
    softmax = Softmax(rows=1, cols=3, T=F32)
    softmax.check(np.array([[1.0, 0.0, 0.0]], F32), softmax.reference(x), x)
