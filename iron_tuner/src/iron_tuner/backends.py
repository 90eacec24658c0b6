"""Which backend measures: the one that was asked for, else the first that can and takes the device."""

from __future__ import annotations

import os
from typing import Any

from iron_core.backends import choose
from iron_core.backends.measuring import Measuring, measuring
from iron_core.backends.protocol import Available
from iron_core.devices import Device, device
from iron_core.errors import IronError


def measuring_backend(name: str | None, dev: str | None) -> tuple[Any, Device]:
    """The backend and the device. UnsupportedError for one that measures nothing or does not take the device; BackendUnavailable for
    one that cannot run here, or where none can."""
    if name is None and not os.environ.get("IRON_BACKEND"):
        try:
            chosen = choose.choose(None, dev)
        except IronError as error:
            for other in choose.names():
                found = _takes(other, dev)
                if found is not None:
                    return found, device(dev)
            raise error
    else:
        chosen = choose.choose(name, dev)
    return measuring(chosen.backend), device(chosen.dev)


def _takes(name: str, dev: str | None) -> Any:
    """The backend of this name, if it can run here, measures and takes the device."""
    try:
        backend = choose.get(name)
    except IronError:
        return None
    there = isinstance(backend, Measuring) and isinstance(choose.probe(backend), Available)
    return backend if there and dev is not None and choose.takes(backend, device(dev)) else None
