"""A model whose prompts' chunks are whole blocks of `flm.GEMM`: every product of a chunk is one array's, on both devices."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from iron_core.devices import device
from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.decoder_config import DecoderConfig
from iron_lm.generation.session import Session
from iron_lm.parts.fused_product import FUSED, products_of
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.tunables import profile_of

PROMPT = [int(i) for i in np.random.default_rng(4).integers(0, 512, 200)]


@functools.cache
def loaded():
    config = DecoderConfig(
        name="small",
        vocab_size=512,
        hidden_size=512,
        num_layers=1,
        num_heads=8,
        num_kv_heads=4,
        head_dim=64,
        intermediate_size=512,
        max_positions=512,
        rotary=RotaryConfig(64, 10000.0),
        norm_epsilon=1e-5,
        tied=True,
    )
    return loading.random(Llama, config, 1, dtype="bfloat16", max_seq_len=256)


@pytest.mark.parametrize(("dev", "near"), [("npu1", 0.03), ("npu2", 0.06)])
def test_a_chunk_of_256_rows(dev, near):
    """Seven products a layer, the gate's SiLU a word of its own; npu2's are of bfp16, which keeps fewer digits."""
    with profile_of(Llama, device(dev)):
        session = Session(loaded().model(prefill_chunk=256), backend="sim", dev=dev, fold=True)
    assert products_of(session.compiled) == ({FUSED: 7}, "")
    (prompt,) = (version for signature, version in session.compiled.versions.items() if signature)
    keys = {step.array_key for step in prompt.image.steps if step.array_key[0].startswith("iron_ops_flm")}
    assert len(keys) == 1 and "silu0" not in {step.name for step in prompt.image.steps}
    got, want = session.logits(PROMPT), Session(loaded().model(), backend="reference").logits(PROMPT)
    assert np.linalg.norm(got - want) <= near * np.linalg.norm(want) and got.argmax() == want.argmax()
