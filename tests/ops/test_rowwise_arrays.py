"""The arrays of operators on rows: pipelines of cores, vectors that every row meets, and the numbers a simulated array gives."""

from __future__ import annotations

import re

import numpy as np
import pytest

import iron_core as iron
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.declare.formats import bfloat16
from iron_core.devices import device
from iron_core.errors import DeclarationError, DeviationError, Unresolvable
from iron_ops_aie import LayerNorm, RMSNorm, RoPE, RowwiseAdd, RowwiseMul, Softmax
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")


def drawn(op):
    return op.test.draw(op, np.random.default_rng(3))


def run(op, dev, **bounds):
    """The simulated y, what composed() says it is, and the statistics. Nothing that a call keeps may be unwritten."""
    op = op.resolved(device(dev))
    inputs = drawn(op)
    short = op.bounded(**op.limits(bounds)).shape("y")[0]
    outputs, poison, stats = simulate(op, dev, inputs, bounds)
    assert not poison["y"][:short].any()
    return outputs["y"][:short], op.composed(*(inputs.get(o.name) for o in op.inputs))[:short], stats


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("valid", [1, 5, 24])
@pytest.mark.parametrize(
    "op",
    [
        RMSNorm(rows=24, cols=64),
        RMSNorm(rows=24, cols=96, weighted=True),
        RMSNorm(rows=24, cols=64, weighted=True, num_channels=2, num_aie_columns=3),
        RMSNorm(rows=24, cols=4096, weighted=True),
        RMSNorm(rows=24, cols=8192),
        RowwiseAdd(rows=24, cols=48, num_channels=2),
        RowwiseMul(rows=24, cols=4096),
        LayerNorm(rows=24, cols=96),
        LayerNorm(rows=24, cols=4096, weighted=True, biased=True),
        LayerNorm(rows=24, cols=32, biased=True, num_channels=2),
        LayerNorm(rows=24, cols=64, epsilon=1e-12),
    ],
    ids=repr,
)
def test_a_bounded_call_gives_the_composed_bits(op, dev, valid):
    """Of the rows that it keeps, every bit."""
    got, want, _ = run(op, dev, valid=valid)
    assert got.shape == (valid, op.cols) and got.tobytes() == want.tobytes()


# -- RMSNorm ----------------------------------------------------------------------------------------


def test_a_weight_is_a_core_of_its_own_behind_each_that_norms():
    """Two cores per lane, of which the second reads the normalised row, in bfloat16, and the weight."""
    plain, weighted = (build(RMSNorm(rows=8, cols=64, weighted=w), "npu2").design.array for w in (False, True))
    assert len(plain.cores) == 8 and len(weighted.cores) == 16
    between = [fifo for fifo in weighted.fifos if fifo.name.startswith("row")]
    assert len(between) == 8 and {str(fifo.type) for fifo in between} == {"64 bfloat16"}


@pytest.mark.parametrize(("channels", "dev"), [(1, "npu1"), (2, "npu2")])
def test_a_weight_comes_once_per_call_and_channel(channels, dev):
    """However many rows and columns there are."""
    op = RMSNorm(rows=48, cols=64, weighted=True, num_channels=channels)
    _, _, stats = run(op, dev)
    assert stats.elements("weight") == channels * 64 and stats.elements("x") == 48 * 64


def test_the_row_is_rounded_between_the_two_cores(rng):
    """As the contract says; what composed() gives is the two steps, which differ from one."""
    x, weight = rng.standard_normal((4, 64)).astype(bfloat16), rng.standard_normal(64).astype(bfloat16)
    op = RMSNorm(rows=4, cols=64, weighted=True).resolved(device("npu2"))
    wide, gain = x.astype(np.float32), weight.astype(np.float32)
    row = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + np.float32(1e-5))
    want = (row.astype(bfloat16).astype(np.float32) * gain).astype(bfloat16)
    got = op.composed(x, weight)
    assert got.tobytes() == want.tobytes()
    assert got.tobytes() != (row * gain).astype(bfloat16).tobytes()


def test_another_epsilon_is_another_array_and_another_number_of_rows_is_not():
    """epsilon is the kernel's."""
    one, other = (build(RMSNorm(rows=8, cols=64, epsilon=e), "npu1").design.array for e in (1e-5, 1e-6))
    assert one != other
    assert build(RMSNorm(rows=64, cols=64), "npu1").design.array is one


# -- LayerNorm, RowwiseAdd ---------------------------------------------------------------------------


@pytest.mark.parametrize(("weighted", "biased", "cores"), [(False, False, 1), (True, False, 2), (False, True, 2), (True, True, 3)])
def test_a_lane_of_a_layer_norm_has_a_core_for_each_of_its_steps(weighted, biased, cores):
    """The norm, the weight, the bias; what of a column's four cores is left over makes no lane."""
    op = LayerNorm(rows=16, cols=64, weighted=weighted, biased=biased)
    assert len(build(op, "npu2").design.array.cores) == 8 * cores
    assert len(build(LayerNorm(rows=24, cols=64, weighted=weighted, biased=biased, num_channels=2), "npu1").design.array.cores) == {
        1: 8, 2: 12, 3: 12,
    }[cores]  # fmt: skip


def test_each_step_of_a_layer_norm_is_rounded(rng):
    """So the gate of its array is the norm's, then a rounding a core; and not wider than that."""
    x, weight, bias = (rng.standard_normal(shape).astype(bfloat16) for shape in ((4, 64), 64, 64))
    op = LayerNorm(rows=4, cols=64, weighted=True, biased=True).resolved(device("npu2"))
    row = LayerNorm(rows=4, cols=64).resolved(device("npu2")).composed(x).astype(np.float32)
    scaled = (row * weight.astype(np.float32)).astype(bfloat16).astype(np.float32)
    got = op.composed(x, weight, bias)
    assert got.tobytes() == (scaled + bias.astype(np.float32)).astype(bfloat16).tobytes()
    op.array_check(got, op.reference(x, weight, bias), x, weight, bias)
    with pytest.raises(DeviationError):
        op.array_check((got.astype(np.float32) * 1.03).astype(bfloat16), op.reference(x, weight, bias), x, weight, bias)


@pytest.mark.parametrize("dev", DEVICES)
def test_the_epsilon_of_a_layer_norm_counts_where_a_row_hardly_spreads(dev):
    """BERT's, of rows that spread by 1e-3: the numbers of the contract; a row too large to square is zeros, an even one too."""
    op = LayerNorm(rows=3, cols=64, epsilon=1e-12).resolved(device(dev))
    x = np.random.default_rng(0).standard_normal((3, 64)) * np.array([[1e-3], [2.0**70], [0.0]])
    got, _, _ = simulate(op, dev, {"x": x.astype(bfloat16)})
    want = LayerNorm(rows=3, cols=64, epsilon=1e-12, T=np.float32).reference(x.astype(bfloat16).astype(np.float32))
    assert np.abs(got["y"][0].astype(float) - want[0]).max() < 0.02 and want[0].std() > 0.9
    assert not got["y"][1:].any()


# -- Softmax ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("counted", [1, 31, 32, 33, 96])
def test_what_does_not_count_in_a_row_is_zero_and_counts_for_nothing(dev, counted, rng):
    """Per call: the span in whole vectors is computed, with what does not count in it hidden; beyond it nothing is."""
    op = Softmax(rows=32, cols=96)
    x = rng.standard_normal((32, 96)).astype(bfloat16)
    x[:, counted:] = np.nan
    outputs, poison, _ = simulate(op, dev, {"x": x}, {"valid_cols": counted, "valid": 17})
    y, short = outputs["y"][:17], op.resolved(device(dev)).bounded(rows=17, vector_size=counted)
    assert not poison["y"][:17].any() and not y[:, counted:].any()
    assert y.tobytes() == short.composed(x[:17]).tobytes()
    short.array_check(y, short.reference(x[:17]), x[:17])


def test_a_call_of_a_softmax_that_counts_nothing_gives_zeros(rng):
    """And divides by nothing."""
    x = rng.standard_normal((16, 64)).astype(bfloat16)
    outputs, poison, _ = simulate(Softmax(rows=16, cols=64), "npu2", {"x": x}, {"valid_cols": 0})
    assert not outputs["y"].any() and not poison["y"].any()


def test_the_softmax_of_an_array_is_no_worse_than_its_arithmetic(rng):
    """log2 e is 1.8e-3 too large, which a far exponential shows; the gate follows that, and is no wider."""
    x = (rng.standard_normal((16, 64)) * 20).astype(bfloat16)
    op = Softmax(rows=16, cols=64).resolved(device("npu2"))
    got, exact = op.composed(x), op.reference(x)
    op.array_check(got, exact, x)
    with pytest.raises(DeviationError):
        op.check(got, exact, x)
    with pytest.raises(DeviationError):
        op.array_check((got.astype(np.float32) * 1.1).astype(bfloat16), exact, x)


# -- RoPE -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("positions", [1, 3, 8])
@pytest.mark.parametrize(
    "op",
    [
        RoPE(rows=24, cols=64, angle_rows=8),
        RoPE(rows=24, cols=64, angle_rows=8, method_type=1),
        RoPE(rows=8, cols=32, num_aie_columns=2),
    ],
    ids=repr,
)
def test_a_bound_takes_positions_and_their_angles_in_turn(op, dev, positions):
    """Rows of one position and its angle row go to one core, whichever positions a call keeps."""
    n = positions * op.rows_per_angle
    got, want, stats = run(op, dev, valid=n, angles_valid=positions)
    assert got.shape == (n, op.cols) and got.tobytes() == want.tobytes()
    lanes = op.resolved(device(dev)).num_aie_columns
    assert stats.elements("angles") == -(-positions // lanes) * lanes * op.cols


def test_an_angle_row_is_read_once_for_all_its_rows():
    """The heads of one position."""
    _, _, stats = run(RoPE(rows=32, cols=64, angle_rows=1), "npu2")
    assert stats.elements("angles") == 64 and stats.elements("x") == 32 * 64


# -- an operator of one's own --------------------------------------------------------------------------


class Halved(iron.Rowwise):
    """A kernel of one row, and no word more."""

    def reference(self, x):
        return x.astype(np.float32) / 2

    def kernel(self):
        contract = iron.KernelContract(roles=(iron.In, iron.Out), reference=lambda x: x.astype(np.float32) / 2)
        return iron.Kernel.inline("halved", "", (self.x.tile, self.y.tile), contract)


class Kernelless(iron.Rowwise):
    """Its kernel is none."""

    def reference(self, x):
        return x

    def kernel(self):
        return None


@pytest.mark.parametrize("dev", DEVICES)
def test_a_kernel_of_one_row_is_all_that_an_array_needs(dev):
    got, want, _ = run(Halved(rows=12, cols=80), dev, valid=7)
    assert got.tobytes() == want.tobytes() and len(got) == 7


def test_what_is_no_kernel_is_told_as_such():
    with pytest.raises(DeclarationError, match=r"Kernelless\.kernel\(\) gives None; legal: a Kernel"):
        build(Kernelless(rows=8, cols=32), "npu1")


# -- together ---------------------------------------------------------------------------------------


class Heads(iron.Graph):
    """Rows normed, a bias added, each row's three heads turned: what comes before attention."""

    def __init__(self):
        self.weight, self.bias = (iron.weight(np.linspace(low, 2, 192).astype(bfloat16)) for low in (0.5, -1))

    def body(self, x, angles, *, n: iron.Scratchpad[np.int32]):
        y = RowwiseAdd(RMSNorm(x[:n], weight=self.weight), self.bias)
        return RoPE(y.reshape(y.shape[0] * 3, 64), angles[:n])


@pytest.mark.parametrize("boundaries", [None, iron.each_step], ids=["one", "each step"])
@pytest.mark.parametrize("dev", DEVICES)
def test_rows_of_a_graph_are_bounded_per_call(dev, boundaries, rng):
    """One build; what the graph's reference gives, of as many rows as a call says."""
    x = rng.standard_normal((16, 192)).astype(bfloat16)
    turn = rng.uniform(0, 6, (16, 32))
    angles = np.stack([np.cos(turn), np.sin(turn)], -1).reshape(16, 64).astype(bfloat16)
    graph = Heads()
    compiled = graph.compile(backend="sim", dev=dev, boundaries=boundaries, x=x.shape, angles=angles.shape)
    for n in (16, 5, 1):
        got, want = (np.asarray(run(x, angles, n=n)) for run in (compiled, graph.reference))
        assert got.shape == (3 * n, 64) and iron.allclose(got, want, rtol=2.0**-6)


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words", "legal"),
    [
        (dict(rows=8, cols=100), "cols=100 is not whole vectors, 16 in all. Nearest legal cols: 96 or 112", dict(cols=112)),
        (dict(rows=8, cols=8208), "cols=8208; a core takes rows of at most 8192 numbers. Legal: cols=8192", dict(cols=8192)),
        (dict(rows=8, cols=5000, weighted=True), "cols=5000; .* at most 4096 numbers. Legal: cols=4096", dict(cols=4096)),
        (dict(rows=8, cols=64, num_channels=3), "num_channels=3; a column has 2 channels. Legal: 1, 2", dict(num_channels=2)),
        (
            dict(rows=64, cols=64, num_aie_columns=16),
            "num_aie_columns=16 with num_channels=1; npu2 has channels and cores for 8. Legal: num_aie_columns=8",
            dict(num_aie_columns=8),
        ),
        (
            dict(rows=64, cols=64, weighted=True, num_channels=2, num_aie_columns=8),
            "num_aie_columns=8 with num_channels=2; npu2 has channels and cores for 7. Legal: num_aie_columns=7",
            dict(num_aie_columns=7, rows=70),
        ),
        (dict(rows=7, cols=64, num_aie_columns=4), "rows=7 is not whole .* Nearest legal rows: 4 or 8", dict(rows=8)),
        (dict(rows=7, cols=64, num_aie_columns=4), "rows=7 .*; or give num_aie_columns=1", dict(num_aie_columns=1)),
        (dict(rows=8, cols=64, T=np.float32), "T=float32; its array computes on bfloat16. Legal: T=bfloat16", dict(T=bfloat16)),
        (dict(rows=8, cols=64, weighted=True, W=np.float32), "W=float32; .* Legal: T=W=bfloat16", dict(W=bfloat16)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_array_of_rows_takes_is_refused_with_what_one_takes(fields, words, legal):
    """The keyword, the rule, the value; and the legal value is accepted."""
    with pytest.raises(Unresolvable, match=f"RMSNorm: {words}"):
        build(RMSNorm(**fields), "npu2")
    fit(build(RMSNorm(**{**fields, **legal}), "npu2").design)


@pytest.mark.parametrize(
    ("fields", "words", "legal"),
    [
        (dict(rows=8, cols=48), "cols=48 is not whole vectors of both halves, 32 in all. Nearest legal cols: 32 or 64", dict(cols=64)),
        (dict(rows=8, cols=8192), "cols=8192; .* Legal: cols=4096", dict(cols=4096)),
        (dict(rows=16, cols=64, num_aie_columns=16), "num_aie_columns=16; npu1 has 4. Legal: num_aie_columns=4", dict(num_aie_columns=4)),
        (
            dict(rows=12, cols=64, angle_rows=6, num_aie_columns=4),
            "num_aie_columns=4 do not share out angle_rows=6. Nearest legal num_aie_columns: 3",
            dict(num_aie_columns=3),
        ),
        (dict(rows=8, cols=64, A=np.float32), "A=float32; .* Legal: T=A=bfloat16", dict(A=bfloat16)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_array_of_rope_takes_is_refused_with_what_one_takes(fields, words, legal):
    """The keyword, the rule, the value; and the legal value is accepted."""
    with pytest.raises(Unresolvable, match=f"RoPE: {words}"):
        build(RoPE(**fields), "npu1")
    fit(build(RoPE(**{**fields, **legal}), "npu1").design)


@pytest.mark.parametrize(
    ("op", "words", "legal"),
    [
        (LayerNorm(rows=8, cols=48), "LayerNorm: cols=48 .* Nearest legal cols: 32 or 64", LayerNorm(rows=8, cols=32)),
        (
            LayerNorm(rows=8, cols=64, epsilon=0.0),
            "LayerNorm: epsilon=0.0; .* Legal: at least 1.17",
            LayerNorm(rows=8, cols=64, epsilon=2.0**-126),
        ),
        (Softmax(rows=20, cols=64), "Softmax: rows=20 .* Nearest legal rows: 16 or 32", Softmax(rows=32, cols=64)),
        (Softmax(rows=16, cols=80), "Softmax: cols=80 .* Nearest legal cols: 64 or 96", Softmax(rows=16, cols=96)),
        (RowwiseAdd(rows=8, cols=4112), "RowwiseAdd: cols=4112; .* Legal: cols=4096", RowwiseAdd(rows=8, cols=4096)),
    ],
    ids=repr,
)
def test_what_other_arrays_of_rows_do_not_take_is_refused_with_what_they_take(op, words, legal):
    """The keyword, the rule, the value; and the legal value is accepted."""
    with pytest.raises(Unresolvable, match=words):
        build(op, "npu2")
    fit(build(legal, "npu2").design)


def test_one_column_has_what_it_has():
    """Two shim channels and four cores: a weight leaves one lane, a weight and a bias none."""
    fit(build(RMSNorm(rows=3, cols=64, weighted=True), "npu1_1col").design)
    with pytest.raises(Unresolvable, match=r"num_channels=2 of 2 streams and 2 cores each; npu2_1col has 2 and 4\. Legal: num_channels=1"):
        build(RMSNorm(rows=4, cols=64, weighted=True, num_channels=2), "npu2_1col")
    with pytest.raises(Unresolvable, match=r"LayerNorm: num_channels=1 of 3 streams and 3 cores each; .* Legal: a device of more columns"):
        build(LayerNorm(rows=4, cols=64, weighted=True, biased=True), "npu1_1col")
    fit(build(LayerNorm(rows=4, cols=64, weighted=True, biased=True), "npu1_2col").design)


def test_the_message_of_a_refusal_is_one_sentence_and_what_is_legal():
    with pytest.raises(Unresolvable) as found:
        build(RMSNorm(rows=8, cols=100), "npu1")
    assert re.fullmatch(r"RMSNorm: cols=100 is not whole vectors, 16 in all\. Nearest legal cols: 96 or 112\.", str(found.value))


@pytest.mark.parametrize("operator", [RMSNorm, LayerNorm])
def test_squares_past_float32_make_a_row_of_zeros(operator):
    """The kernels' own arithmetic; the host, as the reference, has the row's norm."""
    x = np.ones((2, 64), bfloat16)
    x[0, 3], x[1, 3] = 1e18, 3e19
    op = operator(rows=2, cols=64)
    outputs, _, _ = simulate(op, "npu2", {"x": x})
    assert outputs["y"][0].any() and not outputs["y"][1].any()
    with np.errstate(over="ignore"):
        assert np.array_equal(outputs["y"], op.resolved("npu2").composed(x)) and op.reference(x)[1].any()
