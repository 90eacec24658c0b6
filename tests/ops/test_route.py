"""`Route`: the k largest logits of each row, ties and NaN in an order that every device keeps, and their shares of a softmax."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.array.build import build
from iron_core.errors import ParamError, Unresolvable
from iron_ops_aie import Route
from iron_ops_aie.experts.routes import powers
from iron_ops_aie.tokens.exp64 import LEAST, exp64
from iron_sim.run import simulate

INF = np.float32(np.inf)


def naive(row, k, renormalise, scale):
    """The rule, expert by expert, with the library's exponential."""
    values = [float(v) for v in row]
    top = max(values) if not any(math.isnan(v) for v in values) else math.nan
    if not math.isfinite(top):
        return list(range(k)), [math.nan] * k
    ids = sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    made = [math.exp(v - top) for v in values]
    total = math.fsum(made[i] for i in ids) if renormalise else math.fsum(made)
    return ids, [made[i] / total * scale for i in ids]


def drawn(rows, experts, seed, dtype=np.float32):
    """Logits of which many are equal, and some NaN, infinite, too small to be normal, or a zero of either sign."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (rows, experts)).astype(np.float32)
    fine = rng.random((rows, 1)) < 0.5
    x = np.where(fine, x * np.float32(0.5), rng.standard_normal((rows, experts)).astype(np.float32) * 5)
    odd = rng.random((rows, experts)) < 0.02
    x = np.where(odd, rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 1e30], np.float32), (rows, experts)), x)
    tiny = np.array([0.0, -0.0, 1e-45, -1e-45, 3e-39, -3e-39, 1.2e-38], np.float32)
    x = np.where(rng.random((rows, 1)) < 0.1, rng.choice(tiny, (rows, experts)), x)
    with np.errstate(over="ignore"):  # 1e30 is infinite in float16
        return x.astype(dtype)


@given(st.integers(1, 130), st.integers(1, 70), st.data(), st.booleans(), st.sampled_from((1.0, 0.5, 2.5)), st.integers(0, 999))
@settings(max_examples=80, deadline=None)
def test_any_logits_follow_the_rule(rows, experts, data, renormalise, scale, seed):
    """The lower id first among equals, from one expert to all of them; and a row without a softmax is NaN, the lowest ids first."""
    k = data.draw(st.sampled_from(sorted({1, experts, (experts + 1) // 2})))
    x = drawn(rows, experts, seed)
    ids, weights = Route(rows=rows, experts=experts, k=k, renormalise=renormalise, scale=scale).reference(x)
    for row, found, shares in zip(x, ids, weights, strict=True):
        want, exact = naive(row, k, renormalise, scale)
        assert found.tolist() == want
        assert np.allclose(shares, exact, rtol=2e-7, atol=1e-300, equal_nan=True)


@given(st.integers(1, 130), st.integers(1, 70) | st.just(512), st.data(), st.booleans(), st.integers(0, 999))
@settings(max_examples=30, deadline=None)
def test_the_cpu_gives_the_same_bits(rows, experts, data, renormalise, seed):
    """Of every row, however many there are, of any floats; weights too small to be normal too."""
    k = data.draw(st.sampled_from(sorted({1, experts, min(4, experts)})))
    scale = data.draw(st.sampled_from((1.0, 2.5, 1e-38)))
    T = data.draw(st.sampled_from((np.float32, np.float32, iron.bfloat16, np.float16)))
    x = drawn(rows, experts, seed, T)
    op = Route(rows=rows, experts=experts, k=k, renormalise=renormalise, scale=scale, T=T)
    for got, want in zip(iron.OperatorImage(op, backend="host")(x), op.reference(x), strict=True):
        assert np.array_equal(got, want, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, iron.bfloat16])
def test_logits_of_any_floats_are_routed(dtype):
    """As the float32 numbers that they are."""
    x = drawn(9, 24, 3, dtype)
    op = Route(rows=9, experts=24, k=5, T=dtype)
    want = Route(rows=9, experts=24, k=5).reference(x.astype(np.float32))
    for backend in ("reference", "host"):
        for got, exact in zip(iron.OperatorImage(op, backend=backend)(x), want, strict=True):
            assert np.array_equal(got, exact, equal_nan=True)


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("renormalise", [False, True])
def test_an_array_gives_the_same_bits(dev, renormalise):
    """Ties, NaN and infinities too; a call that bounds the rows reads no others."""
    op = Route(rows=24, experts=16, k=4, renormalise=renormalise, scale=1.5)
    x = drawn(24, 16, 7)
    for values in ({}, {"valid": 5}, {"valid": 24}):
        n = values.get("valid", 24)
        made, poison, _ = simulate(op, dev, dict(logits=x), values)
        for name, want in zip(("ids", "weights"), op.reference(x), strict=True):
            assert np.array_equal(made[name][:n], want[:n], equal_nan=True) and not poison[name][:n].any()


def test_one_array_serves_every_number_of_rows():
    """What it depends on is how many experts there are, how many are chosen, and how they are weighted."""
    assert build(Route(rows=8, experts=16, k=4), "npu2").design.array is build(Route(rows=64, experts=16, k=4), "npu2").design.array


def test_exponentials_of_many_are_those_of_one():
    """To the bit."""
    x = -np.abs(np.random.default_rng(0).standard_normal(500)) * 10.0 ** np.random.default_rng(1).integers(-8, 4, 500)
    x[:3] = LEAST, np.nextafter(LEAST, -np.inf), -np.inf
    assert powers(x).tolist() == [exp64(v) for v in x] and powers(x)[:3].tolist() == [pytest.approx(math.exp(-700)), 0, 0]


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (dict(k=0), ParamError, "k=0; a dimension of ids is a whole number of at least 1"),
        (dict(k=9), ParamError, "k=9 of experts=8; legal: 1 to 8"),
        (dict(scale=0.0), ParamError, "scale=0.0; legal: a positive float32"),
        (dict(scale=1e60), ParamError, "scale=1e[+]60; legal: a finite float32"),
        (dict(T=np.int32), ParamError, "T=int32; legal: float32, bfloat16, float16"),
        (dict(T=np.float16), Unresolvable, "T=float16; an array takes bfloat16 and float32"),
        (dict(experts=7, T=iron.bfloat16), Unresolvable, "experts=7 of bfloat16 .* Nearest legal: experts=6 or 8"),
        (dict(experts=2048), Unresolvable, "experts=2048; a core takes at most 1024"),
        (dict(experts=128, k=100), Unresolvable, "k=100; a core keeps at most 64"),
        (dict(num_aie_columns=4), Unresolvable, "rows=6 .*num_aie_columns=4"),
        (dict(rows=9, num_aie_columns=9), Unresolvable, "num_aie_columns=9; .* Legal: 8"),
    ],
)
def test_what_cannot_be_routed_is_refused(fields, error, message):
    """With what would be legal."""
    with pytest.raises(error, match=message):
        build(Route(**dict(rows=6, experts=8, k=2) | fields), "npu2")
