"""`Hidden`: a decoder without its head, for what it makes of every token."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Scratchpad
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.part import Part, Weights
from iron_lm.parts.sliding_decoder import SlidingDecoder


class Hidden(Part):
    """What a decoder's last norm gives for each row of a prompt's chunk. ids: (prefill_chunk,) -> (rows, hidden_size)."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder

    def body(self, ids: Any, *, chunk: Scratchpad[np.int32], rows: Scratchpad[np.int32], position: Scratchpad[np.int32]) -> Any:
        return self.decoder.norm(self.decoder.states(ids, None, chunk, rows, position, position))

    def twin(self, weights: Weights, ids: Any, positions: Any = None) -> np.ndarray:
        """float32 (n, hidden_size); the tokens stand at the first positions."""
        return self.decoder.states_twin(self.inside(weights, "decoder"), ids)


class SlidingHidden(Hidden):
    """Of a `SlidingDecoder`. place: the row of `position` in the caches that slide; first: is not looked at, for no token is drafted."""

    def body(  # type: ignore[override]  # per-call values more
        self,
        ids: Any,
        *,
        chunk: Scratchpad[np.int32],
        rows: Scratchpad[np.int32],
        position: Scratchpad[np.int32],
        place: Scratchpad[np.int32],
        first: Scratchpad[np.int32],
    ) -> Any:
        return self.decoder.norm(self.decoder.states(ids, None, chunk, rows, position, place, first))


def hidden_of(decoder: Decoder) -> Hidden:
    """The graph of a decoder's hidden states; its parts, and their weights, are the decoder's."""
    return SlidingHidden(decoder) if isinstance(decoder, SlidingDecoder) else Hidden(decoder)
