"""Where a Llama's weights are, in a Hugging Face checkpoint and in a GGUF."""

from __future__ import annotations

from iron_lm.checkpoint import Layout

_Q = lambda c: c.n_heads * c.head_dim  # noqa: E731
_KV = lambda c: c.n_kv_groups * c.head_dim  # noqa: E731
_SHAPES = {
    "embedding": ("vocab_size", "emb_dim"),
    "norm": ("emb_dim",),
    "head": ("vocab_size", "emb_dim"),
    "layers.{i}.attention_norm": ("emb_dim",),
    "layers.{i}.q": (_Q, "emb_dim"),
    "layers.{i}.k": (_KV, "emb_dim"),
    "layers.{i}.v": (_KV, "emb_dim"),
    "layers.{i}.o": ("emb_dim", _Q),
    "layers.{i}.ffn_norm": ("emb_dim",),
    "layers.{i}.gate": ("hidden_dim", "emb_dim"),
    "layers.{i}.up": ("hidden_dim", "emb_dim"),
    "layers.{i}.down": ("emb_dim", "hidden_dim"),
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


def layout(kind: str, tied: bool) -> Layout:
    """The layout of a kind of checkpoint ("safetensors" or "gguf"). A tied head is the embedding."""
    names = _GGUF if kind == "gguf" else _HUGGINGFACE
    ignored: tuple[str, ...] = ("rope_freqs.weight",) if kind == "gguf" else ()
    if tied:
        ignored += (names["head"],)
    return Layout({p: (n, _SHAPES[p]) for p, n in names.items() if not (tied and p == "head")}, ignored=ignored)
