"""`ResampleTaps`: the filter of an antialiased bicubic resize, as a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Auto, Case, Choices, Extent, Operator, Out, Param, Testing, Tolerance, Value, Width
from iron_core.errors import ParamError
from iron_ops_aie.images.resample_taps_array import WORDS, ResampleTapsArray
from iron_ops_aie.images.table import HEADER, make_table, slot_words, slots_of, window

#: Chunks of a table are a multiple of this by default, so that any device's cores share them equally.
CHUNKS = 16
#: Words of a chunk that has one slot of the smallest filter, five weights.
LEAST = HEADER + slot_words(5)


class ResampleTaps(ResampleTapsArray, Operator):
    """The weights that resize `in_size` numbers to `out_size`: taps (chunks, words) int32, see `iron_ops_aie.images.table`.

    Each chunk has `slots` outputs, or where that is None as many as fit. With `Resample` they are what
    `torch.nn.functional.interpolate(mode="bicubic", antialias=True)` does to uint8, bit for bit. `in_length` and `out_length`
    bound the two sizes: the table is then that of a resize from the one to the other. Where the chunks are too few or too
    small for it, every header is (-1, window, 0, 0).

    The array: a core per lane makes every lanes-th chunk, in float64. It computes its weights twice: first for the largest of
    them, which goes from core to core and back from the last to all, for it decides the precision; then to round them.

    Errors: ParamError for words or slots that hold nothing.
    """

    in_size: int = Param()
    out_size: int = Param()
    words: int = Param(default=WORDS, array=True)
    slots: int | None = Param(default=None, array=True)
    chunks: int = Param(default=lambda op: op.whole_chunks())
    num_aie_columns: int = Auto(domain=Width())
    num_channels: int = Auto(domain=Choices((1, 2)))
    taps = Out(chunks, words, dtype=np.int32, tile=words, per=(num_aie_columns, num_channels))
    in_length = Extent(in_size)
    out_length = Extent(out_size)
    numbers_in = Value(derive=lambda op: op.in_length)
    numbers_out = Value(derive=lambda op: op.out_length)
    all_chunks = Value(derive=lambda op: op.chunks)
    #: Chunks that each core makes.
    rounds = Value(derive=lambda op: op.chunks // (op.num_aie_columns * op.num_channels))

    test = Testing(
        Case(in_size=37, out_size=48, lower=True),
        Case(in_size=101, out_size=7, lower=True),
        Case(in_size=101, out_size=64, bounds=dict(in_length=37, out_length=48), lower=True),
        Case(in_size=480, out_size=240, words=356, slots=16, lower=True),
        Case(in_size=5, out_size=5, words=16, chunks=7),
        Case(in_size=63, out_size=1000, words=100, slots=3, lower=True),
        Case(in_size=90, out_size=3, words=64, lower=True),
        Case(in_size=1080, out_size=576, words=356, slots=16, bench=True),
    )

    def validate(self) -> None:
        for name in ("in_size", "out_size"):
            if getattr(self, name) < 1:
                raise ParamError(f"ResampleTaps: {name}={getattr(self, name)}; legal: 1 or more.")
        if self.words < LEAST:
            raise ParamError(f"ResampleTaps: words={self.words}; legal: {LEAST} or more, a header and a slot of five weights.")
        most = slots_of(self.words, 5, None)
        if self.slots is not None and not 1 <= self.slots <= most:
            raise ParamError(f"ResampleTaps: slots={self.slots} of words={self.words}; legal: 1 to {most}, or None for as many as fit.")

    def whole_chunks(self) -> int:
        """Chunks that hold the table, a multiple of 16."""
        if self.in_size < 1 or self.out_size < 1:
            return CHUNKS  # validate() refuses it
        held = slots_of(self.words, window(self.in_size, self.out_size), self.slots)
        return -(-self.out_size // max(1, held * CHUNKS)) * CHUNKS if held else CHUNKS

    def bounded(self, **extents: int) -> Any:
        # A call's table has as many chunks as the whole one.
        return super().bounded(**{"chunks": self.chunks} | extents)

    def reference(self) -> Any:
        return make_table(self.in_size, self.out_size, self.words, self.slots, self.chunks)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)

    def ops(self) -> int:
        return 20 * self.out_size * window(self.in_size, self.out_size)
