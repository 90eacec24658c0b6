"""Products with matrices that ids pick: the twins' numbers, each row's its own, however many there are and whichever experts they share."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.declare.formats import Q4_1, PackedArray
from iron_host.kernels import COMBINED, PICKED, ROUTE
from iron_ops_aie import Route
from tests.layouts import INT8_CHANNEL

from .conftest import DTYPES, FLOATS, FORMATS, PICKED_BLOCKS, PICKED_ROWS
from .test_blocks import round_activations, tiles_of

#: Rows, columns of ids, experts, rows and depth of a matrix.
SHAPES = [(1, 1, 1, 5, 32), (1, 2, 6, 40, 64), (3, 3, 3, 33, 96), (9, 2, 4, 16, 160), (37, 4, 5, 21, 32), (130, 1, 3, 8, 64)]
#: And of so many pairs that their sums are made and combined in several parts.
MANY = (600, 8, 3, 96, 32)
#: How far two orders of additions of K numbers may be apart.
NEAR = {"float": 1e-4, "bf16": 2e-2}


def ids_for(rng, rows, k, experts, kind):
    """Any ids, those past either end too; one expert for all; or all but one expert."""
    if kind == "one":
        return np.full((rows, k), experts - 1, np.int32)
    return rng.integers(-experts - 1, experts + 2, (rows, k)).astype(np.int32) if kind == "any" else (
        rng.integers(0, max(1, experts - 1), (rows, k)).astype(np.int32)
    )


def stack(rng, storage, experts, N, K):
    """Matrices in the storage that a row's reader has, and their bytes."""
    dense = (rng.standard_normal((experts, N, K)) / K**0.5).astype(np.float32)
    if storage.startswith("DenseRow"):
        return dense.astype(DTYPES[storage[9:-1]])
    return (Q4_1 if storage.startswith("BlockRow") else INT8_CHANNEL).quantize(dense)


def bytes_of(w):
    return w.data if isinstance(w, PackedArray) else w


def scratch_for(pairs, experts, N, K):
    """As much as any of the kernels asks for."""
    return 64 + 4 * (2 * experts + 2 + pairs) + 4 * 8 * K + 4 * max(1 << 18, 32 * pairs) + 2 * 16 * 40 * (K // 32 + 1)


def picked(kernels, kernel, x, w, up, ids, experts, N, threads=1, tiles=False, shared=None, X="float"):
    (rows, K), k = x.shape, ids.shape[1]
    y = np.full((rows, k, N), np.nan, DTYPES[X])
    slots = PICKED(
        x=x, w=bytes_of(w), up=bytes_of(up), ids=ids, y=y, rows=rows, k=k, experts=experts, M=N, N=N, K=K, w_in_tiles=int(tiles),
        up_in_tiles=int(tiles), y_row=N, y_column=1, ahead=0,
    )  # fmt: skip
    kernels(kernel, slots, threads=threads, shared=shared, scratch=scratch_for(rows * k, experts, N, K))
    return y


def combined(kernels, kernel, x, w, ids, weights, experts, N, threads=1, tiles=False, shared=None, common=None, gate=None, X="float"):
    rows, k, K = x.shape
    y = np.full((rows, N), np.nan, DTYPES[X])
    slots = COMBINED(
        x=x, w=bytes_of(w), ids=ids, weights=weights, common=common, common_gate=gate, y=y, rows=rows, k=k, experts=experts, N=N, K=K,
        w_in_tiles=int(tiles), ahead=0,
    )  # fmt: skip
    kernels(kernel, slots, threads=threads, shared=shared, scratch=scratch_for(rows * k, experts, N, K))
    return y


@pytest.mark.parametrize("kind", ["any", "one", "but one"])
@pytest.mark.parametrize("gated", ["false", "true"])
@pytest.mark.parametrize("name", PICKED_BLOCKS)
def test_tiles_that_ids_pick_are_the_twins(kernels, rng, name, gated, kind):
    """Bit for bit, in tiles or as the file has them, by any number of threads; and of a row alone."""
    for rows, k, experts, N, K in SHAPES:
        gate, up = (FORMATS[name].quantize(rng.standard_normal((experts, N, K)).astype(np.float32)) for _ in range(2))
        x, ids = rng.standard_normal((rows, K)).astype(np.float32), ids_for(rng, rows, k, experts, kind)
        shared = round_activations(kernels, x)
        want = picked(kernels, f"picked_blocks_naive<{name}, float, {gated}>", x, gate, up, ids, experts, N, shared=shared)
        in_tiles = [tiles_of(kernels, name, w.reshape(experts * N, K), matrices=experts) for w in (gate, up)]
        for given, tiles, threads in ((in_tiles, True, 1), (in_tiles, True, 3), ((gate, up), False, 2)):
            got = picked(
                kernels, f"picked_blocks<{name}, float, {gated}>", x, *given, ids, experts, N, threads, tiles, shared=shared
            )
            assert np.array_equal(got, want)
        alone = picked(
            kernels, f"picked_blocks<{name}, float, {gated}>", x[-1:], *in_tiles, ids[-1:], experts, N, 1, True,
            shared=round_activations(kernels, x[-1:]),
        )  # fmt: skip
        assert np.array_equal(alone[0], want[-1])


@pytest.mark.parametrize("kind", ["any", "one", "but one"])
@pytest.mark.parametrize("name", PICKED_BLOCKS)
def test_tiles_that_are_combined_are_the_twins(kernels, rng, name, kind):
    """The same of what is weighted and added up, with what is shared, and with its gate."""
    for rows, k, experts, N, K in (*SHAPES, MANY):
        down = FORMATS[name].quantize(rng.standard_normal((experts, N, K)).astype(np.float32))
        x, ids = rng.standard_normal((rows, k, K)).astype(np.float32), ids_for(rng, rows, k, experts, kind)
        weights, common, gate = (rng.standard_normal(s).astype(np.float32) for s in ((rows, k), (rows, N), (rows, 1)))
        shared = round_activations(kernels, x.reshape(-1, K))
        in_tiles = tiles_of(kernels, name, down.reshape(experts * N, K), matrices=experts)
        for more in ({}, dict(common=common), dict(common=common, gate=gate)):
            want = combined(
                kernels, f"combined_blocks_naive<{name}, float, float>", x, down, ids, weights, experts, N, shared=shared, **more
            )
            for given, tiles, threads in ((in_tiles, True, 1), (in_tiles, True, 3), (down, False, 2)):
                got = combined(
                    kernels, f"combined_blocks<{name}, float, float>", x, given, ids, weights, experts, N, threads, tiles, shared, **more
                )
                assert np.array_equal(got, want)
            alone = combined(
                kernels, f"combined_blocks<{name}, float, float>", x[-1:], in_tiles, ids[-1:], weights[-1:], experts, N, 1, True,
                round_activations(kernels, x[-1]), **{name: a[-1:] for name, a in more.items()},
            )  # fmt: skip
            assert np.array_equal(alone[0], want[-1])


@pytest.mark.parametrize("kind", ["any", "one"])
@pytest.mark.parametrize(("storage", "X"), PICKED_ROWS)
def test_rows_that_ids_pick_are_near_the_twins(kernels, rng, storage, X, kind):
    """As near as another order of additions; the same bits by any number of threads and of a row alone."""
    for rows, k, experts, N, K in SHAPES:
        gate, up, down = (stack(rng, storage, experts, N, K) for _ in range(3))
        ids = ids_for(rng, rows, k, experts, kind)
        x = rng.standard_normal((rows, K)).astype(np.float32).astype(DTYPES[X])
        for gated in ("false", "true"):
            kernel = f"<{storage}, {X}, {X}, {gated}>"
            given = (gate, up, ids, experts, N)
            want = picked(kernels, f"picked_rows_naive{kernel}", x, *given, X=X)
            got = picked(kernels, f"picked_rows{kernel}", x, *given, X=X)
            assert np.allclose(got.astype(np.float32), want.astype(np.float32), rtol=NEAR[X], atol=NEAR[X])
            assert np.array_equal(picked(kernels, f"picked_rows{kernel}", x, *given, threads=3, X=X), got)
            alone = picked(kernels, f"picked_rows{kernel}", x[-1:], gate, up, ids[-1:], experts, N, X=X)
            assert np.array_equal(alone[0], got[-1])
        wide = rng.standard_normal((rows, k, K)).astype(np.float32).astype(DTYPES[X])
        weights, kernel = rng.standard_normal((rows, k)).astype(np.float32), f"<{storage}, {X}, {X}>"
        common, opened = (rng.standard_normal(s).astype(np.float32) for s in ((rows, N), (rows, 1)))
        common = common.astype(DTYPES[X])
        given, more = (down, ids, weights, experts, N), dict(common=common, gate=opened, X=X)
        want = combined(kernels, f"combined_rows_naive{kernel}", wide, *given, **more)
        got = combined(kernels, f"combined_rows{kernel}", wide, *given, **more)
        assert np.allclose(got.astype(np.float32), want.astype(np.float32), rtol=NEAR[X], atol=NEAR[X])
        assert np.array_equal(combined(kernels, f"combined_rows{kernel}", wide, *given, threads=3, **more), got)
        last, more = (down, ids[-1:], weights[-1:], experts, N), dict(common=common[-1:], gate=opened[-1:], X=X)
        alone = combined(kernels, f"combined_rows{kernel}", wide[-1:], *last, **more)
        assert np.array_equal(alone[0], got[-1])


@pytest.mark.parametrize("T", FLOATS)
def test_rows_are_routed_as_the_rule_says(kernels, rng, T):
    """Bit for bit, ties and what is not finite too, by any number of threads."""
    for rows, experts, k in ((1, 1, 1), (5, 60, 4), (33, 7, 7), (4, 128, 8)):
        x = rng.choice([-1.5, -0.0, 0.0, 0.25, 2.0, 9.0], (rows, experts)) + rng.standard_normal((rows, 1))
        x[rng.random(x.shape) < 0.01] = np.nan
        x[rng.random(x.shape) < 0.01] = -np.inf
        x = x.astype(np.float32).astype(DTYPES[T])
        for renormalise, scale in ((False, 1.0), (True, 2.5)):
            ids, weights = np.full((rows, k), -9, np.int32), np.zeros((rows, k), np.float32)
            slots = ROUTE(logits=x, ids=ids, weights=weights, valid=rows, experts=experts, k=k, renormalise=int(renormalise), scale=scale)
            kernels(f"route<{T}>", slots, threads=2)
            want = Route(rows=rows, experts=experts, k=k, renormalise=renormalise, scale=scale, T=DTYPES[T]).reference(x)
            assert np.array_equal(ids, want[0]) and np.array_equal(weights, want[1], equal_nan=True)


