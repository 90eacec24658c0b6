"""`Batch`: requests side by side, each answered as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from iron_core.errors import CallError, UsageError
from iron_core.turn import Turn
from iron_lm.finite import not_finite
from iron_lm.generation.pages import Pages
from iron_lm.generation.request import Request
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import shared
from iron_lm.generation.token_ids import token_ids

if TYPE_CHECKING:
    from iron_lm.generation.grammar import Constraint
    from iron_lm.generation.paged import Span


class PagedModel(Protocol):
    """A model over `pages` pages of `page` rows of keys and values; a pass has at most `rows` tokens, of at most `sequences` spans."""

    @property
    def page(self) -> int: ...
    @property
    def pages(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def sequences(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def max_seq_len(self) -> int: ...

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Whole pages (from, to)."""

    def read(self, spans: Sequence[Span]) -> np.ndarray:
        """float32 (len(spans), vocab): the logits after each span's last token."""


class Batch:
    """Each answer is, token by token, what `Session.generate` gives to that request alone, whatever runs beside it.

    A pass first has a row for each sequence that goes on, then rows of prompts, the older first. What prompts share is computed once:
    a newer one waits while an older one computes it. Where pages are short a newer request waits for older ones to end, or lets go of
    its pages and runs again later. Logits that are not finite end their own request alone, and nobody goes on from its pages.

    Threads may share it; callbacks may submit and cancel.
    """

    def __init__(self, model: PagedModel) -> None:
        self.model = model
        self.computed = 0  # tokens so far, what was shared once
        self._pages = Pages(model.pages, model.page)
        self._requests: list[Request] = []  # that have not ended, the oldest first
        self._turn = Turn(f"a batch of {type(model).__name__}")

    def submit(
        self,
        ids: Sequence[int],
        count: int,
        sampler: Sampler | None = None,
        on_token: Callable[[int], bool] | None = None,
        stop: Sequence[int] = (),
        constraint: Constraint | None = None,
    ) -> Request:
        """Ask for up to `count` tokens after `ids`, as `Session.generate` takes them; an error of `on_token` is the request's own.

        UsageError for what fits neither max_seq_len nor the pages, however long it waits.
        """
        ids, sampler = token_ids(ids, self.model.vocab_size), sampler or Sampler()
        self._check(len(ids), count)
        sampler.check(self.model.vocab_size)
        request = Request(self, ids, count, sampler, on_token, stop, constraint)
        if count < 1 or (constraint is not None and constraint.ended):
            request.ended = True
            return request
        with self._turn:
            request.common = {older: shared(older.ids, ids) for older in self._requests}
            self._requests.append(request)
        return request

    def step(self) -> bool:
        """One pass over the weights; are there requests left? CallError inside a callback of the same batch."""
        with self._turn:
            if self._turn.busy:
                raise CallError("Batch.step() inside a callback of the same batch; legal there: submit() and cancel().")
            self._turn.busy = True
            try:
                self._pass()
            except BaseException:
                # Some rows are written and some are not: all run again from pages that are known to be whole.
                for request in self._running():
                    self._let_go(request)
                raise
            finally:
                self._turn.busy = False
            return bool(self._requests)

    def run(self) -> None:
        """Answer all requests."""
        while self.step():
            pass

    def cancel(self, request: Request) -> None:
        """As `Request.cancel`."""
        with self._turn:
            self._end(request)

    # -- a pass ----------------------------------------------------------------------------------

    def _pass(self) -> None:
        self._admit()
        first = self._place()
        if not first:
            return
        for request in first:
            if not request.pending:
                request.look()
        spans = [_span(request, at) for request, at in first.items()]
        for (request, at), span, logits in zip(first.items(), spans, self.model.read(spans), strict=True):
            self.computed += len(span.ids)
            if not request.ended:  # by a callback of one before it
                self._take(request, at, logits)

    def _admit(self) -> None:
        """Requests that wait begin to run, the older first, as far as there are rows, spans and pages."""
        running = self._running()
        rows, spans = self.model.rows - sum(r.pending for r in running), min(self.model.rows, self.model.sequences) - len(running)
        for request in self._requests:
            if rows < 1 or spans < 1:
                return
            if request.table is not None or self._waits(request):
                continue
            table = self._pages.open(request.history)
            source, same = max(((r, self._forkable(request, r)) for r in running), key=lambda pair: pair[1], default=(None, 0))
            if source is not None and source.table is not None and same > table.length:
                self._pages.close(table)
                table = self._pages.fork(source.table, same)
            more = -(-len(request.history) // self.model.page) - len(table.pages) + bool(table.length % self.model.page)
            if more > self._pages.available:
                self._pages.close(table)
                return  # the newer ones wait too, so that it is not overtaken for ever
            request.table, request.sound = table, True
            running.append(request)
            rows, spans = rows - request.pending, spans - 1

    def _waits(self, request: Request) -> bool:
        """Is an older request about to compute a page of what this one would, or half of that?"""
        have = None
        for older, common in request.common.items():
            common = min(common, len(request.history) - 1)
            if older.computed < common and older.sound:
                if have is None:
                    table = self._pages.open(request.history)
                    have = table.length
                    self._pages.close(table)
                have = max(have, self._forkable(request, older))
                if common - have >= min(self.model.page, (len(request.history) - have + 1) // 2):
                    return True
        return False

    @staticmethod
    def _forkable(request: Request, other: Request) -> int:
        """How many tokens' rows of another one's are this one's too; a token at least is left to run."""
        common = request.common.get(other, 0) or other.common.get(request, 0)
        return min(common, other.computed, len(request.history) - 1) if other.sound else 0

    def _place(self) -> dict[Request, int]:
        """Places for the rows of a pass: whose, and at which position they begin."""
        first: dict[Request, int] = {}
        left = self.model.rows
        for request in sorted(self._running(), key=lambda r: r.pending > 1):
            at, count = request.computed, min(request.pending, left)
            if request.table is not None and count and self._append(request, request.history[at : at + count], first):
                first[request] = at
                left -= count
        return first

    def _append(self, request: Request, tokens: Sequence[int], first: dict[Request, int]) -> bool:
        """Places for more tokens of a request. Where no page is left the newest lets go of its own; False if that is this one."""
        for token in tokens:
            assert request.table is not None
            while (place := self._pages.append(request.table, token)) is None:
                newest = self._running()[-1]
                self._let_go(newest)
                first.pop(newest, None)
                if newest is request:
                    return False
            if place[1] is not None:
                self.model.copy([place[1]])  # before another may write to either
        return True

    def _take(self, request: Request, at: int, logits: np.ndarray) -> None:
        """Its rows from position `at` on are computed."""
        assert request.table is not None
        finite = bool(np.isfinite(logits).all())
        request.sound = request.sound and finite
        if request.sound and request.computed // self.model.page > at // self.model.page:
            self._pages.written(request.table)
        if request.pending:
            return
        if not finite:
            self._end(request, not_finite("the logits are"))
            return
        try:
            last = request.choose(logits)
        except Exception as error:
            self._end(request, error)
            return
        if last:
            self._end(request)

    # -- what runs -------------------------------------------------------------------------------

    def _running(self) -> list[Request]:
        return [request for request in self._requests if request.table is not None]

    def _let_go(self, request: Request) -> None:
        """It does not run; what it computed may be found again as long as nobody wants the place."""
        if request.table is not None:
            self._pages.close(request.table)
            request.table = None

    def _end(self, request: Request, error: Exception | None = None) -> None:
        if request.ended:
            return
        self._let_go(request)
        request.ended, request.error = True, error
        self._requests.remove(request)
        request.common.clear()
        for other in self._requests:
            other.common.pop(request, None)

    def _check(self, length: int, count: int) -> None:
        most, page, pages = self.model.max_seq_len, self.model.page, self.model.pages
        if length + count > most:
            raise UsageError(
                f"the prompt has {length} tokens and num_tokens={count}: together over max_seq_len={most}. "
                f"Legal: num_tokens up to {max(0, most - length)}, or a larger --max-seq-len."
            )
        if count >= 1 and not length:
            raise UsageError(f"a prompt of 0 tokens; legal: 1 to max_seq_len={most}.")
        if length + count - 1 > page * pages:  # the last token is not run
            raise UsageError(
                f"the prompt has {length} tokens and num_tokens={count}: together over the {page * pages} that {pages} pages of {page} "
                f"rows hold. Legal: num_tokens up to {max(0, page * pages + 1 - length)}, or more pages."
            )


def _span(request: Request, at: int) -> Span:
    """Its tokens from a position on that have places."""
    from iron_lm.generation.paged import Span

    assert request.table is not None
    return Span(request.history[at : request.computed], at, list(request.table.pages))
