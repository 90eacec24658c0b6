"""`GatedDelta` alone, and what sessions make of states that cannot go back."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import ParamError
from iron_lm.parts.gated_delta import GatedDelta, GatedDeltaConfig
from iron_lm.run import Run
from iron_lm.testing import alone, check_part, drawn

SIZES = GatedDeltaConfig(24, 2, 4, 8, 16)


@st.composite
def configs(draw):
    """Sizes, heads of either order, taps."""
    heads = draw(st.integers(1, 3))
    return GatedDeltaConfig(
        draw(st.integers(1, 40)),
        heads,
        heads * draw(st.integers(1, 3)),
        draw(st.integers(1, 20)),
        draw(st.integers(1, 40)),
        taps=draw(st.integers(2, 5)),
        tiled=draw(st.booleans()),
    )


@settings(max_examples=12, deadline=None)
@given(config=configs(), rows=st.integers(1, 24), prompt=st.integers(0, 24), seed=st.integers(0, 99))
def test_it_is_its_twin(config: GatedDeltaConfig, rows: int, prompt: int, seed: int, backend: str, run: Run) -> None:
    """Any sizes; a prompt's chunks, full or not, and rows one by one behind them."""
    x = np.random.default_rng(seed).standard_normal((rows, config.hidden_size)).astype(np.float32)
    report = check_part(GatedDelta(config, run), run, x, min(rows, prompt), seed=seed, backend=backend)
    assert report.passed, report.lines()


def test_a_token_has_the_same_bits_in_a_prompt_and_by_itself(run: Run) -> None:
    """On the host, over the ends of chunks."""
    x = np.random.default_rng(1).standard_normal((20, 24)).astype(np.float32)
    weights, made = drawn(GatedDelta(SIZES, run)), []
    for prompt in (20, 0, 11):
        part = GatedDelta(SIZES, run)
        part.fill(weights)
        made.append(alone(part, run, x, prompt, backend="host"))
    assert np.array_equal(made[0], made[1]) and np.array_equal(made[0], made[2])


def test_in_bfloat16(run: Run) -> None:
    """Gates and the memory stay float32: as near as the roundings of what goes in and out."""
    narrow = attrs.evolve(run, dtype="bfloat16")
    x = np.random.default_rng(1).standard_normal((20, 24)).astype(np.float32)
    part, weights = GatedDelta(SIZES, narrow), drawn(GatedDelta(SIZES, narrow))
    part.fill(weights)
    import ml_dtypes

    x = x.astype(ml_dtypes.bfloat16)
    want = part.twin(weights, x.astype(np.float32), np.arange(20))
    assert np.abs(alone(part, narrow, x, 9, backend="host") - want).max() < 0.05 * np.abs(want).max()


def test_only_what_gates_are_made_of_is_widened(run: Run) -> None:
    """The rate, with its sign turned, and the bias; matrices and taps run as they are stored."""
    part, stored = GatedDelta(SIZES, run), np.ones(4, np.float16)
    kept = {name: part.arranged(name, stored) for name in ("rate", "bias", "conv", "qkv", "o")}
    assert [array.dtype for array in kept.values()] == [np.float32] * 2 + [np.float16] * 3
    assert (kept["rate"] == -1).all() and (kept["bias"] == 1).all()


def test_every_weight_counts(run: Run) -> None:
    """Any that is changed gives other numbers; so does the order of heads."""
    part, x = GatedDelta(SIZES, run), np.random.default_rng(0).standard_normal((9, 24)).astype(np.float32)
    weights, where = drawn(part), np.arange(9)
    first = part.twin(weights, x, where)
    for path, weight in weights.items():
        assert not np.allclose(part.twin(weights | {path: weight * np.float32(1.5)}, x, where), first, atol=1e-4), path
    assert not np.allclose(GatedDelta(attrs.evolve(SIZES, tiled=True), run).twin(weights, x, where), first, atol=1e-4)


def test_what_it_keeps(run: Run) -> None:
    """The convolution's last rows and the memory, whatever the tokens: 3 x 96 and 4 x 8 x 16 numbers."""
    assert GatedDelta(SIZES, run).cache.nbytes == 4 * (3 * 96 + 4 * 8 * 16)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (dict(key_heads=3), "key_heads=3 does not divide value_heads=4. Legal: a divisor of it"),
        (dict(taps=1), "taps=1; legal: at least 2"),
        (dict(value_dim=0), "value_dim=0; legal: a whole number, 1 or more"),
    ],
)
def test_what_cannot_be_is_refused(fields, words) -> None:
    with pytest.raises(ParamError, match=words):
        attrs.evolve(SIZES, **fields)
