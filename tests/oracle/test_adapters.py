"""LoRA adapters against PEFT, live: drawn by it, saved by it, loaded as users load them. Needs torch, transformers and peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_lm import loading
from iron_lm.generation.session import Session

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")
pytest.importorskip("transformers", reason="transformers is not installed; `nox -s oracle` installs it")
peft = pytest.importorskip("peft", reason="peft is not installed; `nox -s oracle` installs it")

from tests.oracle import test_families  # noqa: E402  (which needs torch)

#: Ends of the names of the modules that an adapter is put on, of every family: all its matrices but routers, experts, embedding, head.
MODULES = (
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj", "c_attn", "c_proj", "c_fc",
    "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "in_proj_qkvz", "in_proj_ba", "out_proj",
)  # fmt: skip
PLAIN = [name for name in test_families.MODELS if "," not in name]


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


def of(model: Any, **adapters: dict[str, Any]) -> Any:
    """The model with adapters by name, none of whose numbers is nothing; options of LoraConfig for each."""
    turned = type(next(m for m in model.modules() if type(m).__name__ in ("Linear", "Conv1D"))).__name__ == "Conv1D"
    leaves = {name.rpartition(".")[2] for name, m in model.named_modules() if type(m).__name__ in ("Linear", "Conv1D")}
    found = None
    for name, options in adapters.items():
        given = dict(target_modules=sorted(leaves & set(MODULES)), task_type="CAUSAL_LM", fan_in_fan_out=turned) | options
        config = peft.LoraConfig(**given)
        found = peft.get_peft_model(model, config, name) if found is None else (found.add_adapter(name, config), found)[1]
    assert found is not None
    for name, p in found.named_parameters():
        if ".lora_A" in name or ".lora_B" in name or ".lora_embedding" in name:
            p.copy_(torch.randn_like(p) * (0.1 if "lora_B" in name else p.shape[-1] ** -0.5))
    return found.eval()


def gap(family: Any, base: Path, lora: Any, want: Any, ids: list[int]) -> float:
    """How far Iron's logits are from these at most, for prompts over borders of chunks and steps behind them."""
    loaded = loading.load(family, base, lora=lora, dtype="float32", max_seq_len=256, prefill_chunk=64)
    session = Session(loaded.model(), backend="host")
    return max(float(np.abs(session.logits(ids[:n]) - want[n - 1]).max()) for n in (1, 63, 64, 65, 139, 140))


@pytest.mark.parametrize("name", PLAIN)
def test_every_family(name: str, tmp_path: Path) -> None:
    """Rank 8 on every matrix that takes one, within 1e-4 of PEFT's logits, which are not those of the model alone."""
    family, model = test_families.drawn(name)
    model.save_pretrained(tmp_path / "base")
    ids = torch.randint(0, 256, (1, 140))
    plain = model(ids).logits[0].numpy()
    # Asked for its shared expert's, PEFT puts adapters on this one's other experts too, which are refused below.
    narrowed = {"target_modules": r".*\.(self_attn|linear_attn)\.\w+_proj\w*"} if name == "qwen3_next" else {}
    adapted = of(model, default=dict(r=8, lora_alpha=16) | narrowed)
    want = adapted(ids).logits[0].numpy()
    adapted.save_pretrained(tmp_path / "adapter")
    assert np.abs(want - plain).max() > 0.1
    assert gap(family, tmp_path / "base", tmp_path / "adapter", want, ids[0].tolist()) < 1e-4


@pytest.mark.parametrize("merged", (False, True), ids=("beside", "merged by PEFT"))
def test_several_with_scales(tmp_path: Path, merged: bool) -> None:
    """Three at once: of another rank each, by roots, by patterns, on some modules; each with a scale. They add up as PEFT's do, and are
    what PEFT makes one model of."""
    family, model = test_families.drawn("qwen2")
    model.save_pretrained(tmp_path / "base")
    patterns = dict(rank_pattern={"v_proj": 2, r"layers\.1\.mlp\.up_proj": 3}, alpha_pattern={"layers.0.self_attn.q_proj": 5})
    adapted = of(
        model, one=dict(r=8, lora_alpha=16), two=dict(r=16, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "down_proj"]),
        three=dict(r=4, lora_alpha=8, use_rslora=True, **patterns),
    )  # fmt: skip
    scales = {"one": 0.5, "two": -1.5, "three": 2.0}
    adapted.base_model.set_adapter(list(scales))
    for module in adapted.modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            for name in scales.keys() & module.scaling.keys():
                module.set_scale(name, scales[name])
    adapted.save_pretrained(tmp_path / "adapters")
    ids = torch.randint(0, 256, (1, 140))
    want = (adapted.merge_and_unload() if merged else adapted)(ids).logits[0].numpy()
    asked = {tmp_path / "adapters" / name: scale for name, scale in scales.items()}
    assert gap(family, tmp_path / "base", asked, want, ids[0].tolist()) < 1e-4


WHAT_CANNOT = {
    "modules_to_save": dict(modules_to_save=["lm_head"]),
    "use_dora": dict(use_dora=True),
    "bias": dict(bias="lora_only"),
    "lora_bias": dict(lora_bias=True),
    "lm_head": dict(target_modules=["q_proj", "lm_head"]),
    "lora_embedding_A": dict(target_modules=["q_proj", "embed_tokens"]),
    "trainable_token_indices": dict(trainable_token_indices=[1, 2]),
    "target_parameters": dict(target_modules=["q_proj", "gate_proj", "up_proj"]),
}


@pytest.mark.parametrize("what", WHAT_CANNOT)
def test_what_peft_can_and_iron_cannot_is_refused_by_name(tmp_path: Path, what: str) -> None:
    """Never left out: a head that was trained, DoRA, biases, an embedding, some of its rows, experts."""
    family, model = test_families.drawn("qwen3_next" if what == "target_parameters" else "mistral")
    model.save_pretrained(tmp_path / "base")
    of(model, default=dict(r=4, lora_alpha=8) | WHAT_CANNOT[what]).save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    with pytest.raises(CheckpointError, match=what) as refused:
        loading.load(family, tmp_path / "base", lora=tmp_path / "adapter")
    assert str(tmp_path / "adapter") in str(refused.value) and "\n" not in str(refused.value)
