"""`PagedDecoder`: a decoder over pages, one graph that takes rows of many sequences in a pass."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

import iron_core as iron
from iron_core import Scratchpad
from iron_core.declare.formats import as_dtype
from iron_core.errors import UsageError
from iron_lm.parts.attention import Attention
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.paged_cache import PagedKVCache
from iron_lm.parts.part import Part, Weights, bounded
from iron_lm.parts.standing import Standing
from iron_ops_aie import ScatterRows


class PagedDecoder(Part):
    """The parts of a decoder, and their weights, over `PagedKVCache`s of `pages` pages of `page` tokens, for `sequences` at once.

    ids, at, owner, places: int32 (n,), of which the first `rows` count, and tables: (sequences, most), as `Standing` has them. slots (n,):
    which of the logits that are asked for is this row's, `sequences` for none. Gives the first `spans` of these logits, float32 (n or
    sequences, vocab), whichever is less; a row's are those of `Decoder`, bit for bit, whatever rows run with it. Without ids the page
    `source` of every cache is written over `target`. UsageError for a decoder that keeps other things of its tokens than keys and values.
    """

    category = "decoder"

    def __init__(self, decoder: Decoder, pages: int, page: int, sequences: int) -> None:
        self.sequences = sequences
        self.decoder = copy.copy(decoder)
        self.decoder.layers = list(map(copy.copy, decoder.layers))
        caches: dict[int, PagedKVCache] = {}  # by the one in whose place each is
        for layer in self.decoder.layers:
            mixer = layer.mixer = copy.copy(layer.mixer)
            if not isinstance(mixer, Attention):
                raise UsageError(
                    f"{type(mixer).__name__} keeps of its tokens what pages do not hold: sequences side by side are for models whose "
                    "layers all attend. Legal: a Session, one sequence after another."
                )
            c = mixer.config
            own = PagedKVCache(decoder.run, c.num_kv_heads, c.head_dim, pages, page)
            mixer.cache = caches.setdefault(id(mixer.cache), own)
        self.wanted = iron.state((sequences + 1, decoder.embedding.config.hidden_size), as_dtype(decoder.run.dtype))

    def body(
        self,
        ids: Any = None,
        at: Any = None,
        owner: Any = None,
        tables: Any = None,
        places: Any = None,
        slots: Any = None,
        *,
        rows: Scratchpad[np.int32],
        spans: Scratchpad[np.int32],
        source: Scratchpad[np.int32],
        target: Scratchpad[np.int32],
    ) -> Any:
        decoder = self.decoder
        if ids is None:
            for cache in decoder.caches:
                cache.copy(source, target)
            return None
        ids, at, owner, places, slots = (bounded(each, rows) for each in (ids, at, owner, places, slots))
        standing = Standing(at, owner, tables, places)
        x = decoder.states(ids, None, None, rows, standing, standing)
        if x.shape[0] > 1:
            ScatterRows(x, self.wanted, slots)
            x = bounded(self.wanted[: min(x.shape[0], self.sequences)], spans)
        return decoder.head(decoder.norm(x))

    def twin(self, weights: Weights, ids: Any) -> np.ndarray:
        """float32 (n, vocab): the logits after each of n tokens of one sequence."""
        return self.decoder.twin(self.inside(weights, "decoder"), ids)
