"""Which backend runs a graph: the argument, then `IRON_BACKEND`, then the first available of npu and host.

`reference` and `null` are built in and chosen only by name; every other backend is an entry point of
`iron.backends.v1`. A choice carries the sentences that explain it.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import attrs

from iron_core.backends.protocol import Available, Backend, Examining, Finding, TakesDevices, Unavailable, check_options
from iron_core.devices import DEVICES, Device, current_device, device, device_name
from iron_core.errors import BackendUnavailable, CallError, IronError, PluginError, UnknownName, UnsupportedError, sentence
from iron_core.plugins import foreign
from iron_core.plugins.record import Record
from iron_core.plugins.registry import labelled, registry, wrong_answer
from iron_core.turn import Turn

GROUP = "iron.backends.v1"

#: Backends of iron_core itself.
BUILT_IN = {
    "reference": "iron_core.backends.reference:ReferenceBackend",
    "null": "iron_core.backends.null:NullBackend",
}

#: Looked at first, in this order, when nobody says which.
DEFAULT_ORDER = ("npu", "host")


@attrs.frozen
class Choice:
    """A backend, the device it is to run for, and why these two."""

    backend: Backend
    dev: str
    reasons: tuple[str, ...]


def names() -> tuple[str, ...]:
    """Every backend that can be asked for by name, without importing any."""
    return (*sorted(set(registry().names(GROUP)) - set(BUILT_IN)), *BUILT_IN)


#: The backends that names mean, each made from its class once: not every class compares by value.
_made: dict[type, Backend] = {}
_making = Turn("making backends")


def _only(cls: type, make: Callable[[], Backend]) -> Backend:
    with _making:
        if cls not in _made:
            _made[cls] = make()
        return _made[cls]


@cache
def _built_in(name: str) -> type:
    module, _, attribute = BUILT_IN[name].partition(":")
    return getattr(import_module(module), attribute)


def get(name: str, **options: Any) -> Backend:
    """The backend of this name (or `distribution:name`), whether it can run here or not: with its defaults, the same object
    every time, or with these options. UnknownName lists what is installed, PluginError says why it cannot be made, CallError
    names an option that it does not have."""
    if name in BUILT_IN:
        cls = _built_in(name)
        check_options(name, cls, options)
        return _only(cls, cls)
    record = registry().loaded(GROUP, name)
    if record is None:
        near = difflib.get_close_matches(name, names(), 1)
        hint = registry().absent("backends", name) or (f" Did you mean {near[0]}?" if near else "")
        raise UnknownName(f"backend={name!r}: no installed distribution provides it.{hint} Known: {', '.join(names())}.")
    check_options(name, record.object, options)
    if options or not isinstance(record.object, type):
        return _make(record, options)
    return _only(record.object, lambda: _make(record, {}))


def _make(record: Record, options: Mapping[str, Any]) -> Backend:
    """A record's backend, with a name and a preference that fit."""
    try:
        with foreign.guarded():
            made = record.object(**options) if isinstance(record.object, type) else record.object
            name, preference = getattr(made, "name", None), getattr(made, "preference", None)
    except foreign.Raised as raised:
        if options and isinstance(raised.error, IronError):
            raise raised.error from None
        raise PluginError(f"backend `{record.name}` of {record.origin} cannot be made: {raised}.") from raised.error
    if name != record.name:  # lowerings and cache entries are found by it
        raise PluginError(
            f"backend `{record.name}` of {record.origin}: its name is {foreign.kind_of(name)}; legal: {record.name!r}, its entry point's."
        )
    if preference is not None and type(preference) is not int:
        raise PluginError(
            f"backend `{record.name}` of {record.origin}: its preference is {foreign.kind_of(preference)}; legal: an int, or None."
        )
    return made


@attrs.frozen
class Broken(Unavailable):
    """What stands in the place of a probe's answer where there is none, or where it is not a backend that gave it."""


def probe(backend: Backend) -> Available | Unavailable:
    """What a backend says of itself; one that raises, or says neither, cannot run here."""
    try:
        with foreign.guarded():
            said = backend.probe()
            if isinstance(said, Unavailable):  # most processes ask one that is not here: no more of it is looked at
                return said
            lacks = [name for name in _METHODS if not callable(getattr(backend, name, None))]
            devices = () if lacks else backend.devices()
    except foreign.Raised as raised:
        return Broken(f"its probe failed{_whose(backend)}: {raised}")
    if not isinstance(said, Available):
        return Broken(
            f"its probe gave {foreign.kind_of(said)}{_whose(backend)}; legal: Available(summary) or Unavailable(reason, fix)"
        )
    if lacks:
        return Broken(f"it has no {', '.join(f'{name}()' for name in lacks)}{_whose(backend)}")
    if not isinstance(devices, tuple | list) or not devices or not all(isinstance(d, str) for d in devices):
        return Broken(f"its devices() gave {foreign.kind_of(devices)}{_whose(backend)}; legal: names, the default first")
    return said


def examine(backend: Backend) -> tuple[Finding, ...]:
    """What a backend finds on this machine; of one that does not look closer, and of one that fails at it, what its probe says."""
    state = probe(backend)
    if isinstance(state, Available):
        probed = Finding("probe", state.summary)
    else:
        probed = Finding("probe", sentence(state.reason), "problem", state.fix)
    if not isinstance(backend, Examining):
        return (probed,)
    try:
        with foreign.guarded():
            found = tuple(backend.examine())
    except foreign.Raised as raised:
        return probed, Finding("examine", f"its examine() failed{_whose(backend)}: {raised}", "problem")
    wrong = [one for one in found if not isinstance(one, Finding)]
    if wrong:
        kind = foreign.kind_of(wrong[0])
        return probed, Finding("examine", f"its examine() gave {kind}{_whose(backend)}; legal: Findings", "problem")
    return found or (probed,)


#: What a graph needs of a backend.
_METHODS = ("devices", "supports", "accepts", "compile", "memory", "load")


def _whose(backend: Backend) -> str:
    origin = registry().behind(backend)
    return f" ({', '.join(origin)})" if origin else ""


def choose(backend: str | Backend | None = None, dev: str | Device | None = None, **options: Any) -> Choice:
    """The backend and device of a compile. `options` are for a backend that is named, or that is the first available.

    dev: left out, the current device where there is one, else the backend's first.
    BackendUnavailable when the one asked for can neither run nor compile here, or none can run; UnsupportedError when it does
    not take `dev`; CallError for an option it does not have, and for what names no device.
    """
    if isinstance(dev, Device) and device(dev.name) != dev:
        raise CallError(f"dev={dev.name!r} is another device by that name. Legal: one that is registered in iron.devices.v1.")
    dev = None if dev is None else device_name(dev)
    current = current_device()
    if dev is None and current is not None:
        dev = current.name
    if backend is not None and not isinstance(backend, str):
        if options:
            raise CallError(f"{', '.join(options)}: options are given where a {type(backend).__name__} is made.")
        if isinstance(backend, type) or not isinstance(getattr(backend, "name", None), str):
            made = f", as {backend.__name__}()" if isinstance(backend, type) else ""
            raise CallError(f"backend={backend!r}; legal: a backend's name, or an object of its class{made}.")
        return _checked(backend, dev, f"backend={backend.name} was given.")
    if backend is not None:
        return _checked(get(backend, **options), dev, f"backend={backend} was asked for.")
    named = os.environ.get("IRON_BACKEND")
    if named:
        return _checked(get(named, **options), dev, f"IRON_BACKEND={named} names it.")
    first = _first_available(dev)
    return attrs.evolve(first, backend=get(first.backend.name, **options)) if options else first


def takes_keyword(backend: Backend, name: str) -> bool:
    """Does the backend's `compile` name this keyword?"""
    return name in inspect.signature(backend.compile).parameters


def check_keywords(backend: Backend, given: Mapping[str, Any]) -> None:
    """UnsupportedError for a keyword of a compile that the backend does not take: that its `compile` does not name."""
    for name in given:
        if not takes_keyword(backend, name):
            raise UnsupportedError(f"{name}= was given, and backend {backend.name} takes none. Legal: leave it out.")


def _checked(backend: Backend, dev: str | None, reason: str) -> Choice:
    state = probe(backend)
    if isinstance(state, Unavailable):
        if state.compiles:
            why = f"{backend.name} compiles here and cannot run: {sentence(state.reason)}"
            return Choice(backend, _device(backend, dev), (reason, why))
        fix = f" {state.fix}" if state.fix else ""
        raise BackendUnavailable(f"backend {backend.name} cannot run here: {sentence(state.reason)}{fix}")
    return Choice(backend, _device(backend, dev), (reason, f"{backend.name}: {state.summary}."))


def _device(backend: Backend, dev: str | None) -> str:
    devices = backend.devices()
    if dev is None:
        return devices[0]
    if dev in devices:
        return dev
    found = device(dev)  # an unknown device is the clearer error
    if not takes(backend, found):
        why = " (the current device)" if current_device() == found else ""
        raise UnsupportedError(f"dev={dev!r}{why}: backend {backend.name} takes {', '.join([*devices, *brought(backend)])}.")
    return found.name


def takes(backend: Backend, dev: Device) -> bool:
    """Does a backend take a device, listed or brought by a pack?"""
    if dev.name in backend.devices():
        return True
    if dev.name in DEVICES or not isinstance(backend, TakesDevices):
        return False
    with labelled(backend, "to say which devices it takes"):
        answer = backend.takes(dev)
    if not isinstance(answer, bool):
        raise wrong_answer(backend, "takes()", answer, "True or False")
    return answer


def brought(backend: Backend) -> list[str]:
    """Devices of packs that a backend takes, beside those it lists. One that cannot be had is left out."""
    found = []
    for name in registry().names("devices"):
        with suppress(IronError):
            found += [name] if name not in backend.devices() and takes(backend, device(name)) else []
    return found


def _foreign(name: str) -> bool:
    try:
        record = registry().lookup(GROUP, name)
    except PluginError:
        return True
    return record is not None and not record.own


def _first_available(dev: str | None) -> Choice:
    reasons = []
    theirs = [name for name in DEFAULT_ORDER if _foreign(name)]  # a third party's comes after ours, whatever its name
    first = [name for name in DEFAULT_ORDER if name not in theirs]
    others = [name for name in names() if name not in BUILT_IN and name not in first]
    for group in (first, others):
        ranked: list[tuple[int, str, Backend]] = []
        for name in group:
            try:
                backend = get(name)
            except UnknownName:
                reasons.append(f"{name}: not installed.")
            except IronError as error:
                reasons.append(f"{name}: {error}")
            else:
                if backend.preference is not None:
                    ranked.append((backend.preference, name, backend))
        for _, name, backend in sorted(ranked, key=lambda entry: entry[:2]):
            state = probe(backend)
            if isinstance(state, Unavailable):
                reasons.append(f"{name}: {sentence(state.reason)}")
                continue
            if dev is not None and dev not in backend.devices() and not takes(backend, device(dev)):
                reasons.append(f"{name}: does not take dev={dev}.")
                continue
            chosen = f"{name} is the first available ({state.summary})."
            return Choice(backend, _device(backend, dev), (chosen, *reasons))
    if dev is not None:
        _device(get("null"), dev)
    wanted = f" for dev={dev}" if dev else ""
    raise BackendUnavailable(
        f"no backend can run here{wanted}. {' '.join(reasons)} backend='reference' runs anywhere, in numpy."
    )
