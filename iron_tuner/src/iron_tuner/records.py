"""What is measured, as it is kept: plain numbers and texts. Times are microseconds; `measured` is a date, as 2026-01-31."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Sequence

import attrs

#: `Platform.mode` of figures that are computed, so that nothing disturbs them and they have no noise.
SIMULATED = "simulated"
#: Microseconds that a time is below, eleven days: what is more was not measured, and in sums and squares it is no number any more.
MOST_US = 1e12


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def is_time(value: object) -> bool:
    """Is it a number of microseconds? Of a difference it may be below 0."""
    return type(value) in (int, float) and abs(value) <= MOST_US  # type: ignore[arg-type]  # no NaN is


def median_error(rounds: Sequence[float]) -> float | None:
    """The standard error of the median of some rounds; None for one round, of which nothing is known."""
    if len(rounds) < 2:
        return None
    return math.sqrt(math.pi / 2) * statistics.stdev(rounds) / math.sqrt(len(rounds))


@attrs.frozen
class Measurement:
    """An operator at a setting. t_step_us: of one more run of it, the median of `round_us`. alone_us: of a list that is that run alone.

    default_us: rounds of the default setting that this one had its turns with; empty for the default itself. output: SHA-256 of what
    the run wrote. pmode: the platform's mode.
    """

    t_step_us: float
    round_us: tuple[float, ...]
    alone_us: float
    default_us: tuple[float, ...]
    output: str
    pmode: str
    calls: int
    measured: str

    @property
    def noise_us(self) -> float | None:
        """The standard error of `t_step_us`; None where nothing is known of it."""
        return self._error(self.round_us)

    @property
    def gain_us(self) -> float:
        """How much less than the default it takes, by rounds that both had."""
        pairs = self._pairs()
        return statistics.median(pairs) if pairs else 0.0

    @property
    def gain_noise_us(self) -> float | None:
        """The standard error of `gain_us`."""
        return self._error(self._pairs())

    def _error(self, rounds: Sequence[float]) -> float | None:
        return 0.0 if self.pmode == SIMULATED else median_error(rounds)

    def _pairs(self) -> list[float]:
        return [default - own for default, own in zip(self.default_us, self.round_us, strict=False)]


@attrs.frozen
class Accuracy:
    """Is an output that differs from the default's within the gates of both? detail: by how much, or why not."""

    within: bool
    detail: str
    measured: str


@attrs.frozen
class Calibration:
    """Two designs A and B, in turn and grouped. switch_us: (E(A) + E(B)) / 2, E being what entering a configuration takes. dispatch_us:
    what a call takes besides. base_us: of E, what does not depend on the design; reset_us: of an odd count of configurations. Both are
    None where each array is a program of its own, which nothing is packed in."""

    dispatch_us: float
    switch_us: float
    base_us: float | None
    reset_us: float | None
    pmode: str
    rounds: int
    calls: int
    measured: str


@attrs.frozen
class Pairing:
    """E(reference) + E(entry), by both in turn and grouped."""

    pair_us: float
    noise_us: float | None
    rounds: int
    calls: int
    pmode: str
    measured: str


@attrs.frozen
class Packing:
    """Designs on one configuration. pair_us: E(pack) + E(beside). t_step_us: of each member in the pack, in the order of its key."""

    pair_us: float
    t_step_us: tuple[float, ...]
    rounds: int
    calls: int
    pmode: str
    measured: str


#: Every kind by name.
KINDS = {kind.__name__: kind for kind in (Measurement, Accuracy, Calibration, Pairing, Packing)}
