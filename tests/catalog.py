"""The operators of this repository's packs, and those of them that have an array, found by the registry."""

from __future__ import annotations

from typing import Any

from iron_core.array.build import has_array
from iron_core.declare.cases import operators
from tests.distributions import PACKS

OPERATORS = tuple(operators(*(pack.name for pack in PACKS)))
ARRAYS = tuple(cls for cls in OPERATORS if has_array(cls))


def named(thing: Any) -> str | None:
    """An operator class, a case, or a device in a test's id."""
    return thing if isinstance(thing, str) else getattr(thing, "__name__", None) or getattr(thing, "id", None)
