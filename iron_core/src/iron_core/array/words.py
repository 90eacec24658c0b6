"""The numbers of a design's per-call words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.array.sequence import Word
from iron_core.devices import WORD_SHIFT
from iron_core.errors import BoundsError

#: A core reads this many bits of a per-call word.
CORE_BITS = 32 - WORD_SHIFT


def number(op: Any, word: Word, members: Mapping[str, int]) -> int:
    """What a word is in a call that gives its operator's bound members these numbers. BoundsError where it does not fit."""
    kind, *rest = word.source
    if kind == "member":
        value = int(members[str(rest[0])])
        if len(rest) > 1:
            value = _whole(op, word, value, *(int(n) for n in rest[1:]))
    elif kind == "tiles":
        value = -(-int(members[str(rest[0])]) // int(rest[1]))
    else:
        value = int(getattr(op.bounded(**op.limits(members)), str(rest[0])))
    if word.kind == "length" and value < 1:
        given = ", ".join(f"{name}={n}" for name, n in members.items())
        raise BoundsError(
            f"{type(op.base).__name__}: {word.name} is {value} ({given}); an array moves at least one tile of every stream. "
            "Legal: 1 or more."
        )
    if word.kind == "core" and not 0 <= value < 1 << CORE_BITS:
        raise BoundsError(f"{type(op.base).__name__}: {word.name} is {value}; a core reads {CORE_BITS} bits of a per-call word.")
    return value


def _whole(op: Any, word: Word, value: int, step: int, group: int, each: int) -> int:
    """`value` elements in groups of `group` as groups of `each`, if that is a multiple of `step`."""
    if value % group or value // group * each % step:
        every = next(n for n in range(group, group * step + 1, group) if n // group * each % step == 0)
        below = value // every * every
        raise BoundsError(
            f"{type(op.base).__name__}: {word.name} is {value}; an array's transfer begins at a whole 4-byte word, here at a "
            f"multiple of {every}. Nearest legal: {below} or {below + every}."
        )
    return value // group * each
