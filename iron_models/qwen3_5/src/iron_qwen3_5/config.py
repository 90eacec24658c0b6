"""What a Qwen3.5 or a Qwen3-Next is made of."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.errors import CheckpointError, ParamError
from iron_lm import mixture_config
from iron_lm.checkpoints import gguf_metadata, huggingface
from iron_lm.checkpoints.entries import Entries, shown
from iron_lm.checkpoints.gguf_header import Numbers
from iron_lm.fields import counted, flag, is_flag
from iron_lm.mixture_config import MixtureConfig
from iron_lm.parts.gated_delta import GatedDeltaConfig

#: Every fourth layer attends, where a file does not say which do; the others mix by the gated delta rule.
PERIOD = 4
_KINDS = ("linear_attention", "full_attention")


@attrs.frozen(kw_only=True)
class Qwen35Config(MixtureConfig):
    """attends: layer by layer, which attend; the others mix by the gated delta rule, whose sizes are those of `GatedDeltaConfig`.
    nested: is the model one of several parts of its checkpoint?"""

    attends: tuple[bool, ...]
    key_heads: int = attrs.field(validator=counted)
    value_heads: int = attrs.field(validator=counted)
    key_dim: int = attrs.field(validator=counted)
    value_dim: int = attrs.field(validator=counted)
    taps: int = attrs.field(default=4, validator=counted)
    tiled: bool = attrs.field(default=False, validator=flag)
    nested: bool = attrs.field(default=False, validator=flag)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not isinstance(self.attends, tuple) or len(self.attends) != self.num_layers or not all(map(is_flag, self.attends)):
            raise ParamError(f"Qwen35Config: attends={self.attends!r}; legal: num_layers={self.num_layers} of True and False, a tuple.")
        self.delta()  # ParamError for what it refuses

    def delta(self) -> GatedDeltaConfig:
        """Of the layers that do not attend."""
        return GatedDeltaConfig(
            self.hidden_size,
            self.key_heads,
            self.value_heads,
            self.key_dim,
            self.value_dim,
            self.taps,
            self.norm_epsilon,
            self.tiled,
        )


def _every_nth(layers: int, n: int) -> tuple[bool, ...]:
    """Of layers counted from one, each n-th."""
    return tuple((i + 1) % n == 0 for i in range(layers))


def from_huggingface(entries: Entries) -> dict[str, Any]:
    """`Qwen35Config`'s keywords of a config.json, of the text model alone or of one with other parts."""
    nested = entries.entries.get("text_config")
    if nested is not None and not isinstance(nested, dict):
        raise CheckpointError(f"config.json: text_config is {shown(nested)}; legal: an object.")
    raw = dict(entries.entries) if nested is None else {"tie_word_embeddings": entries.entries.get("tie_word_embeddings")} | nested
    kinds = raw.pop("layer_types", None)
    mixture = raw.get("num_experts") is not None or "moe" in str(raw.get("model_type")) or raw.get("model_type") == "qwen3_next"
    defaults = dict(entries.defaults) if mixture else {k: v for k, v in entries.defaults.items() if k not in _OF_MIXTURES}
    own = Entries({key: value for key, value in raw.items() if value is not None}, "config.json", defaults=defaults)
    own.keys = entries.keys
    own.keys |= {field: f"linear_{key}" for field, key in _DELTA.items()}
    own.refuse_unless("attention_bias", False)
    experts = mixture_config.from_huggingface(own, shares=True) if mixture else {}
    found = huggingface.decoder(own) | experts
    found |= dict(
        attends=_attends(own, kinds, found["num_layers"]),
        nested=nested is not None,
        **{field: own.whole(own.keys[field]) for field in _DELTA},
    )
    entries.assumed |= own.assumed
    entries.asked |= own.asked
    return found


#: What the sizes of layers that do not attend are called, behind "linear_".
_DELTA = {
    "key_heads": "num_key_heads", "value_heads": "num_value_heads", "key_dim": "key_head_dim", "value_dim": "value_head_dim",
    "taps": "conv_kernel_dim",
}  # fmt: skip
#: Entries of mixtures alone.
_OF_MIXTURES = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size", "norm_topk_prob")


def _attends(own: Entries, kinds: Any, layers: int) -> tuple[bool, ...]:
    if kinds is None:
        return _every_nth(layers, own.whole("full_attention_interval", PERIOD))
    if not isinstance(kinds, list) or len(kinds) != layers or not all(kind in _KINDS for kind in kinds):
        raise CheckpointError(f"config.json: layer_types is {str(kinds)[:60]}; legal: {' or '.join(_KINDS)} for each of {layers} layers.")
    return tuple(kind == "full_attention" for kind in kinds)


def to_huggingface(config: Qwen35Config) -> dict[str, Any]:
    """Entries of a config.json beside those of any decoder."""
    return mixture_config.to_huggingface(config) | {
        "model_type": "qwen3_5_text" if config.num_experts is None else "qwen3_5_moe_text",
        "layer_types": [_KINDS[attends] for attends in config.attends],
        "linear_num_key_heads": config.key_heads,
        "linear_num_value_heads": config.value_heads,
        "linear_key_head_dim": config.key_dim,
        "linear_value_head_dim": config.value_dim,
        "linear_conv_kernel_dim": config.taps,
    }


def from_gguf(entries: Entries, tensors: Any) -> dict[str, Any]:
    """`Qwen35Config`'s keywords of a GGUF's metadata. Its last layers may be those that guess further tokens, which the model does
    without. llama.cpp's converter reorders value heads of Qwen3.5, and leaves Qwen3-Next's."""
    entries.keys |= {"key_heads": "ssm.group_count", "value_heads": "ssm.time_step_rank", "key_dim": "ssm.state_size"}
    entries.keys |= {"value_dim": "ssm.inner_size", "taps": "ssm.conv_kernel"}
    experts = mixture_config.from_gguf(entries, shares=True, renormalises=True) if entries.has("expert_count") else {}
    found = gguf_metadata.decoder(entries, tensors) | experts
    blocks = found["num_layers"]
    found["num_layers"] -= _guessing(entries, tensors, blocks)
    heads = entries.whole("ssm.time_step_rank")
    found |= dict(
        attends=_not_recurrent(entries, blocks)[: found["num_layers"]],
        key_heads=entries.whole("ssm.group_count"),
        value_heads=heads,
        key_dim=entries.whole("ssm.state_size"),
        value_dim=entries.whole("ssm.inner_size") // heads,
        taps=entries.whole("ssm.conv_kernel"),
        tiled=entries.prefix != "qwen3next.",
    )
    return found


def _not_recurrent(entries: Entries, blocks: int) -> tuple[bool, ...]:
    """Which of a GGUF's blocks attend: by its list of those that do not, else each n-th."""
    said = "attention.recurrent_layers"
    if not entries.has(said):
        return _every_nth(blocks, entries.whole("full_attention_interval", PERIOD))
    found = entries.entries[entries.prefix + said]
    flags = list(found) if isinstance(found, Numbers) else []
    if len(flags) != blocks or not all(isinstance(flag, bool) for flag in flags):
        has = f"a list of {len(flags)}" if isinstance(found, Numbers) else shown(found)
        raise CheckpointError(f"{entries.where}: {entries.prefix}{said} is {has}; legal: true or false for each of {blocks} blocks.")
    return tuple(not flag for flag in flags)


def _guessing(entries: Entries, tensors: Any, blocks: int) -> int:
    """How many of a GGUF's last layers guess further tokens; their tensors may stay over, which is said."""
    said = "nextn_predict_layers"
    if not entries.has(said) or entries.entries[entries.prefix + said] == 0:
        return 0
    count = entries.whole(said)
    if count >= blocks:
        legal = f"0 to {blocks - 1}" if blocks > 1 else "0"
        raise CheckpointError(f"{entries.where}: {entries.prefix}{said} is {count} of {blocks} blocks, which leaves none. Legal: {legal}.")
    tensors.notes[f"without its last {count} of {blocks} blocks, which guess further tokens"] = None
    tensors.spare.update(name for i in range(blocks - count, blocks) for name in tensors.names if name.startswith(f"blk.{i}."))
    return count
