"""The time of a run list, from costs that were measured: of a full ELF, and of a chain of dispatches.

    ELF    T = D0 + steps + entries (base + loads of its designs) + R where the entries are odd
    chain  T = F + steps + switches L(incoming), counted cyclically

D0 and F: what a call takes besides. R: the empty configuration that an odd number of entries needs. Microseconds throughout.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping

import attrs
import numpy as np

from iron_tuner.cost_table import CostTable, StepCost
from iron_tuner.errors import CostError

#: Standard errors by which a setting must beat the default to count as faster.
CONFIDENCE = 2.0


@attrs.frozen
class Constants:
    """What does not depend on the designs. base_us and reset_us are 0 where each step is its own dispatch."""

    dispatch_us: float
    base_us: float = 0.0
    reset_us: float = 0.0


def constants(table: CostTable) -> Constants:
    """Medians over the table's calibrations. CostError where it has none, or those of an ELF lack `base_us` and `reset_us`."""
    found = list(table.calibrations.values())
    if not found:
        raise CostError(f"the cost table of {table.device} has no calibration; measure three designs, each with each.")
    fields = ["dispatch_us"] + (["base_us", "reset_us"] if table.dispatch == "fused" else [])
    known = {name: [value for cost in found if (value := getattr(cost, name)) is not None] for name in fields}
    missing = next((name for name, values in known.items() if not values), None)
    if missing:
        raise CostError(f"no calibration of the table of {table.device} has {missing}, a part of a full ELF's time; measure them again.")
    return Constants(**{name: statistics.median(values) for name, values in known.items()})


# -- steps -------------------------------------------------------------------------------------------------


def expected_us(cost: StepCost) -> float:
    """A step's time: the weighted mean of its operating points, where it has some."""
    if not cost.points:
        return cost.t_step_us
    return sum(p.weight * p.t_step_us for p in cost.points.values()) / _weight(cost)


def noise_us(cost: StepCost) -> float | None:
    """The standard error of `expected_us`; None where one of its terms is not known."""
    if not cost.points:
        return cost.noise_us
    terms = [(p.weight, p.noise_us) for p in cost.points.values()]
    if any(noise is None for _, noise in terms):
        return None
    return math.sqrt(sum((weight * noise) ** 2 for weight, noise in terms if noise is not None)) / _weight(cost)


def _weight(cost: StepCost) -> float:
    return sum(p.weight for p in cost.points.values())


def is_candidate(cost: StepCost, default: StepCost) -> bool:
    """May a setting stand for the default? It is accurate at every point, and was measured at the default's points."""
    same = {label: p.weight for label, p in cost.points.items()} == {label: p.weight for label, p in default.points.items()}
    return same and cost.accurate and all(p.accurate for p in cost.points.values())


def is_exact(cost: StepCost) -> bool:
    """Is what it makes the default's bit for bit, at every point?"""
    return cost.exact and all(p.exact for p in cost.points.values())


def price_us(cost: StepCost, default: StepCost, confidence: float = CONFIDENCE) -> float:
    """A setting's step. It counts as faster than the default's only if it is so by more than `confidence` standard errors."""
    own, usual, noise = expected_us(cost), expected_us(default), noise_us(cost)
    faster = noise is not None and usual - own > confidence * noise
    return own if faster else max(own, usual)


# -- loads -------------------------------------------------------------------------------------------------


class Loads:
    """What an entry pays for each design of a table, by its key. CostError where the table has no constants."""

    def __init__(self, table: CostTable) -> None:
        self._table = table
        self._base = constants(table).base_us
        pairs = {pair: cost.switch_us for pair, cost in table.pairs().items()}
        self._entered = entered_us(pairs)
        self._calibrated = {key for pair in pairs for key in pair}

    def __getitem__(self, key: str) -> float:
        """CostError where the table does not say: nothing was measured beside it, or its calibrations form no odd cycle."""
        return max(0.0, self._load(key, ()))

    def __contains__(self, key: str) -> bool:
        try:
            self._load(key, ())
        except CostError:
            return False
        return True

    def _load(self, key: str, asked: tuple[str, ...]) -> float:
        if key in self._entered:
            return self._entered[key] - self._base
        if key in self._calibrated:
            raise CostError(
                f"the load of {key} is not determined: its calibrations form no odd cycle. Measure a triangle: three designs, each with "
                "each."
            )
        cost = self._table.steps.get(key)
        if cost is None or cost.pair_us is None or key in asked:
            raise CostError(f"the load of {key} was not measured: the cost table has no entry of it beside a calibrated design.")
        return cost.pair_us - self._load(cost.beside, (*asked, key)) - 2 * self._base


def entered_us(pairs: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """E by key, from means (E(a) + E(b)) / 2 of pairs, by least squares. Only of keys that the pairs determine: those that an odd cycle
    can be reached from."""
    keys = sorted({key for pair in pairs for key in pair})
    if not keys:
        return {}
    at = {key: i for i, key in enumerate(keys)}
    rows = np.zeros((len(pairs), len(keys)))
    for row, (a, b) in zip(rows, pairs, strict=True):
        row[at[a]] += 0.5
        row[at[b]] += 0.5
    solved = np.linalg.lstsq(rows, np.array(list(pairs.values())), rcond=None)[0]
    return {key: float(solved[at[key]]) for key in _determined(pairs)}


def _determined(pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Keys of the components of the graph of pairs that cannot be coloured in two."""
    beside: dict[str, set[str]] = {}
    for a, b in pairs:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    found: set[str] = set()
    colour: dict[str, bool] = {}
    for start in beside:
        if start in colour:
            continue
        colour[start], todo, odd = True, [start], False
        component = {start}
        while todo:
            key = todo.pop()
            for other in beside[key]:
                if other not in colour:
                    colour[other] = not colour[key]
                    component.add(other)
                    todo.append(other)
                odd |= colour[other] == colour[key]
        if odd:
            found |= component
    return found
