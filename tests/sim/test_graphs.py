"""Whole graphs on simulated arrays: one compile, called with many bounds and contexts."""

from __future__ import annotations

import re
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.devices import device
from iron_core.errors import UnsupportedError
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, RMSNorm, SiLU

DEVICES = ("npu1", "npu2")


def drawn(rng, *shape):
    return rng.standard_normal(shape).astype(bfloat16)


class Project(iron.Graph):
    """The first `n` rows of `x` projected by `w`."""

    def body(self, x, w, *, n: iron.Scratchpad[np.int32]):
        return GEMM(x[:n], w, b_col_maj=True)


@pytest.mark.parametrize("dev", DEVICES)
def test_one_compile_serves_every_bound(dev):
    """Bounds that grow and shrink from call to call: each call is right in every bit, and none leaves a word behind."""
    rng = np.random.default_rng(0)
    M, K, N = 512, 128, 64
    x, w = drawn(rng, M, K), drawn(rng, N, K)
    op = GEMM(M=M, K=K, N=N, b_col_maj=True).resolved(device(dev))
    whole = op.composed(x, w)
    project = Project().compile(x=(M, K), w=(N, K), backend="sim", dev=dev)
    for n in (512, 1, 300, 64, 65, 512, 17, 128, 3):
        got = np.asarray(project(x, w, n=n))
        assert got.shape == (n, N)
        assert got.tobytes() == np.ascontiguousarray(whole[:n]).tobytes()
        op.bounded(M=n).array_check(got, Project().reference(x, w, n=n).astype(np.float64), x[:n], w)
    assert len(project.versions) == 1


class Block(iron.Graph):
    """A gated projection: several designs, some used twice, in one call."""

    def __init__(self, rng):
        self.gate, self.up, self.down = drawn(rng, 256, 64), drawn(rng, 256, 64), drawn(rng, 64, 256)

    def body(self, x):
        return ElementwiseAdd(x, GEMV(self.down, ElementwiseAdd(SiLU(GEMV(self.gate, x)), GEMV(self.up, x))))


@pytest.mark.parametrize("boundaries", [None, iron.each_step])
@pytest.mark.parametrize("dev", DEVICES)
def test_a_graph_is_entered_design_by_design(dev, boundaries):
    """A full ELF and a chain of dispatches give the same bits, call after call."""
    rng = np.random.default_rng(1)
    block, x = Block(rng), drawn(rng, 64)
    compiled = block.compile(x=(64,), backend="sim", dev=dev, boundaries=boundaries)
    first = np.asarray(compiled(x))
    want = np.asarray(block.reference(x)).astype(np.float64)
    assert np.abs(first.astype(np.float64) - want).max() < 0.05 * np.abs(want).max()
    for _ in range(3):
        assert np.asarray(compiled(x)).tobytes() == first.tobytes()


class Counter(iron.Graph):
    """Adds a row of a table to a running sum; the position is carried."""

    def __init__(self, rng):
        self.total = iron.state((64,), name="total")
        self.step = drawn(rng, 64)

    def body(self, *, at: iron.Carried[np.int32]):
        ElementwiseAdd(self.total, self.step, self.total)
        return iron.carry(at=at + 1)


def test_states_keep_what_a_call_wrote():
    """A state one call writes is what the next one reads; a carried value follows."""
    rng = np.random.default_rng(2)
    counter = Counter(rng)
    compiled = counter.compile(backend="sim", dev="npu2")
    last = compiled.loop(3, at=5)
    assert last["at"] == 8
    want = np.zeros(64, bfloat16)
    for _ in range(3):
        want = (want.astype(np.float32) + counter.step.astype(np.float32)).astype(bfloat16)
    assert np.asarray(compiled.read("total")).tobytes() == want.tobytes()


def test_an_operator_without_an_array_is_refused_before_anything_is_built():
    """The message names the operator, the step and where it does run."""

    class Plain(iron.Rowwise):
        def reference(self, x):
            return x

    class Rows(iron.Graph):
        def body(self, x):
            return Plain(x)

    with pytest.raises(UnsupportedError, match=r"Plain.*declares no array.*host"):
        Rows().compile(x=(4, 64), backend="sim", dev="npu1")


def test_a_shape_no_array_takes_is_refused_with_the_nearest_that_one_does():
    class Add(iron.Graph):
        def body(self, x, y):
            return ElementwiseAdd(x, y)

    with pytest.raises(UnsupportedError, match=r"size=1000.*Nearest legal size: 992 or 1008"):
        Add().compile(x=(1000,), y=(1000,), backend="sim", dev="npu2")


class Residual(iron.Graph):
    """Two products, each with elementwise steps behind it."""

    def __init__(self, rng):
        self.up, self.down = drawn(rng, 256, 64), drawn(rng, 64, 256)

    def body(self, x):
        return SiLU(ElementwiseAdd(GEMV(self.down, SiLU(GEMV(self.up, x))), x))


@pytest.mark.parametrize("dev", DEVICES)
def test_folded_equals_unfolded(dev):
    """A step folded into a core's loop rounds where it did before: the same bits, in fewer steps."""
    graphs = [Residual(np.random.default_rng(3)) for _ in range(2)]
    x = drawn(np.random.default_rng(4), 64)
    plain, folded = (g.compile(x=(64,), backend="sim", dev=dev, fold=f) for g, f in zip(graphs, (False, True), strict=True))
    assert np.asarray(folded(x)).tobytes() == np.asarray(plain(x)).tobytes()
    text = folded.explain()
    for fold in ("silu0 into the finish of gemv0", "elementwiseadd0 into the finish of gemv1", "silu1 into the finish of elementwiseadd0"):
        assert f"  fold       {fold}: saves 1 step\n" in text
    lines = {line.split()[0]: line for line in text.splitlines() if "(" in line}
    assert lines["silu0"].endswith("  folded into the finish of gemv0") and lines["gemv0"].endswith(" fifos, with silu0 folded in")
    assert "fold" not in plain.explain().replace("unfold", "")
    assert "  runs       2 steps: 5 of the graph, 3 folded away\n  designs    2, of 2 arrays\n" in text
    assert "  runs       5 steps: 5 of the graph\n  designs    5, of 5 arrays\n" in plain.explain()
    entries = re.findall(r"  entries    (\d.*)", text), re.findall(r"  entries    (\d.*)", plain.explain())
    assert entries == ((["2"], ["5, and one that resets the array"]) if dev == "npu2" else ([], []))
    assert "fold" not in plain.explain()


class Caches(iron.Graph):
    """A product behind a norm into a row of a cache, another's activation into a half of a state; then what they hold."""

    def __init__(self, rng):
        self.w, self.v, self.g = drawn(rng, 128, 64), drawn(rng, 64, 64), drawn(rng, 64)
        self.rows = iron.state((6, 128), name="rows")
        self.half = iron.state((128,), name="half")

    def body(self, x, *, at: iron.Scratchpad[np.int32]):
        h = RMSNorm(x.reshape(1, 64), weight=self.g).reshape(64)
        Copy(GEMV(self.w, h), self.rows[at])
        Copy(SiLU(GEMV(self.v, h)), self.half[64:])
        return ElementwiseAdd(self.rows.reshape(768), self.rows.reshape(768)), SiLU(self.half)


@pytest.mark.parametrize("boundaries", [None, iron.each_step])
@pytest.mark.parametrize("dev", DEVICES)
def test_a_copy_into_a_state_is_where_its_producer_writes(dev, boundaries):
    """At the place that each call says: the same bits in every state, and nothing beside it touched, in half the steps."""
    options = dict(backend="sim", dev=dev, boundaries=boundaries)
    plain, folded = (Caches(np.random.default_rng(3)).compile(x=(64,), fold=fold, **options) for fold in (False, True))
    for at in (0, 5, 2, 5):
        x = drawn(np.random.default_rng(at), 64)
        for got, want in zip(folded(x, at=at), plain(x, at=at), strict=True):
            assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
        for state in ("rows", "half"):
            assert np.asarray(folded.read(state)).tobytes() == np.asarray(plain.read(state)).tobytes()
    runs = [[step.operator for step in compiled.versions[("x", (64,), "bfloat16"),].image.steps] for compiled in (plain, folded)]
    assert [sorted(run) for run in runs] == [
        ["Copy", "Copy", "ElementwiseAdd", "GEMV", "GEMV", "RMSNorm", "SiLU", "SiLU"],
        ["ElementwiseAdd", "GEMV", "GEMV", "SiLU"],
    ]


def test_what_did_not_fold_says_why():
    """A sum that GEMM's cores cannot add: the array's own words."""

    class Sum(iron.Graph):
        def __init__(self):
            self.w = drawn(np.random.default_rng(5), 64, 64)

        def body(self, x):
            return ElementwiseAdd(GEMM(x, self.w), x)

    text = Sum().compile(x=(64, 64), backend="sim", dev="npu2", fold=True).explain()
    assert "no fold    elementwiseadd0 into the finish of gemm0: GEMM: a finish of ElementwiseAdd has further inputs" in text
    assert "  fold  " not in text and "  no fold    sim took none of 1:\n" in text

    class Alone(iron.Graph):
        def body(self, x):
            return SiLU(x)

    text = Alone().compile(x=(64,), backend="sim", dev="npu2", fold=True).explain()
    assert "  no fold    no step of this graph may be folded into another." in text


@pytest.mark.parametrize("dev", DEVICES)
def test_five_operators_and_a_carried_value(five, dev):
    """All five in one graph, call after call: a full ELF on npu2, a dispatch per step on npu1, near the reference on both."""
    graph, x, prompt = five()
    compiled = graph.compile(x=(64,), prompt=(64, 64), backend="sim", dev=dev)
    at = 0
    for _ in range(5):
        out, carried = compiled(x, prompt, at=at)
        want, _ = graph.reference(x, prompt, at=at)
        assert np.abs(np.asarray(out, np.float64) - np.asarray(want, np.float64)).max() < 0.05
        at = carried.at
    assert at == 5


class Attend(iron.Graph):
    """One query of nine heads over the first `n` rows of a cache of three."""

    def body(self, q, k, v, *, n: iron.Scratchpad[np.int32]):
        return MHA(q, k[:n], v[:n], heads_interleaved=True, kv_interleaved=True)


@pytest.mark.parametrize("dev", DEVICES)
def test_attention_moves_as_much_of_the_cache_as_its_context(dev):
    """One compile, contexts up and down: near the reference each time, and K and V cost ceil(context / block) blocks."""
    rng = np.random.default_rng(6)
    heads, groups, d, length = 9, 3, 64, 208
    q, k, v = drawn(rng, 1, heads, d), drawn(rng, length, groups, d), drawn(rng, length, groups, d)
    attend = Attend().compile(q=(1, heads, d), k=(length, groups, d), v=(length, groups, d), backend="sim", dev=dev)
    op = MHA(
        num_heads=heads, num_KV_heads=groups, seq_len=1, kv_len=length, d=d, heads_interleaved=True, kv_interleaved=True
    ).resolved(device(dev))
    for n in (208, 1, 100, 16, 17, 208, 5, 64, 199):
        got = np.asarray(attend(q, k, v, n=n))
        assert got.tobytes() == np.asarray(op.composed(q, k, v, kv_valid=n)).tobytes()
        op.array_check(got, op.bounded(kv_len=n).reference(q, k[:n], v[:n]), q, k[:n], v[:n])
        (stats,) = next(iter(attend.versions.values())).load().stats.values()
        blocks = -(-n // op.B_q)
        for operand in ("K", "V"):
            assert stats.elements(operand) == groups * blocks * op.B_q * d


class Sum(iron.Graph):
    def body(self, a, b):
        return ElementwiseAdd(a, b)


def test_threads_take_turns():
    """Calls of one compiled graph from several threads: each gets its own sum."""
    rng = np.random.default_rng(7)
    add = Sum().compile(a=(1024,), b=(1024,), backend="sim", dev="npu2")
    pairs = [(drawn(rng, 1024), drawn(rng, 1024)) for _ in range(12)]
    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(lambda pair: np.asarray(add(*pair)), pairs))
    assert all((s == a + b).all() for s, (a, b) in zip(sums, pairs, strict=True))


def test_numbers_that_are_none_warn_nobody():
    """Infinities and NaNs go through cores as through any float hardware."""
    a, b = np.array([[np.inf, -np.inf, np.nan, 3e38]] * 2, np.float32).repeat(256, 1).astype(bfloat16)
    b[:256] = -np.inf
    add = Sum().compile(a=(1024,), b=(1024,), backend="sim", dev="npu2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = np.asarray(add(a, b)).astype(np.float32).reshape(4, 256)
    assert np.isnan(got[[0, 2]]).all() and (got[1] == -np.inf).all() and (got[3] == np.inf).all()


#: SmolLM2-135M's projections: q, k, v, o, gate, up, down.
PROJECTIONS = ((576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536))


class Projections(iron.Graph):
    """All projections of 30 layers as steps of their own, each on its input as it is."""

    def __init__(self, weights):
        self.weights = [iron.weight(w) for w in weights]

    def body(self, x, wide):
        inputs = {576: x, 1536: wide}
        return tuple(GEMV(w, inputs[k]) for _ in range(30) for w, (_, k) in zip(self.weights, PROJECTIONS, strict=True))


@pytest.mark.parametrize("dev", DEVICES)
def test_the_projections_of_a_model_in_one_graph(dev):
    """210 steps of seven designs, every one right in every bit."""
    rng = np.random.default_rng(8)
    weights = [drawn(rng, *shape) for shape in PROJECTIONS]
    x, wide = drawn(rng, 576), drawn(rng, 1536)
    made = Projections(weights).compile(x=(576,), wide=(1536,), backend="sim", dev=dev)(x, wide)
    assert len(made) == 210
    for i, (w, (m, k)) in enumerate(zip(weights, PROJECTIONS, strict=True)):
        want = GEMV(M=m, K=k).resolved(device(dev)).composed(w, x if k == 576 else wide).tobytes()
        assert all(np.asarray(y).tobytes() == want for y in made[i::7])
