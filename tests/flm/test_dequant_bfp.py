"""`flm.DequantBFP`: FastFlowLM's chunks as flm's products read them, rounded down twice, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import FormatError, ParamError, Unresolvable, UnsupportedError
from iron_ops_flm import GEMM, DequantBFP
from iron_ops_flm.kernels_bfp import PACKED, dequant_bfp
from iron_sim.run import simulate

F32 = np.float32


def weights(N, K, seed=0):
    """Q4NX of random rows, of sizes far apart."""
    rng = np.random.default_rng(seed)
    spread = np.exp2(rng.integers(-20, 20, (N, 1))) * np.exp2(rng.integers(-3, 3, (1, K)))
    return iron.Q4NX.quantize((rng.standard_normal((N, K)) * spread).astype(F32))


def naive(w):
    """Number by number: scale * q + minimum in float32, down to bfloat16, down to eight that share an exponent; then each block at
    its place among tiles of 512 x 64, a core's 128 rows of them, steps of eight along N, eights along K, and n."""
    numbers, (N, K) = w.dequantize(), w.shape
    out = np.zeros(K * N // 8 * 9, np.uint8).reshape(-1, 9)
    for n in range(N):
        for k in range(0, K, 8):
            eight = numbers[n, k : k + 8].astype(np.float64)
            exponents = np.frexp(eight)[1]
            down = np.ldexp(np.floor(np.ldexp(eight, 8 - exponents)), exponents - 8)
            largest = int(np.frexp(np.abs(down).max())[1])
            held = np.clip(np.floor(np.ldexp(down, 7 - largest)), -128, 127).astype(np.int8)
            at = ((n // 64 * (K // 128) + k // 128) * 8 + n % 64 // 8) * 128 + k % 128 // 8 * 8 + n % 8
            out[at] = [largest + 126, *held.view(np.uint8)] if down.any() else [0] * 9
    return out.reshape(-1)


def test_each_number_is_rounded_down_and_finds_its_place():
    """The reference, against one written for one number at a time."""
    w = weights(128, 1024)
    y = DequantBFP(N=128, K=1024).reference(w)
    assert y.shape == (1024, 128) and y.format is PACKED and np.array_equal(y.data, naive(w))
    off = w.dequantize().T.astype(np.float64) - y.dequantize()
    assert (off >= 0).all() and off.max() > 0


@pytest.mark.parametrize("backend", ["reference", "host"])
@pytest.mark.parametrize("F", ["q4nx", "q4nx_signed", "q4nx_q8"])
def test_it_is_the_same_bytes_on_the_cpu(backend, F):
    """Of whatever chunks; no kernel rounds otherwise."""
    values = np.random.default_rng(1).standard_normal((192, 1024)).astype(F32)
    x = DequantBFP(N=192, K=1024, F=F).F.quantize(values)
    op = DequantBFP(N=192, K=1024, F=F)
    got = iron.OperatorImage(op, backend=backend)(x)
    assert got.format == PACKED and np.array_equal(got.data, op.reference(x).data)


def test_the_host_has_a_kernel_for_it():
    """Numbers of every size, bfloat16's smallest among them."""
    from iron_host.backend import HostBackend

    w = weights(64, 512, 3)
    for scale in (2.0**-126, 1.0):
        w.data[0, :1024].view(iron.bfloat16)[...] = (np.random.default_rng(2).standard_normal(512) * scale).astype(iron.bfloat16)
        op = DequantBFP(N=64, K=512)
        assert np.array_equal(iron.OperatorImage(op, backend=HostBackend(strict=True, threads=2))(w).data, op.reference(w).data)


def test_a_simulated_array_makes_the_same_bytes():
    """On columns that share out the tiles of N, whatever K."""
    for N, K, columns in ((64, 1536, 1), (384, 512, 6), (384, 1024, 2)):
        w = weights(N, K, N)
        op = DequantBFP(N=N, K=K, num_aie_columns=columns)
        outputs, poison, _ = simulate(op, "npu2", {"x": w})
        assert np.array_equal(outputs["y"].reshape(-1), op.reference(w).data) and not poison["y"].any()


def test_a_core_makes_a_quarter_of_a_tile():
    """Its contract: what it reads, makes and computes of 128 x 64 numbers; no AIE2 has it."""
    for half in range(2):
        kernel = dequant_bfp(half)
        assert [a.nbytes for a in kernel.data.arguments] == [2 * 5120, 128 * 64 // 8 * 9] and kernel.contract.ops == 2 * 128 * 64
        assert kernel.data.unsupported == ("AIE2",) and dict(kernel.data.defines)["HALF"] == str(half)


def test_one_array_serves_every_shape():
    """On as many columns."""
    keys = {iron.array_key(DequantBFP(N=n, K=k).resolved("npu2")) for n, k in ((512, 512), (1024, 4096), (2048, 14336))}
    assert len(keys) == 1


def test_npu1_is_refused_in_words():
    """It has no block floating point; neither has the array other chunks."""
    op = DequantBFP(N=64, K=512)
    with pytest.raises(Unresolvable, match=r"dev=npu1; its cores multiply no block floating point. Legal: dev=npu2, which does"):
        op.resolved("npu1")
    with pytest.raises(UnsupportedError, match="no block floating point"):
        iron.OperatorImage(op, backend="sim", dev="npu1")
    with pytest.raises(Unresolvable, match=r"F=q4nx_q8; its array takes FastFlowLM's chunks of scales and minima. Legal: F=q4nx"):
        DequantBFP(N=64, K=512, F="q4nx_q8").resolved("npu2")
    with pytest.raises(Unresolvable, match=r"num_aie_columns=4 do not share out 6 tiles of 64 along N=384. Legal: num_aie_columns=3"):
        DequantBFP(N=384, K=512, num_aie_columns=4).resolved("npu2")
    with pytest.raises(Unresolvable, match=r"num_aie_columns=9; npu2 has 8\. Legal: num_aie_columns=8"):
        DequantBFP(N=576, K=512, num_aie_columns=9).resolved("npu2")


def test_what_is_no_whole_tiles_is_refused():
    """Wherever it runs."""
    for shape in (dict(N=96, K=512), dict(N=64, K=768)):
        with pytest.raises(FormatError):
            DequantBFP(**shape)
    with pytest.raises(ParamError, match="which is numbers already"):
        DequantBFP(N=64, K=512, F=F32)


@pytest.mark.parametrize(("backend", "dev"), [("reference", "host"), ("host", "host"), ("sim", "npu2")])
def test_flm_gemm_reads_what_it_makes(backend, dev):
    """In one graph, weights given as chunks."""

    class Product(iron.Graph):
        def __init__(self, w):
            self.w = iron.weight(w)

        def body(self, x):
            return GEMM(x, DequantBFP(self.w))

    rng = np.random.default_rng(0)
    w = iron.Q4NX.quantize(rng.standard_normal((64, 512)).astype(F32))
    x = rng.standard_normal((256, 512)).astype(iron.bfloat16)
    c = Product(w).compile(backend=backend, dev=dev, x=x.shape)(x).astype(np.float64)
    exact = x.astype(np.float64) @ DequantBFP(N=64, K=512).reference(w).dequantize().astype(np.float64)
    rounds = 2**-8 if dev == "host" else 2**-5  # cores make blocks of the activations too
    assert np.abs(c - exact).max() <= rounds * (np.abs(x.astype(np.float64)) @ np.abs(w.dequantize().T)).max()
