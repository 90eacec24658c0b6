"""Attention of encoders: near the exact result, and a query's bits depend on nothing but the keys it sees."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import WHOLE

from .conftest import DTYPES, aligned

TYPES = [("float", "f16"), ("float", "float"), ("bf16", "bf16")]
#: heads, KV heads, queries, keys, d, window, soft cap.
CASES = [(1, 1, 2, 1, 8, -1, 0.0), (4, 2, 13, 13, 16, -1, 0.0), (3, 1, 70, 90, 40, 7, 0.0), (2, 2, 33, 33, 80, -1, 1.5)]


def attend(kernels, types, q, k, v, window=-1, cap=0.0, spans=None, threads=1, name="whole_attention"):
    """q (queries, heads, d), k and v (keys, kv_heads, d); spans int32 (queries, 2); name: of the kernel."""
    (queries, heads, d), (keys, kv_heads, _) = q.shape, k.shape
    most, out = -(-keys // 32) * 32, np.full_like(q, np.nan)
    sizes = dict(heads=heads, kv_heads=kv_heads, queries=queries, keys=keys, d=d, keys_most=most, window=window)
    lies = dict(q_row=heads * d, q_head=d, kv_row=kv_heads * d, kv_head=d)
    given = {} if spans is None else dict(spans=np.ascontiguousarray(spans, np.int32))
    slots = WHOLE(q=q, k=k, v=v, o=out, **given, **sizes, **lies, scale=d**-0.5, soft_cap=cap)
    shared = aligned(4 * kv_heads * most * (d + -(-d // 32) * 32))
    shared.view(np.float32)[:] = np.nan
    kernels(f"whole_keys<{', '.join(types)}>", slots, shared=shared, threads=threads)
    kernels(f"{name}<{', '.join(types)}>", slots, shared=shared, scratch=4 * 12 * (d + most + 16), threads=threads)
    return out


def exact(q, k, v, window, cap, spans=None):
    """In float64."""
    (queries, heads, d), (keys, kv_heads, _) = q.shape, k.shape
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, heads // kv_heads, 1) for x in (k, v))
    s = np.einsum("qhd,khd->hqk", q, k) * d**-0.5
    s = cap * np.tanh(s / cap) if cap else s
    at, j = np.arange(queries)[:, None] + keys - queries, np.arange(keys)
    seen = np.abs(at - j) <= (window if window >= 0 else queries + keys)
    if spans is not None:
        seen &= (j >= spans[:, :1]) & (j < spans[:, 1:])
    p = np.where(seen, np.exp(s - np.where(seen, s, -np.inf).max(-1, keepdims=True)), 0)
    return np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v)


def draw(rng, types, heads, kv_heads, queries, keys, d):
    made = (rng.standard_normal((n, h, d)).astype(np.float32) for n, h in ((queries, heads), (keys, kv_heads), (keys, kv_heads)))
    return [x.astype(DTYPES[t]) for x, t in zip(made, (types[0], types[1], types[1]), strict=True)]


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_near_the_exact_result(kernels, rng, types):
    """Whatever window and soft cap; the same bits from any number of threads."""
    for *sizes, window, cap in CASES:
        given = draw(rng, types, *sizes)
        found = attend(kernels, types, *given, window, cap)
        most = {"float": 3e-6, "bf16": 2e-2}[types[0]]
        assert np.abs(found.astype(np.float64) - exact(*given, window, cap)).max() < most
        assert np.array_equal(attend(kernels, types, *given, window, cap, threads=3), found)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_the_bits_of_one_key_after_another(kernels, rng, types):
    """Of each query and head by itself, whatever queries meet keys together; under windows, soft caps and spans."""
    for *sizes, window, cap in [*CASES, (2, 1, 29, 75, 32, 20, 0.0)]:
        given, queries, keys = draw(rng, types, *sizes), sizes[2], sizes[3]
        for spans in (None, np.sort(rng.integers(0, keys + 1, (queries, 2)), 1)):
            fast, naive = (
                attend(kernels, types, *given, window, cap, spans, name=name) for name in ("whole_attention", "whole_attention_naive")
            )
            assert np.array_equal(fast, naive)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_texts_behind_one_another_are_as_each_alone(kernels, rng, types):
    """By the span of keys that each query sees, bit for bit, under a window too."""
    lengths = (5, 1, 40, 33, 16)
    ends = np.cumsum(lengths)
    spans = np.repeat(np.stack([ends - lengths, ends], 1), lengths, 0)
    q, k, v = draw(rng, types, 4, 2, ends[-1], ends[-1], 24)
    for window in (-1, 6):
        together = attend(kernels, types, q, k, v, window, spans=spans)
        for end, length in zip(ends, lengths, strict=True):
            own = [np.ascontiguousarray(x[end - length : end]) for x in (q, k, v)]
            assert np.array_equal(attend(kernels, types, *own, window), together[end - length : end])


def test_a_query_that_sees_nothing_gives_zeros(kernels, rng):
    """Nothing is divided by."""
    q, k, v = draw(rng, ("float", "float"), 2, 2, 3, 3, 8)
    spans = np.array([[0, 3], [2, 2], [9, 99]])
    found = attend(kernels, ("float", "float"), q, k, v, spans=spans)
    assert np.array_equal(found[0], attend(kernels, ("float", "float"), q, k, v)[0]) and not found[1:].any()
