"""`Answer`: the text of an answer, from its tokens as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iron_lm.text.stopping import StopStrings


class Answer:
    """Takes tokens one by one and gives what may be shown of their text, up to the first of the stop strings.

    stream: `Tokenizer.stream()`, or `Numbers()`.
    """

    def __init__(self, stream: Any, stop: Sequence[str] = ()) -> None:
        self.stream, self._stops = stream, StopStrings(stop)

    def __call__(self, token: int) -> str:
        return self._stops.feed(self.stream(token))

    @property
    def ended(self) -> bool:
        """Did a stop string come?"""
        return self._stops.ended

    def rest(self) -> str:
        """What was held back, for a character that is not whole or what might have become a stop string."""
        return self._stops.feed(self.stream.rest()) + self._stops.rest()


class Numbers:
    """The stream of a model that has no tokenizer: ids, each with a space behind it."""

    def __call__(self, token: int) -> str:
        return f"{token} "

    def rest(self) -> str:
        return ""
