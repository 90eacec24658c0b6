"""`Attention` alone: a prompt's chunks, then decode steps, over caches of its own."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.errors import ParamError, ShapeError
from iron_lm import testing
from iron_lm.parts.attention import Attention, AttentionConfig
from iron_lm.parts.cache import KVCache
from iron_lm.parts.norm import NormConfig
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run
from tests.lm.parts.strategies import attentions

SIZES = AttentionConfig(20, 6, 2, 8)


def hidden(rows: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@settings(max_examples=12)
@given(configs=attentions(), rows=st.integers(1, 20), decoded=st.integers(0, 4), seed=st.integers(0, 99))
def test_it_is_its_twin(configs: Any, rows: int, decoded: int, seed: int, backend: str, run: Run) -> None:
    """Heads, groups, scale, cap, reach, norms, biases, gates and rotary embeddings of every kind; chunks that are full or not."""
    config, rotary = configs
    part = Attention(config, run, None if rotary is None else Rotary(rotary, run))
    report = testing.check_part(part, run, hidden(rows + decoded, config.hidden_size, seed), rows, seed=seed, backend=backend)
    assert report.passed, report.lines()


@pytest.mark.parametrize("together", (False, True))
@pytest.mark.parametrize("neighbours", (False, True))
def test_a_part_of_a_head_may_turn(neighbours: bool, together: bool, backend: str, run: Run) -> None:
    """With biases and norms, of each head or of all together, whose numbers lie as the heads' do."""
    norms = dict(q_norm=NormConfig(96), k_norm=NormConfig(32)) if together else dict(q_norm=NormConfig(16), k_norm=NormConfig(16))
    config = AttentionConfig(20, 6, 2, 16, **norms, bias=True)
    part = Attention(config, run, Rotary(RotaryConfig(16, 100.0, neighbours=neighbours, dims=4), run))
    report = testing.check_part(part, run, hidden(20, 20), 17, backend=backend)
    assert report.passed, report.lines()
    whole = Attention(config, run, Rotary(RotaryConfig(16, 100.0, neighbours=neighbours), run))
    weights = testing.drawn(part)
    one, other = (each.twin(weights, hidden(20, 20), np.arange(20)) for each in (part, whole))
    assert np.abs(one - other).max() > 1e-2


def test_a_part_of_a_head_may_turn_where_weights_are_blocks(backend: str, run: Run) -> None:
    """Whole rows of a block format take other places, unread."""
    part = Attention(AttentionConfig(32, 6, 2, 16), run, Rotary(RotaryConfig(16, 100.0, dims=4), run))
    weights = {path: iron.Q8_0.quantize(array) for path, array in testing.drawn(part).items()}
    part.fill(weights)
    assert part.q.format.packed
    x = hidden(20, 32)
    got = testing.alone(part, run, x, 17, backend=backend)
    assert np.abs(got - part.twin(weights, x, np.arange(20))).max() < 1e-4


@pytest.mark.parametrize("change", [
    dict(scale=1.0), dict(cap=0.3), dict(reach=3), dict(q_norm=NormConfig(8)), dict(q_norm=NormConfig(48)), dict(k_norm=NormConfig(8)),
    dict(k_norm=NormConfig(16)), dict(bias=True), dict(output_bias=True), dict(gate=True), dict(num_kv_heads=3),
])  # fmt: skip
def test_every_field_matters(change: dict[str, Any], run: Run) -> None:
    """The twin's numbers are others with it, so that what agrees with it has it too."""
    x, where = hidden(9, 20), np.arange(9)
    plain, other = (Attention(config, run) for config in (SIZES, attrs.evolve(SIZES, **change)))
    weights = testing.drawn(other)
    same = {path: weights[path][: shape[0], : shape[-1]] if len(shape) > 1 else weights[path] for path, shape in plain.tensors().items()}
    assert np.abs(plain.twin(same, x, where) - other.twin(weights, x, where)).max() > 1e-2


def test_norms_of_a_head_and_of_all_together_differ(run: Run) -> None:
    """By what the numbers are divided by; neither has a weight."""
    x, where = hidden(9, 20), np.arange(9)
    one, all_ = (Attention(attrs.evolve(SIZES, q_norm=NormConfig(size, weight=False)), run) for size in (8, 48))
    weights = testing.drawn(one)
    assert np.abs(one.twin(weights, x, where) - all_.twin(weights, x, where)).max() > 1e-2


def test_a_gate_lets_through_what_its_sigmoid_says(run: Run) -> None:
    """All of what the heads give where it is far above zero, nothing where it is far below, half where it is zero."""
    plain, gated = Attention(SIZES, run), Attention(attrs.evolve(SIZES, gate=True, bias=True), run)
    x, where, weights = hidden(9, 20), np.arange(9), testing.drawn(Attention(SIZES, run))
    want = plain.twin(weights, x, where)
    nothing = {path: np.zeros(shape, np.float32) for path, shape in gated.tensors().items()} | weights
    for bias, share in ((30, 1), (-30, 0), (0, 0.5)):
        got = gated.twin(nothing | {"gate_bias": np.full(48, bias, np.float32)}, x, where)
        np.testing.assert_allclose(got, share * want, atol=1e-5)


@pytest.mark.parametrize("rows", (1, 8))
def test_what_x_is_multiplied_by_follows_one_another(rows: int, run: Run) -> None:
    """Biases or none, in a decode step and in a prompt's chunk: so a backend may take all of them in one pass over x."""
    for bias, gate in ((False, False), (True, False), (True, True)):
        part = Attention(attrs.evolve(SIZES, bias=bias, gate=gate), run)
        part.fill(testing.drawn(part))
        names = [type(step.op).__name__ for step in part.trace(x=((rows, 20), np.float32)).steps]
        count = 3 + gate
        assert names[:count] == ["GEMV" if rows == 1 else "GEMM"] * count and names.count("RowwiseAdd") == count * bias


def test_a_query_sees_what_is_before_it_and_in_reach(run: Run) -> None:
    """A later token, or one further back than `reach`, changes nothing of what comes out for a row; one in reach does."""
    part = Attention(attrs.evolve(SIZES, reach=4), run)
    part.fill(testing.drawn(part))
    x = hidden(12, 20)
    want = testing.alone(part, run, x, backend="host")[7]
    for changed, same in ((8, True), (2, True), (3, False), (7, False)):
        other = x.copy()
        other[changed] += 1
        assert np.array_equal(testing.alone(part, run, other, backend="host")[7], want) == same, changed


def test_angles_turn_the_queries_and_the_keys_by_position_alone(run: Run) -> None:
    """Scores know the distance of two tokens and not where they are: the same rows three places on give the same."""
    part = Attention(attrs.evolve(SIZES, reach=4), run, Rotary(RotaryConfig(8), run))
    weights, x = testing.drawn(part), hidden(9, 20)
    first, later = (part.twin(weights, x, np.arange(9) + start) for start in (0, 3))
    np.testing.assert_allclose(first, later, atol=1e-5)
    assert np.abs(first - Attention(part.config, run).twin(weights, x, np.arange(9))).max() > 1e-2


def test_the_caches_are_float16_where_the_run_says_so() -> None:
    """Keys and values are rounded, and nothing else: near the twin, not within 1e-4 of it."""
    run = Run(24, 8, dtype="float32", cache_dtype="float16")
    part = Attention(SIZES, run)
    gate = testing.check_part(part, run, 30 * hidden(11, 20), 9, backend="reference").gates[0]
    assert 1e-4 < gate.figure < 0.1


def test_layers_may_share_a_cache(run: Run) -> None:
    """It is given; its sizes are those of keys and values."""
    cache = KVCache(run, 2, 8)
    one, other = Attention(SIZES, run, cache=cache), Attention(SIZES, run, cache=cache)
    assert one.cache is other.cache is cache and cache.nbytes == 2 * 24 * 2 * 8 * 4 and cache.rewind(7) == 7


def test_rows_that_are_no_chunk_are_refused(run: Run) -> None:
    """A part alone is compiled for one row, or for a prompt's chunk."""
    part = Attention(SIZES, run)
    part.fill(testing.drawn(part))
    with pytest.raises(ShapeError, match="has 5 rows; legal: 1, a decode step's, prefill_chunk=8, or drafted=7"):
        part.compile(backend="reference", x=((5, 20), np.float32))


@pytest.mark.parametrize(("change", "says"), [
    (dict(num_heads=5), "num_kv_heads=2 does not divide num_heads=5"), (dict(head_dim=0), "head_dim=0; legal: a whole number, 1 or more"),
    (dict(scale=0.0), "scale=0.0; legal: a positive"), (dict(cap=-1.0), "cap=-1.0; legal: a positive"),
    (dict(reach=0), "reach=0; legal: a whole number, 1 or more, or None"),
    (dict(q_norm=NormConfig(16)), "q_norm of 16 numbers; legal: 8, a head, or 48, all of them"),
    (dict(k_norm=NormConfig(48)), "k_norm of 48 numbers; legal: 8, a head, or 16, all of them"),
])  # fmt: skip
def test_a_config_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    """By field and value."""
    with pytest.raises(ParamError, match=says):
        attrs.evolve(SIZES, **change)
