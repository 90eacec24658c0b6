"""Operators with a state, their gates and norms, and `Softplus`: what they compute, and what calls hand on to calls."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.errors import BoundsError, ParamError
from iron_ops_aie import CausalConv1d, DeltaGates, DepthwiseConv1d, GatedDeltaChunk, GatedDeltaStep, L2Norm, Softplus
from iron_sim.run import simulate

F32 = np.float32
BACKENDS = ("reference", "host")
KEYS, HEADS, D, W = 2, 4, 16, 24


def sequence(rng, n):
    """q, k, v, g, beta of n tokens: keys of length 1, gates as models have them."""
    q, k = rng.standard_normal((2, n, KEYS, D))
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    g = -(10 ** rng.uniform(-3, 0, (n, HEADS)))
    return [x.astype(F32) for x in (q, k, rng.standard_normal((n, HEADS, W)), g, rng.random((n, HEADS)))]


class Mixed(iron.Graph):
    """The gated delta rule over a sequence that calls continue."""

    def __init__(self, operator):
        self.operator, self.memory = operator, iron.state((HEADS, D, W), F32)

    def body(self, q, k, v, g, beta, *, n: iron.Scratchpad[np.int32], before: iron.Scratchpad[np.int32]):
        return self.operator(q[:n], k[:n], v[:n], g[:n], beta[:n], self.memory, past=before)[1]


def compiled(operator, rows, backend):
    shapes = dict(q=(rows, KEYS, D), k=(rows, KEYS, D), v=(rows, HEADS, W), g=(rows, HEADS), beta=(rows, HEADS))
    return Mixed(operator).compile(backend=backend, **{name: (shape, F32) for name, shape in shapes.items()})


def answered(graph, tokens, rows):
    """A sequence in calls of up to so many rows."""
    made, n = [], len(tokens[0])
    for at in range(0, n, rows):
        m = min(rows, n - at)
        part = [np.concatenate([x[at : at + m], np.zeros((rows - m, *x.shape[1:]), F32)]) for x in tokens]
        made.append(graph(*part, n=m, before=at).copy())
    return np.concatenate(made)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("operator", [GatedDeltaStep, GatedDeltaChunk])
def test_calls_continue_a_sequence_or_begin_one(rng, backend, operator):
    """In calls of 8 tokens, a chunk that is not full among them; a second sequence begins from zeros, whatever the state holds."""
    tokens, other = sequence(rng, 21), sequence(rng, 5)
    op = GatedDeltaStep(rows=21, key_heads=KEYS, value_heads=HEADS, key_dim=D, value_dim=W, T=F32)
    graph, nothing = compiled(operator, 8, backend), np.zeros((HEADS, D, W), F32)
    S, want = op.reference(*tokens, nothing)
    assert np.allclose(answered(graph, tokens, 8), want, atol=3e-6)
    assert np.allclose(graph.read("memory"), S, atol=3e-6)
    assert np.allclose(answered(graph, other, 8), op.bounded(rows=5).reference(*other, nothing)[1], atol=3e-6)


def test_a_chunk_is_its_tokens_one_after_another(rng):
    """In float64, of any chunk, from any state; heads that read key heads in either order."""
    tokens, state = sequence(rng, 37), rng.standard_normal((HEADS, D, W))
    for tiled in (False, True):
        fields = dict(rows=37, key_heads=KEYS, value_heads=HEADS, key_dim=D, value_dim=W, T=F32, tiled=tiled)
        S, o = GatedDeltaStep(**fields).reference(*tokens, state)
        for chunk in (1, 5, 37, 64):
            again, out = GatedDeltaChunk(**fields, chunk=chunk).reference(*tokens, state)
            assert np.allclose(out, o, rtol=1e-9, atol=1e-12) and np.allclose(again, S, rtol=1e-9, atol=1e-12)


def test_what_a_key_holds_is_replaced(rng):
    """With beta 1 and no fading a key reads what was last written to it; with beta 0 nothing is written."""
    q, k, v, g, beta = sequence(rng, 2)
    k[1], q[1], g[:] = k[0], k[0], 0
    op = GatedDeltaStep(rows=2, key_heads=KEYS, value_heads=HEADS, key_dim=D, value_dim=W, T=F32, scale=1.0)
    nothing = np.zeros((HEADS, D, W))
    assert np.allclose(op.reference(q, k, v, g, np.ones_like(beta), nothing)[1][1], v[1], atol=1e-6)
    S, o = op.reference(q, k, v, g, np.zeros_like(beta), nothing)
    assert not S.any() and not o.any()


def test_key_heads_are_read_in_turn_or_one_by_several(rng):
    """A value head of its own key head alone gives what it gives among others."""
    q, k, v, g, beta = sequence(rng, 6)
    fields = dict(rows=6, key_dim=D, value_dim=W, T=F32)
    nothing = np.zeros((HEADS, D, W))
    for tiled, read in ((False, [0, 0, 1, 1]), (True, [0, 1, 0, 1])):
        order = dict(tiled=True) if tiled else {}
        whole = GatedDeltaStep(key_heads=KEYS, value_heads=HEADS, **order, **fields).reference(q, k, v, g, beta, nothing)[1]
        for h, r in enumerate(read):
            one = GatedDeltaStep(key_heads=1, value_heads=1, **fields)
            own = slice(h, h + 1)
            alone = one.reference(q[:, [r]], k[:, [r]], v[:, own], g[:, own], beta[:, own], nothing[own])[1]
            assert np.array_equal(alone, whole[:, own])


@pytest.mark.parametrize("operator", [GatedDeltaStep, GatedDeltaChunk])
def test_errors_are_judged_by_the_sizes_of_all_terms(rng, operator):
    """Number by number: what fades, what is written with its correction, and what is read, each without its sign."""
    q, k, v, g, beta = sequence(rng, 4)
    first = rng.standard_normal((HEADS, D, W))
    op = operator(rows=4, key_heads=KEYS, value_heads=HEADS, key_dim=D, value_dim=W, T=F32, scale=0.5)
    if operator is GatedDeltaStep:  # chunks have more of both
        assert op.tolerance().terms == D + 4  # of a number that is read, and of the tokens before it
        assert op.ops() == 4 * HEADS * D * W * (1 + 2 + 2 + 2)  # a token's: to fade, to meet, to be corrected, to be read
    sizes, out = op.magnitude(q, k, v, g, beta, first)
    S, o = op.reference(q, k, v, g, beta, first)
    assert (np.abs(S) <= sizes).all() and (np.abs(o) <= out).all()
    for h, column in ((0, 0), (1, 5), (3, W - 1)):
        state, size = [float(s) for s in first[h, :, column]], [abs(float(s)) for s in first[h, :, column]]
        for t in range(4):
            key, value, fades, opened = k[t, h // 2].astype(float), float(v[t, h, column]), np.exp(float(g[t, h])), float(beta[t, h])
            state, size = [s * fades for s in state], [s * fades for s in size]
            met = sum(s * x for s, x in zip(state, key, strict=True))
            corrected = opened * (abs(value) + sum(abs(s * x) for s, x in zip(state, key, strict=True)))
            state = [s + x * opened * (value - met) for s, x in zip(state, key, strict=True)]
            size = [s + abs(x) * corrected for s, x in zip(size, key, strict=True)]
            assert np.isclose(out[t, h, column], sum(s * abs(0.5 * float(x)) for s, x in zip(size, q[t, h // 2], strict=True)))
        assert np.allclose(sizes[h, :, column], size) and np.allclose(S[h, :, column], state, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_do_not_grow_over_a_thousand_tokens(rng, backend):
    """Step by step and in chunks of 64, in float32: at every hundredth token as near to float64 as at the first ones."""
    if backend == "reference":
        pytest.skip("rounds the state alone")
    tokens, nothing = sequence(rng, 1000), np.zeros((HEADS, D, W))
    exact = GatedDeltaStep(rows=1000, key_heads=KEYS, value_heads=HEADS, key_dim=D, value_dim=W, T=F32).reference(*tokens, nothing)[1]
    for operator, rows in ((GatedDeltaStep, 1), (GatedDeltaStep, 64), (GatedDeltaChunk, 64)):
        error = np.abs(answered(compiled(operator, rows, backend), tokens, rows) - exact)
        by_hundreds = [float(error[at : at + 100].max()) for at in range(0, 1000, 100)]
        assert max(by_hundreds) < 2e-6 * np.abs(exact).max() and max(by_hundreds[1:]) < 4 * max(by_hundreds[:2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_convolution_goes_on_where_a_call_ended(rng, backend):
    """In calls of 1, 2 and 8 rows it is what one call makes; past nothing it begins with zeros, as DepthwiseConv1d does."""

    class Conv(iron.Graph):
        def __init__(self, weight):
            self.weight, self.before = weight, iron.state((3, 40), F32)

        def body(self, x, *, n: iron.Scratchpad[np.int32], past: iron.Scratchpad[np.int32]):
            return CausalConv1d(x[:n], self.weight, self.before, past=past)[1]

    x, weight = rng.standard_normal((19, 40)).astype(F32), rng.standard_normal((4, 40)).astype(F32)
    want = DepthwiseConv1d(rows=19, channels=40, taps=4, T=F32).reference(x, weight)
    for rows in (1, 2, 8):
        graph, made = Conv(weight).compile(backend=backend, x=((rows, 40), F32)), []
        for _ in range(2):  # the second time over what the first left
            made = []
            for at in range(0, 19, rows):
                n = min(rows, 19 - at)
                made.append(graph(np.concatenate([x[at : at + n], np.ones((rows - n, 40), F32)]), n=n, past=at).copy())
        assert np.allclose(np.concatenate(made), want, atol=1e-5)
        assert np.array_equal(graph.read("before"), x[16:])


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_a_convolution_goes_on_on_arrays(rng, dev):
    """Calls of fewer rows than it has taps, of many, and a second sequence: the bits of one call's array."""
    x, weight = (rng.uniform(-4, 4, shape).astype(bfloat16) for shape in ((11, 48), (4, 48)))
    op = CausalConv1d(rows=11, channels=48)
    left, want = op.bounded(history=0).composed(x, weight, np.ones((3, 48), bfloat16))

    class Conv(iron.Graph):
        def __init__(self):
            self.weight, self.before = weight, iron.state((3, 48), bfloat16)

        def body(self, x, *, n: iron.Scratchpad[np.int32], past: iron.Scratchpad[np.int32]):
            return CausalConv1d(x[:n], self.weight, self.before, past=past)[1]

    graph = Conv().compile(backend="sim", dev=dev, x=(8, 48))
    for cuts in ((1, 2, 8), (8, 1, 1, 1), (2, 2, 7)):
        made, at = [], 0
        for n in cuts:
            rows = np.full((8, 48), np.nan, bfloat16)
            rows[:n] = x[at : at + n]
            made.append(graph(rows, n=n, past=at).copy())
            at += n
        assert np.array_equal(np.concatenate(made).view(np.uint16), want.view(np.uint16))
        assert np.array_equal(graph.read("before").view(np.uint16), left.view(np.uint16))


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_an_array_of_a_convolution_takes_a_row_at_least(rng, dev):
    """So no array has to keep a state that no row changes, as the CPU does; with what would be legal."""
    op = CausalConv1d(rows=4, channels=48)
    given = {name: rng.standard_normal(getattr(op, name).shape).astype(bfloat16) for name in ("x", "weight", "state")}
    with pytest.raises(BoundsError, match=r"CausalConv1d: valid_y is 0 \(valid=0, past=0\); .* Legal: 1 or more"):
        simulate(op, dev, given, {"valid": 0, "past": 0})


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("operator", [GatedDeltaStep, GatedDeltaChunk])
def test_a_memory_goes_on_on_arrays(rng, operator, dev):
    """In calls of other cuts, NaN behind their rows, and sequences that begin anew: the bits of one call's array."""
    tokens = [x if x.dtype == F32 and i > 2 else x.astype(bfloat16) for i, x in enumerate(sequence(rng, 11))]
    op = operator(rows=11, key_heads=KEYS, value_heads=HEADS, key_dim=D, value_dim=W)
    left, want = op.bounded(history=0).composed(*tokens, np.ones((HEADS, D, W), F32))
    shapes = dict(q=(8, KEYS, D), k=(8, KEYS, D), v=(8, HEADS, W), g=((8, HEADS), F32), beta=((8, HEADS), F32))
    graph = Mixed(operator).compile(backend="sim", dev=dev, **shapes)
    for cuts in ((1, 2, 8), (8, 3), (2, 2, 7)):
        made, at = [], 0
        for n in cuts:
            part = [np.concatenate([x[at : at + n], np.full((8 - n, *x.shape[1:]), np.nan, x.dtype)]) for x in tokens]
            made.append(graph(*part, n=n, before=at)[:n].copy())
            at += n
        assert np.array_equal(np.concatenate(made).view(np.uint16), want.view(np.uint16))
        assert np.array_equal(graph.read("memory"), left)


@pytest.mark.parametrize("rows", [1, 16, 64])
def test_an_array_moves_a_memory_once_each_way(rng, rows):
    """Whatever the rows; queries and keys once for each part of a state that reads them."""
    op = GatedDeltaStep(rows=rows, key_heads=1, value_heads=2, key_dim=64, value_dim=128).resolved("npu2")
    stats = simulate(op, "npu2", op.test.draw(op, rng))[2]
    assert stats.elements("state") == 2 * op.state.size and stats.elements("o") == stats.elements("v") == op.v.size
    assert op.width == 64 and stats.elements("q") == stats.elements("k") == 4 * op.q.size


def test_a_length_has_its_epsilon_under_the_root(rng):
    """Added to the sum, not to the mean: a short row stays short."""
    x = np.array([[3.0, 4.0], [3e-4, 4e-4], [0, 0]], F32)
    y = L2Norm(rows=3, cols=2, T=F32, epsilon=1e-6).reference(x)
    assert np.allclose(y, x / np.sqrt([[25 + 1e-6], [25e-8 + 1e-6], [1]]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gates_are_a_softplus_and_a_sigmoid(rng, backend):
    """g = rate softplus(a + bias) and beta = sigmoid(b), float32 whatever a and b are; far out a head forgets all, or nothing."""
    a, b = rng.standard_normal((2, 5, 6)).astype(bfloat16)
    bias, rate = rng.standard_normal(6).astype(F32), -rng.random(6).astype(F32) - F32(0.1)
    a[0, :2], b[0, :2] = (-300, 300), (-300, 300)
    g, beta = iron.OperatorImage(DeltaGates(rows=5, heads=6), backend=backend)(a, b, bias, rate)
    assert g.dtype == beta.dtype == F32
    assert np.allclose(g, rate * np.logaddexp(0, a.astype(float) + bias), rtol=1e-6)
    assert np.allclose(beta, 1 / (1 + np.exp(-b.astype(float))), rtol=1e-6)
    assert np.array_equal(np.exp(g[0, :2]), [1, np.exp(rate[1] * F32(300 + bias[1]))]) and beta[0, :2].tolist() == [0, 1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_softplus_keeps_its_ends(backend):
    """x where that is large, nothing far below zero, and a NaN stays one; near zero no digit is lost."""
    x = np.array([0.0, 1e30, np.inf, -np.inf, -1e30, np.nan, -20.0, 20.0, 1e-3], F32)
    y = iron.OperatorImage(Softplus(size=9, T=F32), backend=backend)(x)
    assert y[1:5].tolist() == [float(F32(1e30)), np.inf, 0, 0] and np.isnan(y[5])
    assert np.allclose(y[[0, 6, 7, 8]], np.logaddexp(0, x[[0, 6, 7, 8]].astype(float)), rtol=3e-7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CausalConv1d(rows=4, channels=8, taps=1), "CausalConv1d: kept=0; a dimension of state is a whole number of at least 1"),
        (lambda: CausalConv1d(rows=4, channels=8, W=np.int8), "W=int8; legal: float32, bfloat16, float16"),
        (
            lambda: GatedDeltaStep(rows=1, key_heads=3, value_heads=4, key_dim=8, value_dim=8),
            "key_heads=3 does not divide value_heads=4. Legal: a divisor",
        ),
        (
            lambda: GatedDeltaChunk(rows=1, key_heads=1, value_heads=1, key_dim=8, value_dim=8, chunk=65),
            "GatedDeltaChunk: chunk=65; legal: 1 to 64",
        ),
        (lambda: GatedDeltaStep(rows=1, key_heads=1, value_heads=1, key_dim=8, value_dim=8, T=np.int8), "T=int8; legal: float32"),
        (lambda: L2Norm(rows=1, cols=8, epsilon=-1.0), "L2Norm: epsilon=-1.0; legal: a finite number that is not negative"),
        (lambda: DeltaGates(rows=1, heads=4, T=np.int8), "T=int8; legal: float32"),
        (lambda: Softplus(size=8, T=np.int32), "T=int32; legal: float32"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    """By the field, the rule and what would be legal."""
    with pytest.raises(ParamError, match=words):
        make()
