"""The names that decoders' weights have in use: Hugging Face's, llama.cpp's. A family takes these and adds its own.

Hugging Face's `post_attention_layernorm` is after the attention where a layer has a norm there, else before the feed-forward;
a family with both says what it calls the second.
"""

from __future__ import annotations


def _biased(table: dict[str, str]) -> dict[str, str]:
    """The table, and beside norms' weights the biases of those that have them."""
    ends = [(path.removesuffix("weight"), name.removesuffix("weight")) for path, name in table.items() if path.endswith(".weight")]
    return table | {f"{path}bias": f"{name}bias" for path, name in ends}


HUGGINGFACE = _biased({
    "embedding.table": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.matrix": "lm_head.weight",
    "layers.{i}.mixer_norm.weight": "model.layers.{i}.input_layernorm.weight",
    **{f"layers.{{i}}.mixer.{x}": f"model.layers.{{i}}.self_attn.{x}_proj.weight" for x in "qkvo"},
    **{f"layers.{{i}}.mixer.{x}_bias": f"model.layers.{{i}}.self_attn.{x}_proj.bias" for x in "qkvo"},
    **{f"layers.{{i}}.mixer.{x}_norm.weight": f"model.layers.{{i}}.self_attn.{x}_norm.weight" for x in "qk"},
    "layers.{i}.mixer_norm_after.weight": "model.layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.ffn_norm.weight": "model.layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.ffn_norm_after.weight": "model.layers.{i}.post_feedforward_layernorm.weight",
    **{f"layers.{{i}}.ffn.{x}": f"model.layers.{{i}}.mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
    **{f"layers.{{i}}.ffn.{x}_bias": f"model.layers.{{i}}.mlp.{x}_proj.bias" for x in ("up", "down")},
})  # fmt: skip
GGUF = _biased({
    "embedding.table": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "head.matrix": "output.weight",
    "layers.{i}.mixer_norm.weight": "blk.{i}.attn_norm.weight",
    **{f"layers.{{i}}.mixer.{x}": f"blk.{{i}}.attn_{x}.weight" for x in "qkv"},
    **{f"layers.{{i}}.mixer.{x}_bias": f"blk.{{i}}.attn_{x}.bias" for x in "qkv"},
    "layers.{i}.mixer.o": "blk.{i}.attn_output.weight",
    "layers.{i}.mixer.o_bias": "blk.{i}.attn_output.bias",
    **{f"layers.{{i}}.mixer.{x}_norm.weight": f"blk.{{i}}.attn_{x}_norm.weight" for x in "qk"},
    "layers.{i}.mixer_norm_after.weight": "blk.{i}.post_attention_norm.weight",
    "layers.{i}.ffn_norm.weight": "blk.{i}.ffn_norm.weight",
    "layers.{i}.ffn_norm_after.weight": "blk.{i}.post_ffw_norm.weight",
    **{f"layers.{{i}}.ffn.{x}": f"blk.{{i}}.ffn_{x}.weight" for x in ("gate", "up", "down")},
    **{f"layers.{{i}}.ffn.{x}_bias": f"blk.{{i}}.ffn_{x}.bias" for x in ("up", "down")},
})  # fmt: skip
#: Buffers that older versions of transformers saved with the weights.
BUFFERS = ("rotary_emb.inv_freq", ".position_ids")
#: Tensors that a model computes itself, by kind of checkpoint: what their names begin or end with.
IGNORED = {
    "safetensors": BUFFERS,
    "pytorch": BUFFERS,
    "gguf": ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"),
    "meta": ("rope.freqs",),
    "q4nx": ("rope_freqs.weight",),
}
