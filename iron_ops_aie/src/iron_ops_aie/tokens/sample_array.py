"""The array of `Sample`: cores that each select from a slice of the logits, and one that draws from what they keep.

A slice goes through its core twice, to find out from where on the largest logits are, and to collect them; where one chunk is
the whole slice, it comes once. A memory tile joins the summaries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Buffer, ObjectFifo, Pattern, Worker, bfloat16, nearest, range_, require, require_npu
from iron_core.devices import WORD
from iron_ops_aie.tokens import kernels_sample
from iron_ops_aie.tokens.draw import ROW_WORDS

#: Cores that select where the caller does not say, and at most: a memory tile joins as many streams.
CORES, MOST_CORES = 4, 6
#: Bytes of a chunk, and candidates kept, at most.
CHUNK_BYTES, MOST_CANDIDATES = 1 << 14, 512


class SampleArray:
    """How a `Sample` is computed on an array."""

    @property
    def slice(self: Any) -> int:
        """Logits of one core."""
        return int(self.vocab // self.cores)

    # -- tunables ----------------------------------------------------------------------------------

    def resolve(self: Any, dev: Any) -> Any:
        require_npu(self, dev)
        cores = self.cores or max((n for n in self._widths(dev) if n <= CORES), default=1)
        return self.evolve(cores=cores, chunk=self.chunk or max(self._chunks(cores), default=1))

    def _widths(self: Any, dev: Any) -> list[int]:
        """Numbers of cores that share out the vocabulary. Each has a shim's channel, and so have the draws."""
        most = MOST_CORES if dev is None else min(MOST_CORES, dev.columns * dev.shim.channels - 1)
        return [n for n in range(1, most + 1) if self.vocab % n == 0 and self._chunks(n)]

    def _chunks(self: Any, cores: int) -> list[int]:
        """Chunks that divide a slice: whole words, and no larger than a core holds two of."""
        size, item = self.vocab // cores, np.dtype(self.T).itemsize
        return [n for n in range(1, min(size, CHUNK_BYTES // item) + 1) if size % n == 0 and n * item % WORD == 0]

    def compatible(self: Any, dev: Any) -> None:
        require(
            self.T in (bfloat16, np.float32),
            f"Sample: T={np.dtype(self.T).name}; an array draws from bfloat16 and float32. Legal: T=bfloat16 or T=float32.",
        )
        require(
            self.k_max <= MOST_CANDIDATES,
            f"Sample: k_max={self.k_max}; the cores of an array keep at most {MOST_CANDIDATES} candidates. Nearest legal: "
            f"k_max={MOST_CANDIDATES}.",
        )
        widths = self._widths(dev)
        require(
            widths,
            f"Sample: vocab={self.vocab} of {np.dtype(self.T).name} is no whole number of {WORD}-byte words. Nearest legal: "
            f"vocab={nearest(self.vocab, WORD // np.dtype(self.T).itemsize)}.",
        )
        require(
            self.cores in widths,
            f"Sample: cores={self.cores}; the cores share out vocab={self.vocab} in whole words, each with a channel of its own. "
            f"Nearest legal: cores={nearest(self.cores, widths)}.",
        )
        chunks = self._chunks(self.cores)
        require(
            self.chunk in chunks,
            f"Sample: chunk={self.chunk} of a core's {self.slice} logits; it must divide them and be whole words of at most "
            f"{CHUNK_BYTES} bytes. Nearest legal: chunk={nearest(self.chunk, chunks)}.",
        )

    # -- the array ---------------------------------------------------------------------------------

    def array(self: Any, target: Any) -> None:
        chunks, chunk, k = self.slice // self.chunk, self.chunk, self.k_max

        def select(logits: Any, summary: Any, state: Any, kernels: Any, first: Any) -> None:
            begin, count, settle, collect = kernels
            begin(state)
            if chunks == 1:
                here, kept = logits.acquire(), summary.acquire()
                count(here, state)
                settle(state, kept)
                collect(here, first, state, kept)
                logits.release()
            else:
                for _ in range_(chunks):
                    count(logits.acquire(), state)
                    logits.release()
                kept = summary.acquire()
                settle(state, kept)
                for at in range_(0, chunks * chunk, chunk):
                    collect(logits.acquire(), first + at, state, kept)
                    logits.release()
            summary.release()

        def draw(summaries: Any, row: Any, record: Any, token: Any, combine: Any) -> None:
            ends = (summaries, row, record, token)
            combine(*[end.acquire() for end in ends])
            for end in ends:
                end.release()

        kernels = [
            kernels_sample.begin(),
            kernels_sample.count(self.logits.tile),
            kernels_sample.settle(k),
            kernels_sample.collect(self.logits.tile, k),
        ]
        words = kernels_sample.summary_words(k)
        joined = ObjectFifo((self.cores * words, np.int32), depth=1, name="summaries")
        if self.cores == 1:
            parts = [joined]
        else:
            offsets = range(0, self.cores * words, words)
            names = [f"summary{lane}" for lane in range(self.cores)]
            parts = joined.prod().join(offsets, [(words, np.int32)] * self.cores, depth=1, names=names)
        for lane, part in enumerate(parts):
            logits = ObjectFifo(self.logits.tile, depth=self.logits.depth, name=f"logits{lane}")
            logits.prod(tile=self.logits.lane(lane))
            state = Buffer(kernels_sample.STATE, np.int32, name=f"state{lane}")
            args = [logits.cons(), part.prod(), state, kernels, lane * self.slice]
            Worker(select, args, name=f"select{lane}")
        row = ObjectFifo(self.draws.tile, depth=1, name="draws")
        row.prod(tile=self.draws.lane(0))
        ends: list[Any] = [joined.cons(), row.cons()]
        for name in ("tokens", "token"):
            fifo = ObjectFifo(getattr(self, name).tile, depth=1, name=name)
            fifo.cons(tile=getattr(self, name).lane(0))
            ends.append(fifo.prod())
        Worker(draw, [*ends, kernels_sample.combine(self.cores, k)], name="draw")

    def sequence(self: Any, rt: Any) -> None:
        rt.preamble()
        one = Pattern.whole((1,))
        rt.drain("tokens", 0, one, wait=True, offset_by=rt.offset("at"))
        rt.drain("token", 0, one, wait=True)
        rt.fill("draws", 0, Pattern.whole((ROW_WORDS,)), offset_by=rt.offset("row"))
        for _ in range(1 if self.chunk == self.slice else 2):
            for lane in range(self.cores):
                rt.fill("logits", lane, Pattern.whole((self.slice,), lane * self.slice))

    def composed(self: Any, logits: Any, draws: Any, tokens: Any, row: int = 0, at: int = 0) -> Any:
        """Slice by slice, chunk by chunk, twice; then what draws."""
        k, kind = self.k_max, self.logits.tile
        count, collect, settle = kernels_sample.count(kind), kernels_sample.collect(kind, k), kernels_sample.settle(k)
        flat = np.asarray(logits).reshape(-1)
        kept = []
        for first in range(0, self.vocab, self.slice):
            parts = range(first, first + self.slice, self.chunk)
            state = kernels_sample.begin().reference()
            for part in parts:
                state = count.reference(flat[part : part + self.chunk], state)
            state, summary = settle.reference(state)
            for part in parts:
                summary = collect.reference(flat[part : part + self.chunk], part, state, summary)
            kept.append(summary)
        words = np.asarray(draws).reshape(-1)[row : row + ROW_WORDS]
        _, token = kernels_sample.combine(self.cores, k).reference(np.concatenate(kept), words)
        tokens = np.array(tokens)
        tokens.reshape(-1)[at] = token[0]
        return tokens, token
