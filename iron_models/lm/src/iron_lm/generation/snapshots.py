"""`Snapshots`: copies of states that cannot go back, as they were where chunks begin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Bytes of copies that a session keeps at most; one is kept however large it is.
MOST = 256_000_000


class Snapshots:
    """Of the states of a compiled graph: `at` is how many tokens they hold, None where that is not known.

    Copies of more than `most` bytes are thinned out: the one goes whose neighbours lie closest to one another, so that what has to
    run again stays short however far back a prompt goes. It goes before the new one is made: no more are ever held.
    Counted are the prompts that went on from a copy (`restored`), those that kept tokens and found no copy (`reruns`), and the tokens
    kept that ran again for either (`again`).
    """

    def __init__(self, compiled: Any, states: Sequence[Any], most: int = MOST) -> None:
        self.compiled, self.states = compiled, list(states)
        self.each = sum(state.format.nbytes(state.shape) for state in self.states)
        self._room = max(1, most // max(1, self.each))
        self._copies: dict[int, list[np.ndarray]] = {}
        self.at: int | None = 0
        self.restored = self.reruns = self.again = 0

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of tokens of which there is a copy, rising."""
        return tuple(sorted(self._copies))

    def keep(self, position: int) -> None:
        """Copy the states, where they hold `position` tokens."""
        if self.at != position or not position or position in self._copies:
            return
        if len(self._copies) == self._room:
            ends = [0, *sorted([*self.kept, position]), math.inf]
            del self._copies[min(self.kept, key=lambda p: ends[ends.index(p) + 1] - ends[ends.index(p) - 1])]
        self._copies[position] = [self.compiled.read(state) for state in self.states]

    def forget(self, position: int) -> None:
        """Drop copies of more tokens than these, of another history from here on."""
        for kept in self.kept:
            if kept > position:
                del self._copies[kept]

    @property
    def copies(self) -> dict[int, list[np.ndarray]]:
        """Every copy, one for each of the states, by how many tokens it is of."""
        return dict(self._copies)

    def become(self, at: int | None, copies: Mapping[int, list[np.ndarray]]) -> None:
        """Know of these states and copies from now on: those of another session of the same graph."""
        self.at, self._copies = at, dict(copies)

    def back(self, position: int, kept: int = 0) -> int:
        """Put the states back to the most tokens, up to `position`, that there is a copy of; how many these are. 0: a sequence begins
        anew, whatever the states hold. They stay as they are where they hold `position` tokens. kept: of the tokens that they held, how
        many the next ones begin with."""
        if self.at == position:
            return position
        to, self.at = max((copied for copied in self.kept if copied <= position), default=0), None
        for state, copy in zip(self.states, self._copies.get(to, ()), strict=False):
            self.compiled.write(state, copy)
        self.at = to
        if kept:
            self.restored, self.reruns, self.again = self.restored + (to > 0), self.reruns + (to == 0), self.again + kept - to
        return to

    def line(self) -> str:
        """For people."""
        places = [*map(str, self.kept)]
        if len(places) > 6:
            places[2:-2] = ["..."]
        at = f" (at {', '.join(places)} tokens)" if places else ""
        return (
            f"states that cannot go back: {len(self.kept)} of at most {self._room} checkpoints{at}, {self.each / 1e6:.1f} MB each; prompts "
            f"that went on from a checkpoint: {self.restored}, by a rerun from the start: {self.reruns}; tokens kept that ran again: "
            f"{self.again}"
        )
