"""The order in which flm's products read B."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from iron_core.errors import ParamError
from iron_ops_flm.packing import BF16, BFP16, CT_K, SHIPPED, Packing

ORDERS = (BF16, BFP16, SHIPPED)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tile_n", CT_K)
def test_packing_walks_tiles(order, tile_n):
    """A column of tiles of C, then tiles of K, a core's shares of them, its steps along N and along K; within a step of eight by
    eight, k by k, n by n, or (shipped) one row of every step after the other. Naively, index by index."""
    K, N, k_tile = 256, 2 * tile_n, 128
    packing = Packing(order, tile_n, k_tile)
    B = np.arange(K * N, dtype=np.int32).reshape(K, N)
    sizes = dict(zip("kliscbt", packing.cut(K, N), strict=True))
    walk = {BF16: "cklbist", BFP16: "cklbits", SHIPPED: "cklbsit"}[order]
    want = []
    for index in itertools.product(*(range(sizes[axis]) for axis in walk)):
        at = dict(zip(walk, index, strict=True))
        k = ((at["k"] * sizes["l"] + at["l"]) * sizes["i"] + at["i"]) * 8 + at["s"]
        n = (at["c"] * sizes["b"] + at["b"]) * 8 + at["t"]
        want.append(B[k, n])
    assert packing.pack(B).tolist() == want
    assert np.array_equal(packing.unpack(packing.pack(B), K, N), B)


def test_eight_neighbours_of_bfp16_are_along_k():
    """Those that share an exponent."""
    B = np.arange(512 * 64).reshape(512, 64)
    eights = Packing(BFP16).pack(B).reshape(-1, 8)
    assert (np.diff(eights) == 64).all() and not (np.diff(Packing(BF16).pack(B).reshape(-1, 8)) == 64).any()


def test_what_is_no_whole_tiles_is_refused():
    """Each keyword with what is legal."""
    for make, why in (
        (lambda: Packing(tile_n=48), "tile_n=48; legal: 16, 32, 64, 128"),
        (lambda: Packing(k_tile=200), "k_tile=200; legal with tile_n=64: a multiple of 128"),
        (lambda: Packing().cut(500, 64), "K=500; legal: a multiple of 512"),
        (lambda: Packing().cut(512, 96), "N=96; legal: a multiple of 64"),
    ):
        with pytest.raises(ParamError, match=why):
            make()
