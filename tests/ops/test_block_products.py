"""Products with block-quantised weights: exact activations, and int8 activations with integer block products."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.declare.formats import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, SUPERBLOCKS, PackedArray
from iron_core.declare.identity import contract_key
from iron_ops_aie import GEMM, GEMV
from iron_ops_aie.products.activations import block_integers, quantize_rows

F32 = np.float32
BYTES = (Q4_0, Q4_1, Q8_0)
FORMATS = [*BYTES, Q5_0, Q5_1, *SUPERBLOCKS]


def blocks_of(weights):
    """Per row, per group: its scale, minimum and integers, read from the bytes one at a time; of formats whose bytes the `gguf` package
    judges elsewhere, what the format says."""
    format = weights.format
    if format not in BYTES:
        ints, scales, minima = format.fields(weights.data, weights.shape)
        minima = np.zeros_like(scales) if minima is None else minima
        for row in zip(scales.astype(float), minima.astype(float), ints.reshape(*scales.shape, format.group).tolist(), strict=True):
            yield list(zip(*row, strict=True))
        return
    for row in weights.data:
        out = []
        for at in range(0, len(row), format.block_bytes):
            block = row[at : at + format.block_bytes].tobytes()
            scale = float(np.frombuffer(block[:2], np.float16)[0])
            minimum = float(np.frombuffer(block[2:4], np.float16)[0]) if format is Q4_1 else 0.0
            body = block[4 if format is Q4_1 else 2 :]
            if format is Q8_0:
                ints = [b - 256 if b > 127 else b for b in body]
            else:
                ints = [b & 15 for b in body] + [b >> 4 for b in body]
                ints = [q - 8 for q in ints] if format is Q4_0 else ints
            out.append((scale, minimum, ints))
        yield out


def rounded(x):
    """A group of activations as integers and a scale, in float32 throughout."""
    top = max(abs(F32(v)) for v in x)
    d = F32(top) / F32(127)
    inverse = F32(1) / d if d >= np.finfo(F32).tiny else F32(0)
    return [int(np.rint(F32(v) * inverse)) for v in x], float(d)


def naive(weights, x):
    """int8_block, block by block; the integers are Python's."""
    rows = []
    for row in x:
        groups = [rounded(row[at : at + 32]) for at in range(0, len(row), 32)]
        out = []
        for blocks in blocks_of(weights):
            total = 0.0
            for i, (scale, minimum, ints) in enumerate(blocks):
                q, d = groups[i * len(ints) // 32]
                q = q[i * len(ints) % 32 :][: len(ints)]
                total += scale * d * sum(a * b for a, b in zip(ints, q, strict=True)) + minimum * d * sum(q)
            out.append(total)
        rows.append(out)
    return np.array(rows)


def numbers(weights):
    """The numbers the blocks stand for."""
    return np.array([[s * q + m for s, m, ints in row for q in ints] for row in blocks_of(weights)])


@pytest.fixture(params=FORMATS, ids=lambda f: f.name)
def weights(request, rng):
    columns = 96 if request.param.block[1] == 32 else 512
    return request.param.drawn(rng, (5, columns))


def test_exact_activations_meet_the_weights_the_blocks_stand_for(weights, rng):
    """GEMV and GEMM alike, in float64."""
    K = weights.shape[1]
    x = rng.standard_normal((3, K)).astype(F32)
    want = x.astype(np.float64) @ numbers(weights).T
    gemm = GEMM(M=3, K=K, N=5, b_col_maj=True, W=weights.format, T=F32)
    assert np.allclose(gemm.reference(x, weights), want, rtol=1e-6, atol=1e-6)
    gemv = GEMV(M=5, K=K, W=weights.format, T=F32)
    assert np.allclose(gemv.reference(weights, x[0]), want[0], rtol=1e-6, atol=1e-6)


def test_int8_activations_follow_the_declared_arithmetic(weights, rng):
    """Every block's integer product is exact, then scaled: the same for one row as for many."""
    K = weights.shape[1]
    x = rng.standard_normal((3, K)).astype(F32) * np.array([[1], [1e-3], [100]], F32)
    want = naive(weights, x)
    fields = dict(K=K, W=weights.format, T=F32, activations="int8_block")
    got = GEMM(M=3, N=5, b_col_maj=True, **fields).reference(x, weights)
    assert np.allclose(got, want, rtol=1e-12, atol=1e-12)
    for row in range(3):
        one = GEMV(M=5, **fields).reference(weights, x[row])
        assert np.allclose(one, want[row], rtol=1e-12, atol=1e-12)


def test_block_integers_are_the_integer_products(weights, rng):
    """int64, block by block."""
    K = weights.shape[1]
    x = rng.standard_normal((2, K)).astype(F32)
    ints = block_integers(weights, x)
    each = min(32, weights.format.group)
    assert ints.shape == (K // each, 2, 5) and ints.dtype == np.int64
    for n, row in enumerate(x):
        for m, blocks in enumerate(blocks_of(weights)):
            for b, (_, _, q) in enumerate(blocks):
                first = each * b // 32 * 32
                acts, _ = rounded(row[first : first + 32])
                part = acts[each * b - first :][:each]
                assert ints[b, n, m] == sum(i * j for i, j in zip(q, part, strict=True))


def test_rounding_to_int8_is_by_the_reciprocal_and_ties_go_to_even():
    """q = rint(x * (1 / d)) in float32, d = max|x| / 127."""
    x = np.zeros((1, 32), F32)
    x[0, :5] = [127.0, 2.5, 3.5, -0.5, -126.6]
    q, d = quantize_rows(x, 32)
    assert d.tolist() == [[1.0]] and q[0, :5].tolist() == [127, 2, 4, 0, -127]


def test_a_group_of_zeros_is_zeros():
    """No division by the scale; what is too small to have a reciprocal counts as zero."""
    q, d = quantize_rows(np.zeros((1, 64), F32), 32)
    assert not q.any() and not d.any()
    tiny = np.full((1, 32), 1e-40, F32)
    q, _ = quantize_rows(tiny, 32)
    assert not q.any()


def test_groups_have_scales_of_their_own(rng):
    """One large number spoils its own group only."""
    x = rng.standard_normal((1, 64)).astype(F32)
    big = x.copy()
    big[0, 40] = 1e6
    assert (quantize_rows(big, 32)[0][0, :32] == quantize_rows(x, 32)[0][0, :32]).all()


@pytest.mark.parametrize("activations", ["exact", "int8_block"])
@pytest.mark.parametrize("n", [1, 31, 32, 50, 96])
def test_a_bound_on_k_of_block_weights_is_a_row_of_zeros_behind_it(activations, n, weights, rng):
    """It may end inside a block; the weights come as whole rows."""
    K = weights.shape[1]
    x = rng.standard_normal((2, K)).astype(F32)
    op = GEMM(M=2, K=K, N=5, b_col_maj=True, W=weights.format, T=F32, activations=activations)
    padded = x.copy()
    padded[:, n:] = 0
    small = op.bounded(K=n)
    assert np.allclose(small.reference(x[:, :n], weights), op.reference(padded, weights), rtol=1e-12, atol=1e-12)
    assert np.allclose(small.magnitude(x[:, :n], weights), op.magnitude(padded, weights), rtol=1e-9)


@pytest.mark.parametrize("activations", ["exact", "int8_block"])
def test_a_bound_that_leaves_no_row_leaves_nothing(activations, weights):
    """Zero rows in, zero rows out."""
    K = weights.shape[1]
    op = GEMM(M=2, K=K, N=5, b_col_maj=True, W=weights.format, T=F32, activations=activations).bounded(M=0)
    empty = np.zeros((0, K), F32)
    assert op.reference(empty, weights).shape == (0, 5) and op.magnitude(empty, weights).shape == (0, 5)


@pytest.mark.parametrize("activations", ["exact", "int8_block"])
def test_several_block_matrices(activations, rng):
    """Batch b reads matrix b // repeat, packed rows and all."""
    a = Q4_1.quantize(rng.standard_normal((2, 5, 64)).astype(F32))
    b = rng.standard_normal((4, 64)).astype(F32)
    op = GEMV(M=5, K=64, num_batches=4, repeat=2, W=Q4_1, T=F32, activations=activations)
    one = GEMV(M=5, K=64, W=Q4_1, T=F32, activations=activations)
    c = op.reference(a, b)
    for i in range(4):
        assert (c[i] == one.reference(PackedArray(a.data[i // 2], (5, 64), Q4_1), b[i])).all()
    small = op.bounded(M=3).reference(a[:, :3], b)
    assert (small == c[:, :3]).all()


def test_int8_activations_are_near_exact_ones(weights, rng):
    """The rounding costs about a hundredth of the result's size, and is not part of the operator's error bound."""
    K = weights.shape[1]
    x = rng.standard_normal((8, K)).astype(F32)
    fields = dict(M=8, K=K, N=5, b_col_maj=True, W=weights.format, T=F32)
    exact, int8 = GEMM(**fields), GEMM(**fields, activations="int8_block")
    want, got = exact.reference(x, weights), int8.reference(x, weights)
    assert 0 < np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want)
    assert contract_key(exact) != contract_key(int8)


def test_the_magnitude_bounds_the_result(weights, rng):
    """The sum of absolute terms is at least the absolute sum."""
    K = weights.shape[1]
    x = rng.standard_normal((3, K)).astype(F32)
    for activations in ("exact", "int8_block"):
        op = GEMM(M=3, K=K, N=5, b_col_maj=True, W=weights.format, T=F32, activations=activations)
        assert (op.magnitude(x, weights) >= np.abs(op.reference(x, weights)) * (1 - 1e-12)).all()
