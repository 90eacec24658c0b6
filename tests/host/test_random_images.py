"""Operators of pictures on the host: at any shape and any bounds of a call their references, in every bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.rounding import round_to
from iron_host.backend import HostBackend
from iron_ops_aie import PatchPositions, Resample, ResampleTaps
from iron_ops_aie.images.table import make_table

HOST = HostBackend(strict=True)
sizes = st.integers(1, 150)


def agree(op, inputs, bounds, want):
    """The kernel's outputs are these, in the call's dtype."""
    made = iron.OperatorImage(op, backend=HOST, bounds=tuple(bounds))(*inputs, **bounds)
    for got, exact in zip(made if isinstance(made, tuple) else (made,), want if isinstance(want, tuple) else (want,), strict=True):
        assert got.tobytes() == round_to(exact, got.dtype).tobytes()


@given(sizes, sizes, st.integers(9, 400), st.integers(1, 40), st.data())
@settings(max_examples=200, deadline=None)
def test_tables(inputs, outputs, words, chunks, data):
    """Of any size, bounded to any other; those that do not fit too."""
    slots = data.draw(st.one_of(st.none(), st.integers(1, (words - 4) // 5)))
    op = ResampleTaps(in_size=inputs, out_size=outputs, words=words, slots=slots, chunks=chunks)
    bounds = dict(in_length=data.draw(st.integers(0, inputs)), out_length=data.draw(st.integers(0, outputs)))
    agree(op, (), bounds, op.bounded(in_size=bounds["in_length"], out_size=bounds["out_length"]).reference())


@given(sizes, sizes, st.integers(1, 5), st.integers(1, 5), st.sampled_from([np.float32, np.float16, iron.bfloat16]), st.data())
@settings(max_examples=200, deadline=None)
def test_patches(height, width, down, across, T, data):
    """Of a picture and a result of any size, for any number of cores, bounded to any other."""
    draw = data.draw
    size = dict(height=height, width=width, out_height=16 * down, out_width=16 * across, cores=draw(st.integers(1, 20)), T=T)
    op = Resample(**size)
    op = Resample(**size, patches_out=op.patches_out + draw(st.integers(0, 5)), chunks_w=across + draw(st.integers(0, 3)))
    bounds = dict(rows=draw(st.integers(1, height)), out_rows=16 * draw(st.integers(0, down)))
    bounds["out_columns"] = 16 * draw(st.integers(1, across))
    image = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, (height, op.row_bytes)).astype(np.uint8)
    taps_w = make_table(draw(st.integers(1, width)), bounds["out_columns"], op.words, 16, op.chunks_w)
    taps_h = make_table(bounds["rows"], bounds["out_rows"], op.words, 16, op.chunks_h)
    small = op.bounded(height=bounds["rows"], out_height=bounds["out_rows"], out_width=bounds["out_columns"])
    agree(op, (image, taps_w, taps_h), bounds, small.reference(image[: bounds["rows"]], taps_w, taps_h))


@given(st.integers(1, 5), st.integers(1, 8), st.integers(1, 8), st.integers(1, 20), st.integers(0, 40), st.data())
@settings(max_examples=200, deadline=None)
def test_positions(pool, down, across, cores, more, data):
    """Of any grid, bounded to any other, in more places than it has."""
    rows, columns = down * pool, across * pool
    op = PatchPositions(rows=rows, columns=columns, pool=pool, cores=cores, places=rows * columns + more)
    bounds = dict(valid_rows=data.draw(st.integers(0, rows)), valid_columns=data.draw(st.integers(0, columns)))
    agree(op, (), bounds, op.bounded(rows=bounds["valid_rows"], columns=bounds["valid_columns"]).reference())
