"""Which settings of a design are worth measuring for a model, where a backend knows without a run about what each takes."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from iron_core.backends.measuring import Estimating
from iron_core.errors import IronError
from iron_tuner.probe import Probe
from iron_tuner.search import Tried
from iron_tuner.settings import Settings, Variant

#: How many times the estimate of another setting one may have that is measured. Estimates are within a tenth of what is measured, so
#: the fastest of a size is within 1.1 / 0.9.
NEAR = 1.1 / 0.9
#: Of one size, settings that are measured, the best by estimate.
OF_A_SIZE = 2


@attrs.frozen(eq=False)
class _Known:
    """A setting, about what it takes, in microseconds, and its size."""

    variant: Variant
    us: float
    size: tuple[int, ...]


def near(settings: Settings, probe: Probe) -> list[Variant] | None:
    """The default, and the settings that may be the fastest of their size: no other estimate that takes no more channels and cores is less
    beyond `NEAR`, and at most `OF_A_SIZE` of a size. None where the backend estimates nothing, and where there is nothing to leave out."""
    if not isinstance(probe.backend, Estimating) or not settings.axes:
        return None
    known = []
    for variant in settings:
        try:
            us = probe.backend.estimate(probe.run(variant), probe.dev)
        except IronError:
            continue
        known.append(_Known(variant, us, size(variant)))
    found: dict[tuple[int, ...], list[_Known]] = {}
    for one in sorted(known, key=lambda one: one.us):
        if not any(other.us * NEAR < one.us and _no_larger(other.size, one.size) for other in known):
            found.setdefault(one.size, []).append(one)
    kept = [one.variant for equal in found.values() for one in equal[:OF_A_SIZE]]
    return [settings.default, *(one for one in kept if one is not settings.default)]


def fastest(tried: Iterable[Tried], default: Tried) -> list[Tried]:
    """The default, then the fastest of every size. tried: what was measured and may stand in its place, the fastest first."""
    found: dict[tuple[int, ...], Tried] = {}
    for one in tried:
        found.setdefault(size(one.variant), one)
    return [default, *(one for one in found.values() if one is not default)]


def size(variant: Variant) -> tuple[int, ...]:
    """What a setting takes of an array: channels that read memory and that write it, and cores."""
    return (*variant.channels, len(variant.built.design.array.cores))


def _no_larger(size: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a <= b for a, b in zip(size, other, strict=True))
