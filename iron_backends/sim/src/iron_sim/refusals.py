"""Why arrays were refused: messages without their values are rules, and rules are counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

#: A field's value, as far as the punctuation behind it; what else is a number; a device.
_VALUE = re.compile(r"(?<==)[^=\s]+?(?=[,;:.)]*(\s|$))")
_NUMBER = re.compile(r"\b\d+(\.\d+)?\b")
_DEVICE = re.compile(r"\bnpu\d\w*")


def rule(message: str) -> str:
    """The rule that a refusal names: its message without the operator, the values, and what would be legal instead."""
    said = message.partition(": ")[2] or message
    said = re.split(r"\s(?:Nearest legal|Legal)\b", said, maxsplit=1)[0]
    return _NUMBER.sub("N", _DEVICE.sub("DEV", _VALUE.sub("..", said)))


def by_rule(messages: Iterable[str]) -> dict[str, int]:
    """How many refusals each rule made, the most first."""
    return dict(Counter(map(rule, messages)).most_common())
