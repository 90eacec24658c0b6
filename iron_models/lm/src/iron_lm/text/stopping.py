"""Stop strings: text that ends an answer, and is not part of it, however tokens cut it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iron_core.errors import UsageError, printable


class StopStrings:
    """Takes an answer piece by piece, and gives what may be shown: never the start of what may yet be a stop string."""

    def __init__(self, strings: Sequence[str] = ()) -> None:
        self.strings = tuple(s for s in strings if s)
        self._held = ""
        self.ended = False

    def feed(self, piece: str) -> str:
        """What of the text so far is new and certain. After a stop string `ended` is True and nothing more comes."""
        if self.ended:
            return ""
        text = self._held + piece
        places = [(text.find(s), s) for s in self.strings if s in text]
        if places:
            self.ended = True
            self._held = ""
            return text[: min(places)[0]]
        keep = max((n for s in self.strings for n in range(1, len(s)) if text.endswith(s[:n])), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """What was held back and turned out to be no stop string."""
        held, self._held = self._held, ""
        return held


def stop_texts(name: str, stop: Any) -> tuple[str, ...]:
    """What ends an answer, as several texts. UsageError for what is none; name: of the call, for the message."""
    texts = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, Sequence) else (stop,)
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name}: stop={printable(repr(stop), 60)}; legal: a text, or a sequence of texts.")
    return texts
