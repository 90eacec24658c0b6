"""The operators of this repository's packs, and those of them that have an array, found by the registry."""

from __future__ import annotations

from functools import cache
from typing import Any

from iron_core.array.build import has_array
from iron_core.declare.cases import cases, operators
from iron_core.errors import Unresolvable
from tests.distributions import PACKS

#: But for those that are binaries of somebody else's, which no test has.
OPERATORS = tuple(cls for cls in operators(*(pack.name for pack in PACKS)) if cls.binary is None)
ARRAYS = tuple(cls for cls in OPERATORS if has_array(cls))
#: A device of every family.
FAMILIES = ("npu1", "npu2")


@cache
def families(cls: Any) -> tuple[str, ...]:
    """Those that an operator's array is for: not one that every case is refused for, as the device that it is."""
    return tuple(dev for dev in FAMILIES if not all(_refuses(cls(**case.fields), dev) for _, case, _ in cases([cls])))


def _refuses(op: Any, dev: str) -> bool:
    try:
        op.resolved(dev)
    except Unresolvable as error:
        return str(error).startswith(f"{type(op).__name__}: dev={dev};")
    return False


#: (operator, device) of every array.
PLACES = tuple((cls, dev) for cls in ARRAYS for dev in families(cls))


def named(thing: Any) -> str | None:
    """An operator class, a case, or a device in a test's id."""
    return thing if isinstance(thing, str) else getattr(thing, "__name__", None) or getattr(thing, "id", None)
