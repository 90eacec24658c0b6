"""Chunks of prompts: how long they are, and where they begin."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from iron_core.errors import ParamError
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.generation.session import Session
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run
from iron_qwen2_moe.model import Qwen2Moe
from iron_qwen3_5.model import Qwen35

SMALL = dict(
    vocab_size=512, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=96,
    rotary=RotaryConfig(16), max_positions=256,
)  # fmt: skip


@pytest.mark.parametrize(
    "family, asked, chunk, want",
    [
        (Llama, None, None, (64, 64)),
        (Qwen2Moe, None, None, (256, 64)),  # each chunk reads most experts
        (Qwen2Moe, 200, None, (192, 64)),  # the context is shorter: whole steps, as arrays take rows
        (Qwen2Moe, 100, None, (64, 64)),
        (Qwen2Moe, 40, None, (40, 40)),
        (Qwen2Moe, 1000, 10, (10, 10)),
        (Llama, 1024, 512, (512, 64)),
        (Qwen35, None, None, (64, 64)),
    ],
)
def test_a_chunk_is_as_long_as_the_graph_gains_by(family, asked, chunk, want) -> None:
    """The family is not looked at: a mixture's graph has a part that says it."""
    _, run = loading.sized(family, family.full_size(), asked, chunk)
    assert (run.prefill_chunk, run.prefill_step) == want and run.max_seq_len % run.prefill_chunk == 0


def test_a_prompt_that_goes_on_has_the_same_bits_wherever_its_chunk_begins() -> None:
    """At a multiple of a step, or where the last chunk ends with the caches."""
    loaded = loading.random(Llama, attrs.evolve(Llama.full_size(), **SMALL), 0, dtype="float32", max_seq_len=128, prefill_chunk=32)
    fine = attrs.evolve(loaded, run=attrs.evolve(loaded.run, prefill_step=8))
    whole, stepped = (Session(one.model(), backend="host") for one in (loaded, fine))
    draws = np.random.default_rng(0)
    for held in range(0, 128, 11):
        for count in (2, 9, 33, 60):
            ids = draws.integers(1, 500, held + count).tolist()
            if len(ids) > 128:
                continue
            stepped.reset()
            if held:
                stepped.logits(ids[:held])
            got = stepped.logits(ids)
            whole.reset()
            assert np.array_equal(got, whole.logits(ids)), (held, count)


def test_a_step_divides_its_chunk() -> None:
    """Else a chunk would begin where no step does."""
    with pytest.raises(ParamError, match="prefill_step=12 does not divide prefill_chunk=64"):
        Run(128, 64, prefill_step=12)
