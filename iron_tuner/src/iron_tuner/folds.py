"""Which folds a version takes: those with which it takes least, each way of folding at its own best settings and packs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs

from iron_core.graph.fold import Fold
from iron_tuner.errors import CostError
from iron_tuner.instance import Instance
from iron_tuner.partition import Partition
from iron_tuner.ways import RUNS, Folding


@attrs.frozen(eq=False)
class Priced:
    """A way of folding and the best that a quick search finds of it."""

    instance: Instance
    partition: Partition

    @property
    def us(self) -> float:
        return self.instance.dispatch_us + self.partition.us


@attrs.frozen(eq=False)
class Ways:
    """best: the way to take. bound_us: no way that was priced takes less. exhaustive: all were. unpriced: ways that were not, and why."""

    best: Priced
    bound_us: float
    exhaustive: bool
    unpriced: tuple[str, ...]


Price = Callable[[tuple[Fold, ...]], Priced | str]


def best_way(folding: Folding, price: Price, usual: tuple[Fold, ...], runs: int = RUNS) -> Ways:
    """The cheapest way of all; where there are more than `runs` look at, folds that pay by themselves, the most paying first, as long as
    the time drops. usual: the folds that stay unless others are cheaper. CostError where those are no version."""
    baseline = price(usual)
    if isinstance(baseline, str):
        raise CostError(f"nothing to decide about: {baseline}")
    tried: dict[tuple[str, ...], Priced | str] = {tuple(map(str, usual)): baseline}
    notes: Counter[str] = Counter()

    def priced(folds: tuple[Fold, ...]) -> Priced | None:
        key = tuple(map(str, folds))
        if key not in tried:
            found = price(folds)
            tried[key] = found if isinstance(found, str) else _comparable(found, baseline) or found
        said = tried[key]
        if isinstance(said, str):
            notes[said] += 1
            return None
        return said

    ways, exhaustive = folding.all(runs)
    if not exhaustive:
        ways = _greedy(folding, priced)
    found = [baseline, *(one for folds in ways if (one := priced(folds)) is not None)]
    best = min(found, key=lambda one: one.us)  # the first of equals: fewer changes
    bound = min(one.partition.bound_us for one in found)
    said = (f"{count} {'way' if count == 1 else 'ways'} of folding: {why}" for why, count in notes.items())
    return Ways(best, bound, exhaustive, tuple(said))


def _greedy(folding: Folding, priced: Callable[[tuple[Fold, ...]], Priced | None]) -> list[tuple[Fold, ...]]:
    """Kinds that pay by themselves, taken the most paying first while the time drops."""
    plain = priced(())
    alone = {kind: priced(folding.only([kind])) for kind in folding.kinds}
    if plain is None:
        return []
    gains = {kind: plain.us - one.us for kind, one in alone.items() if one is not None and one.us < plain.us}
    taken: list[object] = []
    least = plain.us
    for kind in sorted(gains, key=lambda kind: -gains[kind]):
        one = priced(folding.only([*taken, kind]))
        if one is not None and one.us < least:
            taken.append(kind)
            least = one.us
    return [(), folding.only(taken)]


def _comparable(found: Priced, baseline: Priced) -> str:
    """Why the times of two ways cannot be compared: a design that one has and the other has not is not in the table. "" where they can."""
    own, usual = found.instance.keys, baseline.instance.keys
    unknown = [key for keys in (own, usual) for key, known in keys.items() if not known and key in own.keys() ^ usual.keys()]
    names = {design.key: design.label for one in (found, baseline) for array in one.instance.arrays for design in array.designs}
    return f"{names[unknown[0]]} is not in the cost table" if unknown else ""
