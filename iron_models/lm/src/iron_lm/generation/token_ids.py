"""`token_ids`: what is given as ids of a vocabulary, as a list of them."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from iron_core.errors import BoundsError, CallError, printable


def token_ids(given: Sequence[int], vocab_size: int) -> list[int]:
    """CallError for what is no whole number, BoundsError for one outside the vocabulary."""
    try:
        found = list(map(operator.index, given))
    except TypeError:
        raise CallError(f"token ids {printable(repr(given), 60)}; legal: whole numbers, 0 to {vocab_size - 1}.") from None
    if found and not 0 <= min(found) <= max(found) < vocab_size:
        bad = next(i for i in found if not 0 <= i < vocab_size)
        raise BoundsError(f"token {bad} is outside the vocabulary; legal: 0 to {vocab_size - 1}.")
    return found
