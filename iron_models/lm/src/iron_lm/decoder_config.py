"""`DecoderConfig`: what decoders of text have in common; a family's own config adds to it."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.errors import ParamError
from iron_lm.fields import among, counted, flag, is_flag, made_by, optional, positive
from iron_lm.parts.attention import AttentionConfig
from iron_lm.parts.embedding import EmbeddingConfig
from iron_lm.parts.head import HeadConfig
from iron_lm.parts.layer_norm import LayerNormConfig
from iron_lm.parts.mlp import ACTIVATIONS, GatedMLPConfig
from iron_lm.parts.norm import NormConfig
from iron_lm.parts.pooling import POOLINGS
from iron_lm.parts.rotary import RotaryConfig


@attrs.frozen(kw_only=True)
class DecoderConfig:
    """Sizes count numbers; `max_positions` tokens, the longest context the model was made for.

    sliding: layer by layer, which attend to the last `window` tokens alone, the newest among them; () where none does.
    score_scale: multiplies query times key (1 / sqrt(head_dim) by default). score_cap: bends these scores to within it;
    logit_cap: the logits. tied: is the head the embedding? usual_context: tokens that caches hold where nobody asks for a
    number. pooling: how an encoder, which attends to whole texts, makes a vector of one ("mean", "cls", "last"); None of a model that
    continues text. ParamError for what cannot be.
    """

    vocab_size: int = attrs.field(validator=counted)
    hidden_size: int = attrs.field(validator=counted)
    num_layers: int = attrs.field(validator=counted)
    num_heads: int = attrs.field(validator=counted)
    num_kv_heads: int = attrs.field(validator=counted)
    head_dim: int = attrs.field(validator=counted)
    intermediate_size: int = attrs.field(validator=counted)
    max_positions: int = attrs.field(validator=counted)
    rotary: RotaryConfig | None = attrs.field(default=None, validator=optional(made_by(RotaryConfig)))
    norm_epsilon: float = attrs.field(default=1e-5, validator=positive)
    activation: str = attrs.field(default="silu", validator=among(sorted(ACTIVATIONS)))
    score_scale: float | None = attrs.field(default=None, validator=optional(positive))
    score_cap: float | None = attrs.field(default=None, validator=optional(positive))
    logit_cap: float | None = attrs.field(default=None, validator=optional(positive))
    window: int | None = attrs.field(default=None, validator=optional(counted))
    sliding: tuple[bool, ...] = ()
    tied: bool = attrs.field(default=True, validator=flag)
    usual_context: int | None = attrs.field(default=None, validator=optional(counted))
    pooling: str | None = attrs.field(default=None, validator=optional(among(POOLINGS)))
    name: str = ""

    def __attrs_post_init__(self) -> None:
        where = type(self).__name__
        if self.num_heads % self.num_kv_heads:
            raise ParamError(f"{where}: num_kv_heads={self.num_kv_heads} does not divide num_heads={self.num_heads}.")
        if not isinstance(self.sliding, tuple) or not all(map(is_flag, self.sliding)):
            raise ParamError(f"{where}: sliding={self.sliding!r}; legal: True or False for each layer, in a tuple, or ().")
        if self.sliding and len(self.sliding) != self.num_layers:
            raise ParamError(f"{where}: sliding speaks of {len(self.sliding)} layers; legal: num_layers={self.num_layers}, or none.")
        if any(self.sliding) and (self.window is None or self.window < 2):
            raise ParamError(f"{where}: window={self.window} of layers that slide; legal: 2 or more tokens.")

    @property
    def encodes(self) -> bool:
        """Is it an encoder's?"""
        return self.pooling is not None

    @property
    def vector_size(self) -> int:
        """Numbers of a text's vector."""
        return self.hidden_size

    def slides(self, layer: int) -> bool:
        """Does this layer attend to a window alone?"""
        return bool(self.sliding) and self.sliding[layer]

    def reach(self, layer: int) -> int | None:
        """The keys before a query's own that this layer sees; None: all."""
        return self.window - 1 if self.slides(layer) and self.window is not None else None

    # -- the configs of the parts ----------------------------------------------------------------

    def embedding(self, scale: float = 1.0) -> EmbeddingConfig:
        return EmbeddingConfig(self.vocab_size, self.hidden_size, scale)

    def norm(self, size: int | None = None) -> NormConfig:
        """Of the hidden state, or of `size` numbers at a time."""
        return NormConfig(self.hidden_size if size is None else size, self.norm_epsilon)

    def layer_norm(self) -> LayerNormConfig:
        """Of the hidden state, of models whose norms centre."""
        return LayerNormConfig(self.hidden_size, self.norm_epsilon)

    def attention(
        self, layer: int, *, qk_norm: bool = False, bias: bool = False, output_bias: bool = False
    ) -> AttentionConfig:
        """qk_norm: each head's queries and keys are normed, with the hidden state's epsilon. bias: of queries, keys and values;
        output_bias: of what comes out."""
        norm = self.norm(self.head_dim) if qk_norm else None
        return AttentionConfig(
            self.hidden_size,
            self.num_heads,
            self.num_kv_heads,
            self.head_dim,
            scale=self.score_scale,
            reach=self.reach(layer),
            q_norm=norm,
            k_norm=norm,
            bias=bias,
            output_bias=output_bias,
            cap=self.score_cap,
        )

    def mlp(self) -> GatedMLPConfig:
        return GatedMLPConfig(self.hidden_size, self.intermediate_size, self.activation)

    def head(self) -> HeadConfig:
        return HeadConfig(self.vocab_size, self.hidden_size, self.logit_cap)


def windowed(found: dict[str, Any], window: int | None) -> dict[str, Any]:
    """The keywords of a config, with this window on every layer; with None, on none."""
    return found | dict(window=window, sliding=() if window is None else (True,) * found["num_layers"])


def every_nth_is_full(layers: int, n: int) -> tuple[bool, ...]:
    """`sliding` of layers of which each n-th, counted from one, sees everything."""
    return tuple((i + 1) % n != 0 for i in range(layers))
