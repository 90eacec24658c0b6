"""Attention: near the exact result, and a query's bits depend on nothing but what it sees."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import ATTENTION

from .conftest import DTYPES, aligned

TYPES = [("float", "f16"), ("float", "float"), ("bf16", "bf16")]

#: heads, KV heads, queries, keys, d, causal, window, soft cap (0: none)
CASES = [
    (1, 1, 1, 1, 8, 1, -1),
    (9, 3, 1, 77, 64, 1, -1),
    (9, 3, 35, 130, 64, 1, -1),
    (4, 1, 19, 19, 16, 0, -1),
    (6, 2, 40, 90, 40, 1, 7),
    (5, 5, 33, 70, 36, 0, 12),
    (32, 1, 18, 33, 24, 1, -1),
    (2, 2, 20, 20, 128, 1, 33),
    (8, 2, 3, 300, 64, 1, -1),
    (16, 2, 2, 200, 32, 1, 90),
    (9, 3, 1, 77, 64, 1, -1, 0.7),
    (9, 3, 35, 130, 64, 1, 40, 0.7),
    (16, 2, 2, 200, 32, 1, 90, 30.0),
    (4, 1, 19, 19, 16, 0, -1, 1.5),
]


def scratch(group, d):
    pad = -(-d // 16) * 16
    return 4 * (2 * 32 * pad + max(16 * group, 32) * (3 * pad + 4))


def sizes(heads, kv_heads, queries, keys, d, causal, window, cap=0.0, in_runs=0):
    """Slots of contiguous Q, K, V and O, all heads of a row side by side."""
    lies = dict(q_row=heads * d, q_head=d, kv_row=kv_heads * d, kv_head=d, bias_row=keys, bias_head=queries * keys)
    seen = dict(causal=causal, window=window, in_runs=in_runs, block=16, ahead=1, scale=d**-0.5, soft_cap=cap)
    return dict(heads=heads, kv_heads=kv_heads, queries=queries, keys=keys, d=d, **lies, **seen)


def attend(kernels, types, q, k, v, causal, window, cap=0.0, bias=None, name="attention", threads=1):
    """bias: (heads, queries, keys)."""
    (queries, heads, d), (keys, kv_heads, _) = q.shape, k.shape
    out = np.full_like(q, np.nan)
    given = {} if bias is None else dict(bias=bias.copy())
    slots = ATTENTION(q=q, k=k, v=v, o=out, **given, **sizes(heads, kv_heads, queries, keys, d, causal, window, cap))
    need = scratch(heads // kv_heads, d)
    kernels(f"{name}<{', '.join(types)}>", slots, scratch=need, threads=threads)
    return out


def attend_in_runs(kernels, types, q, k, v, causal, window, cap=0.0, bias=None, threads=1):
    """The last query alone, its runs of keys shared among threads and then joined."""
    (_, heads, d), (keys, kv_heads, _) = q.shape, k.shape
    out = np.full_like(q[-1:], np.nan)
    given = sizes(heads, kv_heads, 1, keys, d, causal, window, cap, 1)
    shared = aligned(4 * (keys // 64 + 2) * heads * (-(-d // 16) * 16 + 2))
    shared.view(np.float32)[:] = np.nan
    need = scratch(heads // kv_heads, d)
    options = dict(scratch=need, shared=shared, threads=threads)
    added = {} if bias is None else dict(bias=bias[:, -1:].copy())
    kernels(f"attention<{', '.join(types)}>", ATTENTION(q=q[-1:].copy(), k=k, v=v, o=out, **added, **given), **options)
    kernels(f"attention_join<{types[0]}>", ATTENTION(o=out, **given), **options)
    return out


def draw(rng, types, case):
    heads, kv_heads, queries, keys, d, causal, window, *cap = case
    q = rng.standard_normal((queries, heads, d)).astype(np.float32).astype(DTYPES[types[0]])
    k, v = (rng.standard_normal((keys, kv_heads, d)).astype(np.float32).astype(DTYPES[types[1]]) for _ in range(2))
    return q, k, v, causal, window, *cap


@pytest.mark.slow
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_near_the_twin(kernels, rng, types):
    """The streaming kernel agrees with the one that keeps every score, for masks, windows, groups and odd sizes."""
    for case in CASES:
        drawn = draw(rng, types, case)
        got, want = (attend(kernels, types, *drawn, name=name).astype(np.float64) for name in ("attention", "attention_naive"))
        ulp = {"float": 0.0, "bf16": 2.0**-7}[types[0]]
        assert (np.abs(got - want) <= 2 * ulp * np.abs(want) + 2e-6 * np.abs(drawn[2].astype(np.float64)).max()).all()


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("sign", [1, -1])
def test_large_scores_do_not_overflow(kernels, types, sign):
    """Keys in any order, the largest score first or last, all far above zero or far below: the values of the largest."""
    for case in ((2, 1, 1, 70, 32, 0, -1), (4, 2, 20, 200, 64, 1, -1)):
        heads, kv_heads, queries, keys, d, causal, window = case
        q = np.full((queries, heads, d), 20, np.float32).astype(DTYPES[types[0]])
        for order in (1, -1):
            steps = sign * np.linspace(20, 40, keys)[::order]
            k = np.repeat(steps[:, None, None], kv_heads, 1).repeat(d, 2).astype(np.float32).astype(DTYPES[types[1]])
            v = np.random.default_rng(0).standard_normal(k.shape).astype(np.float32).astype(DTYPES[types[1]])
            scores = np.einsum("qhd,khd->hqk", q.astype(np.float64), k.astype(np.float64).repeat(heads // kv_heads, 1)) * d**-0.5
            if causal:
                scores[:, np.arange(keys)[None] > np.arange(queries)[:, None] + keys - queries] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            want = np.einsum("hqk,khd->qhd", weights, v.astype(np.float64).repeat(heads // kv_heads, 1))
            got = attend(kernels, types, q, k, v, causal, window).astype(np.float64)
            assert np.isfinite(got).all() and np.abs(got - want).max() < (0.05 if types[0] == "bf16" else 0.01)
            one = attend_in_runs(kernels, types, q, k, v, causal, window).astype(np.float64)
            assert np.isfinite(one).all() and np.abs(one - want[-1:]).max() < (0.05 if types[0] == "bf16" else 0.01)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_any_chunking_gives_the_same_bits(kernels, rng, types):
    """Queries alone, in chunks or together, with any number of threads; later keys in the cache change nothing."""
    for case in CASES:
        q, k, v, causal, window, *cap = draw(rng, types, case)
        queries, keys = len(q), len(k)
        whole = attend(kernels, types, q, k, v, causal, window, *cap)
        for threads in (2, 5, 64):
            assert np.array_equal(attend(kernels, types, q, k, v, causal, window, *cap, threads=threads), whole)
            assert np.array_equal(attend_in_runs(kernels, types, q, k, v, causal, window, *cap, threads=threads), whole[-1:])
        if not causal:
            continue
        for chunk in (1, 3, 16, 17):
            for start in range(0, queries, chunk):
                stop = min(start + chunk, queries)
                seen = keys - queries + stop
                part = attend(kernels, types, q[start:stop].copy(), k[:seen].copy(), v[:seen].copy(), 1, window, *cap, threads=3)
                assert np.array_equal(part, whole[start:stop])


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_a_bias_is_added_to_scaled_scores(kernels, rng, types):
    """Each head, query and key its own, before the cap: near the twin, the same bits in chunks, in runs and by threads."""
    for case in (CASES[2], CASES[4], CASES[7], CASES[12]):
        q, k, v, causal, window, *cap = draw(rng, types, case)
        bias = (3 * rng.standard_normal((q.shape[1], len(q), len(k)))).astype(np.float32).astype(DTYPES[types[0]])
        options = dict(cap=cap[0] if cap else 0.0)
        got = attend(kernels, types, q, k, v, causal, window, bias=bias, **options)
        want = attend(kernels, types, q, k, v, causal, window, bias=bias, name="attention_naive", **options)
        wide, exact = got.astype(np.float64), want.astype(np.float64)
        ulp = {"float": 0.0, "bf16": 2.0**-7}[types[0]]
        assert (np.abs(wide - exact) <= 2 * ulp * np.abs(exact) + 2e-6 * np.abs(v.astype(np.float64)).max()).all()
        assert np.abs(wide - attend(kernels, types, q, k, v, causal, window, **options).astype(np.float64)).max() > 0.1
        for threads in (1, 3):
            assert np.array_equal(attend(kernels, types, q, k, v, causal, window, bias=bias, threads=threads, **options), got)
            one = attend_in_runs(kernels, types, q, k, v, causal, window, bias=bias, threads=threads, **options)
            assert np.array_equal(one, got[-1:])
        for start in range(0, len(q), 17):
            part = slice(start, start + 17)
            seen = len(k) - len(q) + min(start + 17, len(q))
            given = q[part].copy(), k[:seen].copy(), v[:seen].copy(), causal, window
            chunk = attend(kernels, types, *given, bias=bias[:, part, :seen], **options)
            assert np.array_equal(chunk, got[part])


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_the_cut_of_one_query_follows_its_keys_alone(kernels, rng, types):
    """Runs of 64 keys from the first one on: the same bits by any threads and as a row among others, about every border, near the twin."""
    for heads, kv_heads, d, window, cap in ((9, 3, 64, -1, 0.0), (8, 4, 32, 100, 0.0), (7, 1, 80, -1, 1.5), (12, 2, 128, 1000, 0.0)):
        q, k, v, *_ = draw(rng, types, (heads, kv_heads, 2, 4100, d, 1, window))
        for keys in (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097):
            given = q[-1:].copy(), k[:keys].copy(), v[:keys].copy(), 1, window, cap
            one = attend_in_runs(kernels, types, *given)
            for threads in (2, 3, 5):
                assert np.array_equal(attend_in_runs(kernels, types, *given, threads=threads), one)
            assert np.array_equal(attend(kernels, types, *given), one)
            if keys > 1:
                assert np.array_equal(attend(kernels, types, q, *given[1:])[-1:], one)
            if keys < 200:
                exact = attend(kernels, types, *given, name="attention_naive").astype(np.float64)
                ulp = {"float": 0.0, "bf16": 2.0**-7}[types[0]]
                assert (np.abs(one.astype(np.float64) - exact) <= 2 * ulp * np.abs(exact) + 2e-6 * np.abs(v.astype(np.float64)).max()).all()


def test_a_query_that_sees_nothing_is_zero(kernels, rng):
    """More queries than keys under a mask: the first ones have no key."""
    q, k = rng.standard_normal((5, 2, 16)).astype(np.float32), rng.standard_normal((3, 2, 16)).astype(np.float32)
    out = attend(kernels, ("float", "float"), q, k, k, 1, -1)
    assert not out[:2].any() and np.allclose(out[2], k[0], rtol=1e-6)


def test_a_nan_shows(kernels, rng):
    """A key that is no number makes none of the results of those who see it, and of nobody else."""
    q, k = rng.standard_normal((80, 2, 16)).astype(np.float32), rng.standard_normal((80, 2, 16)).astype(np.float32)
    bad = k.copy()
    bad[70, 1, 3] = np.nan
    out, clean = (attend(kernels, ("float", "float"), q, keys, k, 1, -1) for keys in (bad, k))
    assert np.isnan(out[70:, 1]).all() and np.array_equal(out[:70], clean[:70]) and np.array_equal(out[:, 0], clean[:, 0])
