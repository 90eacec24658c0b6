"""Each family against transformers, live: random weights saved as users save them. Needs torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_gemma3.model import Gemma3
from iron_gpt2.model import GPT2
from iron_lm import loading
from iron_lm.embedder import Embedder
from iron_lm.generation.session import Session
from iron_lm.mixture import Mixture
from iron_mistral.model import Mistral
from iron_olmo2.model import Olmo2
from iron_phi3.model import Phi3
from iron_qwen2.model import Qwen2
from iron_qwen2_moe.model import Qwen2Moe
from iron_qwen3.model import Qwen3
from iron_qwen3_5.model import Qwen35
from iron_qwen3_moe.model import Qwen3Moe
from tests.families.conftest import write_gguf

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed; `nox -s oracle` installs it")

DATA = Path(__file__).parents[1] / "data"
#: Models whose float32 is up to 3e-5 from float64: norms of what a memory gives, which may be next to nothing.
ROUGH = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
COMMON: dict[str, Any] = dict(vocab_size=256, hidden_size=64, num_attention_heads=4, head_dim=32, max_position_embeddings=4096)
#: Of families whose heads are as wide as hidden / heads.
SIZES: dict[str, Any] = {key: value for key, value in COMMON.items() if key != "head_dim"} | {"intermediate_size": 96}
#: Of layers that mix by the gated delta rule. What random weights' memories give may be next to nothing, of which a norm with the usual
#: epsilon of 1e-6 makes as much as of anything: then transformers' own float32 is 1e-4 from float64.
LINEAR: dict[str, Any] = dict(
    num_hidden_layers=4, num_key_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
    linear_num_value_heads=4, rms_norm_eps=1e-3,
)  # fmt: skip
EXPERTS: dict[str, Any] = dict(moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=8, num_experts_per_tok=2)
QUARTER = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
THETA = {"rope_type": "default", "rope_theta": 1e6}
#: Name -> (family, config): every way each is published, and what its config allows besides.
MODELS: dict[str, tuple[Any, Any]] = {
    "qwen2": (Qwen2, lambda: transformers.Qwen2Config(
        **SIZES, num_hidden_layers=2, num_key_value_heads=2, tie_word_embeddings=True, rope_parameters=THETA,
    )),
    "qwen2, untied, later layers sliding, yarn": (Qwen2, lambda: transformers.Qwen2Config(
        **SIZES, num_hidden_layers=3, num_key_value_heads=4, use_sliding_window=True, sliding_window=9, max_window_layers=1,
        rope_parameters=THETA | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    )),
    "mistral": (Mistral, lambda: transformers.MistralConfig(
        **COMMON, intermediate_size=96, num_hidden_layers=2, num_key_value_heads=2, sliding_window=9,
    )),
    "mistral without a window, tied": (Mistral, lambda: transformers.MistralConfig(
        **SIZES, num_hidden_layers=2, num_key_value_heads=1, sliding_window=None, tie_word_embeddings=True, rope_parameters=THETA,
    )),
    "olmo2": (Olmo2, lambda: transformers.Olmo2Config(**SIZES, num_hidden_layers=2, rope_parameters=THETA, eos_token_id=None)),
    "olmo2, fewer keys than queries": (Olmo2, lambda: transformers.Olmo2Config(
        **SIZES, num_hidden_layers=3, num_key_value_heads=1, eos_token_id=None, pad_token_id=None, rms_norm_eps=1e-6,
    )),
    "qwen3": (Qwen3, lambda: transformers.Qwen3Config(
        **COMMON, intermediate_size=96, num_hidden_layers=2, num_key_value_heads=2, tie_word_embeddings=True, rope_parameters=THETA,
    )),
    "qwen3, untied, later layers sliding": (Qwen3, lambda: transformers.Qwen3Config(
        **COMMON, intermediate_size=96, num_hidden_layers=3, num_key_value_heads=4, tie_word_embeddings=False, rope_parameters=THETA,
        use_sliding_window=True, sliding_window=9, max_window_layers=1,
    )),
    "qwen2_moe": (Qwen2Moe, lambda: transformers.Qwen2MoeConfig(
        **SIZES, num_hidden_layers=2, num_key_value_heads=4, moe_intermediate_size=32, shared_expert_intermediate_size=64,
        num_experts=6, num_experts_per_tok=2, norm_topk_prob=False, rope_parameters=THETA,
    )),
    "qwen2_moe, tied, renormalised, all experts": (Qwen2Moe, lambda: transformers.Qwen2MoeConfig(
        **SIZES, num_hidden_layers=2, num_key_value_heads=2, moe_intermediate_size=24, shared_expert_intermediate_size=40,
        num_experts=5, num_experts_per_tok=5, norm_topk_prob=True, tie_word_embeddings=True, rope_parameters=THETA,
    )),
    "qwen3_moe": (Qwen3Moe, lambda: transformers.Qwen3MoeConfig(
        **COMMON, intermediate_size=128, num_hidden_layers=2, num_key_value_heads=2, moe_intermediate_size=32, num_experts=8,
        num_experts_per_tok=2, norm_topk_prob=True, rope_parameters=THETA,
    )),
    "qwen3_moe, one expert of many, raw": (Qwen3Moe, lambda: transformers.Qwen3MoeConfig(
        **COMMON, intermediate_size=128, num_hidden_layers=3, num_key_value_heads=1, moe_intermediate_size=16, num_experts=16,
        num_experts_per_tok=1, norm_topk_prob=False, tie_word_embeddings=True, rope_parameters=THETA,
    )),
    "gemma3": (Gemma3, lambda: transformers.Gemma3TextConfig(
        **COMMON, intermediate_size=128, num_hidden_layers=7, num_key_value_heads=1, query_pre_attn_scalar=32, sliding_window=8,
    )),
    "gemma3, scaled, capped, scores by another size": (Gemma3, lambda: transformers.Gemma3TextConfig(
        **COMMON, intermediate_size=96, num_hidden_layers=3, num_key_value_heads=2, query_pre_attn_scalar=20, sliding_window=33,
        layer_types=["full_attention", "sliding_attention", "full_attention"], final_logit_softcapping=4.0,
        rope_parameters={"full_attention": THETA | {"rope_type": "linear", "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
    )),
    "phi3": (Phi3, lambda: transformers.Phi3Config(**SIZES, num_hidden_layers=2, num_key_value_heads=2, pad_token_id=0)),
    "phi3, tied, sliding, three quarters of a head turn, a short context": (Phi3, lambda: transformers.Phi3Config(
        **SIZES, num_hidden_layers=2, num_key_value_heads=1, tie_word_embeddings=True, sliding_window=9, pad_token_id=0,
        original_max_position_embeddings=256, rope_parameters=THETA | {
            "rope_type": "longrope", "partial_rotary_factor": 0.75, "original_max_position_embeddings": 256,
            "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5], "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        },
    )),
    "qwen3_5": (Qwen35, lambda: transformers.Qwen3_5TextConfig(**COMMON, **LINEAR, intermediate_size=96, rope_parameters=QUARTER)),
    "qwen3_5, tied, wider values, other taps, every layer of either kind": (Qwen35, lambda: transformers.Qwen3_5TextConfig(
        **COMMON, **LINEAR | dict(linear_value_head_dim=24, linear_num_value_heads=2, num_hidden_layers=2), intermediate_size=96,
        rope_parameters=QUARTER, tie_word_embeddings=True, linear_conv_kernel_dim=3, layer_types=["full_attention", "linear_attention"],
    )),
    "qwen3_5_moe": (Qwen35, lambda: transformers.Qwen3_5MoeTextConfig(**COMMON, **LINEAR, **EXPERTS, rope_parameters=QUARTER)),
    "qwen3_next": (Qwen35, lambda: transformers.Qwen3NextConfig(
        **COMMON, **LINEAR, **EXPERTS, rope_parameters=QUARTER, norm_topk_prob=True,
    )),
    "gpt2": (GPT2, lambda: transformers.GPT2Config(vocab_size=256, n_embd=64, n_layer=2, n_head=4, n_positions=300)),
    "gpt2, untied, a narrow feed-forward": (GPT2, lambda: transformers.GPT2Config(
        vocab_size=256, n_embd=64, n_layer=3, n_head=2, n_positions=256, n_inner=96, tie_word_embeddings=False, layer_norm_epsilon=1e-3,
    )),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


#: The mixtures, each with what `write_gguf` calls it.
GGUFS = {name: name.split(",")[0] for name in MODELS if "moe" in name or "next" in name}


def drawn(name: str) -> tuple[Any, Any]:
    """(family, transformers' model), every number drawn anew; norm weights away from their start, which hides mistakes."""
    torch.manual_seed(7)
    family, config = MODELS[name]
    with torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_config(config(), dtype=torch.float32).eval()
        for p in model.parameters():
            p.copy_(p + 0.1 * torch.randn_like(p) if p.ndim == 1 else torch.randn_like(p) / p.shape[-1] ** 0.5)
    return family, model


@pytest.fixture(scope="module", params=list(MODELS))
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """(family, transformers' model, the folder it was saved to)."""
    family, model = drawn(request.param)
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder)
    return family, model, folder


def ours(family: Any, path: Path, backend: str = "host", **options: Any) -> Session:
    options = dict(dtype="float32", max_seq_len=256, prefill_chunk=64) | options
    loaded = loading.load(family, str(path), **options)
    return Session(loaded.model(), backend=backend)


def test_a_prompt(saved: tuple[Any, Any, Path]) -> None:
    """Prompts inside the window and far past it, over one border of chunks, two and three, are within 1e-4 of transformers' logits."""
    family, model, folder = saved
    ids = torch.randint(0, 256, (1, 200))
    want = model(ids).logits[0].numpy()
    session = ours(family, folder)
    for n in (1, 7, 8, 9, 10, 63, 64, 65, 128, 129, 192, 200):
        assert np.abs(session.logits(ids[0, :n].tolist()) - want[n - 1]).max() < 1e-4, n


@pytest.mark.parametrize("backend", ["host", "reference"])
def test_a_turn_that_goes_back(saved: tuple[Any, Any, Path], backend: str) -> None:
    """After an answer to another text, one that differs from within the second chunk, the third, or the first token on is within 1e-4,
    and so is the step behind it."""
    family, model, folder = saved
    ids, other = torch.randint(0, 256, (2, 1, 200))
    want = model(ids).logits[0].numpy()
    session = ours(family, folder, backend)
    for said, stands, asked in ((150, 100, 140), (160, 130, 199), (90, 0, 70)):
        session.generate([*ids[0, :stands].tolist(), *other[0, stands:said].tolist()], 9)
        for n in (asked, asked + 1):
            assert np.abs(session.logits(ids[0, :n].tolist()) - want[n - 1]).max() < 1e-4, (said, n)


@pytest.mark.parametrize("name", GGUFS)
@pytest.mark.parametrize("backend", ["host", "reference"])
def test_a_gguf_of_a_mixture(name: str, backend: str, tmp_path: Path) -> None:
    """Made by the gguf package of what transformers drew: a prompt over two borders of chunks, and a step, are within 1e-4."""
    family, model = drawn(name)
    model.save_pretrained(tmp_path / "saved")
    loaded = loading.load(family, str(tmp_path / "saved"), dtype="float32")
    weights = {path: np.asarray(array).astype(np.float32) for path, array in loaded.exact.items()}
    said = {"expert_weights_norm": loaded.config.renormalise} if "raw" in name else {}  # not as the architecture has it
    file = write_gguf(tmp_path / "model.gguf", GGUFS[name], loaded.config, weights, "F32", said)
    ids = torch.randint(0, 256, (1, 140))
    want = model(ids).logits[0].numpy()
    session = ours(family, file, backend)
    for n in (139, 140):
        assert np.abs(session.logits(ids[0, :n].tolist()) - want[n - 1]).max() < 1e-4, n


def test_hidden_states(saved: tuple[Any, Any, Path]) -> None:
    """What the last norm gives for every token, inside the window and far past it, is within 1e-4 of transformers'."""
    family, model, folder = saved
    ids = torch.randint(0, 256, (1, 200))
    embedder = Embedder(loading.load(family, str(folder), dtype="float32", max_seq_len=256), backend="host")
    for n in (200, 9, 64):
        want = model(ids[:, :n], output_hidden_states=True).hidden_states[-1][0].numpy()
        assert np.abs(embedder.states(ids[0, :n].tolist()) - want).max() < 1e-4, n


def test_token_by_token(saved: tuple[Any, Any, Path]) -> None:
    """A decode step a token is within 1e-4 of transformers' own steps over its cache."""
    family, model, folder = saved
    ids = torch.randint(0, 256, (1, 60))
    session, cache, worst = ours(family, folder), None, 0.0
    for n in range(60):
        out = model(ids[:, n : n + 1], use_cache=True, **({} if cache is None else cache))
        cache = {"cache": out.cache} if "cache" in out else {"past_key_values": out.past_key_values}
        worst = max(worst, np.abs(session.logits(ids[0, : n + 1].tolist()) - out.logits[0, -1].numpy()).max())
    assert worst < 1e-4


def test_greedy(saved: tuple[Any, Any, Path]) -> None:
    """48 greedy tokens are equal."""
    family, model, folder = saved
    ids = torch.randint(0, 256, (1, 10))
    told = dict(attention_mask=torch.ones_like(ids), pad_token_id=0)  # else a prompt's own 0 would be taken for padding
    want = model.generate(ids, max_new_tokens=48, do_sample=False, eos_token_id=None, **told)[0, 10:].tolist()
    assert ours(family, folder).generate(ids[0].tolist(), 48) == want


def test_bfloat16_is_as_near_as_transformers_own(saved: tuple[Any, Any, Path]) -> None:
    """Saved in bfloat16 and run in it, the logits are no further from float32 than twice transformers' in bfloat16: of all texts, or
    where a row near a tie may go to another expert, of the text in their middle."""
    family, _, folder = saved
    narrow = folder / "bfloat16"
    if not narrow.exists():
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(narrow)
    wide = transformers.AutoModelForCausalLM.from_pretrained(narrow, dtype=torch.float32).eval()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(narrow, dtype=torch.bfloat16).eval()
    session = ours(family, narrow, dtype=None)
    assert session.model.run.dtype == "bfloat16"
    theirs_far, ours_far = [], []
    for seed in range(5 if issubclass(family, Mixture) else 4):
        ids = torch.randint(0, 256, (1, 50), generator=torch.Generator().manual_seed(seed))
        want = wide(ids).logits[0, -1].numpy()
        session.reset()
        theirs_far.append(float(np.square(theirs(ids).logits[0, -1].float().numpy() - want).mean()))
        ours_far.append(float(np.square(session.logits(ids[0].tolist()) - want).mean()))
    of_all = np.median if issubclass(family, Mixture) else np.mean
    assert of_all(ours_far) < 4 * of_all(theirs_far), (ours_far, theirs_far)


@pytest.mark.parametrize("file", sorted(DATA.glob("tiny_*.npz")), ids=lambda file: file.stem)
def test_the_stored_goldens_are_current(file: Path) -> None:
    """What is stored for the other sessions still gives transformers the logits, or an encoder's states, stored beside it."""
    stored = np.load(file)
    raw = json.loads(str(stored["config"]))
    config = transformers.AutoConfig.for_model(raw.pop("model_type"), **raw)
    kind, what = (transformers.AutoModelForCausalLM, "logits") if "logits" in stored else (transformers.AutoModel, "last_hidden_state")
    model = kind.from_config(config, dtype=torch.float32).eval()
    weights = {key[2:]: torch.tensor(stored[key].astype(np.float32)) for key in stored if key.startswith("w/")}
    missing = model.load_state_dict(weights, strict=False)
    tied = ["lm_head.weight"] * (what == "logits" and config.tie_word_embeddings)
    assert [name for name in missing.missing_keys if not name.startswith("pooler.")] == tied and not missing.unexpected_keys
    got = model(torch.tensor(stored["ids"].astype(np.int64))[None])[what][0].numpy()
    want = stored["logits" if what == "logits" else "states"]
    assert np.abs(got - want).max() < (1e-4 if config.model_type in ROUGH else 1e-5)
