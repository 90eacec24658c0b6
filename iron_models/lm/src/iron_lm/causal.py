"""`CausalLM`: a decoder as one graph with two versions, a decode step and a prompt chunk; `Decoder`, the one we run."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_core import Carried, Scratchpad
from iron_core.declare.formats import as_dtype
from iron_lm.blocks import Block, Step
from iron_lm.config import Config
from iron_ops_aie import Copy, Dequant, Sample, Scale
from iron_ops_aie.sample import ROW_WORDS

#: Candidates the sampling operator keeps.
K_MAX = 64


def cache_bytes(config: Config) -> int:
    """Bytes of the keys and values of `max_seq_len` tokens, in all layers."""
    c = config
    return 2 * c.num_layers * c.max_seq_len * c.num_kv_heads * c.head_dim * as_dtype(c.cache_dtype).itemsize


class CausalLM(iron.Graph):
    """Weights, caches and the body of a decoder; a model adds its layer and its head.

    Without `ids` the body is a decode step: it embeds `token` at `position`. With `ids` (prefill_chunk of them) it is a
    prompt chunk: rows `:rows` of chunk `chunk`, the last of them at `position`. Either way it returns the last row's
    logits, float32 (vocab,), and carries the token drawn from them and the next position. `max_seq_len` sizes the caches,
    the rotary table and the draws; no activation follows it.
    """

    def __init__(self, config: Config, weights: Any) -> None:
        c = self.config = config
        dtype, cache = as_dtype(c.dtype), as_dtype(c.cache_dtype)
        self.embedding = iron.weight(weights.embedding)
        self.layers = weights.layers
        self.norm = weights.norm
        self.head_weight = getattr(weights, "head", None)
        tables = [c.angles()] if c.local_rope_base is None or not any(c.sliding) else [c.angles(), c.angles(local=True)]
        self.rope = [iron.weight(t if dtype == np.float32 else t.astype(iron.bfloat16)) for t in tables]
        shape = (c.max_seq_len, c.num_kv_heads, c.head_dim)
        self.keys = [iron.state(shape, cache) for _ in range(c.num_layers)]
        self.values = [iron.state(shape, cache) for _ in range(c.num_layers)]
        self.draws = iron.state((c.max_seq_len, ROW_WORDS), np.int32)
        self.drawn = iron.state(c.max_seq_len, np.int32)

    def body(
        self,
        ids: Any = None,
        *,
        token: Carried[np.int32],
        position: Carried[np.int32],
        chunk: Scratchpad[np.int32],
        rows: Scratchpad[np.int32],
    ) -> Any:
        c = self.config
        L, C, A = c.max_seq_len, c.prefill_chunk, c.head_dim
        prompt = ids is not None
        if prompt:
            x = self.embed(self.embedding[ids[:rows]], C)
            angles = [Copy(table.reshape(L // C, C, A)[chunk, :rows]) for table in self.rope]
        else:
            x = self.embed(self.embedding[token], 1)
            angles = [Copy(table[position]).reshape(1, A) for table in self.rope]
        step = Step(prompt, angles, chunk, rows, position)
        for i, weights in enumerate(self.layers):
            x = self.layer(step, i, weights, x)
        if prompt:
            x = Copy(x[rows - 1]).reshape(1, c.hidden_size)  # the last row's logits alone
        logits = self.head(x).reshape(c.vocab_size)
        _, drawn = Sample(
            logits, self.draws, self.drawn, row=position * ROW_WORDS, at=position, k_max=min(K_MAX, c.vocab_size)
        )
        return logits, iron.carry(token=drawn, position=position + 1)

    def embed(self, row: Any, n: int) -> Any:
        """Rows of the embedding table as activations (n, hidden_size)."""
        c = self.config
        dtype = as_dtype(c.dtype)
        if self.embedding.format.packed:
            x = Dequant(Copy(row).reshape(n, c.hidden_size), T=dtype)
        else:
            x = Copy(row, Y=dtype).reshape(n, c.hidden_size)
        if c.embedding_scale == 1:
            return x
        return Scale(x, factor=float(np.asarray(c.embedding_scale).astype(dtype)))  # in the activations' own dtype, as trained

    def layer(self, step: Step, i: int, weights: Any, x: Any) -> Any:
        """Layer i of rows x (rows, hidden_size)."""
        raise TypeError(f"{type(self).__name__} defines no layer().")

    def head(self, x: Any) -> Any:
        """Logits (1, vocab), float32, of the last row x (1, hidden_size)."""
        raise TypeError(f"{type(self).__name__} defines no head().")


class Decoder(Block, CausalLM):
    """The decoder that llama-like models are: what they differ in is in their config and in the weights they have."""
