"""The array of `ResampleTaps`: a core per lane, a chain from each to the next, and one stream back from the last to all."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Buffer, ObjectFifo, Pattern, Worker, range_, require_channels, require_columns, require_npu, require_whole
from iron_core.array.fit import require_memory
from iron_ops_aie.images.kernels_taps import PEAK, TapKernels

#: Words of a chunk, where none are given.
WORDS = 256


class ResampleTapsArray:
    """How a `ResampleTaps` is computed on an array."""

    @property
    def lanes(self: Any) -> int:
        """Lanes of the table."""
        return self.num_aie_columns * self.num_channels

    def resolve(self: Any, dev: Any) -> Any:
        """All the lanes there are; fewer where they do not share the chunks equally."""
        require_npu(self, dev)
        columns = (self.num_aie_columns,) if self.num_aie_columns else range(dev.columns, 0, -1)
        channels = (self.num_channels,) if self.num_channels else (2, 1)
        fits = [(c, n) for n in channels for c in columns if self.chunks % (c * n) == 0]
        widest = max(fits, key=lambda pair: pair[0] * pair[1], default=(columns[-1], channels[-1]))
        return self.evolve(num_aie_columns=widest[0], num_channels=widest[1])

    def compatible(self: Any, dev: Any) -> None:
        require_columns(self, dev)
        require_channels(self)
        lanes = f"chunks of num_aie_columns={self.num_aie_columns} x num_channels={self.num_channels} lanes"
        require_whole(self, "chunks", self.lanes, lanes, "give num_aie_columns=")
        if dev is not None:
            require_memory(self, dev, f"Give fewer words=. Legal: words={WORDS}.")

    def array(self: Any, target: Any) -> None:
        kernels, last = TapKernels(self.words, self.slots), self.lanes - 1

        def send(peak: Any, way: Any) -> None:
            there = way.acquire()
            for word in range(2):
                there[word] = peak[word]
            way.release()

        def core(lane: int, taps: Any, before: Any, after: Any, back: Any, peak: Any, calls: Any, *numbers: Any) -> None:
            find, larger, make = calls
            *sizes, rounds = numbers
            for word in range(2):
                peak[word] = 0
            for i in range_(rounds):
                find(*sizes, i * self.lanes + lane, peak)
            if before:
                larger(before.acquire(), peak)
                before.release()
            if after:
                send(peak, after)
            if last and lane == last:
                send(peak, back)
            elif last:
                found = back.acquire()
                for word in range(2):
                    peak[word] = found[word]
                back.release()
            for i in range_(rounds):
                make(*sizes, i * self.lanes + lane, peak, taps.acquire())
                taps.release()

        chain = [ObjectFifo(PEAK, depth=1, name=f"largest{lane}") for lane in range(last)]
        back = ObjectFifo(PEAK, depth=1, name="largest") if last else None
        values = [self.numbers_in, self.numbers_out, self.all_chunks, self.rounds]
        calls = [kernels.peak(), kernels.larger(), kernels.chunk()]
        for lane in range(self.lanes):
            taps = ObjectFifo(self.taps.tile, depth=self.taps.depth, name=f"taps{lane}")
            taps.cons(tile=self.taps.lane(lane))
            before = chain[lane - 1].cons() if lane else None
            after = chain[lane].prod() if lane < last else None
            end = back and (back.cons() if lane < last else back.prod())
            peak = Buffer(2, np.int32, name=f"peak{lane}")
            Worker(core, [lane, taps.prod(), before, after, end, peak, calls], values=values, name=f"core{lane}")

    def sequence(self: Any, rt: Any) -> None:
        rt.preamble()
        each = self.chunks // self.lanes
        for lane in range(self.lanes):
            rt.drain("taps", lane, Pattern(lane * self.words, (each, self.words), (self.lanes * self.words, 1)), wait=True)

    def composed(self: Any) -> Any:
        """Chunk by chunk from the kernels' references, the peak over all of them first."""
        kernels = TapKernels(self.words, self.slots)
        peak = np.zeros(2, np.int32)
        for at in range(self.chunks):
            peak = kernels.peak().reference(self.in_size, self.out_size, self.chunks, at, peak)
        return np.stack([kernels.chunk().reference(self.in_size, self.out_size, self.chunks, at, peak) for at in range(self.chunks)])
