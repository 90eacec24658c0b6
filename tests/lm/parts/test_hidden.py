"""`Hidden`: what a decoder makes of every token, before its head."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from iron_llama.model import Llama
from iron_lm import testing
from iron_lm.decoder_config import DecoderConfig
from iron_lm.embedder import Embedder
from iron_lm.generation.session import Session
from iron_lm.parts.hidden import Hidden, SlidingHidden, hidden_of
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run
from iron_mistral.model import Mistral

CONFIG = DecoderConfig(
    vocab_size=96, hidden_size=32, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=48, max_positions=512,
    rotary=RotaryConfig(8, 10000.0), tied=False,
)  # fmt: skip
SLIDING = attrs.evolve(CONFIG, window=71, sliding=(True, False, True))
IDS = np.random.default_rng(5).integers(0, 96, 300).astype(np.int32)


@pytest.mark.parametrize("rows", (8, 24))
def test_it_is_its_twin(rows: int, backend: str, run: Run) -> None:
    """A row for each token, one chunk after another."""
    part = hidden_of(Llama.build(CONFIG, run))
    assert type(part) is Hidden
    report = testing.check_part(part, run, IDS[:rows], backend=backend)
    assert report.passed, report.lines()


def test_the_head_makes_the_logits_of_it(run: Run) -> None:
    """Of the last row those that a session gives."""
    made = testing.tiny(Llama, CONFIG, max_seq_len=512)
    states, logits = Embedder(made, backend="host").states(IDS), Session(made.model(), backend="host").logits(IDS)
    model = made.build()
    want = model.head.twin(model.inside(made.exact, "head"), states[-1:])[0]
    assert states.shape == (300, 32) and np.abs(want - logits).max() < 1e-4


@pytest.mark.parametrize("backend", ("reference", "host"))
def test_of_caches_that_slide_it_is_the_same(backend: str) -> None:
    """For sequences inside, at and far past the window, one after another."""
    made = testing.tiny(Mistral, SLIDING, max_seq_len=512, prefill_chunk=64)
    embedder = Embedder(made, backend=backend)
    assert isinstance(hidden_of(made.build()), SlidingHidden)
    for length in (300, 71, 64, 193):
        want = made.build().states_twin(made.exact, IDS[:length])
        assert np.abs(embedder.states(IDS[:length]) - want).max() < 1e-3, length
