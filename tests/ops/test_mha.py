"""`MHA`: which keys a query sees, how heads share them, and where the queries stand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.declare.formats import bfloat16
from iron_core.errors import ParamError
from iron_ops_aie import MHA

F32 = np.float32


def naive(q, k, v, *, causal, window, scale, soft_cap=None, bias=None):
    """Head by head, query by query, key by key; q (H, S, d), k and v (G, L, d), bias (H, S, L)."""
    heads, queries, d = q.shape
    groups, keys, _ = k.shape
    out = np.zeros((heads, queries, d))
    for h in range(heads):
        g = h // (heads // groups)
        for r in range(queries):
            at = keys - queries + r
            seen = [
                j for j in range(keys) if (not causal or j <= at) and (window is None or abs(j - at) <= window)
            ]
            if not seen:
                continue
            scores = [scale * sum(float(a) * float(b) for a, b in zip(q[h, r], k[g, j], strict=True)) for j in seen]
            if bias is not None:
                scores = [s + float(bias[h, r, j]) for s, j in zip(scores, seen, strict=True)]
            if soft_cap is not None:
                scores = [soft_cap * math.tanh(s / soft_cap) for s in scores]
            weights = [math.exp(s - max(scores)) for s in scores]
            for j, w in zip(seen, weights, strict=True):
                out[h, r] += w / sum(weights) * v[g, j].astype(float)
    return out


def operands(rng, heads, groups, queries, keys, d):
    return (
        rng.standard_normal((heads, queries, d)).astype(F32),
        rng.standard_normal((groups, keys, d)).astype(F32),
        rng.standard_normal((groups, keys, d)).astype(F32),
    )


@given(
    seed=st.integers(0, 2**31),
    groups=st.integers(1, 3),
    share=st.integers(1, 3),
    queries=st.integers(1, 6),
    older=st.integers(0, 6),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 8),
    scale=st.none() | st.floats(0, 2),
    soft_cap=st.none() | st.floats(0.1, 50),
    biased=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_attention_is_what_it_says(seed, groups, share, queries, older, causal, window, scale, soft_cap, biased):
    """Masks, shared keys, queries behind older keys, any scale, a bias, scores within a cap: equal to the sums written out."""
    keys, d = queries + older, 8
    op = MHA(
        num_heads=groups * share, num_KV_heads=groups, seq_len=queries, kv_len=keys, d=d,
        causal=causal, window=window, scale=scale, soft_cap=soft_cap, biased=biased, T=F32,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    q, k, v = operands(rng, groups * share, groups, queries, keys, d)
    more = dict(bias=rng.standard_normal((groups * share, queries, keys)).astype(F32)) if biased else {}
    assert op.scale == (1 / math.sqrt(d) if scale is None else scale)
    want = naive(q, k, v, causal=causal, window=window, scale=op.scale, soft_cap=soft_cap, **more)
    assert np.allclose(op.reference(q, k, v, **more), want, rtol=1e-9, atol=1e-9)


def test_a_cap_is_of_scaled_scores_and_not_of_the_mask(rng):
    """A score far above it counts as the cap; what is masked stays unseen, however small the cap."""
    q, k, v = operands(rng, 1, 1, 3, 3, 8)
    fields = dict(num_heads=1, seq_len=3, d=8, T=F32)
    near = MHA(**fields, soft_cap=1e-6).reference(q, k, v)
    assert np.allclose(near[0], [v[0, : n + 1].mean(0) for n in range(3)], atol=1e-5)
    assert np.allclose(MHA(**fields, soft_cap=1e6).reference(q, k, v), MHA(**fields).reference(q, k, v), rtol=1e-6)


def test_relative_keys_are_a_bias(rng):
    """What a query makes of each distance, oldest first, lies one further on in every row: q (k + r of the distance), causal, local."""
    heads, queries, d, reach = 2, 5, 8, 3
    keys = queries + reach
    q, k, v = operands(rng, heads, heads, queries, keys, d)
    by_distance = rng.standard_normal((heads, reach + 1, d)).astype(F32)  # of distances reach to 0
    terms = np.einsum("hqd,hjd->hqj", q, by_distance)
    bias = np.zeros((heads, queries * keys + queries), F32)
    rows = np.lib.stride_tricks.as_strided(bias, terms.shape, (bias.strides[0], (keys + 1) * 4, 4))
    rows[:] = terms
    bias = bias[:, : queries * keys].reshape(heads, queries, keys)
    op = MHA(num_heads=heads, seq_len=queries, kv_len=keys, d=d, window=reach, scale=1.0, biased=True, T=F32)
    out = op.reference(q, k, v, bias)
    for h, r in np.ndindex(heads, queries):
        seen = slice(r, r + reach + 1)
        scores = (k[h, seen] + by_distance[h]) @ q[h, r].astype(float)
        weights = np.exp(scores - scores.max())
        assert np.allclose(out[h, r], weights @ v[h, seen] / weights.sum(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("heads_interleaved", [False, True])
@pytest.mark.parametrize("kv_interleaved", [False, True])
def test_interleaved_layouts_hold_the_same_numbers(heads_interleaved, kv_interleaved, rng):
    """Queries and outputs by position and head, keys and values by position and head, each on its own."""
    fields = dict(num_heads=4, num_KV_heads=2, seq_len=3, kv_len=5, d=8, T=F32)
    q, k, v = operands(rng, 4, 2, 3, 5, 8)
    plain = MHA(**fields).reference(q, k, v)
    op = MHA(**fields, heads_interleaved=heads_interleaved, kv_interleaved=kv_interleaved)
    turned_q = q.swapaxes(0, 1) if heads_interleaved else q
    turned = [a.swapaxes(0, 1) if kv_interleaved else a for a in (k, v)]
    out = op.reference(turned_q, *turned)
    assert out.shape == op.shape("O") == op.shape("Q")
    assert np.allclose(out.swapaxes(0, 1) if heads_interleaved else out, plain, rtol=1e-12)


def test_one_query_over_a_cache_sees_every_key(rng):
    """The last position sees all, so a causal mask leaves it alone."""
    q, k, v = operands(rng, 6, 2, 1, 9, 8)
    fields = dict(num_heads=6, num_KV_heads=2, seq_len=1, kv_len=9, d=8, T=F32)
    assert (MHA(**fields).reference(q, k, v) == MHA(**fields, causal=False).reference(q, k, v)).all()


@pytest.mark.parametrize(("queries", "keys"), [(4, 10), (1, 10), (2, 2), (3, 7), (0, 5)])
def test_under_bounds_the_queries_are_the_last_of_the_keys_that_count(queries, keys, rng):
    """Query r of n stands at kv_valid - n + r, whatever the caches' size: as if nothing else were there."""
    op = MHA(num_heads=2, seq_len=4, kv_len=12, d=8, T=F32)
    q, k, v = operands(rng, 2, 2, 4, 12, 8)
    small = op.bounded(seq_len=queries, kv_len=keys)
    got = small.reference(q[:, :queries], k[:, :keys], v[:, :keys])
    want = naive(q[:, :queries], k[:, :keys], v[:, :keys], causal=True, window=None, scale=op.scale)
    assert got.shape == (2, queries, 8) and np.allclose(got, want, rtol=1e-9, atol=1e-12)
    assert small.magnitude(q[:, :queries], k[:, :keys], v[:, :keys]).shape == got.shape


def test_a_prompt_in_chunks_is_a_prompt_at_once(rng):
    """A chunk's rows, attending to the cache up to themselves, get what they get in one pass."""
    q, k, v = operands(rng, 4, 2, 10, 10, 8)
    whole = MHA(num_heads=4, num_KV_heads=2, seq_len=10, d=8, T=F32).reference(q, k, v)
    chunk = MHA(num_heads=4, num_KV_heads=2, seq_len=4, kv_len=10, d=8, T=F32)
    for start in range(0, 10, 4):
        end = min(start + 4, 10)
        part = chunk.bounded(seq_len=end - start, kv_len=end).reference(q[:, start:end], k[:, :end], v[:, :end])
        assert np.allclose(part, whole[:, start:end], rtol=1e-12)


@pytest.mark.parametrize(("queries", "keys"), [(3, 0), (3, 2)])
def test_a_query_that_sees_no_key_is_zero(queries, keys, rng):
    """Bounds may leave fewer keys than queries; those that stand before the first key have nothing to average."""
    op = MHA(num_heads=1, seq_len=3, kv_len=4, d=8, T=F32).bounded(seq_len=queries, kv_len=keys)
    q, k, v = operands(rng, 1, 1, 3, 4, 8)
    out = op.reference(q[:, :queries], k[:, :keys], v[:, :keys])
    assert not out[:, : queries - keys].any() and np.isfinite(out).all()
    assert np.isfinite(op.magnitude(q[:, :queries], k[:, :keys], v[:, :keys])).all()


def test_large_scores_do_not_overflow():
    """The largest score is taken off first."""
    q = np.full((1, 1, 8), 1e4, F32)
    k = np.stack([np.full(8, 1e4, F32), np.full(8, -1e4, F32)])[None]
    v = np.stack([np.full(8, 1.0, F32), np.full(8, 5.0, F32)])[None]
    assert MHA(num_heads=1, seq_len=1, kv_len=2, d=8, T=F32).reference(q, k, v).tolist() == [[[1.0] * 8]]


def test_caches_have_a_dtype_of_their_own(rng):
    """float16 caches under float32 activations; by default both are alike."""
    op = MHA(num_heads=2, seq_len=1, kv_len=5, d=8, T=F32, C=np.float16)
    assert (op.Q.dtype, op.K.dtype, op.V.dtype, op.O.dtype) == (F32, np.float16, np.float16, F32)
    assert MHA(num_heads=2, seq_len=1, kv_len=5).K.dtype == bfloat16
    q, k, v = operands(rng, 2, 2, 1, 5, 8)
    k, v = k.astype(np.float16), v.astype(np.float16)
    assert np.allclose(op.reference(q, k, v), naive(q, k, v, causal=True, window=None, scale=op.scale), rtol=1e-9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(num_heads=4, num_KV_heads=3), "num_KV_heads=3 does not divide num_heads=4"),
        (dict(num_heads=4, kv_len=7), "seq_len=8 queries are the last of kv_len=7 keys"),
        (dict(num_heads=4, kv_len=7, causal=False, window=3), "there are too few keys"),
        (dict(num_heads=4, window=0), "window=0; legal: None or a positive number of keys"),
        (dict(num_heads=4, scale=-1.0), "scale=-1.0; legal: a finite number that is not negative"),
        (dict(num_heads=4, scale=math.inf), "scale=inf"),
        (dict(num_heads=4, soft_cap=0.0), "soft_cap=0.0; legal: None or a positive number"),
        (dict(num_heads=4, soft_cap=math.nan), "soft_cap=nan"),
        (dict(num_heads=4, exp2="table"), "exp2='table'; legal: accurate, fast"),
        (dict(num_heads=4, state="float16"), "state='float16'; legal: float32, bfloat16"),
        (dict(num_heads=4, C=np.int8), "C=int8; legal: float32"),
        (dict(num_heads=4, d=0), "d=0"),
    ],
)
def test_wrong_attention_is_refused(fields, message):
    """Each rule with the numbers that break it."""
    with pytest.raises(ParamError, match=message):
        MHA(seq_len=8, **fields)


def test_more_queries_than_keys_are_legal_without_a_mask(rng):
    """Attention to another sequence."""
    q, k, v = operands(rng, 1, 1, 5, 2, 8)
    out = MHA(num_heads=1, seq_len=5, kv_len=2, d=8, causal=False, T=F32).reference(q, k, v)
    assert np.allclose(out, naive(q, k, v, causal=False, window=None, scale=1 / math.sqrt(8)), rtol=1e-9)
