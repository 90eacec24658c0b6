"""A Llama of random numbers, small enough to be simulated."""

from __future__ import annotations

import functools

from iron_llama.model import Llama
from iron_lm import loading
from iron_lm.decoder_config import DecoderConfig
from iron_lm.loading import Loaded
from iron_lm.parts.rotary import RotaryConfig


@functools.cache
def loaded(heads: tuple[int, int], context: int = 128) -> Loaded:
    """Its weights, by query heads and KV heads, for so long a context."""
    queries, keys = heads
    config = DecoderConfig(
        name="small",
        vocab_size=512,
        hidden_size=128,
        num_layers=2,
        num_heads=queries,
        num_kv_heads=keys,
        head_dim=64,
        intermediate_size=256,
        max_positions=256,
        rotary=RotaryConfig(64, 10000.0),
        norm_epsilon=1e-5,
        tied=True,
    )
    return loading.random(Llama, config, 1, dtype="bfloat16", max_seq_len=context)
