"""`Run`: how a model is run, whatever its family."""

from __future__ import annotations

import attrs

from iron_core.errors import ParamError
from iron_lm.fields import among, counted, flag, optional

#: Dtypes of activations and caches.
DTYPES = ("bfloat16", "float32", "float16")
ARITHMETIC = ("exact", "int8_block")
#: Tokens that are read at once where some of them are drafted, at most; and how many are guessed at once where nobody says it.
DRAFTED, DRAFT_TOKENS = 16, 8
#: Prompts given together that are answered side by side, where nobody says how many.
PARALLEL = 8
#: What projections may be quantised to, and how the scale of what they multiply is found: the same always, or each row's own.
QUANTIZED = ("int8",)
ACTIVATION_SCALES = ("fixed", "dynamic")


@attrs.frozen
class Run:
    """What a model is built for: `max_seq_len` tokens that its caches hold, prompts taken in chunks of `prefill_chunk`, each of which
    begins at a multiple of `prefill_step`, by default of as many. Where that is less, a prompt that goes on from tokens that are held
    runs fewer of these again.

    dtype: of activations; cache_dtype: of keys and values; activations: the arithmetic with block-quantised weights, "exact"
    or "int8_block". quantize: "int8" where projections multiply integers by integers, of one scale for a matrix; activation_scale
    says which scale what they multiply has, "fixed" or "dynamic". own_order: products of many rows add up in the order that is
    fastest there, where no step of a single row has to give the same bits: an encoder has none. ParamError for a number below 1, a
    context that is not whole chunks, chunks that are not whole steps, and any other name.
    """

    max_seq_len: int = attrs.field(validator=counted)
    prefill_chunk: int = attrs.field(default=64, validator=counted)
    dtype: str = attrs.field(default="bfloat16", validator=among(DTYPES))
    cache_dtype: str = attrs.field(default="bfloat16", validator=among(DTYPES))
    activations: str = attrs.field(default="exact", validator=among(ARITHMETIC))
    quantize: str | None = attrs.field(default=None, validator=optional(among(QUANTIZED)))
    activation_scale: str = attrs.field(default="dynamic", validator=among(ACTIVATION_SCALES))
    own_order: bool = attrs.field(default=False, validator=flag)
    prefill_step: int = attrs.field(default=attrs.Factory(lambda self: self.prefill_chunk, takes_self=True), validator=counted)

    @property
    def arithmetic(self) -> str:
        """Of products, for people."""
        return self.activations if self.quantize is None else f"{self.quantize} products, {self.activation_scale} scale"

    @property
    def drafted(self) -> int:
        """Ids of a call that begins at any token and gives the logits of each: fewer than `prefill_chunk`, by which the two are told
        apart."""
        return min(DRAFTED, self.prefill_chunk - 1)

    def __attrs_post_init__(self) -> None:
        if self.max_seq_len % self.prefill_chunk:
            nearest = self.max_seq_len // self.prefill_chunk * self.prefill_chunk or self.prefill_chunk
            raise ParamError(
                f"Run: max_seq_len={self.max_seq_len} is not a multiple of prefill_chunk={self.prefill_chunk}. Nearest: {nearest}."
            )
        if self.prefill_chunk % self.prefill_step:
            what = f"prefill_step={self.prefill_step} does not divide prefill_chunk={self.prefill_chunk}"
            raise ParamError(f"Run: {what}. Legal: a divisor of it.")
