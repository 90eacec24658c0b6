"""`Mixture`: families whose feed-forwards are mixtures of experts."""

from __future__ import annotations

from typing import Any, ClassVar

from iron_lm import mixture_config
from iron_lm.checkpoints import expert_names, gguf_metadata, huggingface
from iron_lm.checkpoints.entries import Entries
from iron_lm.checkpoints.sources import Names
from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.mixture_config import MixtureConfig
from iron_lm.parts.experts import Experts
from iron_lm.parts.layer import Layer
from iron_lm.parts.part import Part
from iron_lm.parts.rotary import Rotary
from iron_lm.run import Run


class Mixture(Family):
    """A `Family` with an `Experts` in every layer, by a `MixtureConfig` that has experts."""

    Config: ClassVar[type[DecoderConfig]] = MixtureConfig
    #: Is there an expert that every token goes to?
    shares: ClassVar[bool] = False
    #: Do the chosen experts' weights add up to 1, where a GGUF does not say it?
    renormalises: ClassVar[bool] = False

    @classmethod
    def names(cls, kind: str, config: Any) -> Names:
        experts = expert_names.gguf() if kind == "gguf" else expert_names.huggingface(config.num_experts, config.expert_size)
        return {**super().names(kind, config), **experts}

    @classmethod
    def layer(cls, config: Any, run: Run, i: int, rotary: Rotary | None) -> Layer:
        mixer = cls.asked("mixer", Part, config, run, i, rotary)
        mixer_norm, ffn_norm = (cls.asked("norm", Part, config) for _ in range(2))
        return Layer(mixer, Experts(config.experts(), run), mixer_norm=mixer_norm, ffn_norm=ffn_norm)

    @classmethod
    def from_huggingface(cls, entries: Entries) -> DecoderConfig:
        return cls._config(mixture_config.from_huggingface(entries, shares=cls.shares) | huggingface.decoder(entries))

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> DecoderConfig:
        experts = mixture_config.from_gguf(entries, shares=cls.shares, renormalises=cls.renormalises)
        return cls._config(gguf_metadata.decoder(entries, tensors) | experts)

    @classmethod
    def to_huggingface(cls, config: Any) -> dict[str, Any]:
        return super().to_huggingface(config) | mixture_config.to_huggingface(config)
