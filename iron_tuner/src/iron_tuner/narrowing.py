"""`JointNarrowing`: each design's setting, which steps are folded and which arrays share a configuration, chosen together so that the
time that measured costs predict is least."""

from __future__ import annotations

import os
from collections import Counter

import attrs

from iron_core.compiled.narrowing import Asked, Narrowed
from iron_core.errors import IronError
from iron_core.graph.fold import Fold
from iron_tuner.cost_table import CostTable
from iron_tuner.designs import Design, Designs
from iron_tuner.errors import CostError
from iron_tuner.fits import Fits
from iron_tuner.folds import Priced, best_way
from iron_tuner.instance import Instance, fits_together, instance, sketch
from iron_tuner.kinds import NarrowingKinds
from iron_tuner.model import CONFIDENCE
from iron_tuner.partition import Partition, partition
from iron_tuner.problem import Block
from iron_tuner.tuning import Changed, Group, Tuning
from iron_tuner.ways import Folding

#: Sets and states that are looked at for each way of folding; the way that is taken is then searched in full.
_STATES, _WIDTH = 5_000, 500


@attrs.frozen
class JointNarrowing:
    """`coresident=` of a compile: decides by a cost table of the same device and packaging. See `iron_tuner.model` for the time it
    makes least, `iron_tuner.partition` for how it searches and what it proves.

    kinds: which decisions it makes. confidence: standard errors by which a setting must beat the default to count as faster.
    """

    table: CostTable
    kinds: NarrowingKinds = NarrowingKinds()  # noqa: RUF009 (frozen)
    confidence: float = CONFIDENCE

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> JointNarrowing:
        """One that decides by the table in a file. CostError, OSError as `CostTable.load`."""
        return cls(CostTable.load(path))

    def narrowed(self, asked: Asked) -> Narrowed:
        """See `iron_core.compiled.narrowing.Narrowing`. CostError for a table of another device or packaging, or without constants."""
        return self.tuning(asked).apply()

    def tuning(self, asked: Asked) -> Tuning:
        """What it decides of a version."""
        table, here = self.table, asked.packaging.dispatch
        for what, own, wanted in (("device", table.device, asked.dev.name), ("packaging", table.dispatch, here)):
            if own != wanted:
                raise CostError(f"the cost table is of {what} {own}, and {asked.traced.name} is compiled for {wanted}; measure one there.")
        fits = Fits()
        designs = Designs(table, asked.dev, asked.backend, self.kinds, self.confidence, fits)
        folding = Folding(asked)

        def priced(folds: tuple[Fold, ...]) -> Priced | str:
            try:
                found = sketch(folding.way(folds), designs)
            except CostError:
                raise
            except IronError as error:
                return str(error)
            return Priced(found, partition(found.problem, states=_STATES, width=_WIDTH))

        usual = folding.taken(frozenset()) if asked.fold else ()
        baseline = chosen = instance(folding.way(usual), designs)
        ways = best_way(folding, priced, usual) if self.kinds.folds else None
        if ways is not None and ways.best.instance.way.folds != usual:
            chosen = instance(ways.best.instance.way, designs)
        found = partition(chosen.problem, lambda block: fits_together(chosen, block, fits, asked.dev))
        # What a way could save beyond the one taken, by the same sketches, is as much as its bound is below that one's time.
        saved = 0.0 if ways is None else max(0.0, ways.best.partition.bound_us - ways.bound_us)
        total = chosen.dispatch_us + found.us
        return Tuning(
            asked=asked,
            table=table,
            chosen=_changed(chosen, found),
            groups=tuple(_group(chosen, block) for block in found.blocks if len(block) > 1),
            taken=chosen.way.folds,
            usual=usual,
            folds=_kinds(chosen.way.folds),
            devices=len(found.blocks),
            configures=_entries(chosen, found.blocks),
            baseline_configures=_entries(baseline, baseline.problem.defaults),
            predicted_us=total,
            baseline_us=baseline.dispatch_us + baseline.problem.total_us(baseline.problem.defaults),
            gap=max(0.0, (found.us - found.bound_us + saved) / total),
            all_folds=ways is None or ways.exhaustive,
            unmeasured=chosen.missing,
            unpriced=() if ways is None else ways.unpriced,
            stale=_stale(table, designs, chosen),
        )


def _entries(found: Instance, blocks: list[Block] | tuple[Block, ...]) -> int:
    return sum(found.problem.entries(unit for unit, _ in block) for block in blocks)


def _group(found: Instance, block: Block) -> Group:
    arrays = [found.arrays[unit] for unit, _ in block]
    choices = [array.choices[number] for array, (_, number) in zip(arrays, block, strict=True)]
    keys, costs = tuple(choice.array_key for choice in choices), tuple(choice.options[0].key for choice in choices)
    members = [unit for unit, _ in block]
    alone = sum(found.problem.runs[unit] for unit in members)
    return Group(tuple(array.name for array in arrays), keys, found.problem.entries(members), alone, costs)


def _changed(found: Instance, partition: Partition) -> tuple[Changed, ...]:
    """Designs that leave their default, in the order of their arrays."""
    numbers = dict(sorted(pair for block in partition.blocks for pair in block))
    changes = []
    for unit, number in numbers.items():
        array = found.arrays[unit]
        if not array.choices:
            continue
        for design, names, option in zip(array.designs, array.steps, array.choices[number].options, strict=True):
            if option.variant is design.default:
                continue
            was = design.default.resolved
            moved = [(name, getattr(was, name), value) for name, value in option.variant.tunables.items() if getattr(was, name) != value]
            changes.append(Changed(design.label, option.variant, tuple(moved), option.exact, names))
    return tuple(changes)


def _kinds(folds: tuple[Fold, ...]) -> tuple[str, ...]:
    """Folds by kind and operators, with how many there are of each."""
    how = {"finish": "into the finish of", "placed": "into the store of", "prologue": "into the prologue of"}
    found = Counter()  # type: Counter[str]
    for fold in folds:
        names = [type(op.base).__name__ for op in fold.operators]
        inner, outer = (names[0], names[1:]) if fold.kind == "prologue" else (names[1], names[:1])
        found[f"{inner} {how[fold.kind]} {', '.join(dict.fromkeys(outer))}"] += 1
    return tuple(f"{kind}: {count} times" if count > 1 else kind for kind, count in found.items())


def _stale(table: CostTable, designs: Designs, found: Instance) -> tuple[str, ...]:
    """Of operators with a design that the table does not have: entries of theirs that are no design here, which may be what it was."""
    lost: dict[str, list[Design]] = {}
    for array in found.arrays:
        for design in array.designs:
            if design.key not in table.steps:
                lost.setdefault(design.key.rpartition("_")[0], []).append(design)
    lines = []
    for name, own in lost.items():
        old = [cost.measured for key, cost in table.steps.items() if key.rpartition("_")[0] == name and key not in designs.asked]
        if old:
            are = f"design of {name} is" if len(own) == 1 else f"designs of {name} are"
            entries = "entry" if len(old) == 1 else "entries"
            lines.append(
                f"changed since: {len(own)} {are} not in the table, which has {len(old)} {entries} of {name} of "
                f"no design here, the last measured {max(old)}; what is not in it follows its profile. Measure again."
            )
    return tuple(lines)
