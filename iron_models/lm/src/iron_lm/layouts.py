"""Where a decoder's weights are, in a Hugging Face checkpoint and in a GGUF; a model names what it has besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_lm.checkpoints.checkpoint import Layout

_Q = lambda c: c.num_heads * c.head_dim  # noqa: E731
_KV = lambda c: c.num_kv_heads * c.head_dim  # noqa: E731
_SHAPES: dict[str, tuple[Any, ...]] = {
    "embedding": ("vocab_size", "hidden_size"),
    "norm": ("hidden_size",),
    "head": ("vocab_size", "hidden_size"),
    "layers.{i}.attention_norm": ("hidden_size",),
    "layers.{i}.q": (_Q, "hidden_size"),
    "layers.{i}.k": (_KV, "hidden_size"),
    "layers.{i}.v": (_KV, "hidden_size"),
    "layers.{i}.o": ("hidden_size", _Q),
    "layers.{i}.q_norm": ("head_dim",),
    "layers.{i}.k_norm": ("head_dim",),
    "layers.{i}.post_attention_norm": ("hidden_size",),
    "layers.{i}.ffn_norm": ("hidden_size",),
    "layers.{i}.gate": ("intermediate_size", "hidden_size"),
    "layers.{i}.up": ("intermediate_size", "hidden_size"),
    "layers.{i}.down": ("hidden_size", "intermediate_size"),
    "layers.{i}.post_ffn_norm": ("hidden_size",),
}
_HUGGINGFACE = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "layers.{i}.attention_norm": "model.layers.{i}.input_layernorm.weight",
    "layers.{i}.q": "model.layers.{i}.self_attn.q_proj.weight",
    "layers.{i}.k": "model.layers.{i}.self_attn.k_proj.weight",
    "layers.{i}.v": "model.layers.{i}.self_attn.v_proj.weight",
    "layers.{i}.o": "model.layers.{i}.self_attn.o_proj.weight",
    "layers.{i}.ffn_norm": "model.layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.gate": "model.layers.{i}.mlp.gate_proj.weight",
    "layers.{i}.up": "model.layers.{i}.mlp.up_proj.weight",
    "layers.{i}.down": "model.layers.{i}.mlp.down_proj.weight",
}
_GGUF = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "layers.{i}.attention_norm": "blk.{i}.attn_norm.weight",
    "layers.{i}.q": "blk.{i}.attn_q.weight",
    "layers.{i}.k": "blk.{i}.attn_k.weight",
    "layers.{i}.v": "blk.{i}.attn_v.weight",
    "layers.{i}.o": "blk.{i}.attn_output.weight",
    "layers.{i}.ffn_norm": "blk.{i}.ffn_norm.weight",
    "layers.{i}.gate": "blk.{i}.ffn_gate.weight",
    "layers.{i}.up": "blk.{i}.ffn_up.weight",
    "layers.{i}.down": "blk.{i}.ffn_down.weight",
}
#: Meta's own names, which only llamas have.
_META = {
    "embedding": "tok_embeddings.weight",
    "norm": "norm.weight",
    "head": "output.weight",
    "layers.{i}.attention_norm": "layers.{i}.attention_norm.weight",
    "layers.{i}.q": "layers.{i}.attention.wq.weight",
    "layers.{i}.k": "layers.{i}.attention.wk.weight",
    "layers.{i}.v": "layers.{i}.attention.wv.weight",
    "layers.{i}.o": "layers.{i}.attention.wo.weight",
    "layers.{i}.ffn_norm": "layers.{i}.ffn_norm.weight",
    "layers.{i}.gate": "layers.{i}.feed_forward.w1.weight",
    "layers.{i}.up": "layers.{i}.feed_forward.w3.weight",
    "layers.{i}.down": "layers.{i}.feed_forward.w2.weight",
}
#: By kind of checkpoint, its names, and tensors the model computes itself.
_KINDS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "safetensors": (_HUGGINGFACE, ()),
    "gguf": (_GGUF, ("rope_freqs.weight",)),
    "meta": (_META, ("rope.freqs",)),
}
#: Norms of each head's queries and keys, as models that have them name them.
QK_NORMS = {
    "safetensors": {f"layers.{{i}}.{x}_norm": f"model.layers.{{i}}.self_attn.{x}_norm.weight" for x in "qk"},
    "gguf": {f"layers.{{i}}.{x}_norm": f"blk.{{i}}.attn_{x}_norm.weight" for x in "qk"},
}


def layout(kind: str, tied: bool, more: Mapping[str, Mapping[str, str]] | None = None, less_one: bool = False) -> Layout:
    """The layout of a kind of checkpoint ("safetensors", "gguf" or "meta"). A tied head is the embedding.

    more: by kind, the names of weights a llama does not have, and those that have other names. less_one: see `Layout`.
    """
    names, ignored = _KINDS.get(kind, _KINDS["safetensors"])
    names = names | dict((more or {}).get(kind, {}))
    if tied:
        ignored += (names["head"],)
    places = {path: (name, _SHAPES[path]) for path, name in names.items() if not (tied and path == "head")}
    return Layout(places, ignored=ignored, less_one=less_one)
