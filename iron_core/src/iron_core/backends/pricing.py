"""Prices: what a backend says an image's steps will take, without running them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


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
