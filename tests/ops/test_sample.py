"""`Sample`: which token a row of draws picks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.formats import bfloat16
from iron_core.errors import NotFinite, ParamError
from iron_ops_aie import Copy, Sample
from iron_ops_aie.tokens.draw import ROW_WORDS, draw_words

F32 = np.float32
GREEDY = np.zeros(ROW_WORDS, np.int32)


def pick(logits, words, **fields):
    """The token of one step."""
    logits = np.asarray(logits, fields.pop("T", F32))
    op = Sample(vocab=logits.size, T=logits.dtype, **fields)
    tokens, token = op.reference(logits, words, np.zeros(1, np.int32))
    assert tokens.tolist() == token.tolist()
    return int(token[0])


def naive(logits, temperature, top_k, uniform):
    """The rule, with the cumulative shares as exact fractions of the float64 weights."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top_k]
    weights = [Fraction(math.exp((logits[i] - logits[order[0]]) / temperature)) for i in order]
    running = Fraction(0)
    for i, w in zip(order, weights, strict=True):
        running += w
        if running > Fraction(uniform, 2**53) * sum(weights):
            return i
    return order[-1]


def test_a_zero_row_is_greedy():
    """The largest logit; the lowest id among equals."""
    assert pick([0.5, 2.0, 1.0, 2.0], GREEDY) == 1
    assert pick([3.0, 3.0], GREEDY) == 0
    assert pick([-3e38, -5.0], GREEDY) == 1
    assert pick([1.0, 1.0, 1.001], GREEDY, T=bfloat16) == 0, "bfloat16 cannot tell the last one apart"


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_positive_is_greedy(temperature):
    """Whatever the rest of the row holds."""
    assert pick([0.5, 2.0, 1.0], draw_words(temperature, 3, 2**52)) == 1


def test_the_uniform_walks_through_the_candidates_from_the_largest():
    """Equal logits share [0, 1) in order of their ids."""
    logits = [1.0, 1.0, 0.0, 1.0, 1.0]
    for quarter, token in enumerate([0, 1, 3, 4]):
        for uniform in (quarter * 2**51, (quarter + 1) * 2**51 - 1):
            assert pick(logits, draw_words(1.0, 4, uniform)) == token


def test_the_smallest_and_largest_uniform():
    """Zero takes the most likely, the last number below one the least likely candidate."""
    logits = [0.0, 2.0, 1.0]
    assert pick(logits, draw_words(1.0, 3, 0)) == 1
    assert pick(logits, draw_words(1.0, 3, 2**53 - 1)) == 0


def test_top_k_is_at_least_one_and_at_most_k_max():
    """And at most the vocabulary."""
    logits = [0.0, 0.0, 0.0, 5.0]
    last = 2**53 - 1
    assert pick(logits, draw_words(1.0, 0, last)) == 3
    assert pick(logits, draw_words(1.0, -7, last)) == 3
    assert pick(logits, draw_words(1.0, 2, last)) == 0, "ties for the second place go to the lowest id"
    assert pick(logits, draw_words(1.0, 100, last)) == 2
    assert pick(logits, draw_words(1.0, 100, last), k_max=3) == 1


def test_temperature_flattens_and_sharpens():
    """At a low one only the largest is left; at a high one all are alike."""
    logits = np.array([0.0, 1.0])
    uniforms = [int(u) for u in np.random.default_rng(0).integers(0, 2**53, 400)]

    def share(temperature):
        return sum(pick(logits, draw_words(temperature, 2, u)) for u in uniforms) / 400

    assert share(0.01) == 1.0
    assert abs(share(1.0) - math.e / (1 + math.e)) < 0.06
    assert abs(share(1e6) - 0.5) < 0.06


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=30),
    st.floats(0.125, 5, width=32),
    st.integers(1, 12),
    st.integers(0, 2**53 - 1),
)
@settings(max_examples=200, deadline=None)
def test_any_row_follows_the_rule(logits, temperature, top_k, uniform):
    """The 53 bits of the uniform and the cumulative shares decide, up to the rounding of a sum."""
    got = pick(logits, draw_words(temperature, top_k, uniform))
    if got != naive(logits, temperature, top_k, uniform):
        near = {naive(logits, temperature, top_k, min(max(uniform + step, 0), 2**53 - 1)) for step in (-64, 64)}
        assert got in near


@pytest.mark.parametrize("k_max", [1, 3, 8, 64])
def test_equal_logits_beyond_the_candidates(k_max):
    """Where more are equal than there are places, the lowest ids have these; nothing else of the vocabulary counts."""
    logits = np.random.default_rng(3).integers(0, 4, 200).astype(F32)
    best = sorted(range(200), key=lambda i: (-logits[i], i))[:k_max]
    uniforms = (0, 2**51, 2**52, 2**53 - 1)
    got = [pick(logits, draw_words(2.0, 64, uniform), k_max=k_max) for uniform in uniforms]
    assert got == [naive(logits, 2.0, k_max, uniform) for uniform in uniforms]
    assert got[0] == best[0] and got[-1] == best[-1]


def test_all_of_the_uniform_counts():
    """Its lowest bit can decide, so no word of it is dropped."""
    half = 2**52
    assert pick([0.0, 0.0], draw_words(1.0, 2, half - 1)) == 0
    assert pick([0.0, 0.0], draw_words(1.0, 2, half)) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("words", [GREEDY, draw_words(1.0, 2, 0), draw_words(1.0, 1, 2**53 - 1)])
def test_where_a_logit_is_not_finite_there_is_no_token(bad, words):
    """-1, wherever it stands: the model is broken, and any token would hide it."""
    for logits in ([bad, 1.0, 2.0], [1.0, 2.0, bad], [bad, bad]):
        assert pick(logits, words) == -1
        assert pick(logits, words, T=bfloat16) == -1


@pytest.mark.parametrize("backend", ["host", "reference", "sim"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_loop_ends_where_no_token_could_be_drawn(backend, bad, temperature):
    """On every backend: what was drawn before is told and noted, the error says why, and the graph goes on being of use."""

    class Walk(iron.Graph):
        def __init__(self):
            table = np.full((5, 5), -50, F32)
            table[np.arange(5), [1, 2, 3, 4, 0]] = 50
            table[3, 0] = bad
            self.table, self.record = iron.weight(table), iron.state((8,), np.int32)
            self.draws = iron.state((8, ROW_WORDS), np.int32)
            self.logits = iron.state((5,), F32)

        def body(self, *, token: iron.Carried[np.int32], position: iron.Carried[np.int32]):
            Copy(self.table[token], self.logits)
            _, drawn = Sample(self.logits, self.draws, self.record, row=position * ROW_WORDS, at=position)
            return iron.carry(token=drawn, position=position + 1)

    graph = Walk().compile(backend=backend)
    graph.write("draws", np.tile(draw_words(temperature, 3, 2**51), (8, 1)))
    seen = []
    for note in (lambda i, now: seen.append((i, now["token"])), None):
        with pytest.raises(NotFinite, match=r"Walk: sample0: the logits are not finite; step 4 of the loop has no token") as error:
            graph.loop(8, note, token=0, position=0)
        assert error.value.__notes__ == ["The loop was ended after 4 of 8 steps."]
        assert graph.read("record").tolist() == [1, 2, 3, -1, 0, 0, 0, 0]
    assert seen == [(0, 1), (1, 2), (2, 3)]
    with pytest.raises(NotFinite, match="step 1 of"):
        graph.loop(1, None, token=3, position=0)
    assert graph(token=3, position=0)[-1].token == -1, "one call tells, and leaves it to its caller"
    assert graph.loop(3, None, token=4, position=0) == dict(token=2, position=3)


def test_positions_choose_the_row_and_the_place():
    """`row` is an offset in words, `at` the place in the record; the rest of the record stays."""
    draws = np.concatenate([draw_words(1.0, 3, u) for u in (0, 2**53 - 1, 2**52)])
    op = Sample(vocab=3, steps=3, T=F32)
    logits, tokens = np.array([0.0, 2.0, 1.0], F32), np.array([7, 8, 9], np.int32)
    for step, want in enumerate([1, 0]):
        written, token = op.reference(logits, draws, tokens, row=4 * step, at=step)
        assert token.tolist() == [want]
        assert written.tolist() == [want if i == step else t for i, t in enumerate([7, 8, 9])]
    assert tokens.tolist() == [7, 8, 9], "the caller's record is not changed"


def test_draws_may_come_as_rows():
    """(steps, 4) and flat are the same words."""
    op = Sample(vocab=3, steps=2, T=F32)
    assert op.shape("draws") == (8,)
    rows = np.stack([draw_words(1.0, 3, 0), draw_words(1.0, 3, 2**53 - 1)])
    logits = np.array([0.0, 2.0, 1.0], F32)
    assert op.reference(logits, rows, np.zeros(2, np.int32), row=4)[1].tolist() == [0]


def test_draw_words_keep_every_bit():
    """Temperature as float32 bits, top-k, low and high word of the uniform."""
    words = draw_words(0.75, 40, (1 << 52) + 0xFFFFFFFF)
    assert words.dtype == np.int32 and words[:1].view(F32)[0] == 0.75 and words[1] == 40
    assert words[2:].view(np.uint32).tolist() == [0xFFFFFFFF, 1 << 20]


def test_wrong_samplers_are_refused():
    """Each with what would be legal."""
    with pytest.raises(ParamError, match=r"draws has 6 words, not 4 for each of steps=2\. Legal: 8\."):
        Sample(vocab=8, steps=2, words=6)
    with pytest.raises(ParamError, match="k_max=0; legal: 1 or more"):
        Sample(vocab=8, k_max=0)
