"""What a search chose, as entries of a profile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from iron_core.cache.keylock import locked
from iron_core.declare.field import AutoField, DTypeField
from iron_core.declare.profile import LOWERING, Profile
from iron_core.devices import Device
from iron_core.files import writable
from iron_tuner.settings import Variant


def matched(op: Any) -> dict[str, Any]:
    """The fields an entry of an operator is keyed by: those a shape or a call gives, whole numbers and dtypes also where they are at
    their plain default. What other fields make by a rule is left out, for nothing is known of it when a profile is asked."""
    found = {}
    for name, field in op.fields.items():
        if isinstance(field, AutoField):
            continue
        value = getattr(op, name)
        plain = not field.required and not field.computed and field.convert(field.default) == value
        counted = isinstance(field, DTypeField) or (type(value) is int)
        if field.required or (plain and counted) or (not plain and name in op._given):
            found[name] = value
    return found


def add(profile: Profile, variant: Variant, backend: str) -> None:
    """An entry for a setting: its operator's shape, and what it gives. A setting with nothing to choose makes none."""
    base = variant.op.base
    given = {f"{backend}.{name}" if variant.lowered else name: value for name, value in variant.tunables.items()}
    if given and variant.distribution:
        given[f"{backend}.{LOWERING}"] = variant.distribution
    if given:
        match = matched(base)
        profile.entries = [one for one in profile.entries if (one.operator, one.match) != (type(base), match)]
        profile.add(type(base), **match, **given)


def opened(folder: str | os.PathLike[str], dev: Device) -> Path:
    """The file of a device's profile in a folder, which is made. OSError where it could not be written, ParamError where what is there is
    no profile."""
    path = Path(folder) / f"{dev.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    writable(path)
    if path.exists():
        Profile.load(path)
    return path


def merged(folder: str | os.PathLike[str], dev: Device, variants: Iterable[Variant], backend: str) -> Path:
    """Write settings into `<folder>/<device>.json`, in the place of entries for the same shapes; the others stay, those too that another
    tuner writes meanwhile. Errors as `opened`."""
    path = opened(folder, dev)
    with locked(path.parent, path.name):
        profile = Profile.load(path) if path.exists() else Profile()
        for one in variants:
            add(profile, one, backend)
        profile.save(path)
    return path
