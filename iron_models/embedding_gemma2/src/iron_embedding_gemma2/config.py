"""The configs of EmbeddingGemma 2: of its encoder of texts, and of the towers that make tokens of sound and of images."""

from __future__ import annotations

import attrs

from iron_core.errors import ParamError
from iron_embedding_gemma2.text_layer import SignalConfig
from iron_lm.decoder_config import DecoderConfig
from iron_lm.fields import counted, flag, made_by, optional, positive
from iron_lm.parts.attention import AttentionConfig
from iron_lm.parts.norm import NormConfig
from iron_lm.parts.rotary import RotaryConfig


@attrs.frozen(kw_only=True)
class AudioConfig:
    """Of the audio tower, a conformer. Sizes count numbers, frames or tokens.

    channels: of the two convolutions. taps: of the light convolution. reach: tokens before its own that one sees. residual: what a
    feed-forward's result is multiplied by. cap: bends scores to within it. output_size: of what the tower gives, before it is
    projected to the text's hidden size. clipped: are the inputs and outputs of products held between bounds?
    """

    hidden_size: int = attrs.field(default=1024, validator=counted)
    num_layers: int = attrs.field(default=12, validator=counted)
    num_heads: int = attrs.field(default=8, validator=counted)
    channels: tuple[int, int] = (128, 32)
    taps: int = attrs.field(default=5, validator=counted)
    reach: int = attrs.field(default=11, validator=counted)
    residual: float = attrs.field(default=0.5, validator=positive)
    cap: float = attrs.field(default=50.0, validator=positive)
    output_size: int = attrs.field(default=1536, validator=counted)
    norm_epsilon: float = attrs.field(default=1e-6, validator=positive)
    clipped: bool = attrs.field(default=True, validator=flag)

    def __attrs_post_init__(self) -> None:
        if self.hidden_size % (2 * self.num_heads):
            raise ParamError(
                f"AudioConfig: hidden_size={self.hidden_size} in num_heads={self.num_heads}; legal: heads of an even size that fill it."
            )
        if len(self.channels) != 2 or not all(isinstance(n, int) and n >= 1 for n in self.channels):
            raise ParamError(f"AudioConfig: channels={self.channels!r}; legal: two whole numbers, 1 or more.")

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads


@attrs.frozen(kw_only=True)
class VisionConfig:
    """Of the vision tower. patch: pixels on a side; pool: patches on a side of what becomes one token; positions: columns, and rows,
    that a patch may stand in; rotary_base: of either; clipped: are the inputs and outputs of products held between bounds?
    standardize: are the means of patches standardised, by a bias and a scale?"""

    hidden_size: int = attrs.field(default=768, validator=counted)
    num_layers: int = attrs.field(default=16, validator=counted)
    num_heads: int = attrs.field(default=12, validator=counted)
    head_dim: int = attrs.field(default=64, validator=counted)
    intermediate_size: int = attrs.field(default=3072, validator=counted)
    patch: int = attrs.field(default=16, validator=counted)
    pool: int = attrs.field(default=3, validator=counted)
    positions: int = attrs.field(default=10240, validator=counted)
    rotary_base: float = attrs.field(default=100.0, validator=positive)
    norm_epsilon: float = attrs.field(default=1e-6, validator=positive)
    clipped: bool = attrs.field(default=False, validator=flag)
    standardize: bool = attrs.field(default=False, validator=flag)


@attrs.frozen(kw_only=True)
class Marks:
    """Ids: what stands for a soft token of an image, of a video's frame, of a clip; what an image, or a clip, begins and ends with."""

    image: int = 258880
    video: int = 258884
    audio: int = 258881
    image_begins: int = 255999
    image_ends: int = 258882
    audio_begins: int = 256000
    audio_ends: int = 258883


@attrs.frozen(kw_only=True)
class TextConfig(DecoderConfig):
    """Of the encoder of texts. Layers that slide see `window` - 1 tokens to either side, with `local_rotary`; the others see all,
    with `rotary`, and have heads of `global_head_dim`, `global_kv_heads` of them with keys and values.

    signal_size: numbers that a token's embedding says to each layer. output_size: of a vector. audio, vision: of the towers of a
    checkpoint that has them.
    """

    local_rotary: RotaryConfig
    global_head_dim: int = attrs.field(validator=counted)
    global_kv_heads: int = attrs.field(validator=counted)
    signal_size: int = attrs.field(validator=counted)
    output_size: int = attrs.field(validator=counted)
    audio: AudioConfig | None = attrs.field(default=None, validator=optional(made_by(AudioConfig)))
    vision: VisionConfig | None = attrs.field(default=None, validator=optional(made_by(VisionConfig)))
    marks: Marks = attrs.field(factory=Marks, validator=made_by(Marks))

    def encoding_attention(self, layer: int) -> AttentionConfig:
        """Of a layer's attention; its scores are not scaled."""
        slides = self.slides(layer)
        head_dim = self.head_dim if slides else self.global_head_dim
        return AttentionConfig(
            self.hidden_size,
            self.num_heads,
            self.num_kv_heads if slides else self.global_kv_heads,
            head_dim,
            scale=1.0,
            reach=self.reach(layer),
            q_norm=self.norm(head_dim),
            k_norm=self.norm(head_dim),
            v_norm=NormConfig(head_dim, self.norm_epsilon, weight=False),
        )

    @property
    def vector_size(self) -> int:
        return self.output_size

    def signal(self) -> SignalConfig:
        """Of what each layer is told."""
        return SignalConfig(self.hidden_size, self.signal_size)
