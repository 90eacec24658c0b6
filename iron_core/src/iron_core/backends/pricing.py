"""Prices: what a backend says an image's steps will take, without running them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from iron_core.backends import choose
from iron_core.backends.protocol import Unavailable
from iron_core.devices import device
from iron_core.errors import IronError

#: Asked first, so that no other is loaded where it knows the device.
FIRST = ("sim",)


@runtime_checkable
class Prices(Protocol):
    """What the steps of an image take, in microseconds, each by itself.

    A backend that knows them also has `entries`, what each of the image's entries adds before its first step (its array's
    configuration and what starting it takes), `dispatch_us`, what a call takes whatever it runs, and `bounds`, by step the name of
    the resource that binds it.
    """

    total_us: float

    def step_us(self, name: str) -> float | None:
        """Of the step of this name; None for one that is not run by itself."""


@runtime_checkable
class Pricing(Protocol):
    """A backend that knows what its images take."""

    def price(self, image: Any, values: Mapping[str, int] = {}) -> Prices:
        """What a call of `image` takes. values: the call's, by name; those left out are as large as they may be."""


def pricing_backend(dev: str) -> Any | None:
    """The first backend of this installation that prices images for a device; None where none does."""
    known = choose.names()
    for name in dict.fromkeys((*(one for one in FIRST if one in known), *known)):
        try:
            found = choose.get(name)
            if isinstance(found, Pricing) and not isinstance(choose.probe(found), Unavailable) and choose.takes(found, device(dev)):
                return found
        except IronError:
            continue
    return None
