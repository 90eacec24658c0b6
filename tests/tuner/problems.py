"""Problems drawn at random, and their optimum by enumeration: nothing here knows how they are searched."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from iron_tuner.problem import Block, Problem, Setting, Together, Unit


def drawn(seed: int, units: int, steps: int) -> Problem:
    """Some prologue, then a layer that repeats; settings that are narrower are slower and load faster; some arrays stay alone, some
    packs were measured as one."""
    rng = random.Random(seed)
    made = []
    for number in range(units):
        us, load = rng.uniform(3, 200), rng.uniform(20, 150)
        wide = rng.choice((1, 2, 4, 8)), rng.choice((1, 2, 4, 8))
        settings = [
            Setting(us * rng.uniform(1, 1.5) ** k, load * rng.uniform(0.4, 1) ** k, (max(1, wide[0] >> k), max(1, wide[1] >> k)))
            for k in range(rng.randint(1, 3))
        ]
        made.append(Unit(f"u{number}", tuple(settings), rng.random() < 0.9))
    layer = [rng.randrange(units) for _ in range(rng.randint(2, steps))]
    arrivals = [*range(units), *layer * rng.randint(1, 4)]
    problem = Problem(tuple(made), tuple(arrivals), rng.uniform(20, 40), rng.uniform(0, 60), (16, 16), {}, rng.choice((2, 3, 8)))
    measured = {}
    for _ in range(rng.randint(0, 3)):
        members = sorted(rng.sample(range(units), min(units, 2)))
        block = tuple((unit, rng.randrange(len(made[unit].settings))) for unit in members)
        if len(block) > 1 and problem.legal(block):
            chosen = [made[unit].settings[setting] for unit, setting in block]
            entry = (problem.base_us + sum(s.load_us for s in chosen)) * rng.uniform(0.7, 1.2)
            measured[block] = Together(entry, tuple(s.steps_us * rng.uniform(0.8, 1.2) for s in chosen))
    return Problem(problem.units, problem.arrivals, problem.base_us, problem.reset_us, problem.channels, measured, problem.members)


def blocks(problem: Problem, members: tuple[int, ...]) -> Iterator[Block]:
    """Every legal block of these units."""
    numbers = (range(len(problem.units[unit].settings)) for unit in members)
    yield from (block for chosen in itertools.product(*numbers) if problem.legal(block := tuple(zip(members, chosen, strict=True))))


def optimum(problem: Problem) -> float:
    """The least time of all partitions at all settings, however the units are put together."""
    count = len(problem.units)
    inf = float("inf")
    price = {}
    for mask in range(1, 1 << count):
        members = tuple(unit for unit in range(count) if mask >> unit & 1)
        if len(members) == 1 or problem.may_share(members):
            price[mask] = min(map(problem.block_us, blocks(problem, members)), default=inf), problem.entries(members) % 2
    least = {(0, 0): 0.0}
    for mask in range(1, 1 << count):
        first = mask & -mask
        part = mask
        for parity in (0, 1):
            least[mask, parity] = inf
        while part:
            if part & first and part in price:
                us, odd = price[part]
                for parity in (0, 1):
                    least[mask, parity] = min(least[mask, parity], us + least.get((mask ^ part, parity ^ odd), inf))
            part = (part - 1) & mask
    everything = (1 << count) - 1
    return min(least[everything, 0], least[everything, 1] + problem.reset_us)
