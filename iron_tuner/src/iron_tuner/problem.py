"""Which arrays share a configuration, and at which setting each is: the optimisation problem, as data.

What is searched (`iron_tuner.partition`) and what tests enumerate share this one definition of what a choice costs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import cached_property

import attrs

#: Units on one configuration, each with the number of its setting, in order: a block of a partition.
Block = tuple[tuple[int, int], ...]

#: The most units of a pack.
MEMBERS = 8


@attrs.frozen
class Setting:
    """A unit at one setting. steps_us: all its steps together. load_us: what each entry pays for it. channels: of the shims, those that
    read memory and those that write it."""

    steps_us: float
    load_us: float
    channels: tuple[int, int] = (0, 0)


@attrs.frozen
class Unit:
    """What is configured as one: an array, with every design of it. settings: the first is the default. packable: may it share a
    configuration with others?"""

    name: str
    settings: tuple[Setting, ...]
    packable: bool = True


@attrs.frozen
class Together:
    """A block that was measured as one. entry_us: what entering it takes. steps_us: of each unit all its steps, there."""

    entry_us: float
    steps_us: tuple[float, ...]


@attrs.frozen(eq=False)
class Problem:
    """units, and `arrivals`, the unit of each step in the order they run. base_us, reset_us: see `iron_tuner.model`. channels: what all
    shims have. measured: blocks whose cost is known as a whole. entered: per unit how often it is entered, where that is another count than
    of its runs, as in a chain."""

    units: tuple[Unit, ...]
    arrivals: tuple[int, ...]
    base_us: float
    reset_us: float
    channels: tuple[int, int]
    measured: Mapping[Block, Together] = attrs.field(factory=dict)
    members: int = MEMBERS
    entered: tuple[int, ...] = ()

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """Per unit, how often it is entered by itself."""
        if self.entered:
            return self.entered
        found = [0] * len(self.units)
        for unit, _ in itertools.groupby(self.arrivals):
            found[unit] += 1
        return tuple(found)

    @cached_property
    def beside(self) -> tuple[dict[int, int], ...]:
        """Per unit, how often each other unit comes right before or after it."""
        found: tuple[dict[int, int], ...] = tuple({} for _ in self.units)
        for a, b in itertools.pairwise(unit for unit, _ in itertools.groupby(self.arrivals)):
            found[a][b] = found[a].get(b, 0) + 1
            found[b][a] = found[b].get(a, 0) + 1
        return found

    def entries(self, members: Iterable[int]) -> int:
        """How often the configuration that these units share is entered: at a step of one of them behind a step of none."""
        own = tuple(members)
        within = sum(self.beside[a].get(b, 0) for a, b in itertools.combinations(own, 2))
        return sum(self.runs[unit] for unit in own) - within

    def block_us(self, block: Block) -> float:
        """What a block takes: its steps and its entries."""
        entries = self.entries(unit for unit, _ in block)
        known = self.measured.get(block)
        if known is not None:
            return sum(known.steps_us) + entries * known.entry_us
        chosen = [self.units[unit].settings[setting] for unit, setting in block]
        return sum(s.steps_us for s in chosen) + entries * (self.base_us + sum(s.load_us for s in chosen))

    def total_us(self, blocks: Iterable[Block]) -> float:
        """What a partition takes, but for what every call takes."""
        blocks = list(blocks)
        odd = sum(self.entries(unit for unit, _ in block) for block in blocks) % 2
        return sum(map(self.block_us, blocks)) + self.reset_us * odd

    def legal(self, block: Block) -> bool:
        """May these share a configuration, as far as numbers of channels tell? One unit always may."""
        if len(block) == 1:
            return True
        chosen = [self.units[unit].settings[setting] for unit, setting in block]
        within = all(sum(s.channels[way] for s in chosen) <= there for way, there in enumerate(self.channels))
        return within and len(block) <= self.members and all(self.units[unit].packable for unit, _ in block)

    @cached_property
    def narrowest(self) -> tuple[tuple[int, int], ...]:
        """Per unit the fewest channels of each way that a setting of it takes."""
        each = (tuple(s.channels for s in unit.settings) for unit in self.units)
        return tuple((min(c[0] for c in channels), min(c[1] for c in channels)) for channels in each)

    def may_share(self, members: Iterable[int]) -> bool:
        """Could these units share a configuration, each at its narrowest?"""
        own = tuple(members)
        if len(own) > self.members or not all(self.units[unit].packable for unit in own):
            return False
        return all(sum(self.narrowest[unit][way] for unit in own) <= there for way, there in enumerate(self.channels))

    @property
    def defaults(self) -> list[Block]:
        """Every unit by itself at its default."""
        return [((unit, 0),) for unit in range(len(self.units))]
