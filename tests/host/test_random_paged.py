"""Attention over pages on the host: every row is MHA's for the keys that it sees laid out in a row; rows go to their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core import bfloat16, round_to
from iron_core.errors import ParamError
from iron_host.backend import HostBackend
from iron_ops_aie import MHA, PagedMHA, ScatterRows

HOST = HostBackend(threads=2, strict=True)
STORED = ((np.float32, np.float32), (np.float32, np.float16), (np.float32, bfloat16), (bfloat16, bfloat16))


def alone(op: PagedMHA, q: Any, k: Any, v: Any, tables: Any, owner: Any, at: Any) -> np.ndarray:
    """Each row by MHA, its sequence's pages one behind another."""
    fields = dict(num_heads=op.num_heads, num_KV_heads=op.num_KV_heads, d=op.d, window=op.window, soft_cap=op.soft_cap, T=op.T, C=op.C)
    single = MHA(seq_len=1, kv_len=op.longest, heads_interleaved=True, kv_interleaved=True, **fields)
    image = iron.OperatorImage(single, backend=HOST, bounds=("kv_valid",))
    rows = []
    for r, (whose, last) in enumerate(zip(owner, at, strict=True)):
        table = np.clip(tables[np.clip(whose, -op.sequences, op.sequences - 1)], -op.pages, op.pages - 1)
        seen = np.clip(last, -op.longest, op.longest - 1) % op.longest + 1
        keys, values = (np.ascontiguousarray(x[table].reshape(op.longest, op.num_KV_heads, op.d)) for x in (k, v))
        rows.append(np.array(image(q[r : r + 1].copy(), keys, values, kv_valid=int(seen)))[0])
    return np.stack(rows)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_row_of_any_company_is_mhas_bit_for_bit(data):
    """Of 1 to 40 rows: pages in any order and shared, prompts over their borders, indices from the end and past it, a bounded call."""
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 9999)))
    (T, C), (heads, kv) = draw(st.sampled_from(STORED)), draw(st.sampled_from(((1, 1), (9, 3), (4, 1), (6, 2))))
    rows, sequences, most = draw(st.integers(1, 40)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    op = PagedMHA(
        rows=rows, num_heads=heads, num_KV_heads=kv, d=draw(st.sampled_from((16, 40, 64))), pages=5,
        page=draw(st.sampled_from((64, 128))), sequences=sequences, most=most, T=T, C=C,
        window=draw(st.sampled_from((None, 1, 63, 100))), soft_cap=draw(st.sampled_from((None, 0.7))),
    )  # fmt: skip
    q = round_to(rng.standard_normal((rows, heads, op.d)), T)
    k, v = (round_to(rng.standard_normal((5, op.page, kv, op.d)), C) for _ in range(2))
    tables = rng.integers(-6, 7, (sequences, most)).astype(np.int32)
    owner = rng.integers(-sequences - 1, sequences + 1, rows).astype(np.int32)
    at = rng.integers(-op.longest - 1, op.longest + 2, rows).astype(np.int32)
    if draw(st.booleans()):
        owner = np.sort(rng.integers(0, sequences, rows)).astype(np.int32)
        at = ((rng.integers(op.longest) + np.arange(rows)) % op.longest).astype(np.int32)
    valid = draw(st.integers(1, rows))
    got = np.array(iron.OperatorImage(op, backend=HOST, bounds=("valid",))(q, k, v, tables, owner, at, valid=valid))
    want = alone(op, q, k, v, tables, owner, at)
    assert got[:valid].tobytes() == want[:valid].tobytes()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 200), st.integers(1, 30), st.data())
def test_rows_go_to_their_places(rows, width, slots, data):
    """As numpy puts them one by one, from the end and clipped; of a place named twice the last; no other row is touched."""
    rng = np.random.default_rng(rows)
    T, C = data.draw(st.sampled_from((*STORED, (np.int32, np.int32))))
    x, pool = round_to(rng.uniform(-99, 99, (rows, width)), T), round_to(rng.uniform(-99, 99, (slots, width)), C)
    places = rng.integers(-slots - 2, slots + 3, rows).astype(np.int32)
    valid, want = data.draw(st.integers(0, rows)), pool.copy()
    for r in range(valid):
        want[np.clip(places[r], -slots, slots - 1)] = round_to(x[r], C)
    op = ScatterRows(rows=rows, width=width, slots=slots, T=T, C=C)
    got = np.array(iron.OperatorImage(op, backend=HOST, bounds=("valid",))(x, pool, places, valid=valid))
    assert got.tobytes() == want.tobytes()


def test_a_page_is_whole_runs():
    """And integers do not become floats on their way to a place."""
    for page in (32, 100):
        with pytest.raises(ParamError, match=f"PagedMHA: page={page}; legal: a multiple of 64 tokens"):
            PagedMHA(rows=1, num_heads=1, pages=1, page=page)
    with pytest.raises(ParamError, match="ScatterRows: T=int32, C=float32; legal: one dtype"):
        ScatterRows(rows=1, width=1, slots=1, T=np.int32, C=np.float32)
