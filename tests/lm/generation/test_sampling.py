"""Choosing the next token: each rule on its own, their order, and draws that depend on seed and position alone."""

from __future__ import annotations

import re

import numpy as np
import pytest

from iron_core.errors import UsageError
from iron_lm.generation.sampler import Sampler
from iron_ops_aie import Sample

LOGITS = np.array([1.0, 4.0, 3.0, -1.0, 3.5, 0.0], np.float32)


def counts(sampler, draws=400):
    found = np.zeros(LOGITS.size, int)
    for position in range(draws):
        found[sampler.choose(LOGITS, position, [])] += 1
    return found


def test_greedy_takes_the_largest_and_the_first_of_equals():
    assert Sampler().choose(LOGITS, 0, []) == 1
    assert Sampler().choose(np.zeros(5, np.float32), 0, []) == 0


def test_draws_follow_the_softmax():
    """Frequencies of the candidates are near their probabilities at the temperature."""
    for temperature in (0.7, 1.0, 2.0):
        want = np.exp(LOGITS / temperature) / np.exp(LOGITS / temperature).sum()
        assert np.abs(counts(Sampler(temperature, top_k=100, min_p=1e-9), 4000) / 4000 - want).max() < 0.03


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        (dict(top_k=2, min_p=1e-9), {1, 4}),
        (dict(top_p=0.4), {1}),
        (dict(top_p=0.75), {1, 4}),
        (dict(min_p=0.5), {1, 4}),
        (dict(min_p=0.3), {1, 4, 2}),
        (dict(min_p=1.0), {1}),
        (dict(typical_p=0.2), {4}),
        (dict(typical_p=0.6), {1, 4}),
        (dict(typical_p=0.9), {1, 2, 4}),
        (dict(typical_p=1e-9, top_k=1), {1}),
        (dict(logit_bias=((1, -np.inf), (4, -np.inf)), top_k=1), {2}),
    ],
)
def test_only_these_are_left(rules, left):
    """top_k by rank, top_p by the probability before, min_p by the most likely one's, -inf for ever."""
    assert set(np.flatnonzero(counts(Sampler(1.0, **rules)))) == left


def test_a_repeated_token_is_less_likely():
    """Positive logits are divided by the penalty, negative ones multiplied; only the last tokens count."""
    sampler = Sampler(repetition_penalty=2.0, repeat_last_n=2)
    assert sampler.choose(LOGITS, 9, [1]) == 4
    assert sampler.choose(LOGITS, 9, [1, 4]) == 2
    assert sampler.choose(LOGITS, 9, [1, 0, 0]) == 1
    low = np.array([-1.0, -1.5], np.float32)
    assert sampler.choose(low, 9, [0]) == 1


def test_penalties_are_taken_off_once_and_for_each_time():
    """Of the last tokens alone: presence once, frequency for each time; negative ones make a token likelier."""
    assert Sampler(presence_penalty=0.6, repeat_last_n=2).choose(LOGITS, 9, [1, 1]) == 4
    assert Sampler(presence_penalty=0.4).choose(LOGITS, 9, [1] * 9) == 1
    assert Sampler(frequency_penalty=0.2).choose(LOGITS, 9, [1, 1]) == 1
    assert Sampler(frequency_penalty=0.2).choose(LOGITS, 9, [1, 1, 1]) == 4
    assert Sampler(frequency_penalty=0.2, repeat_last_n=2).choose(LOGITS, 9, [1, 1, 1]) == 1
    assert Sampler(presence_penalty=-4.5, repeat_last_n=1).choose(LOGITS, 9, [1, 5]) == 5
    both = Sampler(repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25, repeat_last_n=8)
    assert both.choose(np.array([4.0, 1.01], np.float32), 9, [0, 0]) == 1  # 4 / 2 - 0.5 - 2 * 0.25 = 1
    assert both.choose(np.array([4.0, 0.99], np.float32), 9, [0, 0]) == 0


def test_a_draw_depends_on_seed_and_position_alone():
    """Not on what was drawn before."""
    sampler = Sampler(1.0, seed=7, top_p=0.99)
    first = [sampler.choose(LOGITS, p, []) for p in range(20)]
    assert first == [Sampler(1.0, seed=7, top_p=0.99).choose(LOGITS, p, [1, 2]) for p in range(20)]
    assert first != [Sampler(1.0, seed=8, top_p=0.99).choose(LOGITS, p, []) for p in range(20)]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (dict(temperature=-1.0), "temperature=-1.0; legal: 0"),
        (dict(top_k=0), "top_k=0; legal: a whole number, 1 or more"),
        (dict(top_p=0.0), "top_p=0.0; legal: over 0"),
        (dict(top_p=1.5), "top_p=1.5"),
        (dict(min_p=-0.1), "min_p=-0.1; legal: 0 to 1"),
        (dict(repetition_penalty=0.0), "repetition_penalty=0.0; legal: over 0"),
        (dict(typical_p=0.0), "typical_p=0.0; legal: over 0"),
        (dict(presence_penalty=float("nan")), "presence_penalty=nan; legal: -1e+06 to 1e+06"),
        (dict(frequency_penalty="2"), "frequency_penalty='2'; legal: -1e+06 to 1e+06"),
        (dict(repeat_last_n=-1), "repeat_last_n=-1; legal: a whole number, 0 or more"),
        (dict(logit_bias=((3, float("nan")),)), "logit_bias 3=nan; legal: a token id and a number"),
        (dict(seed=-1), "seed=-1"),
        (dict(temperature="hot"), "temperature='hot'; legal: 0"),
        (dict(repetition_penalty=None), "repetition_penalty=None; legal: over 0"),
        (dict(top_k=1.5), "top_k=1.5; legal: a whole number"),
        (dict(seed=0.5), "seed=0.5; legal: a whole number"),
        (dict(logit_bias=[3]), "logit_bias=[3]; legal: a number by token id"),
        (dict(logit_bias={"3": 1.0}), "logit_bias '3'=1.0; legal: a token id and a number"),
        (dict(logit_bias={3: "1"}), "logit_bias 3='1'; legal: a token id and a number"),
    ],
)
def test_rules_out_of_range_are_refused(rules, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        Sampler(**rules)


def test_a_bias_of_no_token_is_refused():
    with pytest.raises(UsageError, match="logit_bias of token 99; legal: 0 to 5"):
        Sampler(logit_bias=((99, 1.0),)).choose(LOGITS, 0, [])


def test_the_graph_chooses_where_it_can():
    """Temperature and up to 64 candidates are the Sample step's; everything else comes back to the host."""
    assert Sampler().on_device and Sampler(0.8, top_k=64).on_device
    others = dict(top_p=0.9, min_p=0.1, typical_p=0.9, repetition_penalty=1.1, presence_penalty=0.1, frequency_penalty=-0.1, top_k=65)
    for rules in (*({name: value} for name, value in others.items()), dict(logit_bias=((0, 1.0),))):
        assert not Sampler(0.8, **rules).on_device


@pytest.mark.parametrize("rules", [{}, dict(temperature=0.8), dict(temperature=2.0, top_k=64, seed=9), dict(temperature=1.0, top_k=3)])
def test_a_chooser_draws_what_the_graph_draws(rules):
    """At every position, from the same rows of draws; equal logits in the order of their ids."""
    sampler, rng = Sampler(**rules), np.random.default_rng(0)
    choose, rows = sampler.chooser(40), sampler.rows(40)
    step = Sample(vocab=300, steps=40, T=np.float32)
    for position in range(40):
        logits = rng.integers(-8, 8, 300).astype(np.float32) / 2
        _, token = step.reference(logits, rows, np.zeros(40, np.int32), row=4 * position, at=position)
        assert choose(logits, position, []) == token[0]


def test_a_chooser_goes_by_the_rules_that_the_graph_does_not_know():
    """What penalises, or is no candidate of the graph's, is chosen as `choose` does, and so is what may not be any token."""
    ruled = Sampler(1.0, seed=3, repetition_penalty=1.5, top_p=0.9)
    plain = Sampler(1.0, seed=3)
    allowed = np.array([True, False, True, True, False, True])
    for position in range(40):
        history = [position % 6, 1]
        assert ruled.chooser(40)(LOGITS, position, history) == ruled.choose(LOGITS, position, history)
        assert plain.chooser(40)(LOGITS, position, history, allowed) == plain.choose(LOGITS, position, history, allowed)
    assert Sampler().chooser(40)(LOGITS, 0, [], allowed) == 2
