"""What the files of Phi-3 say of a model: fused matrices, a window, factors for short and long contexts."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_lm.checkpoints import huggingface
from iron_phi3.model import Phi3


def read(phi3: Any, **changes: Any) -> Any:
    """The config that its config.json describes, with these entries in place of its own; None: there is none."""
    entries = {key: value for key, value in (phi3.json | changes).items() if value is not None}
    return Phi3.from_huggingface(huggingface.entries_of(entries, Phi3.absent))


def test_fused_matrices_are_read_apart(phi3: Any) -> None:
    """Queries, keys and values, gate and up, lie one below the other."""
    qkv = phi3.weights["model.layers.1.self_attn.qkv_proj.weight"]
    gate_up = phi3.weights["model.layers.1.mlp.gate_up_proj.weight"]
    for loaded in (phi3.load(), phi3.load(phi3.gguf())):
        q, k, v = (loaded.weights[f"layers.1.mixer.{x}"] for x in "qkv")
        assert q.shape == (64, 64) and k.shape == v.shape == (32, 64)
        np.testing.assert_array_equal(np.concatenate([q, k, v]), qkv)
        np.testing.assert_array_equal(np.concatenate([loaded.weights[f"layers.1.ffn.{x}"] for x in ("gate", "up")]), gate_up)


def test_what_the_caches_hold_chooses_the_factors(phi3: Any) -> None:
    """Up to the original context those of short ones, beyond it those of long ones; cosine and sine are scaled by both alike."""
    plain = (1e4 ** (-np.arange(0, 32, 2) / 32)).astype(np.float32)
    for context, slower in ((64, 16), (128, 2)):
        rotary = phi3.load(max_seq_len=context).build().layers[0].rotary
        turn = 3 * plain / (1 + np.arange(16) / slower)
        np.testing.assert_allclose(rotary.angles([3]).reshape(16, 2), 1.25 * np.stack([np.cos(turn), np.sin(turn)], -1), rtol=1e-5)


def test_factors_matter(phi3: Any) -> None:
    """The same prompt in caches for short contexts has other logits than transformers', which saw a long one; so has one unscaled."""
    short, loaded = phi3.load(max_seq_len=64), phi3.load()
    bare = attrs.evolve(loaded, config=attrs.evolve(loaded.config, rotary=attrs.evolve(loaded.config.rotary, scaling=None)))
    for other in (short, bare):
        assert np.abs(other.twin(phi3.ids[:40])[-1] - phi3.logits[39]).max() > 1e-2


def test_every_way_to_write_the_factors(phi3: Any) -> None:
    """The older names of the scaling and of the original context say the same; where no factor of the scores is named, it is
    made of how much longer the context is."""
    rope = phi3.json["rope_parameters"]
    want = read(phi3).rotary
    older = {key: value for key, value in rope.items() if key not in ("rope_type", "rope_theta", "original_max_position_embeddings")}
    old = dict(rope_parameters=None, rope_theta=1e4, rope_scaling=older | {"type": "su"}, original_max_position_embeddings=64)
    assert read(phi3, **old).rotary == want
    unsaid = {key: value for key, value in rope.items() if key != "attention_factor"}
    assert read(phi3, rope_parameters=unsaid).rotary.scaling[1][1] == pytest.approx((1 + np.log(4) / np.log(64)) ** 0.5)


def test_a_window_that_is_not_there(phi3: Any) -> None:
    """null in a config.json, 0 or nothing in a GGUF: every layer sees everything."""
    assert read(phi3).sliding == (True, True) and read(phi3).window == 40
    found = [read(phi3, sliding_window=None), *(phi3.load(phi3.gguf(attention__sliding_window=given)).config for given in (0, None))]
    for config in found:
        assert (config.window, config.sliding) == (None, ())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(long_factor=[2.0] * 15), "16 short factors and 15 long ones; legal: as many of one as of the other"),
        (dict(short_factor=[2.0] * 4, long_factor=[2.0] * 4), "longrope has 8 factors; legal: .* for each of 16 pairs"),
        (dict(partial_rotary_factor=0.5), "longrope has 32 factors; legal: .* for each of 8 pairs"),
        (dict(long_factor=None), "rope scaling lacks long_factor"),
        (dict(long_factor=2.0), "long_factor is 2.0; legal: a list of positive numbers"),
        (dict(long_factor=[2.0] * 15 + [-1.0]), "long_factor is -1.0; legal: a positive number"),
        (dict(original_max_position_embeddings=0), "original_max_position_embeddings is 0; legal: a positive number"),
        (dict(rope_type="dynamic"), "rope scaling 'dynamic' is not one Iron has"),
    ],
)
def test_a_rotary_embedding_that_cannot_be_is_named(phi3: Any, changes: dict[str, Any], says: str) -> None:
    """Each entry, by name."""
    rope = {key: value for key, value in (phi3.json["rope_parameters"] | changes).items() if value is not None}
    with pytest.raises(CheckpointError, match=says) as caught:
        phi3.load(phi3.write(rope_parameters=rope))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (dict(rope__dimension_count=16), "longrope has 32 factors; legal: .* for each of 8 pairs"),
        (dict(rope__scaling__original_context_length=None), "lacks phi3.rope.scaling.original_context_length"),
        (dict(rope__scaling__type="yarn"), "phi3.rope.scaling.type is 'yarn'; this model runs longrope"),
        (dict(attention__head_count_kv=2), r"blk.0.attn_qkv.weight is \[128, 64\], not \[192, 64\]"),
        (dict(feed_forward_length=28), r"blk.0.ffn_up.weight is \[112, 64\], not \[56, 64\]"),
    ],
)
def test_metadata_that_cannot_be_is_named(phi3: Any, metadata: dict[str, Any], says: str) -> None:
    """The same of a GGUF."""
    with pytest.raises(CheckpointError, match=says):
        phi3.load(phi3.gguf(**metadata))
