"""`MixtureConfig`: a decoder whose feed-forwards may be mixtures of experts, and what its files say of them."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.errors import ParamError
from iron_lm.checkpoints.entries import Entries
from iron_lm.decoder_config import DecoderConfig
from iron_lm.fields import counted, flag, optional
from iron_lm.parts.experts import ExpertsConfig


@attrs.frozen(kw_only=True)
class MixtureConfig(DecoderConfig):
    """Every layer has `num_experts` experts of `expert_size`, of which `chosen` are asked for each token, or, where these three are None,
    a dense feed-forward; `renormalise`: do the chosen experts' weights add up to 1? shared_size: of the expert that every token goes
    to, behind a gate; None: there is none. `intermediate_size` of a mixture is what its files say of a dense feed-forward.
    """

    expert_size: int | None = attrs.field(default=None, validator=optional(counted))
    num_experts: int | None = attrs.field(default=None, validator=optional(counted))
    chosen: int | None = attrs.field(default=None, validator=optional(counted))
    renormalise: bool = attrs.field(default=False, validator=flag)
    shared_size: int | None = attrs.field(default=None, validator=optional(counted))

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.experts()  # ParamError for more chosen than there are

    def experts(self) -> ExpertsConfig | None:
        """Of the feed-forward of each layer; None: it is dense."""
        if self.expert_size is None or self.num_experts is None or self.chosen is None:
            given = {name: getattr(self, name) for name in ("expert_size", "num_experts", "chosen", "shared_size")}
            if any(value is not None for value in given.values()):
                said = ", ".join(f"{name}={value}" for name, value in given.items())
                raise ParamError(f"{type(self).__name__}: {said}; legal: the first three, or none of them.")
            return None
        return ExpertsConfig(
            self.hidden_size,
            self.expert_size,
            self.num_experts,
            self.chosen,
            renormalise=self.renormalise,
            shared_size=self.shared_size,
            shared_gate=self.shared_size is not None,
        )


def from_huggingface(entries: Entries, *, shares: bool) -> dict[str, Any]:
    """The keywords that the config.json of a mixture gives `MixtureConfig` besides a decoder's. CheckpointError where some layers are
    dense. shares: has this architecture a shared expert? What a dense feed-forward would have, which no layer is, may be absent."""
    experts = entries.first("num_experts", "num_local_experts")
    entries.keys |= {
        "expert_size": "moe_intermediate_size", "num_experts": experts, "chosen": "num_experts_per_tok",
        "renormalise": "norm_topk_prob", "shared_size": "shared_expert_intermediate_size",
    }  # fmt: skip
    entries.refuse_unless("hidden_act", "silu", "swish")  # experts have no other
    entries.refuse_unless("decoder_sparse_step", 1)
    entries.refuse_unless("mlp_only_layers", [])
    size = entries.whole("moe_intermediate_size")
    entries.defaults = {"intermediate_size": size, **entries.defaults}
    return dict(
        expert_size=size,
        num_experts=entries.whole(experts),
        chosen=entries.whole("num_experts_per_tok"),
        renormalise=entries.flag("norm_topk_prob"),
        shared_size=entries.whole("shared_expert_intermediate_size") if shares else None,
    )


def from_gguf(entries: Entries, *, shares: bool, renormalises: bool) -> dict[str, Any]:
    """The same of a GGUF. Where it does not say whether weights are renormalised, the architecture does."""
    entries.keys |= {
        "expert_size": "expert_feed_forward_length", "num_experts": "expert_count", "chosen": "expert_used_count",
        "renormalise": "expert_weights_norm", "shared_size": "expert_shared_feed_forward_length",
    }  # fmt: skip
    entries.refuse_unless("expert_gating_func", 1)  # a softmax
    entries.refuse_unless("expert_weights_scale", 1.0)
    size = entries.whole("expert_feed_forward_length")
    entries.defaults = {"feed_forward_length": size, **entries.defaults}
    return dict(
        expert_size=size,
        num_experts=entries.whole("expert_count"),
        chosen=entries.whole("expert_used_count"),
        renormalise=entries.flag("expert_weights_norm", renormalises),
        shared_size=entries.whole("expert_shared_feed_forward_length") if shares else None,
    )


def to_huggingface(config: MixtureConfig) -> dict[str, Any]:
    """The entries of a config.json that `from_huggingface` reads; none of a dense model."""
    if config.num_experts is None:
        return {}
    shared = {} if config.shared_size is None else {"shared_expert_intermediate_size": config.shared_size}
    return shared | {
        "moe_intermediate_size": config.expert_size,
        "num_experts": config.num_experts,
        "num_experts_per_tok": config.chosen,
        "norm_topk_prob": config.renormalise,
    }
