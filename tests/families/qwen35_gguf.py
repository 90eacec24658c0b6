"""What llama.cpp's converter makes of a Qwen3.5 or a Qwen3-Next: its names, metadata, and the order of value heads."""

from __future__ import annotations

from typing import Any

import numpy as np


def metadata(c: Any) -> dict[str, Any]:
    """Entries beside those of any decoder."""
    entries: dict[str, Any] = {
        "ssm.conv_kernel": c.taps,
        "ssm.state_size": c.key_dim,
        "ssm.group_count": c.key_heads,
        "ssm.time_step_rank": c.value_heads,
        "ssm.inner_size": c.value_heads * c.value_dim,
        "full_attention_interval": c.attends.index(True) + 1,
        "rope.dimension_count": c.rotary.turning,
    }
    if c.num_experts is None:
        return entries
    return entries | {
        "feed_forward_length": None if c.intermediate_size == c.expert_size else c.intermediate_size,
        "expert_count": c.num_experts,
        "expert_used_count": c.chosen,
        "expert_feed_forward_length": c.expert_size,
        "expert_shared_feed_forward_length": c.shared_size,
    }


_TOP = {"embedding.table": "token_embd.weight", "norm.weight": "output_norm.weight", "head.matrix": "output.weight"}
_LAYER = {
    "mixer_norm.weight": "attn_norm.weight",
    "ffn_norm.weight": "post_attention_norm.weight",
    **{f"mixer.{x}": f"attn_{x}.weight" for x in "kv"},
    **{f"mixer.{x}_norm.weight": f"attn_{x}_norm.weight" for x in "qk"},
    **{f"ffn.{x}": f"ffn_{x}.weight" for x in ("gate", "up", "down")},
    **{f"ffn.shared.{x}": f"ffn_{x}_shexp.weight" for x in ("gate", "up", "down")},
    "ffn.router": "ffn_gate_inp.weight",
    "ffn.opening": "ffn_gate_inp_shexp.weight",
    "mixer.norm.weight": "ssm_norm.weight",
}


def tensors(c: Any, weights: Any, keeps_heads: bool) -> dict[str, np.ndarray]:
    """Name -> float32, of weights by path whose value heads lie one behind another. keeps_heads: do they here too, as Qwen3-Next's, whose
    beta and alpha lie by key head in one matrix? Else those of one key head are key_heads apart."""
    wide = {path: np.asarray(array).astype(np.float32) for path, array in weights.items()}
    each = c.value_heads // c.key_heads
    order = [t % c.key_heads * each + t // c.key_heads for t in range(c.value_heads)]
    keys = 2 * c.key_heads * c.key_dim

    def heads(rows: np.ndarray) -> np.ndarray:
        return rows if c.tiled or keeps_heads else rows.reshape(c.value_heads, -1, *rows.shape[1:])[order].reshape(rows.shape)

    made = {name: wide[path] for path, name in _TOP.items() if path in wide}
    for i, attends in enumerate(c.attends):
        own = {path.removeprefix(f"layers.{i}."): array for path, array in wide.items() if path.startswith(f"layers.{i}.")}
        found = {name: own[path] for path, name in _LAYER.items() if path in own}
        if c.num_experts is not None:
            found |= {f"ffn_{x}_exps.weight": found.pop(f"ffn_{x}.weight") for x in ("gate", "up", "down")}
            found["ffn_gate_inp_shexp.weight"] = found["ffn_gate_inp_shexp.weight"].ravel()
        if attends:
            parts = (own[f"mixer.{x}"].reshape(c.num_heads, c.head_dim, -1) for x in ("q", "gate"))
            found["attn_q.weight"] = np.concatenate(list(parts), 1).reshape(-1, c.hidden_size)
            found["attn_output.weight"] = own["mixer.o"]
        else:
            qkv, conv = own["mixer.qkv"], own["mixer.conv"].T
            found |= {
                "attn_qkv.weight": np.concatenate([qkv[:keys], heads(qkv[keys:])]),
                "attn_gate.weight": heads(own["mixer.z"]),
                "ssm_beta.weight": heads(own["mixer.b"]),
                "ssm_alpha.weight": heads(own["mixer.a"]),
                "ssm_conv1d.weight": np.concatenate([conv[:keys], heads(conv[keys:])]),
                "ssm_a": -heads(own["mixer.rate"]),
                "ssm_dt.bias": heads(own["mixer.bias"]),
                "ssm_out.weight": heads(own["mixer.o"].T).T,
            }
            if keeps_heads:
                two = [found.pop(f"ssm_{x}.weight").reshape(c.key_heads, each, -1) for x in ("beta", "alpha")]
                found["ssm_ba.weight"] = np.concatenate(two, 1).reshape(2 * c.value_heads, -1)
        made |= {f"blk.{i}.{name}": array for name, array in found.items()}
    return made
