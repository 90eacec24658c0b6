"""A decoder's shape from config.json, and the rotary frequencies llama3 scaling makes."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.errors import CheckpointError, ParamError
from iron_lm.checkpoints.entries import huggingface_entries
from iron_lm.config import Config, from_huggingface, inverse_frequencies

SIZES = dict(vocab_size=64, hidden_size=64, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=64, intermediate_size=64, max_seq_len=64)
LLAMA3 = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
HF: dict[str, Any] = dict(
    vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
    max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip


def frequency(i: int, base: float, dim: int, scaling: dict[str, Any]) -> float:
    """Radians pair i turns per position, as the Llama 3.1 report's reference code has it, one pair at a time."""
    plain = base ** (-2 * i / dim)
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)  # over the original context
    if turns < scaling["low_freq_factor"]:
        return plain / scaling["factor"]
    if turns > scaling["high_freq_factor"]:
        return plain
    share = (turns - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
    return plain * (share + (1 - share) / scaling["factor"])


def test_sizes_have_the_names_that_checkpoints_give_them():
    """Those of transformers' configs, without the words that say nothing more."""
    given = {field.name for field in attrs.fields(Config) if field.default is attrs.NOTHING}
    assert given == {*SIZES}
    assert {"hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads"} <= given


@pytest.mark.parametrize("original", (8192, 64))
def test_llama3_scaling_is_the_reports(original: int) -> None:
    """Fast pairs stay, slow ones are divided, those between are blended: pair by pair the independent formula."""
    scaling = LLAMA3 | dict(original_max_position_embeddings=original)
    got = inverse_frequencies(Config(**SIZES, rope_base=500000.0, rope_scaling=scaling))
    want = [frequency(i, 500000.0, 64, scaling) for i in range(32)]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    plain = inverse_frequencies(Config(**SIZES, rope_base=500000.0))
    assert (got == plain).any() and (got < plain * 0.99).any()


def test_factors_divide_each_frequency() -> None:
    """rope_factors is one divisor a pair."""
    factors = tuple(float(n) for n in range(1, 33))
    got = inverse_frequencies(Config(**SIZES, rope_factors=factors))
    np.testing.assert_allclose(got * np.array(factors), inverse_frequencies(Config(**SIZES)), rtol=1e-6)


def test_angles_are_cosines_and_sines_side_by_side() -> None:
    """Row p is (cos, sin) of p times each frequency; position 0 turns nothing."""
    config = Config(**SIZES)
    table = config.angles(10)
    assert table.shape == (10, 64) and table.dtype == np.float32
    np.testing.assert_array_equal(table[0], [1, 0] * 32)
    turn = 7 * inverse_frequencies(config).astype(np.float64)
    np.testing.assert_allclose(table[7, 0::2], np.cos(turn), atol=1e-6)
    np.testing.assert_allclose(table[7, 1::2], np.sin(turn), atol=1e-6)


def test_what_config_json_leaves_out_follows_from_the_rest() -> None:
    """Heads that share nothing, a head of hidden_size / heads, no scaling, an untied head."""
    found = from_huggingface(HF)
    assert (found["num_kv_heads"], found["head_dim"], found["rope_base"]) == (4, 16, 10000.0)
    assert found["rope_scaling"] is None and found["tied"] is False
    Config(**found)


def test_what_no_rule_gives_is_as_transformers_has_it() -> None:
    """The rotary base and the norms' epsilon for any family; the rest as the family's own class has it. Each is noted."""
    less = {k: v for k, v in HF.items() if k not in ("rms_norm_eps", "rope_theta", "max_position_embeddings")}
    entries = huggingface_entries(less, {"max_position_embeddings": 2048, "head_dim": 128})
    found = from_huggingface(less, entries)
    assert (found["norm_epsilon"], found["rope_base"], found["max_seq_len"], found["head_dim"]) == (1e-6, 10000.0, 2048, 128)
    assert entries.assumed == {"max_position_embeddings": 2048, "head_dim": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
    null = from_huggingface(less | {"head_dim": None}, huggingface_entries(less | {"head_dim": None}, entries.defaults))
    assert null["head_dim"] == 16  # null is: as the rest has it


@pytest.mark.parametrize(
    "rope",
    [
        dict(rope_theta=500000.0, rope_scaling=LLAMA3),
        dict(rope_parameters=LLAMA3 | dict(rope_theta=500000.0)),
        dict(rope_theta=500000.0, rope_scaling=dict(LLAMA3, type="llama3") | dict(rope_type="llama3")),
    ],
)
def test_both_ways_to_write_the_rotary_embedding_are_one(rope: dict[str, Any]) -> None:
    """rope_theta beside rope_scaling (before transformers 5) and rope_parameters mean the same."""
    found = Config(**from_huggingface(HF | rope))
    assert found.rope_base == 500000.0
    assert [found.rope_scaling[k] for k in LLAMA3] == list(LLAMA3.values())  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(vocab_size=None), "lacks vocab_size"),
        (dict(max_position_embeddings=None), "lacks max_position_embeddings"),
        (dict(hidden_size="64"), "hidden_size is '64'; legal: a whole number"),
        (dict(num_attention_heads=True), "num_attention_heads is True"),
        (dict(num_hidden_layers=10**9), "num_hidden_layers is 1000000000"),
        (dict(rms_norm_eps=-1.0), "rms_norm_eps is -1.0; legal: a positive number"),
        (dict(hidden_act="gelu"), "hidden_act is 'gelu'; this model runs silu"),
        (dict(rope_scaling=dict(type="yarn", factor=2.0)), "'yarn'.*Legal: default, linear, llama3"),
        (dict(rope_scaling={k: v for k, v in LLAMA3.items() if k != "factor"}), "rope scaling lacks factor"),
        (dict(rope_scaling=LLAMA3 | dict(high_freq_factor=1.0)), "not below high_freq_factor"),
        (dict(rope_scaling=[1]), "rope_parameters is a list"),
    ],
)
def test_a_config_json_that_cannot_be_is_refused(changes: dict[str, Any], says: str) -> None:
    """Each entry is named with its value and what would be legal."""
    with pytest.raises(CheckpointError, match=says):
        from_huggingface({k: v for k, v in (HF | changes).items() if v is not None})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(num_kv_heads=3), "num_kv_heads=3 does not divide num_heads=4"),
        (dict(head_dim=15), "head_dim=15 is odd"),
        (dict(num_layers=0), "num_layers=0; legal: 1 or more"),
        (dict(max_seq_len=100), "Nearest: 64"),
        (dict(rope_base=float("nan")), "rope_base=nan"),
        (dict(norm_epsilon=0.0), "norm_epsilon=0.0"),
        (dict(rope_factors=(1.0,)), "head_dim / 2 = 32"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes: dict[str, Any], says: str) -> None:
    """Each names the field, its value and the rule."""
    with pytest.raises(ParamError, match=says):
        Config(**{**SIZES, **changes})
