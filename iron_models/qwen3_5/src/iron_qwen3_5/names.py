"""What the weights of Qwen3.5 and Qwen3-Next are called in their checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from iron_lm.checkpoints import expert_names, names
from iron_lm.checkpoints.sources import (
    Below,
    Either,
    Exponential,
    FirstOf,
    Interleaved,
    Names,
    PlusOne,
    Reshaped,
    Scaled,
    Source,
    Transpose,
)
from iron_qwen3_5.config import Qwen35Config

_LAYER = "layers.{i}."
#: Of the table of any decoder, what these models do not have.
_WITHOUT = ("mixer_norm_after", "ffn_norm_after", "_bias", ".bias")


def _any_decoder(table: dict[str, str]) -> dict[str, Source | str]:
    return {path: name for path, name in table.items() if not any(part in path for part in _WITHOUT)}


def huggingface(config: Qwen35Config) -> Names:
    """Norms of the hidden state and of heads are stored less one, that of the gated delta rule whole. Qwen3-Next's projections lie
    by key head in two matrices."""
    c = config
    model = "model.language_model." if c.nested else "model."
    attention, linear = (f"{model}layers.{{i}}.{kind}." for kind in ("self_attn", "linear_attn"))
    found = _any_decoder({path: name.replace("model.", model, 1) for path, name in names.HUGGINGFACE.items()})
    found = {path: PlusOne(name) if "norm" in path else name for path, name in found.items()}
    if (experts := c.experts()) is not None:
        found |= expert_names.huggingface(experts.num_experts, experts.intermediate_size, f"{model}layers.{{i}}.mlp.")
    per = c.value_heads // c.key_heads
    four, two = (c.key_dim, c.key_dim, per * c.value_dim, per * c.value_dim), (per, per)
    keys = c.key_heads * c.key_dim

    def packed(name: str, rows: tuple[int, ...]) -> Callable[[int], Source]:
        return lambda part: Interleaved(f"{linear}{name}.weight", rows, part)

    qkvz, ba = packed("in_proj_qkvz", four), packed("in_proj_ba", two)
    own: dict[str, Source | str] = {
        **_queries(f"{attention}q_proj.weight", c.head_dim),
        "o": Either(f"{attention}o_proj.weight", f"{linear}out_proj.weight"),
        "qkv": FirstOf(
            f"{linear}in_proj_qkv.weight", Below(((qkvz(0), keys), (qkvz(1), keys), (qkvz(2), c.value_heads * c.value_dim)))
        ),
        "z": FirstOf(f"{linear}in_proj_z.weight", qkvz(3)),
        "b": FirstOf(f"{linear}in_proj_b.weight", ba(0)),
        "a": FirstOf(f"{linear}in_proj_a.weight", ba(1)),
        "conv": Transpose(Reshaped(f"{linear}conv1d.weight", (-2, 1, -1))),
        "rate": Exponential(f"{linear}A_log"),
        "bias": f"{linear}dt_bias",
        "norm.weight": f"{linear}norm.weight",
    }
    return found | {f"{_LAYER}mixer.{path}": source for path, source in own.items()}


def gguf(config: Qwen35Config) -> Names:
    """As llama.cpp's converter leaves them: norms whole, minus the rate; of Qwen3.5 value heads that read one key head key_heads apart,
    of Qwen3-Next what opens and decays in one matrix by key head, and in older files the other projections in another."""
    layer = "blk.{i}."
    per = config.value_heads // config.key_heads
    keys, values = config.key_heads * config.key_dim, config.value_heads * config.value_dim
    rows = (config.key_dim, config.key_dim, per * config.value_dim, per * config.value_dim)
    q, k, v, z = (Interleaved(f"{layer}ssm_in.weight", rows, part) for part in range(4))
    beta, alpha = (Interleaved(f"{layer}ssm_ba.weight", (per, per), part) for part in range(2))
    found = _any_decoder(names.GGUF) | (dict(expert_names.gguf()) if config.experts() is not None else {})
    own: dict[str, Source | str] = {
        **_queries(f"{layer}attn_q.weight", config.head_dim),
        "o": Either(f"{layer}attn_output.weight", f"{layer}ssm_out.weight"),
        "qkv": FirstOf(f"{layer}attn_qkv.weight", Below(((q, keys), (k, keys), (v, values))), f"{layer}attn_qkv.weight"),
        "z": FirstOf(f"{layer}attn_gate.weight", z, f"{layer}attn_gate.weight"),
        "b": FirstOf(f"{layer}ssm_beta.weight", beta),
        "a": FirstOf(f"{layer}ssm_alpha.weight", alpha),
        "conv": Transpose(f"{layer}ssm_conv1d.weight"),
        "rate": Scaled(f"{layer}ssm_a", -1.0),
        "bias": f"{layer}ssm_dt.bias",
        "norm.weight": f"{layer}ssm_norm.weight",
    }
    found[f"{_LAYER}ffn_norm.weight"] = f"{layer}post_attention_norm.weight"
    return found | {f"{_LAYER}mixer.{path}": source for path, source in own.items()}


def _queries(name: str, head_dim: int) -> dict[str, Source]:
    """Each head's queries are followed by its gates."""
    return {path: Interleaved(name, (head_dim, head_dim), part) for part, path in enumerate(("q", "gate"))}
