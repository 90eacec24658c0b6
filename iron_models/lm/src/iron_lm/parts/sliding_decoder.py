"""`SlidingDecoder`: a decoder whose layers of a limited reach keep only what they can see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import iron_core as iron
from iron_core import Carried, Scratchpad
from iron_lm.parts.attention import Attention
from iron_lm.parts.cache import KVCache
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.head import Head
from iron_lm.parts.layer import Layer
from iron_lm.parts.part import Part
from iron_lm.parts.positions import Positions
from iron_lm.parts.sliding_cache import SlidingKVCache
from iron_lm.run import Run


class SlidingDecoder(Decoder):
    """A Decoder that gives its sliding layers caches of `window` tokens and a chunk, in place of whole ones, where these are smaller.

    A cache that a layer without a reach uses too stays whole. `place` is the row of `position` in the caches that slide: a
    decode step carries it on, and before a new chunk a session moves them; `first` is the row of the first of drafted tokens there. The
    logits are those of whole caches, bit for bit.
    """

    def __init__(
        self, run: Run, embedding: Embedding, layers: Sequence[Layer], norm: Part, head: Head, positions: Positions | None = None
    ) -> None:
        super().__init__(run, embedding, layers, norm, head, positions)
        mixers = [layer.mixer for layer in layers if isinstance(layer.mixer, Attention) and type(layer.mixer.cache) is KVCache]
        whole = {id(mixer.cache) for mixer in mixers if mixer.config.reach is None}
        sliding = [mixer for mixer in mixers if id(mixer.cache) not in whole]
        self.window = SlidingKVCache.window(run, max((mixer.config.reach or 0 for mixer in sliding), default=0))
        if self.window is None:
            return
        caches: dict[int, SlidingKVCache] = {}  # by the whole one in whose place each is
        for mixer in sliding:
            c = mixer.config
            own = SlidingKVCache(run, c.num_kv_heads, c.head_dim, self.window)
            mixer.cache = caches.setdefault(id(mixer.cache), own)

    def body(  # type: ignore[override]  # per-call values more
        self,
        ids: Any = None,
        *,
        token: Carried[np.int32],
        position: Carried[np.int32],
        place: Carried[np.int32],
        chunk: Scratchpad[np.int32],
        rows: Scratchpad[np.int32],
        first: Scratchpad[np.int32],
    ) -> Any:
        logits, drawn = self.computed(ids, token, chunk, rows, position, place, first)
        return logits, iron.carry(token=drawn, position=position + 1, place=place + 1)

    @property
    def grid(self) -> int:
        return super().grid if self.window is None else self.run.prefill_chunk

    def base(self, position: int) -> int:
        if self.window is None:
            return 0
        return max(0, position // self.run.prefill_chunk * self.run.prefill_chunk - self.window)

    def where(self, position: int, first: int | None = None) -> dict[str, int]:
        base = self.base(position)
        return {"position": position, "place": position - base, "first": (position if first is None else first) - base}

    def latest(self, position: int) -> int:
        whole = super().latest(position)
        return whole if self.window is None else min(whole, self.base(position) + self.window + self.run.prefill_chunk - self.run.drafted)

    def slide(self, compiled: Any, rows: int) -> None:
        for cache in self.caches:
            if isinstance(cache, SlidingKVCache):
                cache.slide(compiled, rows)
