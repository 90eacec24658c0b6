"""When a buffer of a run holds something: from the first step that touches it to the last."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

Name = TypeVar("Name", bound=Hashable)


@attrs.frozen
class Lifetime:
    """A buffer's bytes and the steps, first to last inclusive, during which no other buffer may have them."""

    name: Hashable
    nbytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Are both live during some step?"""
        return self.first <= other.last and other.first <= self.last


def lifetimes(
    sizes: Mapping[Name, int], touches: Sequence[Iterable[Name]], kept: Iterable[Name] = ()
) -> list[Lifetime]:
    """Lifetimes of the buffers in `sizes` (name -> bytes).

    `touches` names, per step, the buffers it reads or writes; others it may name are ignored. A buffer in
    `kept` is read after the run, so it stays to the end. One that no step touches is live throughout:
    nothing says when its bytes could serve another.
    """
    first: dict[Name, int] = {}
    last: dict[Name, int] = {}
    for index, names in enumerate(touches):
        for name in names:
            if name in sizes:
                first.setdefault(name, index)
                last[name] = index
    end = max(len(touches) - 1, 0)
    for name in kept:
        if name in last:
            last[name] = end
    return [Lifetime(name, nbytes, first.get(name, 0), last.get(name, end)) for name, nbytes in sizes.items()]
