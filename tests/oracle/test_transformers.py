"""Our models against transformers, live: random llama3-scaled weights, and SmolLM2 dequantised. Needs torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.generation.session import Session

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed; `nox -s oracle` installs it")


@pytest.fixture(autouse=True)
def _no_gradients() -> Any:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A random Llama with llama3 scaling, 4 query heads a KV head, an untied head, saved as users save one."""
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=False,
        rms_norm_eps=1e-5,
        max_position_embeddings=4096,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(1 + 0.1 * torch.randn_like(p) if p.ndim == 1 else torch.randn_like(p) / p.shape[1] ** 0.5)
    folder = tmp_path_factory.mktemp("scaled")
    model.save_pretrained(folder)
    return model, folder


def ours(path: Path, **options: Any) -> Session:
    loaded = loading.load(Llama, str(path), dtype="float32", **options)
    return Session(loaded.model(), backend="host")


def test_random_llama_prefill(scaled: tuple[Any, Path]) -> None:
    """A prompt over several chunks is within 1e-4 of transformers' logits."""
    model, folder = scaled
    ids = torch.randint(0, 512, (1, 200))
    want = model(ids).logits[0].numpy()
    session = ours(folder, max_seq_len=256)
    for n in (1, 63, 64, 65, 200):
        assert np.abs(session.logits(ids[0, :n].tolist()) - want[n - 1]).max() < 1e-4


def test_random_llama_token_by_token(scaled: tuple[Any, Path]) -> None:
    """A decode step a token is within 1e-4 at each of 150 positions."""
    model, folder = scaled
    ids = torch.randint(0, 512, (1, 150))
    want = model(ids).logits[0].numpy()
    session = ours(folder, max_seq_len=256)
    worst = max(np.abs(session.logits(ids[0, : n + 1].tolist()) - want[n]).max() for n in range(150))
    assert worst < 1e-4


def test_smollm2_greedy(smollm2: Path) -> None:
    """On the dequantised weights, 48 greedy tokens are equal and every logit is within 1e-3."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32
    ).eval()
    session = ours(smollm2, max_seq_len=256)
    ids = [504, 3575, 282, 4649, 314]
    said = session.generate(ids, 48)
    session.reset()
    for token in said:
        want = model(torch.tensor([ids])).logits[0, -1].numpy()
        got = session.logits(ids)
        assert int(want.argmax()) == token
        assert np.abs(got - want).max() < 1e-3
        ids.append(token)


def test_the_stored_goldens_are_current() -> None:
    """The tiny Llama stored for the other sessions still gives transformers the logits stored beside it."""
    folder = Path(__file__).parents[1] / "data" / "tiny_llama"
    config = transformers.LlamaConfig(**json.loads((folder / "config.json").read_text()))
    model = transformers.LlamaForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32).eval()
    stored = np.load(folder / "outputs.npz")
    got = model(torch.tensor(stored["ids"].astype(np.int64))[None]).logits[0].numpy()
    assert np.abs(got - stored["logits"]).max() < 1e-5
