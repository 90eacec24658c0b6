"""`Request`: a prompt beside others, and the answer to it as far as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from iron_lm.generation.pages import Table
from iron_lm.generation.sampler import Sampler

if TYPE_CHECKING:
    from iron_lm.generation.grammar import Constraint


class Request:
    """`Batch.submit` makes it. `answer`: the tokens so far; `ended`: there will be no more; `error`: what ended it, if something did."""

    def __init__(
        self,
        batch: Any,  # the `Batch` that holds it
        ids: list[int],
        count: int,
        sampler: Sampler,
        on_token: Callable[[int], bool] | None,
        stop: Sequence[int],
        constraint: Constraint | None,
    ) -> None:
        self.ids, self.count, self.constraint = ids, count, constraint
        self.answer: list[int] = []
        self.ended = False
        self.error: Exception | None = None
        #: Prompt and answer; and which of them have their keys and values in pages. None: it does not run now.
        self.history = list(ids)
        self.table: Table | None = None
        #: May others go on from what it computed? Not behind logits that were not finite.
        self.sound = True
        #: How many leading tokens its prompt shares with those of older requests that have not ended.
        self.common: dict[Request, int] = {}
        self._batch, self._on_token, self._stop = batch, on_token, frozenset(stop)
        self._greedy, self._choose = sampler.greedy, sampler.chooser(batch.model.max_seq_len)

    @property
    def computed(self) -> int:
        return 0 if self.table is None else self.table.length

    @property
    def pending(self) -> int:
        """How many of its tokens are to be run before the next can be chosen."""
        return len(self.history) - self.computed

    def look(self) -> None:
        """Begin to find out what may come next, beside the graph."""
        if self.constraint is not None and not self._greedy:
            self.constraint.look()

    def choose(self, logits: np.ndarray) -> bool:
        """Go on with the next token, by the finite logits (vocab,) after all so far. Was that the last one?"""
        held, token = self.constraint, None
        if held is not None and self._greedy and held.sure(likeliest := int(logits.argmax())):
            token = likeliest
        if token is None:
            allowed = None if held is None else held.allowed()
            token = self._choose(logits, len(self.history) - 1, self.history, allowed)
        if held is not None:
            held.take(token)
        if token in self._stop:
            return True
        self.answer.append(token)
        self.history.append(token)
        said = self._on_token is not None and bool(self._on_token(token))
        return said or len(self.answer) == self.count or (held is not None and held.ended)

    def cancel(self) -> None:
        """End it with what there is; its pages are others'. Nothing, where it has ended."""
        self._batch.cancel(self)

    def tokens(self) -> Iterator[int]:
        """The answer's tokens, each as soon as there is one; all requests go on meanwhile. Its error is raised after them. An
        iterator that is left early cancels the request."""
        at = 0
        try:
            while True:
                while at < len(self.answer):
                    at += 1
                    yield self.answer[at - 1]
                if self.ended:
                    break
                self._batch.step()
        finally:
            self.cancel()
        if self.error is not None:
            raise self.error

    def result(self) -> list[int]:
        """The whole answer; its error is raised."""
        return list(self.tokens())
