"""The cheapest partition of units into packs and single ones: a search that is exact where it ends, and proves how far off it may be
where it is cut short.

The proof is a price per unit. Where no block is cheaper than its units' prices together, no partition is cheaper than all prices: the
linear relaxation's dual, whose value anyone can check (`Partition.prices`, `candidates` and `caps`). What a search then adds up is
by how much each block is dearer than its prices.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping

import attrs
import numpy as np

from iron_tuner.candidates import WIDTH, cheapest, packs
from iron_tuner.problem import Block, Problem

#: States that a search looks at before it stops with what it has.
STATES = 200_000
#: Steps that prices are improved in.
_STEPS = 300
#: Settings of a pack that are tried before it is given up.
ATTEMPTS = 3
#: Gaps between a unit's runs that are weighed against each other.
_GAPS = 12
#: Searches before packs that nobody asked about are given up.
ROUNDS = 60
#: What sums of microseconds are off by.
_ROUNDING = 1e-6


@attrs.frozen
class Partition:
    """blocks, and what they take together. bound_us: no legal partition takes less. prices: per unit, which prove that, but for what the
    search itself excluded. exact: the search ended, so nothing is cheaper. complete: every pack was a candidate."""

    blocks: tuple[Block, ...]
    us: float
    bound_us: float
    prices: tuple[float, ...]
    exact: bool
    complete: bool

    @property
    def gap(self) -> float:
        """How much cheaper than this a partition can be at most, as a part of it."""
        return max(0.0, (self.us - self.bound_us) / self.us) if self.us > 0 else 0.0


@attrs.frozen
class _Column:
    """A candidate: its units as bits, what it is dearer than their prices, and is it entered an odd number of times."""

    mask: int
    us: float
    odd: int
    block: Block


def partition(
    problem: Problem,
    fits: Callable[[Block], bool] = lambda block: True,
    *,
    states: int = STATES,
    width: int = WIDTH,
    attempts: int = ATTEMPTS,
    rounds: int = ROUNDS,
) -> Partition:
    """The cheapest partition whose packs fit. A pack that does not is tried at its next cheapest settings, `attempts` times together, then
    given up, and the search made again; after `rounds` searches of packs alone that are known to fit. The bound is then that of the
    search before."""
    singles = [cheapest(problem, (unit,), 1)[0] for unit in range(len(problem.units))]
    alone = [problem.block_us(block) for block in singles]
    found, complete = packs(problem, alone, width)
    found = {members: block for members, block in found.items() if _useful(problem, members, block, alone)}
    caps = [float("inf")] * len(problem.units) if complete else _caps(problem)
    tried: dict[tuple[int, ...], int] = {}
    settled: set[Block] = set()
    for turn in itertools.count(1):
        best = _Search(problem, [*singles, *found.values()], caps, states, complete).run()
        asked = [block for block in best.blocks if len(block) > 1 and block not in settled]
        refused = [block for block in asked if not fits(block)]
        settled.update(block for block in asked if block not in refused)
        for block in refused:
            members = tuple(unit for unit, _ in block)
            number = tried[members] = tried.get(members, 0) + 1
            following = cheapest(problem, members, attempts)[number:]
            del found[members]
            if following and _useful(problem, members, following[0], alone):
                found[members] = following[0]
        if not refused:
            break
        if turn == rounds:
            known = [block for block in found.values() if block in settled]
            last = _Search(problem, [*singles, *known], caps, states, complete).run()
            return attrs.evolve(last, bound_us=min(last.us, best.bound_us), prices=best.prices, exact=False)
    return best


def _useful(problem: Problem, members: tuple[int, ...], block: Block, alone: list[float]) -> bool:
    """Can a pack make a partition cheaper: by itself, or as it spares the last, empty entry?"""
    saved = sum(alone[unit] for unit in members) - problem.block_us(block)
    apart = sum(problem.runs[unit] for unit in members)
    return saved > 0 or ((apart - problem.entries(members)) % 2 == 1 and saved + problem.reset_us > 0)


def _caps(problem: Problem) -> list[float]:
    """Per unit what no pack it is in can take less than for it, whatever the others are: its steps, its load at every entry, and of all
    entries the share of one of the most units."""
    found = []
    for unit, data in enumerate(problem.units):
        if not data.packable:
            found.append(float("inf"))
            continue
        entered = _entered(problem, unit)
        each = min(s.steps_us + entered * s.load_us for s in data.settings)
        found.append(each + entered * problem.base_us / problem.members)
    return found


def _entered(problem: Problem, unit: int) -> int:
    """How often any pack with a unit is entered at least.

    Between two of the unit's runs the configuration stays only if all that runs there is in the pack too. No pack holds what runs in all
    of these gaps; so many as one can hold at most are closed, every other is an entry.
    """
    at = [i for i, other in enumerate(problem.arrivals) if other == unit]
    gaps = Counter(frozenset(problem.arrivals[a + 1 : b]) for a, b in itertools.pairwise(at) if b > a + 1)
    closable = [(count, gap) for gap, count in gaps.most_common() if problem.may_share({unit, *gap})]
    closed = sum(count for count, _ in closable[_GAPS:])  # as if they cost nothing

    def most(number: int, held: frozenset[int]) -> int:
        if number == len(closable[:_GAPS]):
            return 0
        count, gap = closable[number]
        skipped = most(number + 1, held)
        both = held | gap
        return max(skipped, count + most(number + 1, both)) if problem.may_share(both) else skipped

    return 1 + sum(gaps.values()) - closed - most(0, frozenset({unit}))


def prices_of(sets: list[tuple[int, ...]], costs: list[float], caps: list[float]) -> np.ndarray:
    """Per unit a price, at most its cap, such that no set costs less than its units' prices together; their sum as large as subgradient
    steps, a repair and an ascent find it."""
    count = len(caps)
    inside = np.zeros((len(sets), count))
    for row, members in zip(inside, sets, strict=True):
        row[list(members)] = 1.0
    cost, most = np.array(costs), np.array(caps)
    size = inside.sum(1)
    prices = most.copy()
    for unit in range(count):
        prices[unit] = min(prices[unit], *(cost[inside[:, unit] > 0] / size[inside[:, unit] > 0]))
    best, best_value = prices, prices.sum()
    step = max(float(np.abs(prices).mean()), 1e-9)
    for turn in range(_STEPS):
        over = inside @ prices - cost > 0
        slope = 1.0 - inside[over].sum(0)
        norm = float(np.linalg.norm(slope))
        if norm == 0.0:
            break
        prices = np.minimum(prices + step / (1 + turn / 20) * slope / norm, most)
        legal = _lifted(_repaired(prices, inside, cost), inside, cost, most)
        if legal.sum() > best_value:
            best, best_value = legal, legal.sum()
    return best


def _repaired(prices: np.ndarray, inside: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Lowered until no set is cheaper than its prices."""
    prices = prices.copy()
    while True:
        over = inside @ prices - cost
        worst = int(over.argmax())
        if over[worst] <= 0:
            return prices
        prices -= inside[worst] * (over[worst] / inside[worst].sum() + 1e-12 * abs(over[worst]) + 1e-12)


def _lifted(prices: np.ndarray, inside: np.ndarray, cost: np.ndarray, caps: np.ndarray) -> np.ndarray:
    """Raised, one unit after the other, as far as every set allows."""
    prices = prices.copy()
    slack = cost - inside @ prices
    for unit in range(len(prices)):
        rows = inside[:, unit] > 0
        more = max(0.0, min(float(slack[rows].min()), float(caps[unit] - prices[unit])))
        prices[unit] += more
        slack[rows] -= more
    return prices


class _Search:
    """Units one after the other, each into one of the candidates that hold it and no unit placed before. Of two ways to place the same
    units with the same parity of entries only the cheaper is gone on with."""

    def __init__(self, problem: Problem, blocks: list[Block], caps: list[float], states: int, complete: bool) -> None:
        self.problem, self.complete, self.states = problem, complete, states
        sets = [tuple(unit for unit, _ in block) for block in blocks]
        costs = [problem.block_us(block) for block in blocks]
        self.prices = prices_of(sets, costs, caps)
        self.by_first: list[list[_Column]] = [[] for _ in problem.units]
        for members, us, block in zip(sets, costs, blocks, strict=True):
            dearer = max(0.0, us - float(self.prices[list(members)].sum()))
            column = _Column(sum(1 << unit for unit in members), dearer, problem.entries(members) % 2, block)
            self.by_first[min(members)].append(column)
        for columns in self.by_first:
            columns.sort(key=lambda column: -column.us)  # the stack's top is looked at first

    def run(self) -> Partition:
        everything = (1 << len(self.problem.units)) - 1
        best: tuple = ()  # of nested pairs, the last block first
        best_us = float("inf")
        seen: dict[tuple[int, int], float] = {}
        stack: list[tuple[float, int, int, tuple]] = [(0.0, 0, 0, ())]
        looked = 0
        while stack and (looked < self.states or not best):
            us, placed, odd, chosen = stack.pop()
            if us >= best_us or seen.get((placed, odd), float("inf")) <= us:
                continue
            looked += 1
            seen[placed, odd] = us
            if placed == everything:
                if us + odd * self.problem.reset_us < best_us:
                    best, best_us = chosen, us + odd * self.problem.reset_us
                continue
            first = (~placed & (placed + 1)).bit_length() - 1
            for column in self.by_first[first]:
                if not column.mask & placed and us + column.us < best_us:
                    stack.append((us + column.us, placed | column.mask, odd ^ column.odd, (column.block, chosen)))
        exact = self.complete and all(us >= best_us for us, *_ in stack)
        blocks: list[Block] = []
        while best:
            block, best = best
            blocks.append(block)
        total = self.problem.total_us(blocks)
        beyond = min([best_us, *(us for us, *_ in stack)]) if self.complete else 0.0
        bound = total if exact else min(total, float(self.prices.sum()) + beyond - _ROUNDING)
        return Partition(tuple(reversed(blocks)), total, bound, tuple(map(float, self.prices)), exact, self.complete)


def covered(prices: Mapping[int, float] | tuple[float, ...], block_us: float, members: tuple[int, ...]) -> bool:
    """Is a block no cheaper than its units' prices: what the proof asks of each?"""
    return sum(prices[unit] for unit in members) <= block_us + _ROUNDING
