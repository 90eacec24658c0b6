"""A model with a LoRA adapter is the one whose weights it was added to, in every family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import CheckpointError
from iron_lm.generation.session import Session
from tests.lm import lora

#: Modules of the families' files that an adapter may be on: all matrices but router, experts, embedding and head.
MODULES = ("_proj", "c_attn", "c_proj", "c_fc", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "in_proj_qkvz", "in_proj_ba")


def shapes(family: Any) -> dict[str, tuple[int, int]]:
    """(N, K) by module: GPT-2's are stored the other way round, and PEFT's are not."""
    found = {}
    for name, array in family.weights.items():
        module = name.removesuffix(".weight")
        if module.endswith(MODULES) and array.ndim == 2 and ".experts." not in module:
            found[module] = array.shape[::-1] if family.name == "gpt2" else array.shape
    return found


def merged(family: Any, tmp_path: Path, *adapters: tuple[lora.Pairs, float]) -> Any:
    """The family, loaded from weights that the adapters' products were added to, each times a scale."""
    weights = dict(family.weights)
    for pairs, scale in adapters:
        for module, (a, b) in pairs.items():
            added = scale * (b.astype(np.float64) @ a)
            name = f"{module}.weight"
            weights[name] = (weights[name] + (added.T if family.name == "gpt2" else added)).astype(np.float32)
    kept, family.weights = family.weights, weights
    try:
        return family.load(family.write())
    finally:
        family.weights = kept


def gap(loaded: Any, other: Any, ids: list[int], backend: str) -> float:
    """The largest difference of logits, beside their spread, after a prompt of several chunks' steps and one token more."""
    found, want = (Session(one.model(), backend=backend) for one in (loaded, other))
    most = 0.0
    for n in (1, 20, 21):
        want_logits = want.logits(ids[:n])
        most = max(most, float(np.abs(found.logits(ids[:n]) - want_logits).max() / want_logits.std()))
    return most


def test_logits_are_those_of_the_merged_weights(family: Any, tmp_path: Path) -> None:
    """Twin, prompt and steps, on the CPU, within 1e-4 of their spread; rows of fused matrices meet their own."""
    pairs = lora.drawn(shapes(family))
    assert len(pairs) >= 4
    adapter = lora.write(tmp_path / "adapter", lora.tensors_of(pairs))
    loaded, other, plain = family.load(lora=adapter), merged(family, tmp_path, (pairs, 8 / 4)), family.load()
    want = other.twin(family.ids[:20])
    assert np.abs(loaded.twin(family.ids[:20]) - want).max() < 1e-4 * want.std()
    assert np.abs(plain.twin(family.ids[:20]) - want).max() > 1e-2 * want.std()
    assert gap(loaded, other, family.ids, "host") < 1e-4


@pytest.mark.parametrize("backend", ("reference", "host"))
@pytest.mark.parametrize("rank", (1, 3, 70))
def test_any_rank_in_any_dtype_on_both_backends(qwen2: Any, tmp_path: Path, backend: str, rank: int) -> None:
    """From 1, beside biases; half precision is read as the numbers that it holds."""
    pairs = lora.drawn(shapes(qwen2), rank)
    adapter = lora.write(tmp_path / "adapter", lora.tensors_of(pairs, np.float16), r=rank, lora_alpha=rank)
    halves = {module: tuple(matrix.astype(np.float16).astype(np.float32) for matrix in pair) for module, pair in pairs.items()}
    assert gap(qwen2.load(lora=adapter), merged(qwen2, tmp_path, (halves, 1.0)), qwen2.ids, backend) < 1e-4


def test_several_add_up_each_with_its_own_scale(gemma3: Any, tmp_path: Path) -> None:
    """Of other ranks, on other modules; the order in which they are named changes nothing but rounding."""
    all_of = shapes(gemma3)
    first = lora.drawn(all_of, 4)
    second = lora.drawn({module: shape for module, shape in all_of.items() if "q_proj" in module}, 2, seed=1)
    paths = [
        lora.write(tmp_path / "first", lora.tensors_of(first)),
        lora.write(tmp_path / "second", lora.tensors_of(second), r=2, lora_alpha=4, use_rslora=True),
    ]
    want = merged(gemma3, tmp_path, (first, 0.5 * 2), (second, -1.5 * 4 / 2**0.5))
    for order in (1, -1):
        asked = {path: {"first": 0.5, "second": -1.5}[path.name] for path in paths[::order]}
        assert gap(gemma3.load(lora=asked), want, gemma3.ids, "host") < 1e-4


def test_a_scale_of_nothing_is_the_model_itself(phi3: Any, tmp_path: Path) -> None:
    """Bit for bit, and in as many steps."""
    adapter = lora.write(tmp_path / "adapter", lora.tensors_of(lora.drawn(shapes(phi3))))
    plain, none = (Session(phi3.load(lora=asked).model(), backend="host") for asked in (None, {adapter: 0}))
    np.testing.assert_array_equal(plain.logits(phi3.ids[:20]), none.logits(phi3.ids[:20]))
    assert [len(v.plan.steps) for v in plain.compiled.versions.values()] == [len(v.plan.steps) for v in none.compiled.versions.values()]


def test_a_prompt_gives_the_bits_of_its_tokens_one_by_one(qwen3: Any, tmp_path: Path) -> None:
    """Whatever the chunk."""
    adapter = lora.write(tmp_path / "adapter", lora.tensors_of(lora.drawn(shapes(qwen3), 1)), r=1)
    found = [Session(qwen3.load(lora=adapter, prefill_chunk=c).model(), backend="host").logits(qwen3.ids[:40]) for c in (1, 8, 64)]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize("module", ("gate", "experts.0.down_proj", "experts.gate_up_proj", "experts", "shared_expert_gate"))
def test_routers_and_experts_take_none(qwen2_moe: Any, tmp_path: Path, module: str) -> None:
    """Refused by name, with the modules on which one runs; the shared expert's are among those."""
    named = {f"model.layers.0.mlp.{module}": (8, 64)}
    adapter = lora.write(tmp_path / "adapter", lora.tensors_of(lora.drawn(named)))
    says = rf"of model\.layers\.0\.mlp\.{module}\.weight, on which no adapter runs in this model\. Legal: down_proj"
    with pytest.raises(CheckpointError, match=says):
        qwen2_moe.load(lora=adapter)
    shared = {"model.layers.0.mlp.shared_expert.up_proj": (48, 64)}
    adapter = lora.write(tmp_path / "shared", lora.tensors_of(lora.drawn(shared)))
    assert "(rank 4, 1 matrices)" in qwen2_moe.load(lora=adapter).stored
