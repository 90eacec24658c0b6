"""int8_block on the host is the contract of iron_ops_aie.products.activations, bit for bit, on random and on real weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_host.kernels import BLOCK_INTEGERS, QUANTIZE_ROWS
from iron_lm.checkpoints.gguf import GGUFFile
from iron_ops_aie.products import activations

from .conftest import DTYPES, SCALE, aligned


def rounded(kernels, x, X, threads=1):
    """(integers, scales, scale * sum of integers) of a row of numbers, as the kernel leaves them."""
    (M, K), ints = x.shape, -(-x.size // 64) * 64
    shared = aligned(ints + x.size // 32 * SCALE.itemsize)
    kernels(f"quantize_rows<{X}>", QUANTIZE_ROWS(x=x, M=M, K=K, x_row=K), shared=shared, threads=threads)
    scales = shared[ints:][: x.size // 32 * SCALE.itemsize].view(SCALE).reshape(M, K // 32)
    return shared[: x.size].view(np.int8).reshape(M, K), scales["d"], scales["s"]


@pytest.mark.parametrize("X", ["float", "bf16"])
@settings(max_examples=200)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 3), blocks=st.integers(1, 5), power=st.integers(-149, 110))
def test_activations_are_the_contracts(kernels, X, seed, rows, blocks, power):
    """Integers, scales and their sums equal the contract's, at every magnitude: subnormal groups, ties, zeros."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 32 * blocks)) * 2.0**power
    ties = rng.integers(-254, 255, x.shape) / 2 * 2.0**power
    x = np.where(rng.random(x.shape) < 0.3, ties, x) * (rng.random(x.shape) < 0.9)
    x = np.ascontiguousarray(x.astype(np.float32).astype(DTYPES[X]))
    want_q, want_d = activations.quantize_rows(x, 32)
    q, d, s = rounded(kernels, x, X, threads=2)
    assert np.array_equal(q, want_q)
    assert np.array_equal(d.view(np.uint32), want_d.view(np.uint32))
    assert np.array_equal(s, want_d * want_q.reshape(rows, blocks, 32).sum(-1).astype(np.float32))


def test_block_integers_of_real_weights(kernels, rng, smollm2):
    """The integer product of every block of a few of SmolLM2's matrices equals the contract's, for each format in the file."""
    seen: set[str] = set()
    for name, (shape, format, weights) in GGUFFile.open(smollm2).tensors.items():
        if not format.packed or len(shape) != 2 or (format.name in seen and "blk.17." not in name):
            continue
        seen.add(format.name)
        weights, K = weights[:1536], shape[1]
        x = rng.standard_normal((1, K)).astype(np.float32) * np.float32(3)
        q, _, _ = rounded(kernels, x, "float")
        got = np.zeros((weights.shape[0], K // 32), np.int32)
        template = next(t for t in kernels.libraries if t.lower() == f"block_integers<{format.name.lower()}>")
        kernels(template, BLOCK_INTEGERS(w=weights.data, q=q[0].copy(), products=got, N=len(got), K=K), threads=2)
        assert np.array_equal(got, activations.block_integers(weights, x)[:, 0].T), name
    assert {name.lower() for name in seen} >= {"q4_1", "q8_0"}
