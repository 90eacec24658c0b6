"""Products with block-quantised weights: the integers are a numpy model's, the rest is one order of additions."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.declare.formats import PackedArray
from iron_host.kernels import BLOCK_INTEGERS, BLOCK_PRODUCT, DEQUANTIZE, PACK_BLOCKS, PRODUCT, QUANTIZE_ROWS
from iron_host.lowerings.products import block_scratch
from iron_host.view import view_of

from .conftest import DTYPES, FORMATS, SCALE, aligned

SHAPES = [(1, 1, 32), (1, 37, 576), (2, 5, 64), (3, 19, 96), (4, 16, 160), (5, 33, 288), (8, 20, 64), (9, 18, 32), (23, 41, 96)]


#: Tunables as they are unless chosen.
PLAIN = dict(ahead=0, x_rows=0)


def whole(name, rows):
    """So many rows, or the next number of them that a matrix of the format may have."""
    unit = FORMATS[name].block[0]
    return -(-rows // unit) * unit


def across(name, columns):
    """So many columns, or the next number of them that a row of the format may have."""
    unit = FORMATS[name].padded or FORMATS[name].block[1]
    return -(-columns // unit) * unit


def shapes(name):
    """M, N, K for a format."""
    return list(dict.fromkeys((M, whole(name, N), across(name, K)) for M, N, K in SHAPES))


def draw(rng, name, N, K, values=None):
    """A matrix of any stored integers (or these), scales and minima of either sign, and whatever bytes fill its blocks up."""
    format = FORMATS[name]
    columns = -(-K // format.block[1]) * format.block[1]
    ints = rng.integers(-128, 128, (N, columns))
    if values is not None:
        ints[:, :K] = values
    numbers = {plane.role: rng.standard_normal((N, columns // format.group)) for plane in format.planes if plane.role != "values"}
    return PackedArray(format.assembled((N, columns), values=ints, **numbers).data, (N, K), format)


def fields(w):
    """Integers of a matrix, and the scale and minimum of each 32 of a row."""
    ints, *shared = w.format.fields(w.data, w.shape)
    return ints, *(None if each is None else np.repeat(each, w.format.group // 32, -1) for each in shared)


def model_rounding(x):
    """int8 activations and their float32 scales by the contract's rule, written out in numpy."""
    groups = x.astype(np.float32).reshape(len(x), -1, 32)
    d = np.abs(groups).max(-1) / np.float32(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(d > 0, np.float32(1) / d, np.float32(0)).astype(np.float32)
    return np.rint(groups * inverse[..., None]).astype(np.int8), d


def shared_for(rows, K):
    return aligned(-(-rows * K // 64) * 64 + rows * K // 32 * SCALE.itemsize)


def round_activations(kernels, x, X="float", threads=1):
    shared = shared_for(*x.shape)
    M, K = x.shape
    kernels(f"quantize_rows<{X}>", QUANTIZE_ROWS(x=x, M=M, K=K, x_row=K), shared=shared, threads=threads)
    return shared


def tiles_of(kernels, name, w, matrices=1, threads=1):
    """The weights in tiles: a row's bytes four at a time beside those of the other fifteen, scales and minima in front."""
    rows = w.shape[0] // matrices
    tiles = np.full((matrices, -(-rows // 16) * 16, view_of(w.format).row_bytes(w.shape[1])), 255, np.uint8)
    kernels(f"pack_blocks<{name}>", PACK_BLOCKS(w=w.data, tiles=tiles, N=rows, K=w.shape[1], matrices=matrices), threads=threads)
    return tiles


def product(kernels, name, w, x, O="float", kernel="block_matmul", threads=1, shared=None, tiles=False):  # noqa: E741
    (M, K), N = x.shape, w.shape[0]
    shared = round_activations(kernels, x) if shared is None else shared
    c = np.full((M, N), np.nan, DTYPES[O])
    weights = tiles_of(kernels, name, w) if tiles else w.data
    scratch = block_scratch(view_of(w.format), K, M)
    lies = dict(in_tiles=int(tiles), c_row=N, c_column=1)
    slots = BLOCK_PRODUCT(w=weights, c=c, M=M, N=N, K=K, **lies, batches=1, c_batch=0, repeat=1, **PLAIN)
    kernels(f"{kernel}<{name}, {O}>", slots, shared=shared, threads=threads, scratch=scratch)
    return c


@pytest.mark.parametrize("X", ["float", "bf16"])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_shows_wherever_it_stands(kernels, rng, X, bad):
    """In any place of a group its scale is not finite, nor is a product of its row; other groups and rows are as ever."""
    w = draw(rng, "Q8_0", 5, 96)
    x = rng.standard_normal((2, 96)).astype(np.float32).astype(DTYPES[X])
    want, clean = round_activations(kernels, x, X), product(kernels, "Q8_0", w, x.astype(np.float32))
    scales = slice(2 * 96, 2 * 96 + 6 * SCALE.itemsize)
    for at in range(32, 64):
        broken = x.copy()
        broken[0, at] = bad
        got = round_activations(kernels, broken, X)
        d = [one[scales].view(SCALE)["d"] for one in (got, want)]
        assert not np.isfinite(d[0][1]) and np.array_equal(np.delete(d[0], 1), np.delete(d[1], 1))
        y = product(kernels, "Q8_0", w, broken.astype(np.float32))
        assert not np.isfinite(y[0]).any() and np.array_equal(y[1], clean[1])


@pytest.mark.parametrize("name", FORMATS)
def test_block_integers_are_the_models(kernels, rng, name):
    """The int32 product of every block with int8 activations equals numpy's, the extremes included."""
    N, K = whole(name, 13), 1024
    values = rng.integers(-128, 128, (N, K))
    values[0], values[1], values[2], values[3] = -128, 127, 8, 7  # of nibbles: all bits 0, all 1, the first, all but it
    w, q = draw(rng, name, N, K, values), rng.integers(-127, 128, K).astype(np.int8)
    q[:64], q[64:128] = 127, -127
    got = np.zeros((N, K // 32), np.int32)
    kernels(f"block_integers<{name}>", BLOCK_INTEGERS(w=w.data, q=q, products=got, N=N, K=K))
    ints, _, _ = w.format.fields(w.data, w.shape)
    assert np.array_equal(got, (ints * q.astype(np.int32)).reshape(N, -1, 32).sum(-1))


@pytest.mark.parametrize("X", ["float", "bf16"])
def test_activations_are_rounded_as_the_contract_says(kernels, rng, X):
    """Integers and scales equal the numpy model bit for bit: ties to even, zero rows, tiny and huge numbers."""
    x = rng.standard_normal((6, 160)).astype(np.float32)
    x[1], x[2, :32], x[3] = 0, 1e-30, x[3] * 1e30
    x[4, :32] = np.arange(32) + 0.5
    x[4, 0] = 127
    x = x.astype(DTYPES[X])
    want_q, want_d = model_rounding(x)
    for threads in (1, 3):
        shared = round_activations(kernels, x, X, threads)
        assert np.array_equal(shared[: x.size].view(np.int8).reshape(want_q.shape), want_q)
        scales = shared[-(-x.size // 64) * 64 :][: x.size // 32 * SCALE.itemsize].view(SCALE).reshape(6, -1)
        sums = want_q.astype(np.int32).sum(-1)
        assert np.array_equal(scales["d"], want_d)
        assert np.array_equal(scales["sum"], sums)
        assert np.array_equal(scales["first"], want_q[..., :16].astype(np.int32).sum(-1))
        assert np.array_equal(scales["s"], want_d * sums.astype(np.float32))


@pytest.mark.parametrize("name", FORMATS)
def test_products_are_near_the_integer_model(kernels, rng, name):
    """Scales, minima and exact integers combined in float64 agree within a float32 accumulation over the blocks."""
    for M, N, K in shapes(name):
        w, x = draw(rng, name, N, K), rng.standard_normal((M, K)).astype(np.float32)
        q, d = model_rounding(x)
        ints, scales, minima = fields(w)
        wide = ints.reshape(N, -1, 32).astype(np.float64) * scales[..., None]
        if minima is not None:
            wide = wide + minima.astype(np.float64)[..., None]
        acts = q.astype(np.float64) * d[..., None]
        exact = np.einsum("mbi,nbi->mn", acts, wide)
        size = np.einsum("mbi,nbi->mn", np.abs(acts), np.abs(ints.reshape(N, -1, 32) * scales.astype(np.float64)[..., None]))
        if minima is not None:
            size += np.einsum("mbi,nb->mn", np.abs(acts), np.abs(minima.astype(np.float64)))
        for kernel in ("block_matmul", "block_matmul_naive"):
            got = product(kernels, name, w, x, kernel=kernel)
            assert (np.abs(got - exact) <= 2.0**-22 * np.abs(exact) + (K + 8) * 2.0**-24 * size).all()


@pytest.mark.parametrize("O", ["float", "bf16"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_row_alone_equals_the_row_among_others(kernels, rng, name, O):  # noqa: E741
    """GEMV and GEMM agree bit for bit: any number of rows, of outputs and of threads."""
    for M, N, K in shapes(name):
        w, x = draw(rng, name, N, K), rng.standard_normal((M, K)).astype(np.float32)
        alike = product(kernels, name, w, x, O)
        for threads in (1, 2, 3, 5):
            assert np.array_equal(product(kernels, name, w, x, O, threads=threads), alike)
            assert np.array_equal(product(kernels, name, w, x, O, threads=threads, tiles=True), alike)
        for rows in (1, 2, 3, 4, 7):
            for m in range(0, M, rows):
                assert np.array_equal(product(kernels, name, w, x[m : m + rows].copy(), O, tiles=True), alike[m : m + rows])
        unit = FORMATS[name].block[0]
        for n in (0, N // unit // 2 * unit, N - unit):
            assert np.array_equal(product(kernels, name, w[n : n + unit], x, O), alike[:, n : n + unit])


@pytest.mark.parametrize("name", FORMATS)
def test_batches_share_matrices(kernels, rng, name):
    """Batch b multiplies matrix b // repeat, bit equal to that product alone."""
    batches, repeat, N, K = 6, 3, whole(name, 21), across(name, 96)
    w, x = draw(rng, name, batches // repeat * N, K), rng.standard_normal((batches, K)).astype(np.float32)
    c = np.zeros((batches, N), np.float32)
    shared, tiles = round_activations(kernels, x), tiles_of(kernels, name, w, batches // repeat, 2)
    for threads, weights in ((1, w.data), (3, w.data), (3, tiles), (5, tiles)):
        c[:] = np.nan
        lies = dict(in_tiles=int(weights is tiles), c_row=N, c_column=1, c_batch=N)
        slots = BLOCK_PRODUCT(w=weights, c=c, M=1, N=N, K=K, **lies, batches=batches, repeat=repeat, **PLAIN)
        kernels(f"block_matmul<{name}, float>", slots, shared=shared, threads=threads, scratch=32 * view_of(w.format).row_bytes(K))
        for b in range(batches):
            part = w[b // repeat * N : (b // repeat + 1) * N]
            assert np.array_equal(product(kernels, name, part, x[b : b + 1])[0], c[b])


@pytest.mark.parametrize("X", ["float", "bf16"])
@pytest.mark.parametrize("name", FORMATS)
def test_exact_activations(kernels, rng, name, X):
    """Float activations times dequantised weights, a row's bits the same for any number of rows and threads."""
    for M, N, K in shapes(name):
        w, x = draw(rng, name, N, K), rng.standard_normal((M, K)).astype(np.float32).astype(DTYPES[X])

        def run(x, threads=1, w=w, N=N, K=K):
            c = np.full((len(x), N), np.nan, DTYPES[X])
            rows = dict(x_row=K, w_row=0, by_rows=1, c_row=N, c_column=1)
            one = dict(batches=1, x_batch=0, w_batch=0, c_batch=0, repeat=1)
            slots = PRODUCT(x=x, w=w.data, c=c, M=len(x), N=N, K=K, **rows, **one)
            kernels(f"block_exact<{name}, {X}, {X}>", slots, scratch=4 * K, threads=threads)
            return c

        alike, wide = run(x), w.dequantize().astype(np.float64)
        exact, size = x.astype(np.float64) @ wide.T, np.abs(x.astype(np.float64)) @ np.abs(wide).T
        ulp = {"float": 2.0**-23, "bf16": 2.0**-7}[X]
        error = np.abs(alike.astype(np.float64) - exact)
        assert (error <= 2 * ulp * np.abs(exact) + (K + 8) * 2.0**-24 * 3 * size).all()
        assert np.array_equal(run(x, 3), alike)
        assert all(np.array_equal(run(x[m : m + 1].copy()), alike[m : m + 1]) for m in range(M))


@pytest.mark.parametrize("T", ["float", "bf16", "f16"])
@pytest.mark.parametrize("name", FORMATS)
def test_dequantize_rounds_once(kernels, rng, name, T):
    """Every number is scale * integer + minimum, within one rounding of the exact value; less a zero point of 32 bits, within one of
    the integer less it, too."""
    rows, cols = whole(name, 7), across(name, 96)
    w, y = draw(rng, name, rows, cols), np.zeros((rows, cols), DTYPES[T])
    ints, scales, minima = fields(w)
    exact = ints.reshape(rows, -1, 32) * scales.astype(np.float64)[..., None]
    exact = (exact if minima is None else exact + minima.astype(np.float64)[..., None]).reshape(rows, cols)
    kernels(f"dequantize<{name}, {T}>", DEQUANTIZE(x=w.data, y=y, valid=rows, cols=cols), threads=2)
    ulp = {"float": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}[T]
    wide = next(plane for plane in w.format.planes if plane.role == "scales").bits == 32
    ahead = 2.0**-23 * np.abs(np.repeat(scales, 32, -1) * 16) if wide else 0
    assert (np.abs(y.astype(np.float64) - exact) <= ulp * np.abs(exact) + ahead + 1e-7).all()


@pytest.mark.parametrize("name", FORMATS)
def test_fast_paths_equal_the_twin(kernels, rng, name):
    """The vector kernel and one number at a time, in the declared order: the same bits, strided results too."""
    for M, N, K in shapes(name):
        w, x = draw(rng, name, N, K), rng.standard_normal((M, K)).astype(np.float32)
        naive = product(kernels, name, w, x, kernel="block_matmul_naive")
        for tiles in (False, True):
            assert np.array_equal(product(kernels, name, w, x, tiles=tiles), naive)
        c = np.full((N, M), np.nan, np.float32)
        lies = dict(in_tiles=1, c_row=1, c_column=M, c_batch=0)
        slots = BLOCK_PRODUCT(w=tiles_of(kernels, name, w), c=c, M=M, N=N, K=K, **lies, batches=1, repeat=1, **PLAIN)
        kernels(f"block_matmul<{name}, float>", slots, shared=round_activations(kernels, x))
        assert np.array_equal(c.T, naive)


@pytest.mark.parametrize("name", FORMATS)
def test_many_rows_equal_the_twin(kernels, rng, name):
    """As many as a prompt has, an odd number of tiles where the format allows it: the same bits."""
    N, K = whole(name, 37), across(name, 64)
    w, x = draw(rng, name, N, K), rng.standard_normal((135, K)).astype(np.float32)
    naive = product(kernels, name, w, x, kernel="block_matmul_naive")
    for threads, tiles in ((1, True), (2, True), (3, False)):
        assert np.array_equal(product(kernels, name, w, x, threads=threads, tiles=tiles), naive)


@pytest.mark.parametrize("name", FORMATS)
def test_two_hundred_shapes_equal_the_twin(kernels, name):
    """Random rows, outputs, depths and threads; any integers, scales and minima, rows of activations that may be zero, tiny or huge."""
    rng = np.random.default_rng(7)
    for _ in range(200):
        M, N, K = int(rng.integers(1, 12)), whole(name, int(rng.integers(1, 40))), across(name, 32 * int(rng.integers(1, 9)))
        w = draw(rng, name, N, K)
        x = (rng.standard_normal((M, K)) * rng.choice([0, 1e-20, 1, 1e4], (M, 1))).astype(np.float32)
        naive = product(kernels, name, w, x, kernel="block_matmul_naive")
        assert np.isfinite(naive).all()
        threads, tiles = int(rng.integers(1, 4)), bool(rng.random() < 0.7)
        assert np.array_equal(product(kernels, name, w, x, threads=threads, tiles=tiles), naive)


@pytest.mark.parametrize("name", FORMATS)
def test_tiles_hold_the_same_numbers(kernels, rng, name):
    """Every scale, minimum and integer is where the header says; the rows a matrix lacks are zeros, and what fills blocks up is not
    there."""
    format = FORMATS[name]
    stored = {plane.role: plane for plane in format.planes}
    for rows, K, matrices in ((16, 32, 1), (37, 96, 2), (5, 64, 3)):
        rows, K = whole(name, rows), across(name, K)
        w = draw(rng, name, rows * matrices, K)
        tiles = tiles_of(kernels, name, w, matrices, threads=3)
        bits, high = stored["values"].bits, tiles.shape[1]

        def side_by_side(numbers, rows=rows, high=high, matrices=matrices):
            """(rows, n): by tile, 16 rows in the place before the last."""
            padded = np.zeros((matrices, high, numbers.shape[-1]), numbers.dtype)
            padded[:, :rows] = numbers.reshape(matrices, rows, -1)
            return padded.reshape(matrices * high // 16, 16, -1)

        parts = []
        for role in ("scales", "minima", "zeros"):
            if role in stored:
                numbers = np.repeat(format.numbers(stored[role], w.data, w.shape), format.group // 32, -1)
                numbers = side_by_side(numbers)  # tile, row, block
                parts.append(np.ascontiguousarray(numbers.swapaxes(1, 2)).view(np.uint8))
        ints = format.integers(w.data, w.shape)
        if bits == 4:
            halves = (ints.astype(np.uint8) ^ (8 if stored["values"].signed else 0)).reshape(len(ints), -1, 2, 16)
            ints = halves[:, :, 0] & 15 | halves[:, :, 1] << 4
        bodies = side_by_side(ints.astype(np.uint8).reshape(len(ints), -1))
        bodies = bodies.reshape(len(bodies), 16, K // 32, bits, 4).transpose(0, 2, 3, 1, 4)  # tile, block, chunk, row, byte
        want = np.concatenate([*parts, bodies.reshape(len(bodies), K // 32, -1)], -1)
        assert np.array_equal(tiles.reshape(want.shape), want)
