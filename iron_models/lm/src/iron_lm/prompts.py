"""`Prompts`: several prompts given together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

#: Texts, or token ids. A sequence of ids alone is one prompt, as is a text.
Prompts: TypeAlias = "list[str] | list[Sequence[int]] | list[str | Sequence[int]] | tuple[str | Sequence[int], ...]"


def are_several(prompt: Any) -> bool:
    """Is it prompts, and not one?"""
    return not isinstance(prompt, str) and isinstance(prompt, Sequence) and any(isinstance(each, Sequence) for each in prompt)
