"""`Drafts`: tokens that are read in one step at any place, with the logits of each, and may be taken back."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core.errors import UsageError


class Drafts:
    """The version of a session's decoder that reads up to `most` tokens (`Run.drafted`) behind those held.

    What is held beyond the tokens that are kept is overwritten before it is seen. UsageError for a model with states that cannot go
    back to an earlier token.
    """

    def __init__(self, session: Any) -> None:
        if session.snapshots is not None:
            raise UsageError("tokens that are guessed must be taken back, and this model's recurrent states cannot go back; guess none.")
        self.session, self.most = session, session.model.run.drafted
        if self.most > 1:
            session.compiled.add(ids=((self.most,), np.int32))

    def room(self, history: list[int], most: int) -> int:
        """How many tokens, `most` at most, may be guessed behind `history` and read with its last one; 0 where more than that one is
        to be read."""
        session, base, at = self.session, self.session.model.base, len(history) - 1
        if session.standing(history) < at:
            return 0
        session.held = history[:-1]
        return next((n for n in range(min(most, self.most - 1), 0, -1) if base(at + n) == base(at)), 0)

    def reach(self, same: int, end: int) -> bool:
        """May one step read the tokens from `same` to `end` behind those held? Caches that slide stay where they are within one."""
        base = self.session.model.base
        return self.most > 1 and 0 < same < end <= same + self.most and base(same) == base(end - 1)

    def step(self, ids: list[int], count: int) -> tuple[np.ndarray, Any]:
        """Bring the caches, which hold what is before the last `count` of `ids`, to hold these, in one step; float32 (count, vocab), the
        logits after each, and what is carried."""
        session, model, end = self.session, self.session.model, len(ids)
        first = min(end - count, model.latest(end - 1))
        row = np.zeros(self.most, np.int32)
        row[: end - first] = ids[first:]
        session.held = ids[: end - count]
        session.slide_to(first)
        logits, carried = session.compiled(row, token=0, chunk=first, rows=end - first, **model.where(end - 1, first))
        session.held = ids
        return logits[end - first - count : end - first], carried
