"""What checkpoints of Qwen3.5 and Qwen3-Next say beside what those of any family do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.errors import CheckpointError, ParamError
from iron_lm.checkpoints import huggingface
from iron_lm.generation.session import Session
from iron_qwen3_5.config import Qwen35Config
from iron_qwen3_5.model import Qwen35
from tests.families.conftest import Family


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_the_text_model_of_one_that_sees(name: str, request: pytest.FixtureRequest) -> None:
    """Its config lies inside, its names begin with language_model; the tower and layers that guess ahead are not read, which is said."""
    family: Family = request.getfixturevalue(name)
    path = family.write()
    save, load = (pytest.importorskip("safetensors.numpy").__dict__[f"{verb}_file"] for verb in ("save", "load"))
    tensors = {key.replace("model.", "model.language_model.", 1): array for key, array in load(path / "model.safetensors").items()}
    tensors |= {f"mtp.{i}.weight": np.ones((2, 2), np.float32) for i in range(3)}
    tensors |= {"model.visual.blocks.0.norm1.weight": np.ones(2, np.float32)}
    save(tensors, path / "model.safetensors")
    inside = {key: value for key, value in family.json.items() if key != "tie_word_embeddings"}
    outside = {"model_type": name, "text_config": inside, "vision_config": {"depth": 1}, "tie_word_embeddings": False}
    (path / "config.json").write_text(json.dumps(outside))
    loaded = family.load(path)
    assert ", 4 of them ignored (model.visual.blocks.0.norm1.weight, mtp.0.weight, mtp.1.weight, ...) · " in loaded.recognised
    assert "ignored" not in family.load().recognised
    assert loaded.config.nested and np.abs(Session(loaded.model(), backend="host").logits(family.ids) - family.logits[-1]).max() < 1e-4


def read(**entries: Any) -> Qwen35Config:
    return Qwen35.from_huggingface(huggingface.entries_of(entries, Qwen35.absent))


SMALL = dict(
    vocab_size=96, hidden_size=48, intermediate_size=80, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2,
    rope_parameters={"rope_theta": 1e7}, model_type="qwen3_5_text",
)  # fmt: skip


def test_what_a_config_leaves_out() -> None:
    """Every fourth layer attends, a quarter of a head of 256 turns, 16 key and 32 value heads of 128, an untied head, no experts."""
    config = read(**SMALL)
    assert config.attends == (False, False, False, True, False) and config.experts() is None and not config.tied
    assert (config.head_dim, config.rotary and config.rotary.turning) == (256, 64)
    assert (config.key_heads, config.value_heads, config.key_dim, config.value_dim, config.taps) == (16, 32, 128, 128, 4)
    assert read(**SMALL, full_attention_interval=2).attends == (False, True, False, True, False)
    mixture = read(**SMALL | dict(model_type="qwen3_5_moe_text", intermediate_size=None))
    assert (mixture.num_experts, mixture.chosen, mixture.expert_size, mixture.shared_size) == (256, 8, 512, 512) and mixture.renormalise


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (dict(layer_types=["linear_attention"] * 4 + ["sliding_attention"]), "layer_types is .*; legal: linear_attention or full"),
        (dict(layer_types=["linear_attention"]), "layer_types is .* for each of 5 layers"),
        (dict(attention_bias=True), "attention_bias is .*True; this model runs False|attention_bias is a bool; this model runs False"),
        (dict(linear_num_value_heads=0), "linear_num_value_heads is 0; legal: a whole number from 1"),
        (dict(text_config=[1]), "text_config is a list; legal: an object"),
        (dict(model_type="qwen3_5_moe_text", hidden_act="gelu_pytorch_tanh"), r"hidden_act is .*; this model runs silu, swish\."),
        (dict(model_type="qwen3_next", mlp_only_layers=[1]), "mlp_only_layers is a list; this model runs"),
    ],
)
def test_what_is_no_such_model_is_refused(entries: dict[str, Any], words: str) -> None:
    """By the entry and what would be legal."""
    with pytest.raises(CheckpointError, match=words):
        read(**SMALL | entries)


def test_a_config_holds_together() -> None:
    """Layers, experts and heads."""
    config = read(**SMALL)
    for changes, words in (
        (dict(attends=(True,)), r"attends=\(True,\); legal: num_layers=5 of True and False"),
        (dict(num_experts=4), "expert_size=None, num_experts=4, chosen=None, shared_size=None; legal: the first three, or none"),
        (dict(num_experts=4, chosen=5, expert_size=8), "chosen=5 of num_experts=4; legal: at most 4"),
        (dict(key_heads=5), "key_heads=5 does not divide value_heads=32"),
    ):
        with pytest.raises(ParamError, match=words):
            attrs.evolve(config, **changes)


def test_layers_of_a_gguf_that_guess_ahead_are_left_out(qwen3_5: Family) -> None:
    """They are counted among its blocks, the last of them; one that says more than there are is refused."""
    whole = qwen3_5.load()
    layers = whole.config.num_layers
    loaded = qwen3_5.load(qwen3_5.gguf("F32", nextn_predict_layers=1))
    assert loaded.config.num_layers == layers - 1 and loaded.config.attends == whole.config.attends[:-1]
    assert set(loaded.exact) == {path for path in whole.exact if not path.startswith(f"layers.{layers - 1}.")}
    logits = Session(loaded.model(), backend="host").logits(qwen3_5.ids)
    assert np.isfinite(logits).all() and np.abs(logits - qwen3_5.logits[-1]).max() > 1e-3
    assert f", without its last 1 of {layers} blocks, which guess further tokens ·" in loaded.recognised
    says = rf"qwen35\.nextn_predict_layers is {layers} of {layers} blocks, which leaves none\. Legal: 0 to {layers - 1}\."
    with pytest.raises(CheckpointError, match=says):
        qwen3_5.load(qwen3_5.gguf(nextn_predict_layers=layers))
    with pytest.raises(CheckpointError, match=r"nextn_predict_layers is 1 of 1 blocks, which leaves none\. Legal: 0\."):
        qwen3_5.load(qwen3_5.gguf(nextn_predict_layers=1, block_count=1))


def with_entries(path: Path, entries: dict[str, Any], tensors: Any = dict) -> Path:
    """A GGUF as it is, with these lists of bool more, and what `tensors` makes of its tensors, float32 by name."""
    gguf = pytest.importorskip("gguf")
    found = gguf.GGUFReader(str(path))
    writer = gguf.GGUFWriter(str(path.with_suffix(".more.gguf")), found.fields["general.architecture"].contents())
    for key, field in found.fields.items():
        if not key.startswith(("GGUF.", "general.architecture")):
            writer.add_key_value(key, field.contents(), field.types[0])
    for key, values in entries.items():
        writer.add_array(key, values)
    for name, array in tensors({one.name: one.data.reshape(one.shape[::-1]) for one in found.tensors}).items():
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.with_suffix(".more.gguf")


def test_a_gguf_may_list_the_layers_that_are_recurrent(qwen3_5: Family) -> None:
    """As llama.cpp's converter does; the list goes before every n-th, and is one of true and false for every block."""
    attends, key = qwen3_5.load().config.attends, "qwen35.attention.recurrent_layers"
    path = qwen3_5.gguf("F32", full_attention_interval=1)
    loaded = qwen3_5.load(with_entries(path, {key: [not one for one in attends]}))
    assert loaded.config.attends == attends
    assert np.abs(loaded.twin(qwen3_5.ids)[-1] - qwen3_5.logits[-1]).max() < 1e-4
    for wrong, says in (([True], "a list of 1"), ([1] * len(attends), f"a list of {len(attends)}")):
        with pytest.raises(CheckpointError, match=rf"recurrent_layers is {says}; legal: true or false for each of {len(attends)} blocks\."):
            qwen3_5.load(with_entries(path, {key: wrong}))


def test_an_older_gguf_of_qwen3_next_has_projections_in_one_matrix(qwen3_next: Family) -> None:
    """Queries, keys, values and gates by key head, as in ssm_in.weight; its numbers are those of the newer file."""
    c = qwen3_next.load().config
    per = c.value_heads // c.key_heads

    def older(tensors: dict[str, Any]) -> dict[str, Any]:
        made = dict(tensors)
        for name in [name for name in tensors if name.endswith("attn_gate.weight")]:
            block = name.removesuffix("attn_gate.weight")
            qkv, z = made.pop(f"{block}attn_qkv.weight"), made.pop(name)
            keys = c.key_heads * c.key_dim
            parts = (qkv[:keys], qkv[keys : 2 * keys], qkv[2 * keys :], z)
            made[f"{block}ssm_in.weight"] = np.concatenate([part.reshape(c.key_heads, -1, c.hidden_size) for part in parts], 1).reshape(
                2 * (c.key_dim + per * c.value_dim) * c.key_heads, c.hidden_size
            )
        assert len(made) < len(tensors)
        return made

    path = qwen3_next.gguf("F32")
    found, want = (qwen3_next.load(one) for one in (with_entries(path, {}, older), path))
    assert set(found.exact) == set(want.exact)
    for name, array in want.exact.items():
        assert np.array_equal(np.asarray(found.exact[name]), np.asarray(array)), name
    with pytest.raises(CheckpointError, match=r"blk\.0\.attn_qkv\.weight .* is missing"):
        qwen3_next.load(with_entries(path, {}, lambda all: {name: one for name, one in all.items() if "attn_qkv" not in name}))


def test_value_heads_of_a_gguf_are_as_its_architecture_has_them(qwen3_5_moe: Family, qwen3_next: Family) -> None:
    """Qwen3.5's are reordered by the converter, Qwen3-Next's are not."""
    tiled = [family.load(family.gguf()).config.tiled for family in (qwen3_5_moe, qwen3_next)]
    assert tiled == [True, False] and qwen3_next.load().config.value_heads > qwen3_next.load().config.key_heads
