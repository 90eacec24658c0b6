"""Experts in safetensors of several files, one by one or all of a layer in one tensor, as numbers and packed; what is wrong with some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_lm import loading
from iron_qwen3_moe.model import Qwen3Moe
from tests.lm.checkpoints.packers import config, drawn, folder, gptq, numbers

E, WIDE, HIDDEN = 4, 32, 64
CONFIG = dict(
    model_type="qwen3_moe", vocab_size=40, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    head_dim=32, intermediate_size=64, moe_intermediate_size=WIDE, num_experts=E, num_experts_per_tok=2, norm_topk_prob=True,
    rope_theta=1e4, max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=False,
)  # fmt: skip
PACKED = config("gptq", 32, checkpoint_format="gptq")
ONE = "model.layers.1.mlp.experts.2.up_proj"


def tensors(packed: bool, together: bool) -> dict[str, np.ndarray]:
    """Weights by name, those of experts packed or not, one by one or together."""
    rng, found = np.random.default_rng(0), {}
    shapes = {"model.embed_tokens.weight": (40, HIDDEN), "lm_head.weight": (40, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for i in range(2):
        layer = f"model.layers.{i}."
        shapes |= {f"{layer}{name}layernorm.weight": (HIDDEN,) for name in ("input_", "post_attention_")}
        shapes |= {f"{layer}self_attn.{x}_norm.weight": (32,) for x in "qk"}
        shapes |= {f"{layer}self_attn.{x}_proj.weight": (n, HIDDEN) for x, n in (("q", 64), ("k", 32), ("v", 32))}
        shapes |= {f"{layer}self_attn.o_proj.weight": (HIDDEN, 64), f"{layer}mlp.gate.weight": (E, HIDDEN)}
    found = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for i in range(2):
        at = f"model.layers.{i}.mlp.experts"
        made = {f"{n}.{x}": expert(i, n, x) for n in range(E) for x in ("gate", "up", "down")}
        both = {x: [made[f"{n}.{x}"] for n in range(E)] for x in ("gate", "up", "down")}
        if not together:
            for name, parts in made.items():
                found |= stored(f"{at}.{name}_proj", [parts], packed, False)
        else:
            pairs = zip(both["gate"], both["up"], strict=True)
            joined = [tuple(np.concatenate(each) for each in zip(*pair, strict=True)) for pair in pairs]
            found |= stored(f"{at}.gate_up_proj", joined, packed, True) | stored(f"{at}.down_proj", both["down"], packed, True)
    return found


def expert(layer: int, n: int, matrix: str) -> Any:
    shape = (HIDDEN, WIDE) if matrix == "down" else (WIDE, HIDDEN)
    return drawn(*shape, 32, seed=100 * layer + 10 * n + ("gate", "up", "down").index(matrix))


def stored(name: str, each: list[Any], packed: bool, together: bool) -> dict[str, np.ndarray]:
    if not packed:
        return {name if together else f"{name}.weight": np.stack([numbers(*one) for one in each]) if together else numbers(*each[0])}
    made = [gptq(*one) for one in each]
    return {f"{name}.{part}": np.stack([one[part] for one in made]) if together else made[0][part] for part in made[0]}


@pytest.mark.parametrize("shards", [1, 3, 7])
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize("packed", [False, True], ids=["numbers", "packed"])
def test_experts_are_found_wherever_they_lie(tmp_path: Path, packed: bool, together: bool, shards: int) -> None:
    """Each expert's matrices have their own numbers; packed ones stay in groups."""
    path = folder(tmp_path / "m", tensors(packed, together), PACKED if packed else None, CONFIG, shards)
    exact = loading.load(Qwen3Moe, path, max_seq_len=32).exact
    for i in range(2):
        for x in ("gate", "up", "down"):
            found = exact[f"layers.{i}.ffn.{x}"]
            assert str(getattr(found, "format", found.dtype if not packed else "")) == ("uint4_group32" if packed else "float32")
            wide = found.dequantize() if packed else np.asarray(found)
            assert np.array_equal(wide, np.stack([numbers(*expert(i, n, x)) for n in range(E)])), (i, x)


def without(found: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: array for key, array in found.items() if not key.startswith(name)}


def changed(**arrays: Any) -> Any:
    """What puts other arrays in the place of those of `ONE`, by what their names end in."""
    return lambda found: found | {f"{ONE}.{name}": make(found) for name, make in arrays.items()}


OTHER = ONE.replace(".2.", f".{E}.")
GATE = "model.layers.0.mlp.gate.weight"
WRONG: list[tuple[bool, Any, dict[str, int], str]] = [
    (False, lambda t: without(t, ONE), {}, rf"{ONE}\.weight \[32, 64\] is missing"),
    (True, lambda t: without(t, ONE), {}, rf"{ONE}\.weight \[32, 64\] is missing"),
    (False, changed(weight=lambda t: t[f"{ONE}.weight"][:-1]), {}, rf"{ONE}\.weight is \[31, 64\], not \[32, 64\]"),
    (False, lambda t: t | {GATE: np.ones((E + 1, HIDDEN), np.float32)}, {}, r"gate\.weight is \[5, 64\], not \[4, 64\]"),
    (False, lambda t: t | {f"{OTHER}.weight": np.ones((WIDE, HIDDEN), np.float32)}, {}, rf"{OTHER}\.weight is none this"),
    (False, dict, dict(num_experts_per_tok=5), r"config\.json: num_experts_per_tok=5 of num_experts=4; legal: at most 4"),
    (False, dict, dict(num_experts=0), r"num_experts is 0; legal: a whole number from 1"),
    (False, dict, dict(num_experts_per_tok=0), r"num_experts_per_tok is 0; legal: a whole number from 1"),
    (True, changed(scales=lambda t: t[f"{ONE}.scales"][:, 1:]), {}, rf"{ONE}\.qweight has scales of shape \[2, 31\]\. Legal: \[2, 32\]"),
    (True, changed(qzeros=lambda t: t[f"{ONE}.qzeros"][1:]), {}, rf"{ONE}\.qweight has qzeros of shape \[1, 4\]\. Legal: \[2, 4\]"),
    (True, changed(g_idx=lambda t: t[f"{ONE}.g_idx"] + 1), {}, rf"{ONE}\.qweight has 2 in its g_idx\. Legal: 0 to 1, its groups"),
    (
        True, lambda t: without(t, ONE) | {f"{ONE}.weight": np.ones((WIDE, HIDDEN), np.float16)}, {},
        r"model\.layers\.1\.mlp\.experts\.0\.up_proj\.weight and other experts' are in several formats \(float16, uint4_group32\)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("packed", "change", "entries", "says"), WRONG)
def test_what_is_wrong_with_experts_is_one_sentence(tmp_path: Path, packed: bool, change: Any, entries: Any, says: str) -> None:
    """It names the tensor or the entry, and what it should be."""
    path = folder(tmp_path / "mixture", change(tensors(packed, False)), PACKED if packed else None, CONFIG | entries, 3)
    with pytest.raises(CheckpointError, match=says) as found:
        loading.load(Qwen3Moe, path, max_seq_len=32)
    assert "\n" not in str(found.value) and ("/mixture" in str(found.value) or "config.json" in str(found.value) or entries)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("gone", r"model-00002-of-00003\.safetensors"),
        ("elsewhere", rf"{ONE}\.weight"),
        ("twice", rf"tensor {ONE}\.weight is in another of the checkpoint's files too"),
    ],
)
def test_files_that_do_not_fit_their_index(tmp_path: Path, what: str, says: str) -> None:
    """One that is missing; a tensor in another file than the index says; one that is in two."""
    path = folder(tmp_path / "m", tensors(False, False), None, CONFIG, 3)
    index = path / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    if what == "gone":
        (path / "model-00002-of-00003.safetensors").unlink()
    elif what == "elsewhere":
        places[f"{ONE}.weight"] = next(file for file in places.values() if file != places[f"{ONE}.weight"])
        index.write_text(json.dumps({"weight_map": places}))
    else:
        other = next(file for file in sorted(set(places.values())) if file != places[f"{ONE}.weight"])
        held = {name: array for name, array in tensors(False, False).items() if places[name] == other or name == f"{ONE}.weight"}
        made = folder(tmp_path / "other", held, None, CONFIG)
        (made / "model.safetensors").replace(path / other)
    with pytest.raises(CheckpointError, match=says) as found:
        loading.load(Qwen3Moe, path, max_seq_len=32)
    assert "\n" not in str(found.value)
