"""`Probe`: times run lists on a backend, through the cache, and takes from them what one step, one configuration or one pack takes.

Every figure is a difference of lists, so that what both have in common cancels: a step is that of `repeats` runs less that of one; a
configuration's entry that of two designs in turn less that of the same runs grouped.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from iron_core.backends.measuring import Measured, Run, RunList, Timing, drawn, measuring
from iron_core.cache.keys import digest
from iron_core.declare.identity import label
from iron_core.devices import Device
from iron_tuner.contents import contents
from iron_tuner.cost_cache import CostCache
from iron_tuner.errors import CostError
from iron_tuner.judge import judge
from iron_tuner.records import SIMULATED, Accuracy, Measurement, today
from iron_tuner.settings import Variant

#: Settings that have their turns together, beside the default. What a killed tuner loses is one such batch.
TOGETHER = 4


class Probe:
    """A backend that measures, a device, and the cache of what it said.

    repeats: runs of a step in a list. dispatch: "fused" or "separate". seed: of the inputs. said: called with a line for each thing that
    is about to be measured. UnsupportedError for a backend that measures nothing.
    """

    def __init__(
        self,
        backend: Any,
        dev: Device,
        *,
        timing: Timing | None = None,
        repeats: int = 9,
        dispatch: str = "fused",
        seed: int = 0,
        remeasure: bool = False,
        said: Callable[[str], None] = lambda words: None,
    ) -> None:
        self.backend, self.dev, self.timing, self.repeats = measuring(backend), dev, timing or Timing(), repeats
        self.dispatch, self.seed, self.said = dispatch, seed, said
        self.platform = self.backend.platform(dev)
        self.cache = CostCache(self.platform, remeasure=remeasure)
        self._code = contents(type(backend).__module__.partition(".")[0])

    @property
    def simulated(self) -> bool:
        """Are its figures computed?"""
        return self.platform.mode == SIMULATED

    # -- lists ---------------------------------------------------------------------------------------

    def entry(self, variant: Variant) -> str:
        """What a figure of a setting is of, in 32 hex digits: the design as it is built, the numbers of calls, the packaging and the
        backend that runs it."""
        parts: list[Any] = [variant.key, sorted(variant.members.items()), self.dispatch, self.seed, repr(self.dev), self._code]
        if variant.compared is not None:
            parts.append(sorted(variant.compared.items()))
        if self.dev.is_npu and not variant.lowered:
            parts += variant.written
        return digest(*parts)

    def run(self, variant: Variant) -> Run:
        """A setting as a part of a list."""
        if variant.lowered:
            return Run(variant.op, variant.members, variant.tunables)
        return Run(variant.resolved, variant.members)

    def listed(
        self, name: str, variants: Sequence[Variant], packs: tuple[tuple[int, ...], ...] = (), compared: bool = False
    ) -> RunList:
        """Settings one after the other."""
        return RunList(name, tuple(map(self.run, variants)), packs, self.dispatch, self.seed, compared=compared)

    def measured(self, lists: Sequence[RunList], cutoff: float = math.inf) -> list[Measured]:
        """What the backend says of them. CostError where the platform is not what it was when the probe was made."""
        found = self.backend.measure(lists, self.dev, attrs.evolve(self.timing, cutoff=cutoff))
        now = self.backend.platform(self.dev)
        if now != self.platform:
            raise CostError(
                f"the platform was {self.platform.name} ({self.platform.mode}) and is {now.name} ({now.mode}): figures of two are not put "
                "together. Set it back, or start again; what was measured is kept under its own."
            )
        return found

    def turn(self) -> contextlib.AbstractContextManager[None]:
        """Held while anything is timed in real time; see `CostCache.turn`."""
        return contextlib.nullcontext() if self.simulated else self.cache.turn()

    # -- steps ---------------------------------------------------------------------------------------

    def steps(self, default: Variant, others: Sequence[Variant] = ()) -> dict[Variant, Measurement | str]:
        """The default and other settings, each beside it; a text, why, for one that could not be trusted.

        Every batch is in the cache before the next one begins. Where the default could not be trusted, neither can the others.
        """
        found: dict[Variant, Measurement | str] = {}
        together = 1 if self.simulated else TOGETHER
        pending = [one for one in (default, *others) if self._known(found, default, one) is None]
        wanted = [one for one in pending if one is not default]
        batches = [wanted[at : at + together] for at in range(0, len(wanted), together)] or ([[]] if pending else [])
        for batch in batches:
            with self.turn():
                # Another tuner may have measured some while this one waited for its turn.
                left = [one for one in batch if self._known(found, default, one) is None]
                if left or self._known(found, default, default) is None:
                    self._batch(found, default, left)
        return found

    def _known(self, found: dict[Variant, Measurement | str], default: Variant, one: Variant) -> Measurement | None:
        kept = self.cache.get(Measurement, self.entry(default), self.entry(one))
        if kept is None or kept.t_step_us < 0:  # a negative one was kept once, and is no time
            return None
        found[one] = kept
        return kept

    def _batch(
        self, found: dict[Variant, Measurement | str], default: Variant, others: Sequence[Variant], keep: bool = True
    ) -> None:
        """Measure settings beside the default, and keep them. What is simulated needs no default beside it once that is known."""
        first = found.get(default)
        known = first if self.simulated and isinstance(first, Measurement) else None
        both = [*([] if known else [default]), *others]
        for one in both:
            self.said(f"{label(one.op)} {one.label}" if one.tunables else label(one.op))
        lists = [self.listed(f"{one.label} once", [one], compared=one.compared is None) for one in both]
        lists += [self.listed(f"{one.label} x {self.repeats}", [one] * self.repeats) for one in both]
        measured = self.measured(lists, self.timing.cutoff)
        alone, many = measured[: len(both)], measured[len(both) :]
        whys = [once.disturbed or often.disturbed for once, often in zip(alone, many, strict=True)]
        rounds = [self._per_run(once, often) for once, often in zip(alone, many, strict=True)]
        whys = [why or self._lost(taken) for why, taken in zip(whys, rounds, strict=True)]
        shown = [once if one.compared is None else self._elsewhere(one) for one, once in zip(both, alone, strict=True)]
        default_us, output = (known.round_us, known.output) if known else (rounds[0], shown[0].digest())
        for index, one in enumerate(both):
            why = whys[index] or ("" if known or not whys[0] else f"the default beside it: {whys[0]}")
            if why:
                found.setdefault(one, why)
                continue
            own = shown[index].digest() if one is not default else output
            if own != output:
                self._judged(default, one, shown[index])
            record = Measurement(
                t_step_us=statistics.median(rounds[index]),
                round_us=rounds[index],
                alone_us=alone[index].us,
                default_us=default_us if one is not default else (),
                output=own,
                pmode=self.platform.mode,
                calls=self.timing.calls,
                measured=today(),
            )
            if one is not default or not isinstance(found.get(default), Measurement):
                if keep:
                    self.cache.put(record, self.entry(default), self.entry(one), of=f"{label(one.op)} {one.label}")
                found[one] = record

    def _per_run(self, alone: Measured, many: Measured) -> tuple[float, ...]:
        """Per round, what one more run takes: what one run took in its own round taken off, so that the noise of both is in it."""
        return tuple((each - once) / (self.repeats - 1) for once, each in zip(alone.round_us, many.round_us, strict=False))

    def _lost(self, rounds: Sequence[float]) -> str:
        """Why these rounds are no time of a step: noise is more than the step; nothing where they are one."""
        if statistics.median(rounds) >= 0:
            return ""
        return f"{self.repeats} runs took no longer than one, so a step is less than the noise; raise --repeats"

    def again(self, default: Variant, one: Variant) -> Measurement | str:
        """A setting measured once more beside the default. Of many settings the one that looks best is so by luck too."""
        key = (self.entry(default), self.entry(one), "again")
        with self.turn():
            kept = self.cache.get(Measurement, *key)
            if kept is None or kept.t_step_us < 0:
                measured: dict[Variant, Measurement | str] = {}
                self._batch(measured, default, [one], keep=False)
                found = measured[one]
                if isinstance(found, str):
                    return found
                self.cache.put(found, *key, of=f"{label(one.op)} {one.label}, again")
                kept = found
        return kept

    def _elsewhere(self, one: Variant) -> Measured:
        """A run at the numbers where outputs are compared."""
        return self.measured([self.listed(f"{one.label} compared", [_shown(one)], compared=True)])[0]

    def _judged(self, default: Variant, one: Variant, got: Measured) -> None:
        key = (self.entry(default), self.entry(one))
        inputs = drawn(self.listed(one.label, [_shown(one)]), 0)
        self.cache.put(judge(_shown(default), _shown(one), got.outputs, inputs), *key, of=f"{label(one.op)} {one.label}")

    def accuracy(self, default: Variant, one: Variant) -> Accuracy | None:
        """What was found of a setting whose output is not the default's."""
        return self.cache.get(Accuracy, self.entry(default), self.entry(one))


def _shown(one: Variant) -> Variant:
    """A setting at the numbers where what it writes is compared."""
    return one if one.compared is None else attrs.evolve(one, members=one.compared)
