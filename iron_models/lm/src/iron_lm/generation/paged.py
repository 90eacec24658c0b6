"""`PagedModel`: a decoder that reads tokens of many sequences in one pass over its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from iron_core.errors import BoundsError, UsageError
from iron_core.turn import Turn
from iron_lm.generation.pages import ROWS
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.paged_decoder import PagedDecoder


@attrs.frozen
class Span:
    """Consecutive tokens of one sequence in a pass: `ids`, at positions `first`, first + 1, ...; pages: the numbers of its pages from
    position 0 on, as `pages.Table` has them, with places for all of these tokens."""

    ids: Sequence[int]
    first: int
    pages: Sequence[int]


class PagedModel:
    """A decoder compiled over `pages` pages of `page` tokens, for passes of up to `sequences` spans and `rows` tokens in all.

    What is in which page is the caller's to know (`pages.Pages`). The weights are the model's, which a `Session` may run besides. Logits
    are those of a `Session` for each sequence alone, bit for bit, whatever spans run with it.
    """

    page = ROWS

    def __init__(self, model: Decoder, *, pages: int, sequences: int, **options: Any) -> None:
        """options: of `Graph.compile`. UsageError for a number below 1, and for a model with recurrent states."""
        for keyword, value in (("pages", pages), ("sequences", sequences)):
            if value < 1:
                raise UsageError(f"PagedModel: {keyword}={value}; legal: 1 or more.")
        self.pages, self.sequences = pages, sequences
        learned = model.run.max_seq_len if model.positions is None else model.positions.embedding.config.vocab_size
        self.vocab_size, self.max_seq_len = model.vocab_size, min(model.run.max_seq_len, learned)
        self.rows = max(model.run.prefill_chunk, sequences)
        self._most = -(-self.max_seq_len // self.page)
        self.compiled = PagedDecoder(model, pages, self.page, sequences).compile(**options)
        self._versions = sorted({1, self.rows})
        for n in self._versions:
            rows = ((n,), np.int32)
            self.compiled.add(ids=rows, at=rows, owner=rows, tables=((sequences, self._most), np.int32), places=rows, slots=rows)
        # A pass is told by the same arrays each time: where they lie has to be said once. What is beyond its rows and spans is not read.
        self._rows = {n: np.zeros((5, n), np.int32) for n in self._versions}
        self._tables = np.zeros((sequences, self._most), np.int32)
        self._turn = Turn(f"passes of {type(model).__name__}")

    def load(self) -> None:
        """Be ready for the first pass."""
        self.compiled.load()

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Whole pages (from, to) of every layer's keys and values, one pair after another."""
        for source, target in pairs:
            self._check_pages((source, target))
            self.compiled(rows=0, spans=0, source=source, target=target)

    def read(self, spans: Sequence[Span]) -> np.ndarray:
        """float32 (spans, vocab): the logits after each span's last token. Keys and values of all tokens are then in their pages.

        BoundsError for too many spans or tokens, for a span without tokens, for a position behind `max_seq_len`, and for an id or a page
        that there is not.
        """
        count, page = self._checked(spans), self.page
        n = next(n for n in self._versions if n >= count)
        ids, at, owner, places, slots = list[int](), list[int](), list[int](), list[int](), list[int]()
        for whose, span in enumerate(spans):
            positions = range(span.first, span.first + len(span.ids))
            ids += span.ids
            at += positions
            owner += [whose] * len(positions)
            places += [span.pages[position // page] * page + position % page for position in positions]
            slots += [self.sequences] * (len(positions) - 1) + [whose]
        with self._turn:
            rows, tables = self._rows[n], self._tables
            rows[:, :count] = ids, at, owner, places, slots
            for whose, span in enumerate(spans):
                tables[whose, : len(span.pages)] = span.pages
            logits = self.compiled(*rows[:3], tables, *rows[3:], rows=count, spans=len(spans), source=0, target=0)
        return np.asarray(logits)

    def _checked(self, spans: Sequence[Span]) -> int:
        """How many tokens the spans have in all."""
        rows = sum(len(span.ids) for span in spans)
        if not 1 <= len(spans) <= self.sequences or rows > self.rows:
            most = f"1 to {self.sequences} spans of {self.rows} tokens in all"
            raise BoundsError(f"PagedModel.read: {len(spans)} spans of {rows} tokens; legal: {most}.")
        for number, span in enumerate(spans):
            end = span.first + len(span.ids)
            if not 0 <= span.first < end <= self.max_seq_len:
                legal = f"one or more, from 0 up to max_seq_len={self.max_seq_len}"
                raise BoundsError(f"PagedModel.read: span {number} has tokens {span.first} to {end - 1}; legal: {legal}.")
            if not -(-end // self.page) <= len(span.pages) <= self._most:
                legal = f"{-(-end // self.page)} to {self._most}, each with {self.page} tokens"
                raise BoundsError(f"PagedModel.read: span {number} ends at {end - 1} and has {len(span.pages)} pages; legal: {legal}.")
            if not 0 <= min(span.ids) <= max(span.ids) < self.vocab_size:
                bad = next(i for i in span.ids if not 0 <= i < self.vocab_size)
                raise BoundsError(f"token {bad} is outside the vocabulary; legal: 0 to {self.vocab_size - 1}.")
            self._check_pages(span.pages)
        return rows

    def _check_pages(self, pages: Sequence[int]) -> None:
        if not 0 <= min(pages) <= max(pages) < self.pages:
            bad = next(i for i in pages if not 0 <= i < self.pages)
            raise BoundsError(f"PagedModel: page {bad}; legal: 0 to {self.pages - 1}.")
