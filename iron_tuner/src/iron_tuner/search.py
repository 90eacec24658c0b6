"""Which setting of an operator is the fastest, by measurement: all of them, or one tunable at a time where there are too many.

A setting is a candidate only if it writes the default's bits, or is within the gates of both. It counts as faster only beyond two
standard errors of the difference; what nothing is known of is not faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import attrs

from iron_tuner.fits import Fits
from iron_tuner.probe import TOGETHER, Probe
from iron_tuner.records import Measurement
from iron_tuner.settings import Settings, Variant

#: Combinations up to which every one is measured.
EXHAUSTIVE = 64
#: Settings that are measured again, the best first, until one is faster a second time.
CONFIRMED = 3
#: Standard errors of a difference that are no noise.
CONFIDENCE = 2.0


@attrs.frozen(eq=False)
class Tried:
    """A setting and what was found of it. measured: None where no figure can be trusted, as `why` says.

    exact: it writes the default's bits. accurate: it may stand in the default's place; `why` says why not, or how near it is.
    """

    variant: Variant
    measured: Measurement | None
    exact: bool = False
    accurate: bool = False
    faster: bool = False
    why: str = ""

    @property
    def gain_us(self) -> float:
        return self.measured.gain_us if self.measured is not None else 0.0

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        facts: dict[str, Any] = {"tunables": dict(self.variant.tunables)}
        if self.measured is not None:
            facts |= {name: getattr(self.measured, name) for name in ("t_step_us", "noise_us", "alone_us", "gain_us", "gain_noise_us")}
        return facts | {"exact": self.exact, "accurate": self.accurate, "faster": self.faster, "why": self.why}


@attrs.frozen(eq=False)
class Found:
    """What a search found. tried: every setting that was measured, the fastest first; those without a figure last. refused: settings
    that do not fit, and why. said: why it was left at the default where it had to be; empty otherwise."""

    default: Tried
    best: Tried
    tried: tuple[Tried, ...]
    refused: tuple[tuple[Variant, str], ...]
    exhaustive: bool
    combinations: int
    said: str = ""


def is_faster(measured: Measurement) -> bool:
    """Is the gain of a setting beyond `CONFIDENCE` standard errors?"""
    noise = measured.gain_noise_us
    return noise is not None and measured.gain_us > CONFIDENCE * noise


class Search:
    """One operator's search. exhaustive: combinations up to which all are tried. among: the settings to try, where they are known. seen:
    called with every new best."""

    def __init__(self, settings: Settings, probe: Probe, fits: Fits | None = None, exhaustive: int = EXHAUSTIVE,
                 seen: Callable[[Tried], None] = lambda best: None, among: Collection[Variant] | None = None) -> None:  # fmt: skip
        self.settings, self.probe, self.fits, self.exhaustive, self.seen = settings, probe, fits or Fits(), exhaustive, seen
        self.among = among
        self._tried: dict[tuple[Any, ...], Tried] = {}
        self._refused: dict[tuple[Any, ...], tuple[Variant, str]] = {}

    def run(self) -> Found:
        """Try settings until there is nothing left to try, or nothing helps."""
        default = self.settings.default
        first = self._try([default])[0]
        if first.measured is None:
            return self._found(first, first, f"left at the default, {default.label}: {first.why}")
        self.best = first
        if self.among is not None or self.settings.size <= self.exhaustive:
            every = iter(self.settings if self.among is None else self.among)
            while batch := list(itertools.islice(every, TOGETHER)):
                self._best_of(batch)
        else:
            self._descend()
        if not self.probe.simulated:
            self._confirm(first)
        return self._found(first, self.best)

    def _confirm(self, default: Tried) -> None:
        """The best that is faster a second time too; the default where the first few are not."""
        ranked = sorted((one for one in self._tried.values() if one.faster and one.accurate), key=lambda one: -one.gain_us)
        for one in ranked[:CONFIRMED]:
            again = self.probe.again(self.settings.default, one.variant)
            if not isinstance(again, str) and is_faster(again):
                self.best = one
                return
            why = again if isinstance(again, str) else "not faster when it was measured again"
            self._tried[one.variant.key] = attrs.evolve(one, faster=False, why=why)
        self.best = default

    def _found(self, default: Tried, best: Tried, said: str = "") -> Found:
        def order(one: Tried) -> tuple[bool, float]:
            return one.measured is None, one.measured.t_step_us if one.measured is not None else 0.0

        left = sum(one.measured is None for one in self._tried.values())
        if left and not said:
            said = f"{left} of {len(self._tried)} settings gave no figure to trust and were left out"
        return Found(default, best, tuple(sorted(self._tried.values(), key=order)), tuple(self._refused.values()),
            self.settings.size <= self.exhaustive, self.settings.size, said)  # fmt: skip

    # -- ways to go ----------------------------------------------------------------------------------

    def _descend(self) -> None:
        """Coordinate descent: the best value of each tunable in turn, the others held, until a round changes nothing."""
        while True:
            before = self.best
            for name, values in self.settings.axes.items():
                here = self.best.variant.tunables
                self._best_of(one for value in values for one in self._beside(here, name, value))
            if self.best is before:
                return

    def _beside(self, here: Mapping[str, Any], name: str, value: Any) -> list[Variant]:
        """The setting with one tunable changed; where that does not resolve, those with one more as it resolves then, for what a tile
        may be changes with the lanes."""
        held = self.settings.at({**here, name: value})
        if held is not None:
            return [held]
        others = ({k: v for k, v in here.items() if k not in (name, other)} for other in here if other != name)
        return list(filter(None, (self.settings.at({**rest, name: value}) for rest in others)))

    def _best_of(self, variants: Iterable[Variant]) -> None:
        for one in self._try(list(variants)):
            if one.faster and one.accurate and one.gain_us > self.best.gain_us:
                self.best = one
        self.seen(self.best)

    # -- trying --------------------------------------------------------------------------------------

    def _try(self, variants: Collection[Variant]) -> list[Tried]:
        """What is found of these, each once; those that do not fit are left out."""
        default = self.settings.default
        new: dict[tuple[Any, ...], Variant] = {}
        for one in variants:
            if one.key in self._tried or one.key in self._refused or one.key in new:
                continue
            why = "" if one is default else self.fits.refused(one)
            if why:
                self._refused[one.key] = (one, why)
            else:
                new[one.key] = one
        if new:
            found = self.probe.steps(default, [one for one in new.values() if one is not default])
            for key, one in new.items():
                self._tried[key] = self._judged(one, found.get(one, "it was not measured"), found.get(default))
        return [self._tried[one.key] for one in variants if one.key in self._tried]

    def _judged(self, one: Variant, found: Measurement | str, default: Measurement | str | None) -> Tried:
        if isinstance(found, str) or not isinstance(default, Measurement):
            return Tried(one, None, why=found if isinstance(found, str) else str(default))
        if one is self.settings.default or found.output == default.output:
            exact, accurate, why = True, True, ""
        else:
            said = self.probe.accuracy(self.settings.default, one)
            exact, accurate, why = False, said is not None and said.within, said.detail if said is not None else "it was not compared"
        return Tried(one, found, exact, accurate, one is not self.settings.default and is_faster(found), why)


def search(
    op: Any, probe: Probe, *, pinned: Collection[str] = (), members: Mapping[str, int] | None = None, exhaustive: int = EXHAUSTIVE,
    fits: Fits | None = None, seen: Callable[[Tried], None] = lambda best: None,
) -> Found:  # fmt: skip
    """The fastest setting of an operator on a probe's backend and device.

    pinned: tunables that stay as they resolve; those that the operator was given stay anyway. members: numbers that calls give for its
    extents and offsets, which it is timed at. Unresolvable for an operator that no array takes.
    """
    return Search(Settings(op, probe.dev, probe.backend, pinned, members), probe, fits, exhaustive, seen).run()
