"""Norms, softmax, rotations and elementwise kernels: near the exact result; a row's bits are its own."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import BINARY, CLAMP, L2_NORM, LAYER_NORM, LIMBS, LOG_SUM, MAGNITUDE, RMS_NORM, ROPE, ROWWISE, SOFTMAX, UNARY

from .conftest import DTYPES, FLOATS, NORMED

ULP = {"float": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}
SIZES = (1, 7, 8, 9, 63, 64, 65, 200, 1000)


def draw(rng, shape, T, spread=1.0):
    return (rng.standard_normal(shape) * spread).astype(np.float32).astype(DTYPES[T])


def near(got, exact, T, floor=1e-6, units=2):
    got, exact = got.astype(np.float64), np.asarray(exact, np.float64)
    return (np.abs(got - exact) <= units * ULP[T] * np.abs(exact) + floor).all()


@pytest.mark.parametrize("T, W", NORMED)
def test_rms_norm(kernels, rng, T, W):
    """x / sqrt(mean(x^2) + epsilon), times the weight if there is one, rounded once."""
    for rows, cols in ((1, 1), (3, 7), (5, 96), (4, 577)):
        x, w = draw(rng, (rows, cols), T), draw(rng, cols, W)
        wide = x.astype(np.float64)
        exact = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)
        for weight in (None, w):
            want = exact if weight is None else exact * w.astype(np.float64)
            y = np.zeros_like(x)
            kernels(f"rms_norm<{T}, {W}>", RMS_NORM(x=x, weight=weight, y=y, valid=rows, cols=cols, epsilon=1e-5), threads=2)
            assert near(y, want, T, units=0.51 if T != "float" else 4)
            alone = np.zeros_like(x)
            for r in range(rows):
                kernels(f"rms_norm<{T}, {W}>", RMS_NORM(x=x[r], weight=weight, y=alone[r], valid=1, cols=cols, epsilon=1e-5))
            assert np.array_equal(alone, y)


@pytest.mark.parametrize("T", FLOATS)
def test_l2_norm(kernels, rng, T):
    """x / sqrt(sum(x^2) + epsilon), rounded once."""
    for rows, cols in ((1, 1), (3, 7), (5, 128), (4, 577)):
        x = draw(rng, (rows, cols), T)
        wide, y, alone = x.astype(np.float64), np.zeros_like(x), np.zeros_like(x)
        kernels(f"l2_norm<{T}>", L2_NORM(x=x, y=y, valid=rows, cols=cols, epsilon=1e-3), threads=2)
        assert near(y, wide / np.sqrt((wide**2).sum(-1, keepdims=True) + 1e-3), T)
        for r in range(rows):
            kernels(f"l2_norm<{T}>", L2_NORM(x=x[r], y=alone[r], valid=1, cols=cols, epsilon=1e-3))
        assert np.array_equal(alone, y)


@pytest.mark.parametrize("T, W", NORMED)
def test_layer_norm(kernels, rng, T, W):
    """(x - mean) / sqrt(var + epsilon), times the weight and plus the bias if there are such, rounded once."""
    for rows, cols in ((1, 1), (3, 7), (5, 96), (4, 577)):
        x, w, b = draw(rng, (rows, cols), T), draw(rng, cols, W), draw(rng, cols, W)
        wide = x.astype(np.float64)
        exact = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
        for weight, bias in ((None, None), (w, None), (None, b), (w, b)):
            want = exact if weight is None else exact * w.astype(np.float64)
            want = want if bias is None else want + b.astype(np.float64)
            vectors = dict(weight=weight, bias=bias)
            y = np.zeros_like(x)
            kernels(f"layer_norm<{T}, {W}>", LAYER_NORM(x=x, **vectors, y=y, valid=rows, cols=cols, epsilon=1e-5), threads=2)
            assert near(y, want, T)
            alone = np.zeros_like(x)
            for r in range(rows):
                slots = LAYER_NORM(x=x[r], **vectors, y=alone[r], valid=1, cols=cols, epsilon=1e-5)
                kernels(f"layer_norm<{T}, {W}>", slots)
            assert np.array_equal(alone, y)


def test_layer_norm_of_rows_far_from_zero(kernels, rng):
    """A float32 row that lies ten million of its spreads away, or beyond what float32's squares can hold, keeps its digits."""
    near_zero = rng.integers(-8, 8, (2, 200)).astype(np.float32)
    for x in (near_zero + np.float32(2**23 - 8), near_zero * np.float32(1e37)):
        y = np.zeros_like(x)
        slots = LAYER_NORM(x=x, weight=None, bias=None, y=y, valid=2, cols=200, epsilon=1e-5)
        kernels("layer_norm<float, float>", slots)
        wide = x.astype(np.float64)
        exact = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
        assert near(y, exact, "float", 1e-12)


@pytest.mark.parametrize("T", FLOATS)
def test_softmax(kernels, rng, T):
    """exp(x - max) / sum over the valid numbers; zeros after them."""
    for rows, cols, valid in ((1, 1, 1), (3, 20, 20), (4, 65, 40), (2, 300, 300)):
        x, y = draw(rng, (rows, cols), T, 5), np.full((rows, cols), np.nan, DTYPES[T])
        kernels(f"softmax<{T}>", SOFTMAX(x=x, y=y, valid=rows, cols=cols, valid_cols=valid), threads=3)
        wide = x[:, :valid].astype(np.float64)
        exact = np.exp(wide - wide.max(-1, keepdims=True))
        assert near(y[:, :valid], exact / exact.sum(-1, keepdims=True), T, 2e-6 if T == "float" else 1e-7)
        assert not y[:, valid:].any()


@pytest.mark.parametrize("T", FLOATS)
def test_softmax_of_large_numbers(kernels, T):
    """Only their differences count: exponentials of the numbers themselves would be infinite, or all zero."""
    most = 3e38 if T != "f16" else 6e4
    rows = [[1000, 999, 0, -1000], [-1000, -1001, -2000, -5000], [most, most, 0, -most], [-most, -most, -most, -most]]
    x, y = np.array(rows, np.float32).astype(DTYPES[T]), np.full((4, 4), np.nan, DTYPES[T])
    kernels(f"softmax<{T}>", SOFTMAX(x=x, y=y, valid=4, cols=4, valid_cols=4))
    wide = x.astype(np.float64)
    exact = np.exp(wide - wide.max(-1, keepdims=True))
    assert near(y, exact / exact.sum(-1, keepdims=True), T, 2e-6)


@pytest.mark.parametrize("method", [0, 1], ids=["halves", "neighbours"])
@pytest.mark.parametrize("T", FLOATS)
def test_rope(kernels, rng, T, method):
    """Pairs turn by the angles of their position; `per` rows share one row of angles."""
    for rows, cols, per in ((1, 2, 1), (6, 32, 3), (9, 10, 9), (4, 64, 1)):
        x = draw(rng, (rows, cols), T)
        turn = rng.uniform(0, 6.28, (rows // per, cols // 2))
        angles = np.stack([np.cos(turn), np.sin(turn)], -1).reshape(rows // per, cols).astype(np.float32)
        y = np.zeros_like(x)
        slots = ROPE(x=x, angles=angles, y=y, valid=rows, cols=cols, rows_per_angle=per, method_type=method)
        kernels(f"rope<{T}, float>", slots, threads=2)
        wide, table = x.astype(np.float64), np.repeat(angles, per, 0).astype(np.float64)
        c, s = table[:, 0::2], table[:, 1::2]
        a, b = (wide[:, : cols // 2], wide[:, cols // 2 :]) if method == 0 else (wide[:, 0::2], wide[:, 1::2])
        p, q = a * c - b * s, a * s + b * c
        want = np.concatenate([p, q], 1) if method == 0 else np.stack([p, q], -1).reshape(rows, cols)
        assert near(y, want, T)


def test_limbs(kernels, rng):
    """The nearest bfloat16, that of what is left, and that of what is left of it, exactly: planes hi, mid, hi, lo, mid, hi."""
    for rows, cols in ((1, 1), (3, 7), (4, 96)):
        x = (rng.standard_normal((rows, cols)) * 10 ** rng.uniform(-30, 30, (rows, cols))).astype(np.float32)
        y = np.zeros((rows, 6 * cols), DTYPES["bf16"])
        kernels("limbs<float, bf16>", LIMBS(x=x, y=y, valid=rows, cols=cols), threads=2)
        hi = x.astype(y.dtype)
        mid = (x - hi.astype(np.float32)).astype(y.dtype)
        lo = (x - hi.astype(np.float32) - mid.astype(np.float32)).astype(y.dtype)
        assert y.tobytes() == np.concatenate([hi, mid, hi, lo, mid, hi], 1).tobytes()
        assert (hi.astype(float) + mid.astype(float) + lo.astype(float) == x).all()


def test_magnitude(kernels, rng):
    """sqrt(re^2 + im^2) rounded once, also where the squares are no numbers of float32."""
    for rows, half in ((1, 1), (3, 7), (4, 96)):
        x = (rng.standard_normal((rows, 2 * half)) * 10 ** rng.uniform(-37, 37, (rows, 1))).astype(np.float32)
        y = np.zeros((rows, half), np.float32)
        kernels("magnitude<float>", MAGNITUDE(x=x, y=y, valid=rows, cols=2 * half), threads=2)
        assert np.array_equal(y, np.hypot(x[:, :half].astype(float), x[:, half:].astype(float)).astype(np.float32))


@pytest.mark.parametrize("T", FLOATS)
def test_elementwise(kernels, rng, T):
    """a + b, a * b, x / (1 + exp(-x)), row + vector and row * vector, rounded once, the same bits however the run is cut."""
    for size in SIZES:
        a, b = draw(rng, size, T, 3), draw(rng, size, T)
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        for op, exact in (("Add", wide_a + wide_b), ("Mul", wide_a * wide_b)):
            y = np.zeros_like(a)
            kernels(f"binary<op::{op}, {T}>", BINARY(a=a, b=b, y=y, valid=size, number=0), threads=3)
            assert np.array_equal(y, exact.astype(np.float32).astype(DTYPES[T]))
        y = np.zeros_like(a)
        kernels(f"unary<op::SiLU, {T}>", UNARY(x=a, y=y, valid=size, number=0), threads=3)
        assert near(y, wide_a / (1 + np.exp(-wide_a)), T, 1e-7, 4)
        s = np.zeros_like(a)
        kernels(f"unary<op::Sigmoid, {T}>", UNARY(x=a, y=s, valid=size, number=0), threads=3)
        assert near(s, 1 / (1 + np.exp(-wide_a)), T, 1e-7, 4)
        r = np.zeros_like(a)
        kernels(f"unary<op::ReLU, {T}>", UNARY(x=a, y=r, valid=size, number=0), threads=3)
        assert np.array_equal(r, np.where(wide_a < 0, 0, a).astype(DTYPES[T]))
        for i in range(size):
            one = np.zeros(1, DTYPES[T])
            kernels(f"unary<op::SiLU, {T}>", UNARY(x=a[i : i + 1], y=one, valid=1, number=0))
            assert one[0] == y[i]
            kernels(f"unary<op::Sigmoid, {T}>", UNARY(x=a[i : i + 1], y=one, valid=1, number=0))
            assert one[0] == s[i]
        x, y = draw(rng, (3, size), T), np.zeros((3, size), DTYPES[T])
        for op, exact in (("Add", x.astype(np.float64) + wide_b), ("Mul", x.astype(np.float64) * wide_b)):
            kernels(f"rowwise<op::{op}, {T}>", ROWWISE(x=x, vector=b, y=y, valid=3, cols=size), threads=2)
            assert np.array_equal(y, exact.astype(np.float32).astype(DTYPES[T]))


@pytest.mark.parametrize("T", FLOATS)
def test_elementwise_with_numbers(kernels, rng, T):
    """factor a + b, max(a, b), x or alpha x, tanh x, log(1 + exp(x)), x between bounds, log(x + offset): the same bits however cut."""
    for size in SIZES:
        a, b = draw(rng, size, T, 3), draw(rng, size, T)
        x = np.exp(draw(rng, size, "float", 8))
        wide, other = a.astype(np.float64), b.astype(np.float64)
        ran = {
            f"binary<op::AXPY, {T}>": (BINARY, dict(a=a, b=b, number=0.375), 0.375 * wide + other),
            f"binary<op::Max, {T}>": (BINARY, dict(a=a, b=b, number=0), np.maximum(wide, other)),
            f"unary<op::LeakyReLU, {T}>": (UNARY, dict(x=a, number=0.25), np.where(wide > 0, wide, wide / 4)),
            f"unary<op::Tanh, {T}>": (UNARY, dict(x=a, number=0), np.tanh(wide)),
            f"unary<op::Softplus, {T}>": (UNARY, dict(x=a, number=0), np.logaddexp(0, wide)),
            f"clamp<{T}>": (CLAMP, dict(x=a, low=-0.5, high=2), np.clip(wide, -0.5, 2)),
            f"log_sum<{T}>": (LOG_SUM, dict(x=x, offset=0.5), np.log((x + np.float32(0.5)).astype(np.float64))),
        }
        for name, (slots, given, exact) in ran.items():
            y = np.zeros(size, DTYPES[T])
            kernels(name, slots(**given, y=y, valid=size), threads=3)
            assert near(y, exact, T, 1e-6), name
            for i in range(size):
                one = np.zeros(1, DTYPES[T])
                alone = {k: v[i : i + 1] if isinstance(v, np.ndarray) else v for k, v in given.items()}
                kernels(name, slots(**alone, y=one, valid=1))
                assert one.tobytes() == y[i : i + 1].tobytes(), name


@pytest.mark.parametrize("T", FLOATS)
def test_operations_with_a_number(kernels, rng, T):
    """factor x, rounded once, and cap tanh(x / cap); the tanh form of GELU; the same bits however the run is cut."""
    for size in SIZES:
        x = draw(rng, size, T, 3)
        wide, y = x.astype(np.float64), np.zeros_like(x)
        kernels(f"unary<op::Scale, {T}>", UNARY(x=x, y=y, valid=size, number=25.25), threads=3)
        assert np.array_equal(y, (wide * 25.25).astype(np.float32).astype(DTYPES[T]))
        kernels(f"unary<op::GELU, {T}>", UNARY(x=x, y=y, valid=size, number=0), threads=3)
        assert near(y, wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3))), T, 3e-7, 4)
        for cap in (0.5, 30.0):
            kernels(f"unary<op::SoftCap, {T}>", UNARY(x=x, y=y, valid=size, number=cap), threads=3)
            assert near(y, cap * np.tanh(wide / cap), T, 1e-12, 6)
            for i in range(size):
                one = np.zeros(1, DTYPES[T])
                kernels(f"unary<op::SoftCap, {T}>", UNARY(x=x[i : i + 1], y=one, valid=1, number=cap))
                assert one[0] == y[i]
