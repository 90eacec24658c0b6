"""The numbers of a design's per-call words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from iron_core.array.sequence import Word
from iron_core.devices import WORD_SHIFT
from iron_core.errors import BoundsError

#: A core reads this many bits of a per-call word.
CORE_BITS = 32 - WORD_SHIFT


def number(op: Any, word: Word, members: Mapping[str, int]) -> int:
    """What a word is in a call that gives its operator's bound members these numbers. BoundsError where it does not fit."""
    found = word.form.at(members)
    if not fits(word, found, members[word.form.value]):
        refuse(type(op.base).__name__, word, found, members)
    return found


def fits(word: Word, number: int, member: int) -> bool:
    """Can an array take this number of a word, where the call gives `member` for the member it follows?"""
    if word.kind == "length":
        return number >= 1
    if word.kind == "core":
        return 0 <= number < 1 << CORE_BITS
    return member % word.every == 0


def refuse(name: str, word: Word, number: int, members: Mapping[str, int], call: Mapping[str, int] = MappingProxyType({})) -> None:
    """BoundsError: why a word's number does not fit, and what would. call: the values of the graph's call that made it."""
    by = f" ({', '.join(f'{one}={n}' for one, n in call.items())})" if call else ""
    if word.kind == "length":
        given = ", ".join(dict.fromkeys(f"{one}={n}" for one, n in (*members.items(), *call.items())))
        raise BoundsError(
            f"{name}: {word.name} is {number} ({given}); an array moves at least one tile of every stream. Legal: 1 or more."
        )
    if word.kind == "core":
        raise BoundsError(f"{name}: {word.name} is {number}{by}; a core reads {CORE_BITS} bits of a per-call word.")
    at, every = members[word.form.value], word.every
    below = at // every * every
    raise BoundsError(
        f"{name}: {word.name} is {at}{by}; an array's transfer begins at a whole 4-byte word, here at a "
        f"multiple of {every}. Nearest legal: {below} or {below + every}."
    )
