"""`GEMM`'s array: the numbers a simulated one gives, what calls bound, how its transfers fit, and what it refuses."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.array.micro_tiles import MICRO_TILES, block_dims, blocked, row_dims, unblocked
from iron_core.array.spec import check
from iron_core.declare.chained import fold
from iron_core.declare.domain import domains
from iron_core.declare.formats.bfp16 import bfp16
from iron_core.declare.rounding import round_to
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import GEMM, SiLU
from iron_ops_aie.products.kernels_mm import MatrixKernels, bfp16_error
from iron_sim.run import simulate
from tests.transfers import moved_by

DEVICES = ("npu1", "npu2")
EMULATED = dict(emulate_bf16_mmul_with_bfp16=True)
SHAPES = [
    dict(M=64, K=64, N=64),
    dict(M=128, K=128, N=128, b_col_maj=True),
    dict(M=64, K=128, N=128, c_col_maj=True),
    dict(M=128, K=64, N=32, b_col_maj=True, c_col_maj=True),
    dict(M=64, K=192, N=64, prio_accuracy=True),
    dict(M=64, K=128, N=16, prio_accuracy=True, c_col_maj=True, b_col_maj=True),
    dict(M=192, K=32, N=256, tile_m=16, tile_k=16, tile_n=32, num_aie_columns=4, placement="tiles"),
    dict(M=128, K=64, N=192, tile_m=16, tile_n=16, num_aie_columns=2, b_col_maj=True),
    dict(M=128, K=24, N=192, tile_m=32, tile_k=24, tile_n=48, num_aie_columns=1),
    dict(M=704, K=64, N=64, tile_m=16, tile_n=16, c_col_maj=True),
    dict(M=64, K=192, N=64, O=np.float32),
    dict(M=128, K=72, N=32, O=np.float32, c_col_maj=True, b_col_maj=True, tile_k=24),
    dict(M=64, K=192, N=64, T=np.int8, O=np.int32),
    dict(M=128, K=64, N=96, T=np.int8, O=np.int32, b_col_maj=True, c_col_maj=True),
    dict(M=64, K=192, N=64, T=np.int8, O=bfloat16, scale=0.003),
    dict(M=64, K=64, N=32, T=np.int8, O=np.float32, scale=0.003, c_col_maj=True),
    # Row blocks too wide for one descriptor.
    dict(M=128, K=16, N=2240, tile_m=16, tile_k=8, tile_n=16, num_aie_columns=1),
]


def named(fields):
    return "-".join(f"{k}{v}" for k, v in fields.items())


def drawn(op, seed=3):
    return op.test.draw(op, np.random.default_rng(seed))


def bits(array):
    return np.ascontiguousarray(array).view(np.uint8)


def rows_of(op, matrix, n):
    """The first n rows of a C."""
    return matrix[:, :n] if op.c_col_maj else matrix[:n]


def called(op, dev, inputs, **bounds):
    """The valid rows of the simulated C, none of which may be poison; the statistics."""
    outputs, poison, stats = simulate(op, dev, inputs, bounds)
    n = bounds.get("valid", op.M)
    assert not rows_of(op, poison["C"].reshape(op.shape("C")), n).any()
    return rows_of(op, outputs["C"], n), stats


# -- numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("fields", SHAPES, ids=named)
def test_a_simulated_array_gives_the_composed_bits(dev, fields):
    """Every bit, for every layout; and within the array's bound of the reference."""
    op = GEMM(**fields).resolved(device(dev))
    inputs = drawn(op)
    got, stats = called(op, dev, inputs)
    assert np.array_equal(bits(got), bits(op.composed(**inputs)))
    assert op.array_check(got, op.reference(**inputs), *inputs.values()).ratio < 1
    across = op.N // (op.tile_n * op.num_aie_columns)
    assert stats.elements("A") == op.M * op.K * across
    assert stats.elements("B") == op.K * op.N * (op.M // (4 * op.tile_m))
    assert stats.elements("C") == op.M * op.N


@settings(max_examples=30)
@given(st.data())
def test_any_tiles_columns_layouts_and_bounds(data):
    """Whatever the tunables: the composed bits, of the rows and the depth a call has."""
    draw = data.draw
    dev = draw(st.sampled_from(DEVICES))
    step = 16 if dev == "npu1" else 8
    tile_m, tile_n = step * draw(st.integers(1, 3)), 16 * draw(st.integers(1, 2))
    tile_k, columns = 8 * draw(st.integers(1, 4)), draw(st.sampled_from((1, 2, 4) if dev == "npu1" else (1, 2, 4, 5, 8)))
    flags = {name: draw(st.booleans()) for name in ("b_col_maj", "c_col_maj", "prio_accuracy")}
    op = GEMM(
        M=4 * tile_m * draw(st.integers(1, 5)),
        K=tile_k * draw(st.integers(1, 3)),
        N=tile_n * columns * draw(st.integers(1, 3)),
        tile_m=tile_m,
        tile_k=tile_k,
        tile_n=tile_n,
        num_aie_columns=columns,
        placement=draw(st.sampled_from(("shims", "tiles"))),
        **flags,
    ).resolved(device(dev))
    bounds = {}
    if draw(st.booleans()):
        bounds["valid"] = draw(st.integers(0, op.M))
    if draw(st.booleans()):
        bounds["valid_k"] = draw(st.integers(0, op.K))
    inputs = drawn(op)
    got, _ = called(op, dev, inputs, **bounds)
    assert np.array_equal(bits(got), bits(op.composed(**inputs, **bounds)))


def test_all_eight_columns_of_npu2():
    """A enters on every second column."""
    op = GEMM(M=64, K=64, N=256, tile_n=16, b_col_maj=True, placement="tiles").resolved(device("npu2"))
    assert op.num_aie_columns == 8
    design = build(op, "npu2").design
    at = {t.name: (t.kind, t.col, t.row) for t in design.array.tiles}
    assert [at[design.array.fifo(lane.fifo).producer][1] for lane in design.array.lanes_of("A")] == [0, 2, 4, 6]
    assert len(design.array.cores) == 32 and all(col is not None for _, col, _ in at.values())
    inputs = drawn(op)
    got, _ = called(op, "npu2", inputs)
    assert np.array_equal(bits(got), bits(op.composed(**inputs)))


def test_accuracy_first_rounds_once():
    """C in float32 between K tiles: the product's own rounding and no other."""
    op = GEMM(M=64, K=512, N=16, prio_accuracy=True).resolved(device("npu2"))
    inputs = drawn(op)
    exact = op.reference(**inputs)
    assert np.mean(bits(op.composed(**inputs)) != bits(round_to(exact, bfloat16))) < 0.01
    plain = GEMM(M=64, K=512, N=16).resolved(device("npu2"))
    assert np.mean(bits(plain.composed(**inputs)) != bits(round_to(exact, bfloat16))) > 0.1


# -- bounds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dev", DEVICES)
def test_a_bound_on_rows_is_right_at_every_call(dev):
    """Numbers past the bound may be anything, and the rows before it come out as if there were no others."""
    op = GEMM(M=512, K=128, N=128, b_col_maj=True).resolved(device(dev))
    inputs = drawn(op)
    whole = op.composed(**inputs)
    for n in (512, 1, 300, 64, 65, 512, 17, 128, 3, 0):
        wild = dict(inputs, A=inputs["A"].copy())
        wild["A"][n:] = np.nan
        got, stats = called(op, dev, wild, valid=n)
        assert np.array_equal(bits(got), bits(whole[:n]))
        assert np.array_equal(bits(got), bits(op.composed(inputs["A"][:n], inputs["B"], valid=n)))
        assert stats.elements("A") == 512 * 128 and stats.elements("C") == 512 * 128


def test_row_blocks_past_the_bound_are_passed_through():
    """Nothing is computed for them: the second tile of each core leaves as it was at the start."""
    op = GEMM(M=128, K=64, N=64, tile_m=16, c_col_maj=True).resolved(device("npu2"))
    for n in (1, 64):
        _, poison, _ = simulate(op, "npu2", drawn(op), {"valid": n})
        assert not poison["C"][:, :64].any() and poison["C"][:, 64:].all()


@pytest.mark.parametrize("fields", [dict(b_col_maj=True), dict(), dict(prio_accuracy=True, c_col_maj=True)], ids=named)
@pytest.mark.parametrize("dev", DEVICES)
def test_a_bound_on_depth_is_right_at_every_call(dev, fields):
    """Columns of A and rows of B past the bound may be anything; also where both are bounded."""
    op = GEMM(M=128, K=192, N=32, **fields).resolved(device(dev))
    inputs = drawn(op)
    for k, n in ((192, 128), (1, 128), (64, 3), (65, 128), (100, 65), (0, 128), (191, 1), (192, 128)):
        a, b = inputs["A"].copy(), inputs["B"].copy()
        a[:, k:] = np.nan
        (b.T if op.b_col_maj else b)[k:] = np.nan
        got, _ = called(op, dev, {"A": a, "B": b}, valid_k=k, valid=n)
        assert np.array_equal(bits(got), bits(op.composed(**inputs, valid=n, valid_k=k)))
        if k:
            cut = inputs["B"][:, :k] if op.b_col_maj else inputs["B"][:k]
            small = GEMM(M=n, K=k, N=32, **fields).reference(inputs["A"][:n, :k], cut)
            assert np.allclose(got.astype(np.float64), small, rtol=0.05, atol=0.3)


def test_only_bounded_values_are_words_of_the_call():
    """Whatever is the same at every call is written once."""
    op = GEMM(M=128, K=128, N=64)
    words = {bound: [w.name for w in build(op, "npu2", bound).design.sequence.words] for bound in ((), ("valid",), ("valid_k",))}
    assert words == {(): [], ("valid",): ["n_tiles_valid"], ("valid_k",): ["k_valid"]}


class Project(iron.Graph):
    def __init__(self, w):
        self.w = w

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return GEMM(x[:n], self.w, b_col_maj=True)


class Depth(iron.Graph):
    def body(self, x, y, *, n: iron.Scratchpad[np.int32], k: iron.Scratchpad[np.int32]):
        return GEMM(x[:n, :k], y[:k])


@pytest.mark.parametrize("dev", DEVICES)
def test_one_compile_is_right_at_every_bound(dev, rng):
    """Of rows; no call leaves anything behind for the next."""
    w, x = rng.standard_normal((64, 128)).astype(bfloat16), rng.standard_normal((512, 128)).astype(bfloat16)
    graph = Project(w).compile(dev=dev, backend="sim", x=(512, 128))
    whole = GEMM(M=512, K=128, N=64, b_col_maj=True).resolved(device(dev)).composed(x, w)
    for n in (512, 1, 300, 64, 65, 512, 17, 128, 3):
        assert np.array_equal(bits(graph(x, n=n)), bits(whole[:n]))


def test_one_compile_is_right_at_every_depth(rng):
    """Of rows and of the depth, in any order."""
    x, y = rng.standard_normal((128, 128)).astype(bfloat16), rng.standard_normal((128, 64)).astype(bfloat16)
    graph = Depth().compile(dev="npu2", backend="sim", x=(128, 128), y=(128, 64))
    op = GEMM(M=128, K=128, N=64).resolved(device("npu2"))
    for n, k in ((128, 128), (1, 1), (70, 65), (128, 64), (3, 127), (128, 128)):
        assert np.array_equal(bits(graph(x, y, n=n, k=k)), bits(op.composed(x, y, valid=n, valid_k=k)))


# -- a finish -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [dict(), dict(prio_accuracy=True), dict(c_col_maj=True)], ids=named)
@pytest.mark.parametrize("steps", [1, 2])
def test_a_finish_is_applied_to_the_tile_before_it_leaves(fields, steps):
    """The step's own tile reference on the rounded product; its numbers stay in micro tiles."""
    plain = GEMM(M=128, K=128, N=64, **fields)
    op = plain
    for _ in range(steps):
        op = fold(op, SiLU(size=128 * 64))
    op = op.resolved(device("npu2"))
    inputs = drawn(op)
    got, _ = called(op, "npu2", inputs)
    want = plain.resolved(device("npu2")).composed(**inputs)
    line = SiLU(size=op.chain_line("finish"), tile_size=op.chain_line("finish")).resolved(device("npu2"))
    for _ in range(steps):
        tiles = want.reshape(-1, op.chain_line("finish"))
        want = np.stack([line.composed(tile) for tile in tiles]).reshape(want.shape)
    assert np.array_equal(bits(got), bits(want))
    assert np.array_equal(bits(want), bits(op.composed(**inputs)))
    assert op.array_check(got, op.reference(**inputs), *inputs.values()).ratio < 1


# -- the array and its transfers ----------------------------------------------------------------------


def test_one_array_serves_every_extent():
    """No extent is in it."""
    shapes = ((64, 64, 128), (256, 192, 384), (1024, 4096, 256))
    same = [GEMM(M=m, K=k, N=n, tile_m=16, tile_n=16, num_aie_columns=2) for m, k, n in shapes]
    assert len({id(build(op, "npu2").design.array) for op in same}) == 1
    assert build(GEMM(M=64, K=64, N=128, tile_m=16, num_aie_columns=2), "npu2").design.array is not build(same[0], "npu2").design.array


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    "fields",
    [
        dict(M=2048, K=2048, N=8192, b_col_maj=True),
        dict(M=2048, K=8192, N=2048, b_col_maj=True),
        dict(M=1024, K=2560, N=10240),
        dict(M=512, K=512, N=1536, c_col_maj=True),
        dict(M=128, K=64, N=32768, tile_n=16),
        dict(M=512, K=64, N=64, tile_m=16),
    ],
    ids=named,
)
def test_transfers_stay_within_a_shims_descriptors_and_queues(dev, fields):
    """And every number moves as often as it must."""
    op = GEMM(**fields).resolved(device(dev))
    design = build(op, dev, ("valid",)).design
    check(design)
    assert moved_by(design) == {
        "A": op.M * op.K * op.N // (op.tile_n * op.num_aie_columns),
        "B": op.K * op.N * (op.M // (4 * op.tile_m)),
        "C": op.M * op.N,
    }


# -- tunables and refusals ----------------------------------------------------------------------------


def test_defaults():
    """Tiles as wide as the shape and the kernel allow; as many columns as N fills."""
    def tiles(dev, **fields):
        op = GEMM(**fields).resolved(device(dev))
        return op.tile_m, op.tile_k, op.tile_n, op.num_aie_columns

    assert tiles("npu2", M=256, K=64, N=256) == (64, 64, 64, 4)
    assert tiles("npu2", M=2048, K=2048, N=8192) == (64, 64, 64, 8)
    assert tiles("npu1", M=2048, K=2048, N=8192) == (64, 64, 64, 4)
    assert tiles("npu2", M=32, K=64, N=48) == (8, 64, 16, 1)
    assert tiles("npu2", M=96, K=64, N=192) == (8, 64, 64, 1)
    assert tiles("npu1", M=64, K=64, N=384) == (16, 64, 64, 2)


def test_what_a_tuner_may_try():
    """Another tile_k changes the numbers, so it is tried only where C is kept in float32."""
    op = GEMM(M=512, K=256, N=512).resolved(device("npu2"))
    found = domains(op, device("npu2"))
    assert found["tile_m"] == (128, 64, 32, 16, 8) and found["tile_n"][-1] == 16 and "tile_k" not in found
    assert found["num_aie_columns"] == (8, 4, 2, 1) and found["placement"] == ("shims", "tiles")
    accurate = GEMM(M=512, K=256, N=512, prio_accuracy=True).resolved(device("npu2"))
    assert domains(accurate, device("npu2"))["tile_k"] == (256, 128, 64, 32, 16, 8)


@pytest.mark.parametrize(
    ("dev", "fields", "words"),
    [
        ("npu2", dict(M=65, K=64, N=64), r"M=65; on npu2 .* multiples of 32 rows. Nearest legal M: 64 or 96"),
        ("npu1", dict(M=32, K=64, N=64), r"M=32; on npu1 .* multiples of 64 rows. Nearest legal M: 64\."),
        ("npu2", dict(M=96, K=64, N=64, tile_m=64), r"M=96 is not .* 4 rows of tile_m=64, 256 in all.* M: 256; or give tile_m="),
        ("npu2", dict(M=64, K=96, N=64), r"K=96 is not whole blocks of tile_k=64.* legal K: 64 or 128; or give tile_k="),
        ("npu2", dict(M=64, K=64, N=72), r"N=72 is not whole blocks of tile_n=64 on num_aie_columns=1.* N: 64 or 128"),
        ("npu2", dict(M=64, K=64, N=128, num_aie_columns=4), r"N=128 .* tile_n=64 on num_aie_columns=4, 256 in all"),
        ("npu2", dict(M=64, K=64, N=192, num_aie_columns=3), r"num_aie_columns=3; .* Legal: 1, 2, 4, 5, 6, 7, 8"),
        ("npu1", dict(M=64, K=64, N=512, num_aie_columns=8), r"num_aie_columns=8; .* Legal: 1, 2, 4\."),
        ("npu1", dict(M=64, K=64, N=64, tile_n=24), r"tile_n=24; the kernel of npu1 .* multiples of 16. Nearest legal: 16 or 32"),
        ("npu2", dict(M=64, K=64, N=64, tile_m=4), r"tile_m=4; .* multiples of 8. Nearest legal: 8\."),
        ("npu2", dict(M=512, K=128, N=128, tile_m=128, tile_k=128), r"core core0_0 needs \d+ bytes of its 65536 .* smaller tile_k="),
        ("npu2", dict(M=64, K=64, N=64, T=np.float32), r"T=float32, W=float32, O=float32; its array .* Legal: T=W=bfloat16 with"),
        ("npu2", dict(M=64, K=64, N=64, O=np.float16), r"O=float16; its array .* Legal: T=W=bfloat16 with O=bfloat16"),
        ("npu2", dict(M=64, K=64, N=64, O=np.float32, prio_accuracy=True), r"prio_accuracy=True with .*O=float32.* Legal: prio"),
        ("npu1", dict(M=64, K=64, N=64, **EMULATED), r"emulate_\w+=True for bfloat16 on npu1; .* Legal: emulate_\w+=False"),
        ("npu2", dict(M=64, K=64, N=64, T=np.int8, O=np.int32, **EMULATED), r"emulate_\w+=True for int8 .* Legal"),
        ("npu2", dict(M=64, K=64, N=64, b_col_maj=True, W="q4_0"), r"W=q4_0, .* its array"),
        ("npu2", dict(M=64, K=64, N=64, placement="rows"), r"placement='rows' is not declared. Legal: shims, tiles"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(dev, fields, words):
    """The number used, the rule, and what would be legal."""
    with pytest.raises(Unresolvable, match=words):
        GEMM(**fields).resolved(device(dev))


@pytest.mark.parametrize("fields", [dict(K=1 << 22, N=64), dict(K=64, N=1 << 22), dict(K=1 << 22, N=64, b_col_maj=True)], ids=named)
def test_rows_that_are_too_far_apart_are_refused(fields):
    """A step of a descriptor holds 2^20 words."""
    with pytest.raises(Unresolvable, match=f"K={fields['K']}, N={fields['N']}: rows of A or of B are further apart"):
        build(GEMM(M=64, **fields), "npu2")


def test_a_finish_that_needs_an_order_is_refused():
    """C is held in micro tiles."""
    from iron_ops_aie import ElementwiseAdd

    with pytest.raises(Unresolvable, match="ElementwiseAdd has further inputs, and cores hold C in micro tiles"):
        fold(GEMM(M=64, K=64, N=64), ElementwiseAdd(size=4096)).resolved(device("npu2"))


# -- accuracy ------------------------------------------------------------------------------------------


def error(**fields):
    """The largest error of a simulated product beside the exact one's size, each within its own gate."""
    op = GEMM(M=64, K=512, N=64, **fields).resolved(device("npu2"))
    inputs = drawn(op)
    got = simulate(op, "npu2", inputs)[0]["C"]
    exact = op.reference(**inputs)
    op.array_check(got, exact, *(inputs[o.name] for o in op.inputs if o.present(op)))
    return np.abs(got.astype(np.float64) - exact).max() / np.abs(exact).max()


def test_the_modes_by_their_errors():
    """float32 all along, sums in float32, sums rounded to bfloat16, and products of bfp16: each is worse than the one before."""
    found = [error(O=np.float32), error(prio_accuracy=True), error(), error(prio_accuracy=True, **EMULATED)]
    assert found[0] < 1e-6 < found[1] < 4e-3 < found[2] < found[3] < 3e-2


@given(st.lists(st.floats(-(2.0**40), 2.0**40, width=32), min_size=1, max_size=24))
def test_bfp16_shares_an_exponent_among_eight(numbers):
    """None is further off than a 128th of the power of two at or below its block's largest; blocks begin at every eighth."""
    x = np.array([numbers], np.float32)
    for axis, matrix in ((1, x), (0, x.T)):
        off = np.abs(bfp16(matrix, axis).astype(np.float64) - matrix)
        assert (off <= bfp16_error(matrix, axis)).all()
    for first in range(0, len(numbers), 8):
        block = x[:, first : first + 8]
        assert np.array_equal(bfp16(x, 1)[:, first : first + 8], bfp16(block, 1))
        assert np.unique(bfp16_error(block, 1)).size == 1


def test_bfp16_of_known_numbers():
    """8 bits with their sign: 127 units of a 64th below 2; what rounds to 128 is cut."""
    x = np.array([[1.0, -1.0, 1.984375, 0.0078125, 0.0234375, 1.9999, -2.0, 0]], np.float32)
    assert bfp16(x, 1).tolist() == [[1.0, -1.0, 2.0, 0.0, 0.03125, 2.0, -2.0, 0]]
    assert bfp16(x[:, :6], 1).tolist() == [[1.0, -1.0, 1.984375, 0.0, 0.03125, 1.984375]]


# -- kernels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arch", "mode"), MICRO_TILES)
@pytest.mark.parametrize("b_col_maj", [False, True])
@pytest.mark.parametrize("c_col_maj", [False, True])
def test_the_product_of_blocked_tiles(arch, mode, b_col_maj, c_col_maj, rng):
    """Whatever the layout, the same numbers in the same places once unblocked."""
    kernels = MatrixKernels(arch, 32, 16, 48, b_col_maj, c_col_maj, np.dtype(np.float32), mode)
    r, s, t = kernels.micro
    # Small integers: every mode has them.
    a, b, c = (rng.integers(-9, 9, shape).astype(kernels.dtype) for shape in ((32, 16), (16, 48), (32, 48)))
    held_b = blocked(b.T, t, s) if b_col_maj else blocked(b, s, t)
    held_c = blocked(c.T, t, r) if c_col_maj else blocked(c, r, t)
    got = kernels.mm().contract.reference(blocked(a, r, s), held_b, held_c)
    got = unblocked(got, (48, 32), t, r).T if c_col_maj else unblocked(got, (32, 48), r, t)
    assert np.array_equal(got, c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64))


def test_re_orderings_undo_each_other():
    """What a DMA sends in blocks is what `blocked` makes, and it sends blocks back as rows."""
    matrix = np.arange(24 * 32).reshape(24, 32)

    def sent(flat, dims):
        at = np.zeros(1, np.int64)
        for size, stride in dims:
            at = (at[:, None] + np.arange(size) * stride).ravel()
        return flat[at]

    held = sent(matrix.ravel(), block_dims((24, 32), 4, 8))
    assert np.array_equal(held, blocked(matrix, 4, 8))
    assert np.array_equal(unblocked(held, (24, 32), 4, 8), matrix)
    assert np.array_equal(sent(held, row_dims((24, 32), 4, 8)).reshape(24, 32), matrix)


@pytest.mark.parametrize(("arch", "mode"), MICRO_TILES)
@pytest.mark.parametrize("b_col_maj", [False, True])
def test_the_tails_source_does_what_its_reference_says(arch, mode, b_col_maj, rng, tmp_path):
    """Compiled for this machine; both zero what lies past the bound along K, and only that."""
    from iron_host.compiler import find

    kernels = MatrixKernels(arch, 32, 24, 48, b_col_maj, mode=mode)
    r, s, t = kernels.micro
    for kernel, shape, micro in (
        (kernels.a_tail(), (32, 24), (r, s)),
        (kernels.b_tail(), (48, 24) if b_col_maj else (24, 48), (t, s) if b_col_maj else (s, t)),
    ):
        data = kernel.data
        defines = "".join(f"#define {name} {value}\n" for name, value in (*data.defines, ("KERNEL", data.symbol)))
        source, library = tmp_path / f"{data.symbol}.cpp", tmp_path / f"{data.symbol}.so"
        source.write_text(defines + data.source)
        find().run(source, library)
        function = getattr(ctypes.CDLL(str(library)), data.symbol)
        tile = (100 * rng.standard_normal(shape)).astype(kernels.dtype)
        for n in range(25):
            want = tile.copy()
            along_k = want if (kernel.data.symbol.startswith("b_tail") and not b_col_maj) else want.T
            along_k[n:] = 0
            held = blocked(tile, *micro)
            function(held.ctypes.data_as(ctypes.c_void_p), ctypes.c_int32(n))
            assert np.array_equal(bits(held), bits(blocked(want, *micro)))
            assert np.array_equal(bits(held), bits(kernel.contract.reference(blocked(tile, *micro), n).astype(kernels.dtype)))
