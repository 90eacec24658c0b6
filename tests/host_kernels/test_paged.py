"""Attention over pages: near its twin, and the same bits by any number of threads, companies and blocks."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import PAGED

from .conftest import DTYPES, aligned

TYPES = [("float", "f16"), ("float", "float"), ("bf16", "bf16")]
#: heads, KV heads, d, window, soft cap
SHAPES = [(9, 3, 64, -1, 0.0), (4, 1, 40, 70, 0.0), (2, 2, 16, -1, 0.7)]
PAGES, PAGE, MOST = 7, 64, 4
#: Whose the rows are, and where: one of many runs alone, a prompt over a page's border beside others, many at one place, past the ends.
ROWS = [
    ([1], [230]),
    ([0, 0, 0, 1, 2, 2], [62, 63, 64, 200, 5, 4]),
    ([0] * 20 + [2], [*range(100, 120), 255]),
    ([0, 1, 2] * 4, [130] * 12),
    ([-1, -9, 9, 0], [-1, -1000, 1000, 0]),
]


def attend(kernels, types, shape, q, k, v, tables, owner, at, name="paged_attention", threads=1, block=16):
    heads, kv_heads, d, window, cap = shape
    out, pad = np.full_like(q, np.nan), -(-d // 16) * 16
    lies = dict(pages=PAGES, page=PAGE, sequences=len(tables), most=MOST, window=window, block=block, ahead=1)
    sizes = dict(rows=len(q), heads=heads, kv_heads=kv_heads, d=d, scale=d**-0.5, soft_cap=cap, **lies)
    slots = PAGED(q=q, k=k, v=v, tables=tables, owner=owner, at=at, o=out, **sizes)
    shared = aligned(4 * 8 * MOST * heads * (pad + 2))
    shared.view(np.float32)[:] = np.nan
    options = dict(scratch=4 * (64 * pad + max(block * heads // kv_heads, heads) * (3 * pad + 4)), shared=shared, threads=threads)
    kernels(f"{name}<{', '.join(types)}>", slots, **options)
    if name == "paged_attention":
        kernels(f"paged_join<{types[0]}>", slots, **options)
    return out


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("shape", SHAPES)
def test_near_the_twin_and_the_same_bits_in_any_company(kernels, rng, types, shape):
    """By any threads and blocks, and each row alone."""
    heads, kv_heads, d, *_ = shape
    k, v = (rng.standard_normal((PAGES, PAGE, kv_heads, d)).astype(np.float32).astype(DTYPES[types[1]]) for _ in range(2))
    tables = np.array([[6, 0, 3, 3], [2, -1, 1, 5], [6, 0, 99, -99]], np.int32)
    for rows in ROWS:
        owner, at = (np.array(x, np.int32) for x in rows)
        q = rng.standard_normal((len(at), heads, d)).astype(np.float32).astype(DTYPES[types[0]])
        got = attend(kernels, types, shape, q, k, v, tables, owner, at)
        wide = attend(kernels, types, shape, q, k, v, tables, owner, at, name="paged_attention_naive").astype(np.float64)
        ulp = {"float": 0.0, "bf16": 2.0**-7}[types[0]]
        assert (np.abs(got.astype(np.float64) - wide) <= 2 * ulp * np.abs(wide) + 2e-5).all()
        for threads, block in ((2, 16), (5, 8), (64, 32)):
            assert np.array_equal(attend(kernels, types, shape, q, k, v, tables, owner, at, threads=threads, block=block), got)
        for r in range(len(at)):
            one = slice(r, r + 1)
            assert np.array_equal(attend(kernels, types, shape, q[one].copy(), k, v, tables, owner[one].copy(), at[one].copy()), got[one])
