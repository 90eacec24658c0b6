"""SmolLM2-135M's real weights, in bfloat16, on a simulated array."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import iron_lm
from iron_core.devices import device
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.generation.session import Session
from iron_lm.tunables import profile_of

pytestmark = [pytest.mark.smollm2, pytest.mark.slow]
STORED = np.load(Path(__file__).parents[1] / "data" / "smollm2_float32.npz")


@pytest.fixture(scope="module")
def session(smollm2: Path) -> Session:
    """Every fold taken."""
    with profile_of(Llama, device("npu2")):
        loaded = loading.load(Llama, str(smollm2), dtype="bfloat16", max_seq_len=64)
        return Session(loaded.model(), backend="sim", dev="npu2", fold=True)


def test_the_first_tokens_are_transformers_own(session: Session) -> None:
    """A prompt's chunk and two decode steps through every core, DMA channel and word of npu2, against float32 in torch."""
    prompt, greedy = ([int(i) for i in STORED[name]] for name in ("prompt", "greedy"))
    assert session.generate(prompt, 3) == greedy[:3]


def test_a_step_is_explained(session: Session) -> None:
    """One dispatch a call: its entries and designs, the words that a call patches, and what each fold saved."""
    said = session.compiled.explain().splitlines()
    assert "  image      elf, fused dispatch" in said
    for what in ("designs", "entries", "word", "inserted", "fold"):
        assert [line for line in said if line.split()[:1] == [what]], what
    assert sum("saves 1 step" in line for line in said) > 200


def test_weights_are_widened_which_is_said(smollm2: Path) -> None:
    """Arrays take no blocks of four bits, so a model that is loaded for one has none."""
    facts = iron_lm.load(smollm2, backend="sim", dev="npu2", max_seq_len=64).facts()
    assert facts["weights"] == "bfloat16 from q4_1, q8_0"
    assert facts["dtype"] == facts["cache_dtype"] == "bfloat16" and facts["activations"] == "exact"
