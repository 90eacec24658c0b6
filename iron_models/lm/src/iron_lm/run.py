"""`Run`: how a model is run, whatever its family."""

from __future__ import annotations

import attrs

from iron_core.errors import ParamError

#: Dtypes of activations and caches.
DTYPES = ("bfloat16", "float32", "float16")
ARITHMETIC = ("exact", "int8_block")


@attrs.frozen
class Run:
    """What a model is built for: `max_seq_len` tokens that its caches hold, prompts taken in chunks of `prefill_chunk`.

    dtype: of activations; cache_dtype: of keys and values; activations: the arithmetic with block-quantised weights, "exact"
    or "int8_block". ParamError for a number below 1, a context that is not whole chunks, and any other name.
    """

    max_seq_len: int
    prefill_chunk: int = 64
    dtype: str = "bfloat16"
    cache_dtype: str = "bfloat16"
    activations: str = "exact"

    def __attrs_post_init__(self) -> None:
        for field in ("max_seq_len", "prefill_chunk"):
            if getattr(self, field) < 1:
                raise ParamError(f"Run: {field}={getattr(self, field)}; legal: 1 or more.")
        if self.max_seq_len % self.prefill_chunk:
            nearest = self.max_seq_len // self.prefill_chunk * self.prefill_chunk or self.prefill_chunk
            raise ParamError(
                f"Run: max_seq_len={self.max_seq_len} is not a multiple of prefill_chunk={self.prefill_chunk}. Nearest: {nearest}."
            )
        for field, legal in (("dtype", DTYPES), ("cache_dtype", DTYPES), ("activations", ARITHMETIC)):
            if getattr(self, field) not in legal:
                raise ParamError(f"Run: {field}={getattr(self, field)!r}; legal: {', '.join(legal)}.")
