"""`flm.GEMM`'s array: one for every shape, the numbers a simulated one gives, how its transfers fit, and what it refuses."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.array.sequence import WriteWord
from iron_core.array.spec import check
from iron_core.declare.formats.bfp16 import ROUNDINGS
from iron_core.declare.identity import array_key
from iron_core.declare.rounding import round_to
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import GELU, Clamp, Sigmoid, SiLU
from iron_ops_flm import GEMM
from iron_ops_flm.epilogue import GELUS, Epilogue, Finish
from iron_ops_flm.kernels_gemm import ProductKernels, exp, finish
from iron_ops_flm.packing import CT_K
from iron_sim.run import simulate
from tests.transfers import moved_by

DEVICES = ("npu1", "npu2")


def named(fields):
    return "-".join(f"{k}{v}" for k, v in fields.items())


def drawn(op, seed=3):
    return op.test.draw(op, np.random.default_rng(seed))


def bits(array):
    return np.ascontiguousarray(array).view(np.uint16)


def called(op, dev, inputs, **bounds):
    """The valid rows of the simulated C, none of which may be poison."""
    outputs, poison, stats = simulate(op, dev, inputs, bounds)
    n = bounds.get("valid", op.M)
    assert not poison["C"].reshape(op.M, op.N)[:n].any()
    return outputs["C"][:n], stats


# -- one array ----------------------------------------------------------------------------------------

#: Shapes of prompts' chunks and of others, with what is done to the sums.
TEN = [
    dict(M=256, K=512, N=64),
    dict(M=1024, K=1536, N=6144, epilogue=Epilogue.SILU),
    dict(M=256, K=2048, N=2048, clamp=(-1.0, 1.0)),
    dict(M=512, K=2048, N=8192, epilogue=Epilogue.GELU),
    dict(M=2048, K=8192, N=2048, epilogue=Epilogue.SIGMOID, clamp=(0.25, 0.75)),
    dict(M=256, K=512, N=576),
    dict(M=256, K=1024, N=4096, epilogue=Epilogue.SILU, clamp=(0.0, float("inf"))),
    dict(M=256, K=3072, N=1024),
    dict(M=512, K=1024, N=6144, epilogue=Epilogue.GELU, clamp=(-0.1, 0.1)),
    dict(M=768, K=2560, N=320),
]


@pytest.mark.parametrize(
    ("dev", "lies"),
    [*((dev, lies) for dev in DEVICES for lies in (dict(b_col_maj=True), dict())), ("npu2", dict(packed_blocks=True))],
    ids=lambda of: of if isinstance(of, str) else named(of),
)
def test_ten_shapes_are_one_array(dev, lies):
    """M, K, N, the activation and the clamp are words: one key, one array; only what the sequence writes and moves differs."""
    ops = [GEMM(**fields, **lies).resolved(device(dev)) for fields in TEN]
    assert len({array_key(op) for op in ops}) == 1
    designs = [build(op, dev).design for op in ops]
    assert len({id(design.array) for design in designs}) == 1
    written = [{(w.buffer, w.index): w.value for w in design.sequence.steps if isinstance(w, WriteWord)} for design in designs]
    assert all(found.keys() == written[0].keys() for found in written)
    assert len({tuple(found["words_core0_0", i] for i in range(6)) for found in written}) == 10


@pytest.mark.parametrize("dev", DEVICES)
def test_a_graph_of_many_products_is_one_configuration(dev):
    """Whatever their shapes and activations: what is loaded is loaded once."""

    class Gated(iron.Graph):
        def __init__(self):
            self.gate, self.up, self.down = (np.ones(shape, bfloat16) for shape in ((1024, 512), (1024, 512), (512, 1024)))

        def body(self, x):
            gate = GEMM(x, self.gate, b_col_maj=True, epilogue=Epilogue.SILU)
            up = GEMM(x, self.up, b_col_maj=True, clamp=(-1.0, 1.0))
            return GEMM(gate, self.down, b_col_maj=True), GEMM(up, self.down, b_col_maj=True)

    text = Gated().compile(dev=dev, backend="null", x=(256, 512)).explain()
    assert "of 1 array" in text


def test_words_say_what_is_done():
    """Tiles across, row blocks, steps of K, the activation's number, and the bits of the bounds."""
    op = GEMM(M=512, K=1024, N=320, b_col_maj=True, epilogue=Epilogue.SIGMOID, clamp=(-0.3, 1.0)).resolved("npu2")
    low, high = (int(round_to(np.float64(x), bfloat16).view(np.uint16)) for x in (-0.3, 1.0))
    found = (op.n_val, op.m_row_blocks, op.k_iters, op.mode, op.clamp_min, op.clamp_max)
    assert found == (5, 2, 2, 3, low, high)
    plain = GEMM(M=256, K=512, N=64).resolved("npu2")
    assert (plain.mode, plain.clamp_min, plain.clamp_max) == (0, 0xFF80, 0x7F80)  # no clamp is between the infinities


# -- numbers ------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(st.data())
def test_any_shape_and_epilogue_gives_the_composed_bits(data):
    """Whatever the tiles, the layout of B, the columns that N leaves over, the bound on rows."""
    draw = data.draw
    dev = draw(st.sampled_from(DEVICES))
    tile_n = draw(st.sampled_from((16, 32)))
    k_tile = CT_K[tile_n] * draw(st.integers(1, 3))
    lies = draw(st.sampled_from((dict(b_col_maj=True), dict(), dict(packed_blocks=dev == "npu2"))))
    op = GEMM(
        M=256 * draw(st.integers(1, 2)),
        K=k_tile * draw(st.integers(1, 2)),
        N=tile_n * draw(st.integers(1, 11)),
        tile_n=tile_n,
        k_tile=k_tile,
        epilogue=draw(st.sampled_from(Epilogue)),
        clamp=draw(st.sampled_from((None, (-0.25, 3.0)))),
        rounding=draw(st.sampled_from(ROUNDINGS)),
        gelu=draw(st.sampled_from(GELUS)),
        tile_ma=draw(st.sampled_from((None, 16, 32, 64))),
        num_aie_columns=draw(st.sampled_from((None, 1, 2, 4))),
        emulate_bf16_mmul_with_bfp16=draw(st.sampled_from((None, False))),
        **lies,
    ).resolved(device(dev))
    bounds = dict(valid=draw(st.integers(0, op.M))) if draw(st.booleans()) else {}
    inputs = drawn(op)
    got, stats = called(op, dev, inputs, **bounds)
    want = op.composed(**inputs)[: bounds.get("valid", op.M)]
    assert np.array_equal(bits(got), bits(want))
    assert stats.elements("A") == op.M * op.K * -(-op.N // (tile_n * op.num_aie_columns)) and stats.elements("C") == op.M * op.N


@pytest.mark.parametrize("dev", DEVICES)
def test_rows_past_a_bound_may_be_anything(dev):
    """Everything streams, and the rows before it come out as if there were no others."""
    op = GEMM(M=256, K=512, N=128, b_col_maj=True, epilogue=Epilogue.SILU).resolved(device(dev))
    inputs = drawn(op)
    whole = op.composed(**inputs)
    for n in (256, 1, 70, 0):
        wild = dict(inputs, A=inputs["A"].copy())
        wild["A"][n:] = np.nan
        got, stats = called(op, dev, wild, valid=n)
        assert np.array_equal(bits(got), bits(whole[:n])) and stats.elements("C") == op.M * op.N


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("tile_n", CT_K)
def test_every_verified_width(dev, tile_n):
    """On all columns, as wide and deep as the device's memory takes."""
    op = GEMM(M=256, K=CT_K[tile_n] * 4, N=tile_n, k_tile=CT_K[tile_n] * 4, tile_n=tile_n).resolved(device(dev))
    inputs = drawn(op)
    assert np.array_equal(bits(called(op, dev, inputs)[0]), bits(op.composed(**inputs)))
    GEMM(M=256, K=512, N=tile_n, tile_n=tile_n).resolved(device(dev))


# -- transfers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    "fields", [*TEN[1:6], dict(M=256, K=512, N=32768), dict(M=256, K=512, N=6464, packed_blocks=False)], ids=lambda f: named(f)
)
def test_transfers_stay_within_a_shims_descriptors_and_queues(dev, fields):
    """And every number moves as often as it must."""
    op = GEMM(b_col_maj=True, **fields).resolved(device(dev))
    design = build(op, dev, ("valid",)).design
    check(design)
    across = -(-op.N // (op.tile_n * op.num_aie_columns))
    assert moved_by(design) == {"A": op.M * op.K * across, "B": op.K * op.N * (op.M // 256), "C": op.M * op.N}


# -- steps behind it ----------------------------------------------------------------------------------


class Behind(iron.Graph):
    """A product with two steps behind it."""

    def __init__(self, *steps):
        self._steps = steps
        self.w = (np.random.default_rng(1).standard_normal((64, 512)) / 8).astype(bfloat16)

    def body(self, x):
        y = GEMM(x, self.w, b_col_maj=True)
        for step, fields in self._steps:
            y = step(y, **fields)
        return y


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("step", [SiLU, Sigmoid])
def test_folded_steps_are_words_of_the_same_array(dev, step, rng):
    """Bit for bit what they make by themselves."""
    x = rng.standard_normal((256, 512)).astype(bfloat16)
    steps = (step, {}), (Clamp, dict(low=-0.2, high=0.7))
    folded, apart = (Behind(*steps).compile(dev=dev, backend="sim", x=x.shape, fold=fold) for fold in (True, False))
    assert "runs       1 steps: 3 of the graph" in folded.explain() and "designs    3" in apart.explain()
    assert np.array_equal(bits(folded(x)), bits(apart(x)))
    alone = Behind().compile(dev=dev, backend="null", x=x.shape)
    keys = [array_key(plan.op.absorbed(step(size=16384)).resolved(dev)) for plan in alone.plan.versions[0].steps]
    assert keys == [array_key(plan.op.resolved(dev)) for plan in alone.plan.versions[0].steps]


def test_a_gelu_stays_a_step():
    """Its formula is another."""
    text = Behind((GELU, {})).compile(dev="npu2", backend="null", x=(256, 512), fold=True).explain()
    assert "gelu0 into the finish of gemm0: GEMM: its array applies no finish. Legal: the step by itself." in text


@pytest.mark.parametrize(("epilogue", "step"), [(Epilogue.SILU, SiLU), (Epilogue.SIGMOID, Sigmoid)])
def test_an_epilogue_has_the_bits_of_the_step(epilogue, step):
    """Of every bfloat16 there is."""
    x = np.arange(65536, dtype=np.uint16).view(bfloat16)
    own = round_to(Finish(epilogue).of(x.astype(np.float32), exp), bfloat16)
    with np.errstate(all="ignore"):
        theirs = round_to(step(size=65536, tile_size=65536).kernel().reference(x), bfloat16)
    number = ~np.isnan(theirs.astype(np.float32))
    assert np.array_equal(bits(own)[number], bits(theirs)[number]) and np.isnan(own[~number].astype(np.float32)).all()


# -- kernels ------------------------------------------------------------------------------------------


def compiled(kernel, folder):
    from iron_host.compiler import find

    data = kernel.data
    defines = "".join(f"#define {name} {value}\n" for name, value in (*data.defines, ("KERNEL", data.symbol)))
    source, library = folder / f"{data.symbol}.cpp", folder / f"{data.symbol}.so"
    source.write_text("#pragma STDC FP_CONTRACT OFF\n" + defines + data.source)
    found = find()
    found.run(source, library)
    return getattr(ctypes.CDLL(str(library)), data.symbol)


@pytest.mark.parametrize("gelu", GELUS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_the_finishs_source_does_what_its_reference_says(rounding, gelu, rng, tmp_path):
    """Compiled for this machine: every activation, of numbers of every size, infinities and what is no number."""
    kernel = finish(4096, rounding, gelu)
    function = compiled(kernel, tmp_path)
    sums = (rng.standard_normal(4096) * np.exp2(rng.integers(-30, 8, 4096))).astype(np.float32)
    sums[:8] = [np.inf, -np.inf, np.nan, 0.0, -0.0, 88.8, -88.8, 3e38]
    for mode in Epilogue:
        for low, high in ((0xFF80, 0x7F80), (0xBE80, 0x3F80)):
            out = np.zeros(4096, np.uint16)
            function(*(a.ctypes.data_as(ctypes.c_void_p) for a in (sums, out)), *map(ctypes.c_int32, (mode, low, high)))
            want = kernel.contract.reference(sums, int(mode), low, high)
            got = out.view(bfloat16).astype(np.float32)
            # A compiler may contract a multiplication and an addition, which is another unit of bfloat16 at most.
            assert np.isclose(got, want, rtol=2.0**-7, atol=0, equal_nan=True).all()
            assert np.mean((got != want) & ~np.isnan(want)) <= (0.01 if mode else 0)


def test_blocks_expand_to_the_numbers_they_are(rng, tmp_path):
    """bfloat16 holds every one."""
    kernel = ProductKernels("AIE2P", 16, 32, 32, True, True).expand()
    function = compiled(kernel, tmp_path)
    tensor = iron.BFP16EBS8.quantize(rng.standard_normal(1024) * np.exp2(rng.integers(-40, 40, 1024)))
    out = np.zeros(1024, np.uint16)
    function(tensor.data.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p))
    assert np.array_equal(out.view(bfloat16).astype(np.float32), tensor.dequantize())
    assert np.array_equal(kernel.contract.reference(tensor.data), tensor.dequantize())


# -- tunables and refusals ----------------------------------------------------------------------------


def test_defaults():
    """All columns; as many rows of A at a time as a core has room for; on npu2 products of bfp16."""
    for dev, columns, emulated in (("npu1", 4, False), ("npu2", 8, True)):
        op = GEMM(M=256, K=512, N=64, b_col_maj=True).resolved(dev)
        assert (op.num_aie_columns, op.tile_ma, op.emulate_bf16_mmul_with_bfp16) == (columns, 16, emulated)
        assert GEMM(M=256, K=512, N=32, tile_n=32).resolved(dev).tile_ma == 64


@pytest.mark.parametrize(
    ("dev", "fields", "words"),
    [
        ("npu2", dict(M=300), r"M=300 is not whole blocks of 4 rows of 64, 256 in all. Nearest legal M: 256 or 512"),
        ("npu1", dict(K=576, b_col_maj=True), r"K=576 is not whole blocks of k_tile=512.* K: 512 or 1024; or give k_tile="),
        ("npu2", dict(N=72, b_col_maj=True), r"N=72 is not whole tiles of tile_n=64.* N: 64 or 128; or give tile_n="),
        ("npu1", dict(packed_blocks=True), r"packed_blocks=True on npu1; bfp16ebs8 is AIE2P's. Legal: packed_blocks=False"),
        ("npu1", dict(emulate_bf16_mmul_with_bfp16=True), r"emulate_bf16_mmul_with_bfp16=True on npu1; .* Legal: emulate_\w+=False"),
        ("npu2", dict(tile_ma=48), "tile_ma=48; legal: 64, 32, 16"),
        ("npu2", dict(num_aie_columns=3), "num_aie_columns=3; .* Legal: 1, 2, 4, 5, 6, 7, 8"),
        ("npu2", dict(tile_ma=64), r"core core\d_\d needs \d+ bytes of its 65536 .* smaller k_tile= or tile_ma="),
        ("npu2", dict(K=4096, k_tile=4096), r"memory tile needs \d+ bytes of its 524288 .* smaller k_tile= or tile_ma="),
    ],
)
def test_what_does_not_fit_is_refused_in_words(dev, fields, words):
    """The number used, the rule, and what would be legal."""
    with pytest.raises(Unresolvable, match=words):
        GEMM(**dict(M=256, K=512, N=64) | fields).resolved(device(dev))


def test_rows_that_are_too_far_apart_are_refused():
    """A step of a descriptor holds 2^20 words, and rows of cores are 64 rows of C apart."""
    with pytest.raises(Unresolvable, match="K=512, N=65536: rows of A, B or C are further apart than a step"):
        build(GEMM(M=256, K=512, N=65536, b_col_maj=True), "npu2")
