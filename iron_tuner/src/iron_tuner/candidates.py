"""Candidate packs of a problem, and at which settings each is cheapest."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator

from iron_tuner.problem import Block, Problem

#: The most packs of a size that are looked at; those that save most are kept.
WIDTH = 10_000


def cheapest(problem: Problem, members: tuple[int, ...], count: int) -> list[Block]:
    """The cheapest blocks of these units that are legal, at most `count`, by branch and bound over their settings."""
    entries = problem.entries(members)
    found: list[tuple[float, Block]] = [
        (problem.block_us(block), block)
        for block in problem.measured
        if tuple(unit for unit, _ in block) == members and problem.legal(block)
    ]
    known = {block for _, block in found}
    options = []
    for unit in members:
        priced = ((s.steps_us + entries * s.load_us, number) for number, s in enumerate(problem.units[unit].settings))
        options.append(sorted(priced))
    least = [0.0] * (len(members) + 1)
    room = [(0, 0)] * (len(members) + 1)
    for at in range(len(members) - 1, -1, -1):
        least[at] = least[at + 1] + options[at][0][0]
        own = problem.narrowest[members[at]]
        room[at] = (room[at + 1][0] + own[0], room[at + 1][1] + own[1])
    limits = problem.channels if len(members) > 1 else tuple(room[0][way] + 1_000_000 for way in (0, 1))
    worst = [-us for us, _ in found]  # a heap of the best `count`, the worst first
    heapq.heapify(worst)

    def extend(at: int, us: float, used: tuple[int, int], block: Block) -> None:
        if len(worst) >= count and us + least[at] >= -worst[0]:
            return
        if at == len(members):
            if block not in known:
                found.append((us, block))
                heapq.heappush(worst, -us)
                if len(worst) > count:
                    heapq.heappop(worst)
            return
        for price, number in options[at]:
            own = problem.units[members[at]].settings[number].channels
            now = (used[0] + own[0], used[1] + own[1])
            if all(now[way] + room[at + 1][way] <= limits[way] for way in (0, 1)):
                extend(at + 1, us + price, now, (*block, (members[at], number)))

    extend(0, entries * problem.base_us, (0, 0), ())
    return [block for _, block in sorted(found)[:count]]


def packs(problem: Problem, alone_us: list[float], width: int = WIDTH) -> tuple[dict[tuple[int, ...], Block], bool]:
    """Connected sets of units that may share a configuration, each with its cheapest block; and whether that is all of them.

    A set that is not connected saves no entry. Sets grow by a unit; of a size with more than `width` sets those are kept that save most.
    alone_us: what each unit takes by itself.
    """
    found: dict[tuple[int, ...], Block] = {}
    complete = True
    level: Iterable[tuple[int, ...]] = [(unit,) for unit in range(len(problem.units)) if problem.may_share((unit,))]
    for _ in range(problem.members - 1):
        grown: dict[tuple[int, ...], tuple[float, Block]] = {}
        for members in _grown(problem, level):
            blocks = cheapest(problem, members, 1)
            if blocks:
                grown[members] = (problem.block_us(blocks[0]) - sum(alone_us[unit] for unit in members), blocks[0])
        kept = heapq.nsmallest(width, grown, key=lambda members: (grown[members][0], members))
        complete &= len(kept) == len(grown)
        found.update((members, grown[members][1]) for members in kept)
        level = kept
    return found, complete


def _grown(problem: Problem, level: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Every set one larger, once."""
    seen: set[tuple[int, ...]] = set()
    for members in level:
        for other in sorted(set(itertools.chain.from_iterable(problem.beside[unit] for unit in members)) - set(members)):
            grown = tuple(sorted((*members, other)))
            if grown not in seen:
                seen.add(grown)
                if problem.may_share(grown):
                    yield grown
