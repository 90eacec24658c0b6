"""Search over the settings of operators, by what a backend measures. Names load on first use: iron_core works without this package."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import _iron_start

_iron_start.check()

_WHERE: dict[str, str] = {
    "CostTable": "cost_table",
    "JointNarrowing": "narrowing",
    "NarrowingKinds": "kinds",
    "Tuning": "tuning",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'iron_tuner' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"iron_tuner.{_WHERE[name]}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
