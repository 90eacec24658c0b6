"""Tunables of a step as pictures show them: what they are, and which were moved away from what the operator would choose."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.devices import Device
from iron_core.errors import IronError


@attrs.frozen
class Moved:
    """A tunable with another value than the operator chooses by itself. by: "profile", or "given"."""

    name: str
    value: Any
    default: Any
    by: str

    def __str__(self) -> str:
        return f"{self.name}={shown(self.value)}, not {shown(self.default)} ({'a profile' if self.by == 'profile' else 'given'})"


def shown(value: Any) -> str:
    return str(getattr(value, "name", value))


def tunables(op: Any) -> tuple[tuple[str, Any], ...]:
    """Name and value of each tunable of a resolved operator, but for those that are always derived."""
    base = op.base
    return tuple((name, getattr(base, name)) for name in base.autos() if not base.fields[name].derived)


def moved(op: Any, dev: Device) -> tuple[Moved, ...]:
    """Those of a resolved operator that a call or a profile gave and that `resolve()` would have chosen otherwise."""
    base = op.base
    given = [name for name in base.autos() if name in base.pinned]
    if not given:
        return ()
    try:
        own = op.with_tunables(**dict.fromkeys(name for name, _ in tunables(op))).resolved(dev).base
    except IronError:  # it takes what was given alone
        return ()
    pairs = ((name, getattr(base, name), getattr(own, name)) for name in given)
    return tuple(Moved(name, a, b, "profile" if name in base.profiled else "given") for name, a, b in pairs if a != b)
