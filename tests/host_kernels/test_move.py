"""Copies, gathers, repeats and transposes: exact, and nothing but what was asked for is written."""

from __future__ import annotations

import numpy as np
import pytest

from iron_host.kernels import COPY, GATHER, MERGE, REPEAT, SCATTER, TRANSPOSE

from .conftest import DTYPES, FLOATS

#: loops, x, y: trips, steps of x and of y, outermost first
NESTS = [
    ((), (), ()),
    ((100,), (1,), (1,)),
    ((37,), (3,), (2,)),
    ((5, 16), (40, 1), (16, 1)),
    ((4, 3, 5), (1, 20, 4), (15, 5, 1)),
    ((2, 3, 4, 2), (60, 17, 4, 2), (24, 8, 2, 1)),
    ((2, 2, 3, 2, 9), (150, 70, 20, 10, 1), (108, 54, 18, 9, 1)),
    ((0, 7), (7, 1), (7, 1)),
]


def nest(kernels, template, x, y, trips, from_, to, threads):
    trips, from_, to = (list(n) or [1] for n in (trips, from_, to))
    kernels(template, COPY(x=x, y=y, loops=len(trips), trips=trips, x_steps=from_, y_steps=to), threads=threads)


def expected(x, y, trips, from_, to):
    want = y.copy()
    for at in np.ndindex(*(trips or (1,))):
        source, target = (sum(i * s for i, s in zip(at, steps or (1,), strict=True)) for steps in (from_, to))
        want[target] = x[source]
    return want


@pytest.mark.parametrize("width", ["uint8_t", "uint16_t", "uint32_t"])
@pytest.mark.parametrize("trips, from_, to", NESTS)
def test_copy_walks_both_sides_together(kernels, rng, width, trips, from_, to):
    """Up to five loops; elements between stay as they were; any number of threads."""
    dtype = np.dtype(width.removesuffix("_t"))
    x, before = (rng.integers(0, 256, 500).astype(dtype) for _ in range(2))
    for threads in (1, 3, 16):
        y = before.copy()
        nest(kernels, f"copy<{width}, {width}>", x, y, trips, from_, to, threads)
        assert np.array_equal(y, expected(x, before, trips, from_, to))


@pytest.mark.parametrize("source, target", [(s, t) for s in FLOATS for t in FLOATS if s != t])
def test_copy_rounds_once(kernels, rng, source, target):
    """From one float type to another, strided or not: numpy's rounding."""
    x = rng.standard_normal(500).astype(np.float32).astype(DTYPES[source])
    for trips, from_, to in NESTS:
        before = np.ones(500, DTYPES[target])
        y = before.copy()
        nest(kernels, f"copy<{source}, {target}>", x, y, trips, from_, to, 2)
        assert np.array_equal(y, expected(x.astype(np.float32).astype(DTYPES[target]), before, trips, from_, to))


@pytest.mark.parametrize("types", [("uint8_t", "uint8_t"), ("uint32_t", "uint32_t"), ("float", "f16")], ids="-".join)
def test_gather_counts_negative_ids_from_the_end_and_clips(kernels, rng, types):
    """Rows of any width, into rows that may lie apart."""
    dtypes = [DTYPES[t] if t in DTYPES else np.dtype(t.removesuffix("_t")) for t in types]
    rows, width, step = 12, 19, 23
    table = (rng.standard_normal((rows, width)) * 50 + 100).astype(dtypes[0])
    ids = np.array([0, 11, -1, -12, 5, 12, 1000, -13, -(2**31), 2**31 - 1, 5], np.int32)
    for threads in (1, 4):
        y = np.zeros((len(ids), step), dtypes[1])
        y[:, width:] = 7
        slots = GATHER(x=table, ids=ids, y=y, count=len(ids), cols=width, table_rows=rows, y_step=step)
        kernels(f"gather<{', '.join(types)}>", slots, threads=threads)
        assert np.array_equal(y[:, :width], table[np.clip(ids, -rows, rows - 1)].astype(dtypes[1]))
        assert (y[:, width:] == 7).all()


@pytest.mark.parametrize("types", [("uint8_t", "uint8_t"), ("uint32_t", "uint32_t"), ("float", "f16")])
def test_rows_are_scattered_in_their_order(kernels, rng, types):
    """Of a place named twice the last row stays, by any threads; a row past the bound and every other place is left alone."""
    source, target = (DTYPES[t] if t in DTYPES else np.dtype(t.removesuffix("_t")) for t in types)
    places = np.array([0, 11, -1, -12, 5, 12, 1000, -13, -(2**31), 2**31 - 1, 5, 7], np.int32)
    for width in (19, 200):
        x, before = ((rng.standard_normal((12, width)) * 50 + 100).astype(t) for t in (source, target))
        want = before.copy()
        for row, place in zip(x[:11], np.clip(places, -12, 11), strict=False):
            want[place] = row.astype(target)
        for threads in (1, 4):
            pool = before.copy()
            slots = SCATTER(x=x, places=places, pool=pool, valid=11, width=width, slots=12)
            kernels(f"scatter_rows<{', '.join(types)}>", slots, threads=threads)
            assert np.array_equal(pool, want)


@pytest.mark.parametrize("width", ["uint8_t", "uint16_t", "uint32_t"])
def test_repeat_and_transpose(kernels, rng, width):
    """Every row several times in turn; every matrix of a batch turned over."""
    x = rng.integers(0, 256, (3, 5, 7)).astype(width.removesuffix("_t"))
    for threads in (1, 4):
        y = np.zeros((5 * 2, 7), x.dtype)
        kernels(f"repeat<{width}>", REPEAT(x=x, y=y, valid=5, cols=7, repeat=2), threads=threads)
        assert np.array_equal(y, np.repeat(x[0], 2, 0))
        y = np.zeros((3, 7, 5), x.dtype)
        kernels(f"transpose<{width}>", TRANSPOSE(x=x, y=y, num_batches=3, M=5, N=7), threads=threads)
        assert np.array_equal(y, x.swapaxes(1, 2))


def test_merge_counts_placeholders_up_to_the_bound(kernels, rng):
    """By one thread, however many there are; nothing past the bound is written."""
    ids = rng.choice([5, 7, 1], 90).astype(np.int32)
    for valid in (0, 1, 50, 90):
        for threads in (1, 4):
            y = np.full(90, -3, np.int32)
            slots = MERGE(ids=ids, y=y, valid=valid, audio_token=7, image_token=5, audio_at=90, vision_at=200)
            kernels("merge<int32_t>", slots, threads=threads)
            want = np.arange(90)
            for token, first in ((7, 90), (5, 200)):
                want[ids == token] = first + np.arange((ids == token).sum())
            assert y[:valid].tolist() == want[:valid].tolist() and (y[valid:] == -3).all()
