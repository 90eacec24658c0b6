"""GGUF's other blocks, multiplied as they are stored: the fast kernels are the twin's bits, and both the numbers that the formats give."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.declare.formats import PackedArray
from iron_host.kernels import BLOCK_PRODUCT, COMBINED, DEQUANTIZE, PACK_BLOCKS, PICKED, PRODUCT
from iron_host.lowerings.products import block_scratch
from iron_host.view import view_of
from tests.superblocks import drawn

from .conftest import SUPER
from .test_blocks import model_rounding, round_activations

#: Rows, outputs, and blocks of a row.
SHAPES = [(1, 1, 1), (1, 37, 3), (2, 5, 2), (3, 19, 1), (4, 16, 2), (5, 33, 3), (8, 20, 1), (9, 18, 2), (23, 41, 1)]


def tiles_of(kernels, w, matrices=1, threads=1):
    rows = w.shape[0] // matrices
    tiles = np.full((matrices, -(-rows // 16) * 16, view_of(w.format).row_bytes(w.shape[1])), 255, np.uint8)
    slots = PACK_BLOCKS(w=w.data, tiles=tiles, N=rows, K=w.shape[1], matrices=matrices)
    kernels(f"pack_blocks<{w.format.name.upper()}>", slots, threads=threads)
    return tiles


def product(kernels, w, x, kernel="block_matmul", threads=1, tiles=None, strides=None, x_rows=0):
    (M, K), N = x.shape, w.shape[0]
    row, column = strides or (N, 1)
    c = np.full((M, N) if strides is None else (N, M), np.nan, np.float32)
    given, lies = w.data if tiles is None else tiles, dict(in_tiles=int(tiles is not None), c_row=row, c_column=column, c_batch=0)
    slots = BLOCK_PRODUCT(w=given, c=c, M=M, N=N, K=K, **lies, batches=1, repeat=1, ahead=0, x_rows=x_rows)
    scratch = block_scratch(view_of(w.format), K, M)
    kernels(f"{kernel}<{w.format.name.upper()}, float>", slots, shared=round_activations(kernels, x), threads=threads, scratch=scratch)
    return c


def shapes(format):
    return [(M, N, format.block[1] * blocks) for M, N, blocks in SHAPES]


@pytest.mark.parametrize("name", SUPER)
def test_the_fast_paths_equal_the_twin(kernels, rng, name):
    """In tiles and as stored, by any number of threads, rows alone and among others, into either layout: the same bits."""
    for M, N, K in shapes(SUPER[name]):
        w, x = drawn(rng, SUPER[name], (N, K)), rng.standard_normal((M, K)).astype(np.float32)
        naive, tiles = product(kernels, w, x, kernel="block_matmul_naive"), tiles_of(kernels, w, threads=2)
        assert np.isfinite(naive).all()
        for threads, given in ((1, None), (3, None), (1, tiles), (3, tiles)):
            assert np.array_equal(product(kernels, w, x, threads=threads, tiles=given), naive)
        for rows in (1, 2, 3, 4, 7):
            for m in range(0, M, rows):
                assert np.array_equal(product(kernels, w, x[m : m + rows].copy(), tiles=tiles), naive[m : m + rows])
        assert np.array_equal(product(kernels, w, x, tiles=tiles, strides=(1, M)).T, naive)


@pytest.mark.parametrize("name", SUPER)
def test_two_hundred_shapes_equal_the_twin(kernels, name):
    """Random rows, outputs, depths and threads; blocks of any bits, whose scales may be zero, tiny or huge."""
    rng, format = np.random.default_rng(7), SUPER[name]
    for _ in range(200):
        M, N, K = rng.integers(1, 12), rng.integers(1, 40), format.block[1] * rng.integers(1, 3)
        w = drawn(rng, format, (N, K), spread=float(rng.choice([1e-4, 1, 100])))
        x = (rng.standard_normal((M, K)) * rng.choice([0, 1e-20, 1, 1e4], (M, 1))).astype(np.float32)
        naive = product(kernels, w, x, kernel="block_matmul_naive")
        tiles = tiles_of(kernels, w) if rng.random() < 0.7 else None
        assert np.array_equal(product(kernels, w, x, threads=int(rng.integers(1, 4)), tiles=tiles), naive)


@pytest.mark.parametrize("name", SUPER)
def test_many_rows_equal_the_twin(kernels, rng, name):
    """So many that tiles are taken apart beforehand, an odd number of them, at once or some rows after the others: the same bits."""
    format = SUPER[name]
    w, x = drawn(rng, format, (37, 2 * format.block[1])), rng.standard_normal((135, 2 * format.block[1])).astype(np.float32)
    naive, tiles = product(kernels, w, x, kernel="block_matmul_naive"), tiles_of(kernels, w)
    for threads, given, x_rows in ((1, tiles, 0), (2, tiles, 50), (3, None, 0)):
        assert np.array_equal(product(kernels, w, x, threads=threads, tiles=given, x_rows=x_rows), naive)
    assert np.array_equal(product(kernels, w, x, tiles=tiles, strides=(1, len(x))).T, naive)


@pytest.mark.parametrize("name", SUPER)
def test_extremes_do_not_overflow(kernels, rng, name):
    """All codes 0, all bits set, activations at both ends: the twin's bits, where sums of 16 bits would wrap."""
    format = SUPER[name]
    K = 2 * max(256, format.block[1])
    for value in (0, 255, 0x55, 0xAA):
        w = drawn(rng, format, (17, K), byte=value)
        x = np.repeat(rng.choice([-1.0, 1.0], (5, K // 16)), 16, -1).astype(np.float32)
        x[0], x[1] = 1, -1
        naive = product(kernels, w, x, kernel="block_matmul_naive")
        for given in (None, tiles_of(kernels, w)):
            assert np.array_equal(product(kernels, w, x, tiles=given), naive)


@pytest.mark.parametrize("name", SUPER)
def test_products_are_near_the_integer_model(kernels, rng, name):
    """Scales, minima and exact integers combined in float64 agree within a float32 accumulation over the groups."""
    format = SUPER[name]
    for M, N, K in shapes(format):
        w, x = drawn(rng, format, (N, K)), rng.standard_normal((M, K)).astype(np.float32)
        q, d = model_rounding(x)
        ints, scales, minima = format.fields(w.data, w.shape)
        group = format.group
        values = ints.reshape(N, -1, group) * scales.astype(np.float64)[..., None]
        size = np.abs(values)
        if minima is not None:
            values, size = values + minima.astype(np.float64)[..., None], size + np.abs(minima.astype(np.float64))[..., None]
        acts = (q.astype(np.float64) * d[..., None]).reshape(M, K)
        exact, bound = acts @ values.reshape(N, K).T, np.abs(acts) @ size.reshape(N, K).T
        for kernel in ("block_matmul", "block_matmul_naive"):
            got = product(kernels, w, x, kernel=kernel)
            assert (np.abs(got - exact) <= 2.0**-22 * np.abs(exact) + (K / group + 8) * 2.0**-24 * bound).all()


@pytest.mark.parametrize("name", SUPER)
def test_numbers_are_the_formats_own(kernels, rng, name):
    """`dequantize` is the format's, which is the `gguf` package's, bit for bit; exact activations multiply those."""
    rows, K = 7, 2 * SUPER[name].block[1]
    w, y = drawn(rng, SUPER[name], (rows, K)), np.zeros((rows, K), np.float32)
    kernels(f"dequantize<{name}, float>", DEQUANTIZE(x=w.data, y=y, valid=rows, cols=K), threads=2)
    want = w.dequantize()
    assert np.array_equal(y.view(np.uint32), want.view(np.uint32))
    x, c = rng.standard_normal((3, K)).astype(np.float32), np.full((3, rows), np.nan, np.float32)
    lies = dict(x_row=K, w_row=0, by_rows=1, c_row=rows, c_column=1, batches=1, x_batch=0, w_batch=0, c_batch=0, repeat=1)
    kernels(f"block_exact<{name}, float, float>", PRODUCT(x=x, w=w.data, c=c, M=3, N=rows, K=K, **lies), scratch=4 * K, threads=2)
    wide = x.astype(np.float64), want.astype(np.float64)
    assert (np.abs(c - wide[0] @ wide[1].T) <= K * 2.0**-23 * (np.abs(wide[0]) @ np.abs(wide[1]).T)).all()


@pytest.mark.parametrize("name", [name for name, format in SUPER.items() if format.scale_offsets])
def test_a_scale_that_is_not_finite_shows(kernels, rng, name):
    """In its own row's product, on every path, and in no other row's."""
    format = SUPER[name]
    w, x = drawn(rng, format, (20, 2 * format.block[1])), rng.standard_normal((3, 2 * format.block[1])).astype(np.float32)
    clean = product(kernels, w, x)
    for bad in (np.nan, np.inf):
        broken = w.copy()
        at = format.scale_offsets[0][0]
        broken.data[4, at : at + 2] = np.array([bad], np.float16).view(np.uint8)
        for kernel, tiles in (("block_matmul_naive", None), ("block_matmul", None), ("block_matmul", tiles_of(kernels, broken))):
            got = product(kernels, broken, x, kernel=kernel, tiles=tiles)
            assert not np.isfinite(got[:, 4]).any() and np.array_equal(np.delete(got, 4, 1), np.delete(clean, 4, 1))


@pytest.mark.parametrize("name", SUPER)
def test_tiles_take_little_more_than_is_stored(name):
    """Scales of 6 bits have a byte; nothing else is wider."""
    format = SUPER[name]
    K = 2048
    assert view_of(format).row_bytes(K) <= 1.04 * format.row_bytes(K)


def test_a_tile_lies_in_the_order_in_which_it_is_read(kernels):
    """The bits that are needed first lie first: scales, minima, the fifth bits of 32 columns, then two codes a byte."""
    w = PackedArray(np.zeros((16, 24), np.uint8), (16, 32), SUPER["Q5_1"])
    w.data[3, 4] = 1  # the fifth bit of column 0
    w.data[3, 8] = 0x71  # the other four of columns 0 and 16
    tile = tiles_of(kernels, w).reshape(-1)
    heads, lane = 16 * 4, 3 * 4
    assert {int(at): int(tile[at]) for at in np.flatnonzero(tile)} == {heads + lane: 1, heads + 64 + lane: 0x71}


@pytest.mark.parametrize("name", SUPER)
def test_experts_equal_the_twins(kernels, rng, name):
    """Matrices that ids pick, gated and combined: bit for bit, in tiles and as stored, by any number of threads."""
    format, experts, k = SUPER[name], 3, 2
    K = format.block[1]
    for rows, N in ((1, 17), (5, 16), (12, 33)):
        gate, up, down = (drawn(rng, format, (experts * N, K)) for _ in range(3))
        three = {one: PackedArray(w.data, (experts, N, K), format) for one, w in (("w", gate), ("up", up), ("down", down))}
        tiled = {one: tiles_of(kernels, w, experts) for one, w in (("w", gate), ("up", up), ("down", down))}
        ids = rng.integers(0, experts, (rows, k)).astype(np.int32)
        x, wide = rng.standard_normal((rows, K)).astype(np.float32), rng.standard_normal((rows, k, K)).astype(np.float32)
        weights = rng.standard_normal((rows, k)).astype(np.float32)
        scratch = 1 << 18
        shared, shared_wide = round_activations(kernels, x), round_activations(kernels, wide.reshape(-1, K))

        def picked(kernel, given, tiles, threads=1, rows=rows, N=N, x=x, ids=ids, shared=shared, scratch=scratch):
            y = np.full((rows, k, N), np.nan, np.float32)
            size = dict(rows=rows, k=k, experts=experts, M=N, N=N, K=K, y_row=N, y_column=1, ahead=0)
            where = dict(w=given["w"], up=given["up"], w_in_tiles=tiles, up_in_tiles=tiles)
            slots = PICKED(x=x, ids=ids, y=y, **size, **where)
            kernels(f"{kernel}<{name}, float, true>", slots, threads=threads, shared=shared, scratch=scratch)
            return y

        def combined(
            kernel, given, tiles, threads=1, rows=rows, N=N, wide=wide, ids=ids, weights=weights, shared=shared_wide, scratch=scratch
        ):
            y = np.full((rows, N), np.nan, np.float32)
            size = dict(rows=rows, k=k, experts=experts, N=N, K=K, w_in_tiles=tiles, ahead=0)
            slots = COMBINED(x=wide, w=given["down"], ids=ids, weights=weights, common=None, common_gate=None, y=y, **size)
            kernels(f"{kernel}<{name}, float, float>", slots, threads=threads, shared=shared, scratch=scratch)
            return y

        stored = {one: w.data for one, w in three.items()}
        for what, call in (("picked_blocks", picked), ("combined_blocks", combined)):
            want = call(f"{what}_naive", stored, 0)
            assert np.isfinite(want).all()
            for given, tiles, threads in ((stored, 0, 1), (tiled, 1, 1), (tiled, 1, 3)):
                assert np.array_equal(call(what, given, tiles, threads), want)
