"""A decoder's shape from config.json, and the rotary frequencies llama3 scaling makes."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.errors import CheckpointError, ParamError
from iron_lm.checkpoints import gguf_metadata, huggingface
from iron_lm.checkpoints.entries import Entries
from iron_lm.decoder_config import DecoderConfig
from iron_lm.parts.rotary import RotaryConfig, angles, inverse_frequencies
from iron_lm.run import Run

SIZES = dict(vocab_size=64, hidden_size=64, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=64, intermediate_size=64, max_positions=64)
#: As config.json has it: factor, low, high, original.
LLAMA3 = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
HF: dict[str, Any] = dict(
    vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
    max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip


def read(raw: dict[str, Any], entries: Entries | None = None) -> DecoderConfig:
    """The config that a config.json of these entries describes."""
    return DecoderConfig(**huggingface.decoder(entries or huggingface.entries_of(raw)))


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
    given = {field.name for field in attrs.fields(DecoderConfig) if field.default is attrs.NOTHING}
    assert given == {*SIZES}
    assert {"hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads"} <= given


@pytest.mark.parametrize("original", (8192, 64))
def test_llama3_scaling_is_the_reports(original: int) -> None:
    """Fast pairs stay, slow ones are divided, those between are blended: pair by pair the independent formula."""
    scaling = LLAMA3 | dict(original_max_position_embeddings=original)
    got, _ = inverse_frequencies(RotaryConfig(64, 500000.0, ("llama3", (32.0, 1.0, 4.0, original))))
    want = [frequency(i, 500000.0, 64, scaling) for i in range(32)]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    plain, _ = inverse_frequencies(RotaryConfig(64, 500000.0))
    assert (got == plain).any() and (got < plain * 0.99).any()


def test_factors_divide_each_frequency() -> None:
    """One divisor a pair."""
    factors = tuple(float(n) for n in range(1, 33))
    got, _ = inverse_frequencies(RotaryConfig(64, factors=factors))
    np.testing.assert_allclose(got * np.array(factors), inverse_frequencies(RotaryConfig(64))[0], rtol=1e-6)


def test_angles_are_cosines_and_sines_side_by_side() -> None:
    """Row p is (cos, sin) of p times each frequency; position 0 turns nothing."""
    config = RotaryConfig(64)
    table = angles(config, range(10))
    assert table.shape == (10, 64) and table.dtype == np.float32
    np.testing.assert_array_equal(table[0], [1, 0] * 32)
    turn = 7 * inverse_frequencies(config)[0].astype(np.float64)
    np.testing.assert_allclose(table[7, 0::2], np.cos(turn), atol=1e-6)
    np.testing.assert_allclose(table[7, 1::2], np.sin(turn), atol=1e-6)


def test_what_config_json_leaves_out_follows_from_the_rest() -> None:
    """Heads that share nothing, a head of hidden_size / heads, no scaling, an untied head."""
    found = read(HF)
    assert (found.num_kv_heads, found.head_dim, found.rotary) == (4, 16, RotaryConfig(16, 10000.0))
    assert found.tied is False


def test_what_no_rule_gives_is_as_transformers_has_it() -> None:
    """The rotary base and the norms' epsilon for any family; the rest as the family's own class has it. Each is noted."""
    less = {k: v for k, v in HF.items() if k not in ("rms_norm_eps", "rope_theta", "max_position_embeddings")}
    entries = huggingface.entries_of(less, {"max_position_embeddings": 2048, "head_dim": 128})
    found = read(less, entries)
    assert (found.norm_epsilon, found.rotary, found.max_positions) == (1e-6, RotaryConfig(128, 10000.0), 2048)
    assert entries.assumed == {"max_position_embeddings": 2048, "head_dim": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
    null = less | {"head_dim": None}
    assert read(null, huggingface.entries_of(null, entries.defaults)).head_dim == 16  # null is: as the rest has it


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
    assert read(HF | rope).rotary == RotaryConfig(16, 500000.0, ("llama3", (32.0, 1.0, 4.0, 8192.0)))


@pytest.mark.parametrize("share", [0.01, 0.2, 1.5])
def test_a_share_of_a_head_turns_in_pairs(share: float) -> None:
    """Named as config.json has it."""
    turning = int(16 * share)
    with pytest.raises(CheckpointError, match=rf"partial_rotary_factor is {share}, of which {turning} of head_dim 16 turn; legal: an even"):
        read(HF | dict(partial_rotary_factor=share))


LONGROPE: dict[str, Any] = dict(rope_type="longrope", short_factor=[1.0] * 8, long_factor=[float(n) for n in range(1, 9)])


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        (dict(partial_rotary_factor=0.5), dict(dims=8)),
        (dict(rope_parameters=dict(rope_type="default", partial_rotary_factor=0.25)), dict(dims=4)),
        (dict(partial_rotary_factor=1.0), {}),
        (
            dict(rope_parameters=dict(rope_type="proportional", partial_rotary_factor=0.25)),
            dict(scaling=("proportional", (0.25, 1.0))),
        ),
        (
            dict(rope_scaling=LONGROPE, original_max_position_embeddings=4096, max_position_embeddings=4096**2),
            dict(scaling=("longrope", (4096.0, 2**0.5, *LONGROPE["short_factor"], *LONGROPE["long_factor"]))),
        ),
        (
            dict(rope_scaling=LONGROPE | dict(attention_factor=1.5, original_max_position_embeddings=64)),
            dict(scaling=("longrope", (64.0, 1.5, *LONGROPE["short_factor"], *LONGROPE["long_factor"]))),
        ),
    ],
)
def test_a_part_of_a_head_and_factors_of_each_pair(changes: dict[str, Any], want: dict[str, Any]) -> None:
    """partial_rotary_factor is beside the rest or in rope_parameters; longrope's attention factor follows from the contexts
    (sqrt(1 + log 4096 / log 4096) here) unless it is said."""
    assert read(HF | changes | dict(rope_theta=10000.0)).rotary == RotaryConfig(16, 10000.0, **want)


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
        (dict(rope_scaling=dict(type="dynamic", factor=2.0)), "'dynamic'.*Legal: default, linear, llama3, yarn, longrope, proportional"),
        (dict(rope_scaling=LONGROPE | dict(long_factor=2.0)), "rope scaling: long_factor is 2.0; legal: a list of positive numbers"),
        (dict(rope_scaling=LONGROPE | dict(long_factor=[1.0, 0.0])), "rope scaling: long_factor is 0.0; legal: a positive number"),
        (dict(rope_scaling={k: v for k, v in LONGROPE.items() if k != "short_factor"}), "rope scaling lacks short_factor"),
        (dict(rope_scaling={k: v for k, v in LLAMA3.items() if k != "factor"}), "rope scaling lacks factor"),
        (dict(rope_scaling=LLAMA3 | dict(high_freq_factor=1.0)), "not below high_freq_factor"),
        (dict(rope_scaling=[1]), "rope_parameters is a list"),
    ],
)
def test_a_config_json_that_cannot_be_is_refused(changes: dict[str, Any], says: str) -> None:
    """Each entry is named with its value and what would be legal."""
    with pytest.raises(CheckpointError, match=says):
        read({k: v for k, v in (HF | changes).items() if v is not None})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(num_kv_heads=3), "num_kv_heads=3 does not divide num_heads=4"),
        (dict(num_layers=0), "num_layers=0; legal: a whole number, 1 or more"),
        (dict(norm_epsilon=0.0), "norm_epsilon=0.0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes: dict[str, Any], says: str) -> None:
    """Each names the field, its value and the rule."""
    with pytest.raises(ParamError, match=says):
        DecoderConfig(**{**SIZES, **changes})


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: RotaryConfig(15), "head_dim=15; legal: an even number"),
        (lambda: RotaryConfig(64, float("nan")), "base=nan; legal: a positive number"),
        (lambda: RotaryConfig(64, scaling=("ntk", (2.0,))), "scaling=.*ntk.*; legal: linear, llama3, yarn"),
        (lambda: RotaryConfig(64, factors=(1.0,)), "1 factors; legal: one for each of 32 pairs"),
        (lambda: Run(100), "max_seq_len=100 is not a multiple of prefill_chunk=64. Nearest: 64"),
        (lambda: Run(64, 0), "prefill_chunk=0; legal: a whole number, 1 or more"),
        (lambda: Run(64, dtype="int8"), "dtype='int8'; legal: bfloat16, float32, float16"),
        (lambda: Run(64, activations="int4"), "activations='int4'; legal: exact, int8_block"),
    ],
)
def test_other_settings_that_cannot_be_are_refused(made: Any, says: str) -> None:
    """The same of the rotary embedding, and of how a model is run."""
    with pytest.raises(ParamError, match=says):
        made()


LAYER_NORMS = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")


@pytest.mark.parametrize("key", ["rms_norm_eps", *LAYER_NORMS])
def test_the_epsilon_has_the_name_of_the_familys_norm(key: str) -> None:
    """Whatever a config.json calls it, or a family's class does that has one where the file has none; and that is what was taken."""
    raw = {k: v for k, v in HF.items() if k != "rms_norm_eps"}
    assert read(raw | {key: 3e-4}).norm_epsilon == 3e-4
    entries = huggingface.entries_of(raw, {key: 3e-5})
    assert read(raw, entries).norm_epsilon == 3e-5 and entries.assumed == {key: 3e-5}
    plain = huggingface.entries_of(raw)
    assert read(raw, plain).norm_epsilon == 1e-6 and plain.assumed == {"rms_norm_eps": 1e-6}


@pytest.mark.parametrize("key", ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"])
def test_the_epsilon_of_a_gguf_has_either_norms_name(key: str) -> None:
    """And one that has none is told of by name."""
    said = {
        "vocab_size": 64, "embedding_length": 32, "block_count": 2, "feed_forward_length": 64, "context_length": 64,
        "attention.head_count": 2,
    }  # fmt: skip
    metadata = {"general.architecture": "own", **{f"own.{k}": v for k, v in (said | {key: 3e-4}).items()}}
    assert gguf_metadata.decoder(gguf_metadata.entries_of(metadata), {})["norm_epsilon"] == 3e-4
    del metadata[f"own.{key}"]
    with pytest.raises(CheckpointError, match=r"lacks own\.attention\.layer_norm_rms_epsilon"):
        gguf_metadata.decoder(gguf_metadata.entries_of(metadata), {})
