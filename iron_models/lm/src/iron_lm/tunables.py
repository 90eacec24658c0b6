"""The tunables of a family's models: a profile for each family of devices, beside the family's own code."""

from __future__ import annotations

from importlib import resources

from iron_core import Backend, Profile
from iron_core.backends.choose import choose
from iron_core.declare.profile import active_profile
from iron_core.devices import Device, device
from iron_lm.architecture import Architecture


def tuned(family: type[Architecture], backend: str | Backend | None, dev: str | None) -> Profile:
    """`profile_of` the device that is chosen."""
    return profile_of(family, device(choose(backend, dev).dev))


def profile_of(family: type[Architecture], dev: Device) -> Profile:
    """That of `profiles/<device family>.json` in the family's package, empty where it has none; but one that is active already
    stays the one. ParamError or CallError, with the file's name, for what is no profile."""
    active = active_profile()
    if active is not None:
        return active
    try:
        found = resources.files(family.__module__.partition(".")[0]) / "profiles" / f"{dev.family}.json"
    except (AttributeError, ImportError, TypeError, ValueError):  # a script's or a prompt's own family
        return Profile()
    if not found.is_file():
        return Profile()
    with resources.as_file(found) as path:
        return Profile.load(path)
