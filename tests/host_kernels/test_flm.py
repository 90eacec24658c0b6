"""flm.GEMM's kernels: near their twins and the contract, a row's bits its own, and a sum's those of the plain product."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from iron_core import bfloat16
from iron_core.declare.rounding import round_to
from iron_host.kernels import FLM_GEMM, PRODUCT
from iron_ops_flm.epilogue import Epilogue
from iron_ops_flm.gemm import GEMM

#: B as stored, packed as bfloat16 and as blocks: the kernel, its twin, and an operator's fields.
STORED = ("flm_gemm", "flm_gemm_naive<flm::Stored>", dict(K=37, N=21, b_col_maj=True))
DENSE = ("flm_gemm_packed<flm::Dense>", "flm_gemm_naive<flm::DenseAt>", dict(K=96, N=64, tile_n=32, k_tile=96))
BLOCKS = ("flm_gemm_packed<flm::Blocks>", "flm_gemm_naive<flm::BlocksAt>", dict(K=128, N=96, tile_n=16, k_tile=64, packed_blocks=True))


def called(kernels, template, op, a, b, *, rows=None, threads=1):
    made = op.finish_of_sums
    c = np.full((op.M if rows is None else rows, op.N), -77, bfloat16)
    slots = FLM_GEMM(
        x=a, w=b, c=c, M=len(c), N=op.N, K=op.K, tile_n=op.tile_n, ct_k=op.packing.ct_k, mode=int(made.epilogue),
        steps=int(made.gelu == "bf16_steps"), down=int(made.rounding == "floor"), low=made.low, high=made.high,
    )  # fmt: skip
    kernels(template, slots, scratch=16 * op.M, threads=threads)
    return c


def drawn(op, rng):
    a, b = (round_to(rng.standard_normal(shape), bfloat16) for shape in ((op.M, op.K), (op.K, op.N)))
    return a, op.pack_B(b)


@pytest.mark.parametrize("way", [STORED, DENSE, BLOCKS], ids=["stored", "dense", "blocks"])
@pytest.mark.parametrize("epilogue", Epilogue)
@pytest.mark.parametrize("how", [{}, dict(rounding="floor", clamp=(-0.5, 2.0)), dict(gelu="bf16_steps")], ids=str)
def test_near_the_contract(kernels, rng, way, epilogue, how):
    """The kernel and its twin, for any number of threads."""
    kernel, twin, fields = way
    op = GEMM(M=19, epilogue=epilogue, **fields, **how)
    a, b = drawn(op, rng)
    exact, raw = op.reference(a, b), b if op.b_col_maj else b.data
    whole = called(kernels, kernel, op, a, raw)
    assert op.check(whole, exact, a, b).compared == exact.size
    assert op.check(called(kernels, twin, op, a, raw), exact, a, b).compared == exact.size
    for threads in (2, 3):
        assert np.array_equal(called(kernels, kernel, op, a, raw, threads=threads).view(np.uint16), whole.view(np.uint16))
    for row in (0, 7, 18):
        alone = called(kernels, kernel, op, a[row : row + 1].copy(), raw, rows=1)
        assert np.array_equal(alone.view(np.uint16), whole[row : row + 1].view(np.uint16))


def test_sums_are_those_of_the_plain_product(kernels, rng):
    """Without an activation, B as stored gives the bits of matmul.h."""
    op = GEMM(M=9, K=100, N=22, b_col_maj=True)
    a, b = drawn(op, rng)
    c = np.empty((op.M, op.N), bfloat16)
    lies = dict(x_row=op.K, w_row=op.K, by_rows=1, c_row=op.N, c_column=1)
    one = dict(batches=1, x_batch=0, w_batch=0, c_batch=0, repeat=1)
    kernels("matmul<bf16, bf16, bf16>", PRODUCT(x=a, w=b, c=c, M=op.M, N=op.N, K=op.K, **lies, **one), scratch=4 * 68 * op.K)
    assert np.array_equal(called(kernels, "flm_gemm", op, a, b).view(np.uint16), c.view(np.uint16))


def test_what_is_no_number_stays_none(kernels, rng):
    """A NaN through every activation, rounding and clamp."""
    for epilogue, rounding in itertools.product(Epilogue, ("conv_even", "floor")):
        op = GEMM(M=2, K=8, N=3, epilogue=epilogue, rounding=rounding, clamp=(-1, 1), b_col_maj=True)
        a, b = drawn(op, rng)
        a[1, 3] = np.nan
        c = called(kernels, "flm_gemm", op, a, b)
        assert not np.isnan(c[0].astype(np.float32)).any() and np.isnan(c[1].astype(np.float32)).all()
