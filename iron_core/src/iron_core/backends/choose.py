"""Which backend runs a graph: the argument, then `IRON_BACKEND`, then the first available of npu and host.

`reference` and `null` are built in and chosen only by name; every other backend is an entry point of
`iron.backends.v1`. A choice carries the sentences that explain it.
"""

from __future__ import annotations

import difflib
import os
from functools import cache
from importlib import import_module

import attrs

from iron_core.backends.protocol import Backend, Unavailable
from iron_core.errors import BackendUnavailable, IronError, UnknownName, UnsupportedError
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
    from iron_core.plugins.registry import registry

    return (*sorted(set(registry().names(GROUP)) - set(BUILT_IN)), *BUILT_IN)


#: Backends made from their classes: one each, for compiled graphs are known by it.
_made: dict[type, Backend] = {}
_making = Turn("making backends")


def _only(cls: type) -> Backend:
    with _making:
        if cls not in _made:
            _made[cls] = cls()
        return _made[cls]


@cache
def _built_in(name: str) -> type:
    module, _, attribute = BUILT_IN[name].partition(":")
    return getattr(import_module(module), attribute)


def get(name: str) -> Backend:
    """The backend of this name, whether it can run here or not. UnknownName lists what is installed."""
    if name in BUILT_IN:
        return _only(_built_in(name))
    from iron_core.plugins.registry import registry

    found = registry().find(GROUP, name)
    if found is None:
        near = difflib.get_close_matches(name, names(), 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UnknownName(f"backend={name!r}: no installed distribution provides it.{hint} Known: {', '.join(names())}.")
    return _only(found) if isinstance(found, type) else found


def choose(backend: str | Backend | None = None, dev: str | None = None) -> Choice:
    """The backend and device of a compile.

    BackendUnavailable when the one asked for cannot run here, or none can; UnsupportedError when it does
    not take `dev`.
    """
    if backend is not None:
        if not isinstance(backend, str):
            return _checked(backend, dev, f"backend={backend.name} was given.")
        return _checked(get(backend), dev, f"backend={backend} was asked for.")
    named = os.environ.get("IRON_BACKEND")
    if named:
        return _checked(get(named), dev, f"IRON_BACKEND={named} names it.")
    return _first_available(dev)


def _checked(backend: Backend, dev: str | None, reason: str) -> Choice:
    state = backend.probe()
    if isinstance(state, Unavailable):
        fix = f" {state.fix}" if state.fix else ""
        raise BackendUnavailable(f"backend {backend.name} cannot run here: {state.reason}.{fix}".replace("..", "."))
    return Choice(backend, _device(backend, dev), (reason, f"{backend.name}: {state.summary}."))


def _device(backend: Backend, dev: str | None) -> str:
    devices = backend.devices()
    if dev is None:
        return devices[0]
    if dev not in devices:
        from iron_core.devices import device

        device(dev)  # an unknown device is the clearer error
        raise UnsupportedError(f"dev={dev!r}: backend {backend.name} takes {', '.join(devices)}.")
    return dev


def _first_available(dev: str | None) -> Choice:
    reasons = []
    first = list(DEFAULT_ORDER)
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
            if dev is not None and dev not in backend.devices():
                reasons.append(f"{name}: does not take dev={dev}.")
                continue
            state = backend.probe()
            if isinstance(state, Unavailable):
                reasons.append(f"{name}: {state.reason}.".replace("..", "."))
                continue
            chosen = f"{name} is the first available ({state.summary})."
            return Choice(backend, _device(backend, dev), (chosen, *reasons))
    if dev is not None:
        _device(get("null"), dev)
    wanted = f" for dev={dev}" if dev else ""
    raise BackendUnavailable(
        f"no backend can run here{wanted}. {' '.join(reasons)} backend='reference' runs anywhere, in numpy."
    )
