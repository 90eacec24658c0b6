"""`carry()`: the values a graph computes for its own next call."""

from __future__ import annotations

from typing import Any


class Carry:
    """What `carry()` returns; the last thing a body returns."""

    def __init__(self, sources: dict[str, Any]) -> None:
        self.sources = sources


def carry(**sources: Any) -> Carry:
    """The next number of each carried value, by name: a one-element integer handle, or an expression of per-call values.

    Return it last: `return logits, iron.carry(token=drawn, position=position + 1)`.
    """
    return Carry(sources)
