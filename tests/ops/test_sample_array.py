"""`Sample` on an array: cores that select in two passes, one that draws; the host's token, bit for bit."""

from __future__ import annotations

import ctypes
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.errors import Unresolvable
from iron_host import build as native
from iron_host import compiler
from iron_ops_aie import Sample
from iron_ops_aie.tokens import exp64, kernels_sample
from iron_ops_aie.tokens.draw import NO_TOKEN, draw_words
from iron_sim.run import simulate

F32 = np.float32
AWKWARD = np.array([0, -0.0, 1, 1, 2, 2, -3, 1e-40, -1e-40, 88, -88, 3e38, -3e38], F32)
BAD = np.array([np.nan, -np.nan, np.inf, -np.inf], F32)


def some(rng, op):
    """Logits: of all sizes, of few values, or awkward; rarely one that is not finite."""
    kind = rng.integers(4)
    if kind == 0:
        logits = rng.standard_normal(op.vocab) * 5
    elif kind == 1:
        logits = rng.integers(-4, 4, op.vocab)
    else:
        logits = rng.choice(AWKWARD, op.vocab)
    logits = np.asarray(logits).astype(op.T)
    if rng.random() < 0.1:
        logits[rng.integers(op.vocab)] = rng.choice(BAD)
    return logits


def words(rng):
    """A row of draws: greedy, or of any temperature, k and uniform."""
    uniform = int(rng.choice([0, 1, 2**53 - 1, rng.integers(0, 2**53)]))
    return draw_words(float(rng.choice([0, -1, np.nan, 1e-30, 0.1, 0.7, 1, 50])), int(rng.integers(-2, 80)), uniform)


# -- the array ---------------------------------------------------------------------------------------


def test_its_cores_select_from_slices_in_two_passes_and_one_draws():
    """Summaries meet in a memory tile; every logit comes twice, or once where one chunk is a whole slice."""
    op = Sample(vocab=4096, T=F32, cores=4, chunk=256).resolved("npu2")
    array = build(op, "npu2").design.array
    assert [core.name for core in array.cores] == ["select0", "select1", "select2", "select3", "draw"]
    (joined,) = array.links
    assert joined.kind == "join" and joined.sources == tuple(f"summary{i}" for i in range(4)) and joined.targets == ("summaries",)
    inputs = dict(logits=np.zeros(4096, F32), draws=draw_words(0, 0, 0), tokens=np.zeros(1, np.int32))
    assert simulate(op, "npu2", inputs)[2].elements("logits") == 2 * 4096
    assert simulate(Sample(vocab=4096, T=F32, cores=4, chunk=1024), "npu2", inputs)[2].elements("logits") == 4096


def test_as_many_cores_as_share_out_the_vocabulary():
    """Four where they divide it into whole words; a device of one column has two channels, and the draws take one."""
    for vocab, T, dev, cores in (
        (49152, bfloat16, "npu1", 4),
        (1001, F32, "npu2", 1),
        (1002, bfloat16, "npu2", 3),
        (1026, bfloat16, "npu2", 3),
        (49152, bfloat16, "npu2_1col", 1),
    ):
        op = Sample(vocab=vocab, T=T).resolved(dev)
        assert op.cores == cores and op.slice == vocab // cores and op.slice % op.chunk == 0
        build(op, dev)
    assert Sample(vocab=128256).resolved("npu2").chunk == 8016, "16 KB of a slice of 32064 at most"


CASES = st.sampled_from([
    dict(vocab=48, T=F32, k_max=5, cores=3, chunk=8),
    dict(vocab=48, T=bfloat16, k_max=64, cores=4, chunk=6),
    dict(vocab=36, T=F32, k_max=1, cores=1, chunk=36),
    dict(vocab=300, T=bfloat16, k_max=40, cores=2, chunk=150),
    dict(vocab=600, T=F32, k_max=20, cores=6, chunk=25),
])  # fmt: skip


@given(CASES, st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_the_tile_references_together_are_the_reference(fields, seed):
    """For ties, signed zeros, k beyond a slice, and logits that are not finite."""
    rng, op = np.random.default_rng(seed), Sample(**fields)
    logits, row = some(rng, op), words(rng)
    want = op.reference(logits, row, np.zeros(1, np.int32))
    got = op.composed(logits, row, np.zeros(1, np.int32))
    assert [part.tolist() for part in got] == [part.tolist() for part in want]


@given(CASES, st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_a_simulated_draw_is_the_reference(fields, seed):
    """At any step: the row it reads, the place it writes, and nothing beside."""
    rng, op = np.random.default_rng(seed), Sample(**fields, steps=3)
    draws, record = np.stack([words(rng) for _ in range(3)]), np.array([7, 8, 9], np.int32)
    for step in rng.permutation(3):
        logits, at = some(rng, op), dict(row=4 * int(step), at=int(step))
        want, token = op.reference(logits, draws, record, **at)
        made, masks, _ = simulate(op, "npu2", dict(logits=logits, draws=draws, tokens=record.copy()), at)
        assert made["tokens"].tolist() == want.tolist() and made["token"].tolist() == token.tolist()
        assert not masks["tokens"].any() and not masks["token"].any()


@pytest.mark.parametrize("bad", BAD)
def test_one_logit_that_is_not_finite_leaves_no_token(bad):
    """In any core's slice."""
    op = Sample(vocab=48, T=F32, cores=3, chunk=8)
    for at in (0, 20, 47):
        logits = np.arange(48, dtype=F32)
        logits[at] = bad
        for row in (draw_words(0, 0, 0), draw_words(0.7, 5, 3)):
            made, _, _ = simulate(op, "npu2", dict(logits=logits, draws=row, tokens=np.zeros(1, np.int32)))
            assert made["token"].tolist() == [NO_TOKEN]


@pytest.mark.parametrize(
    ("fields", "message", "legal"),
    [
        (dict(vocab=48, T=np.float16), "T=float16; an array draws from bfloat16 and float32", dict(T=F32)),
        (dict(vocab=48, k_max=600), "at most 512 candidates. Nearest legal: k_max=512", dict(k_max=512)),
        (dict(vocab=49), "vocab=49 of bfloat16 is no whole number of 4-byte words. Nearest legal: vocab=48 or 50", dict(vocab=48)),
        (dict(vocab=48, cores=5), "cores=5; .* Nearest legal: cores=4 or 6", dict(cores=6)),
        (dict(vocab=48, cores=2, chunk=7), "chunk=7 of a core's 24 logits; .* Nearest legal: chunk=6 or 8", dict(chunk=8)),
    ],
)
def test_what_no_array_draws_from_is_refused_with_what_is_legal(fields, message, legal):
    """And what is named is taken."""
    with pytest.raises(Unresolvable, match=message):
        build(Sample(**fields), "npu2")
    build(Sample(**fields | legal), "npu2")


def test_the_largest_array_fits():
    """Six cores, 512 candidates, 16 KB chunks."""
    fit(build(Sample(vocab=6 * 8192, k_max=512, cores=6, chunk=8192), "npu2").design)


# -- the kernels' C++ --------------------------------------------------------------------------------


def compiled(kernel):
    """A kernel's C++ as a function of arrays and numbers, as this machine's compiler likes it best: where sums and products may be
    fused, they would be."""
    data = kernel.data
    macros = "".join(f"#define {name} {value}\n" for name, value in (("KERNEL", "kernel"), *data.defines))
    function = ctypes.CDLL(str(native.compiled(macros + data.source, data.symbol, compiler.find()))).kernel
    function.restype = None

    def call(*given):
        function(*(ctypes.c_int32(g) if isinstance(g, int) else ctypes.c_void_p(g.ctypes.data) for g in given))

    return call


@pytest.fixture(scope="module")
def cores():
    """Per shape the compiled kernels, made once."""
    made = {}

    def kernels(op):
        key = (op.T, op.chunk, op.k_max, op.cores)
        if key not in made:
            tile = op.logits.tile
            k = kernels_sample
            parts = (k.begin(), k.count(tile), k.settle(op.k_max), k.collect(tile, op.k_max), k.combine(op.cores, op.k_max))
            made[key] = [compiled(kernel) for kernel in parts]
        return made[key]

    return kernels


@given(CASES, st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_the_kernels_compiled_draw_the_same_token(cores, fields, seed):
    """Chunk by chunk, as the cores of an array call them."""
    rng, op = np.random.default_rng(seed), Sample(**fields)
    logits, row = some(rng, op), words(rng)
    begin, count, settle, collect, combine = cores(op)
    size = kernels_sample.summary_words(op.k_max)
    summaries = np.full(op.cores * size, 99, np.int32)
    for core in range(op.cores):
        state, summary = np.full(kernels_sample.STATE, 99, np.int32), summaries[core * size : (core + 1) * size]
        parts = [(at, logits[at : at + op.chunk]) for at in range(core * op.slice, (core + 1) * op.slice, op.chunk)]
        begin(state)
        for _, part in parts:
            count(part, state)
        settle(state, summary)
        for at, part in parts:
            collect(part, at, state, summary)
    record, token = np.zeros(1, np.int32), np.zeros(1, np.int32)
    combine(summaries, row, record, token)
    assert record.tolist() == token.tolist() == op.reference(logits, row, record)[1].tolist()


EXPONENTS = """
extern "C" void exponents(const double *x, double *y, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    y[i] = exp64(x[i]);
}
"""


def test_exponentials_are_the_same_bits_in_both_languages():
    """Whatever a compiler makes of sums and products."""
    x = -np.abs(np.concatenate([np.random.default_rng(0).standard_normal(4000) * s for s in (1e-9, 1, 30, 600)]))
    x = np.concatenate([x, [0.0, -0.0, -700.0, np.nextafter(-700, -800), -1e308, -1e-320]])
    y = np.empty_like(x)
    function = ctypes.CDLL(str(native.compiled(exp64.SOURCE + EXPONENTS, "exp64", compiler.find()))).exponents
    function(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int32(x.size))
    assert y.tolist() == [exp64.exp64(one) for one in x.tolist()]


def test_exponentials_are_within_two_ulp():
    """Of the exact ones; 1 at 0, 0 far below."""
    for x in (-np.abs(np.random.default_rng(1).standard_normal(400)) * np.repeat([0.01, 1, 30, 200], 100)).tolist():
        if x >= exp64.LEAST:
            assert abs(Fraction(exp64.exp64(x)) - exact(x)) <= 2 * math.ulp(math.exp(x))
    assert exp64.exp64(0.0) == exp64.exp64(-1e-300) == 1.0 and exp64.exp64(-701.0) == exp64.exp64(-math.inf) == 0.0


def exact(x):
    """e**x as a fraction that is right to 100 digits: halved until the series is short, and squared again."""
    halved = Fraction(x) / 1024
    term = total = Fraction(1)
    for n in range(1, 60):
        term = term * halved / n
        total += term
        term = Fraction(round(term * 2**400), 2**400)
    for _ in range(10):
        total = Fraction(round(total * 2**1600), 2**1600) ** 2
    return total
