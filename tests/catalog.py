"""The operators of this repository's packs, and those of them that have an array, found by the registry."""

from __future__ import annotations

from typing import Any

from iron_core.array.build import has_array
from iron_core.declare.cases import operators
from tests.distributions import PACKS

#: But for those that are binaries of somebody else's, which no test has.
OPERATORS = tuple(cls for cls in operators(*(pack.name for pack in PACKS)) if cls.binary is None)
ARRAYS = tuple(cls for cls in OPERATORS if has_array(cls))


def named(thing: Any) -> str | None:
    """An operator class, a case, or a device in a test's id."""
    return thing if isinstance(thing, str) else getattr(thing, "__name__", None) or getattr(thing, "id", None)
