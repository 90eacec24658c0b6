"""What the files of GPT-2 say of a model: names with a prefix or without, matrices the other way round, masks, positions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.errors import BoundsError, CheckpointError
from iron_gpt2.model import GPT2
from iron_lm.checkpoints import huggingface
from iron_lm.generation.session import Session
from tests.lm import pth

QKV = "transformer.h.1.attn.c_attn"


def read(gpt2: Any, **changes: Any) -> Any:
    """The config that its config.json describes, with these entries in place of its own; None: there is none."""
    entries = {key: value for key, value in (gpt2.json | changes).items() if value is not None}
    return GPT2.from_huggingface(huggingface.entries_of(entries, GPT2.absent))


def rewritten(gpt2: Any, folder: Path, weights: dict[str, np.ndarray], **changes: Any) -> Path:
    """A safetensors folder of these weights."""
    save = pytest.importorskip("safetensors.numpy", reason="safetensors, which makes the files, is not installed")
    save.save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(gpt2.json | changes))
    return folder


def test_a_prefix_and_masks_are_as_one_likes(gpt2: Any, tmp_path: Path) -> None:
    """Without `transformer.`, and with the masks that were once stored, it is the same model, whoever saved it."""
    bare = {name.removeprefix("transformer."): array for name, array in gpt2.weights.items()}
    mask = np.tril(np.ones((1, 1, 130, 130), np.float32))
    masks = {f"h.{i}.attn.bias": mask for i in range(2)} | {f"h.{i}.attn.masked_bias": np.float32([-1e4]) for i in range(2)}
    saved = tmp_path / "saved"
    saved.mkdir()
    pth.save(saved / "pytorch_model.bin", bare | masks)
    (saved / "config.json").write_text(json.dumps(gpt2.json))
    loaded = gpt2.load()
    for other in (gpt2.load(rewritten(gpt2, tmp_path, bare | masks)), gpt2.load(saved)):
        assert list(loaded.weights) == list(other.weights)
        for path, array in loaded.weights.items():
            np.testing.assert_array_equal(array, other.weights[path])


def test_a_missing_tensor_is_called_as_transformers_saves_it(gpt2: Any, tmp_path: Path) -> None:
    """And one too many is named."""
    weights = {name: array for name, array in gpt2.weights.items() if name != f"{QKV}.bias"}
    with pytest.raises(CheckpointError, match=r"transformer\.h\.1\.attn\.c_attn\.bias \[144\] is missing; extra is none"):
        gpt2.load(rewritten(gpt2, tmp_path, weights | {"extra": np.zeros(2, np.float32)}))


def test_matrices_are_turned_round(gpt2: Any) -> None:
    """Queries, keys and values stand side by side in one of (inputs, outputs)."""
    loaded = gpt2.load()
    q, k, v = (loaded.weights[f"layers.1.mixer.{x}"] for x in "qkv")
    np.testing.assert_array_equal(np.concatenate([q, k, v]), gpt2.weights[f"{QKV}.weight"].T)
    biases = [loaded.weights[f"layers.1.mixer.{x}_bias"] for x in "qkv"]
    np.testing.assert_array_equal(np.concatenate(biases), gpt2.weights[f"{QKV}.bias"])
    assert all(array.flags.c_contiguous for array in (q, k, v)) and q.base is None  # none keeps all three in memory


def test_sizes_that_are_left_out(gpt2: Any) -> None:
    """A feed-forward is four times as wide; positions have an older name too, and 1024 where there is none of either."""
    assert read(gpt2, n_inner=None).intermediate_size == 4 * 48
    assert read(gpt2, n_positions=None, n_ctx=77).max_positions == 77
    assert read(gpt2, n_ctx=77).max_positions == 130
    assert read(gpt2, n_positions=None).max_positions == 1024


def test_an_embedding_stored_twice_is_a_head(gpt2: Any) -> None:
    """Older GGUFs have it as `output.weight`, as a GGUF has an untied head: the same logits."""
    loaded = gpt2.load()
    doubled = attrs.evolve(loaded, exact=loaded.exact | {"head.matrix": loaded.exact["embedding.table"]})
    other = gpt2.load(gpt2.gguf(loaded=doubled))
    assert loaded.config.tied and not other.config.tied
    np.testing.assert_array_equal(other.twin(gpt2.ids[:9]), loaded.twin(gpt2.ids[:9]))


def test_the_last_position_is_the_last(gpt2: Any) -> None:
    """130 positions in caches of 192: the last is answered, and there is none after it, for a step or for a prompt's rows."""
    loaded = gpt2.load(max_seq_len=130)
    assert (loaded.context, loaded.run.max_seq_len) == (130, 192)
    ids = [*gpt2.ids, *gpt2.ids[:50]]
    session = Session(loaded.model(), backend="host")
    assert np.abs(session.logits(ids) - loaded.twin(ids)[-1]).max() < 1e-4
    for more in ([1], [1, 2]):
        with pytest.raises(BoundsError, match=r"\[130, 48\]"):
            session.logits([*ids, *more])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(activation_function="gelu"), "activation_function is 'gelu'; this model runs gelu_new"),
        (dict(scale_attn_weights=False), "scale_attn_weights is False; this model runs True"),
        (dict(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx is True; this model runs False"),
        (dict(add_cross_attention=True), "add_cross_attention is True; this model runs False"),
        (dict(n_inner=64), r"c_fc.weight is \[48, 80\], not \[48, 64\]"),
        (dict(n_head=5), r"c_attn.weight is \[48, 144\], not \[48, 135\]"),
        (dict(n_positions=64), r"wpe.weight is \[130, 48\], not \[64, 48\]"),
        (dict(n_layer="two"), "n_layer is 'two'; legal: a whole number"),
    ],
)
def test_a_config_json_that_cannot_be_is_named(gpt2: Any, changes: dict[str, Any], says: str) -> None:
    """Each entry that asks for what GPT-2 does not have, or for other sizes than the tensors'."""
    with pytest.raises(CheckpointError, match=says) as caught:
        gpt2.load(gpt2.write(**changes), max_seq_len=64)
    assert "\n" not in str(caught.value)


def test_a_gguf_without_its_epsilon_is_refused(gpt2: Any) -> None:
    """It has a key of its own for norms that centre."""
    with pytest.raises(CheckpointError, match=r"lacks gpt2\.attention\.layer_norm_epsilon"):
        gpt2.load(gpt2.gguf(attention__layer_norm_epsilon=None))
