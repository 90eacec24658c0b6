"""What entering a configuration takes: calibrations, loads and packs, each a difference of run lists.

Two lists of the same runs differ in how often a configuration is entered alone: A B A B ... enters 2n of them, A A ... B B ... two. So
their difference is (n - 1) (E(A) + E(B)), E being what an entry takes. Of a list's time that leaves what a call takes besides, and, of
a list that enters an odd count of configurations, what that adds.
"""

from __future__ import annotations

from collections.abc import Sequence

from iron_core.backends.measuring import Measured, RunList
from iron_core.declare.identity import label
from iron_tuner.errors import CostError
from iron_tuner.probe import Probe
from iron_tuner.records import Calibration, Packing, Pairing, median_error, today
from iron_tuner.settings import Variant


def calibrate(probe: Probe, a: Variant, b: Variant) -> Calibration:
    """What two designs of different arrays say of every configuration. CostError where the machine was too busy to tell, or where they
    are one array."""
    key = (probe.entry(a), probe.entry(b))
    with probe.turn():
        kept = probe.cache.get(Calibration, *key)
        if kept is not None:
            return kept
        _two_arrays(a, b)
        probe.said(f"what entering {label(a.op)} and {label(b.op)} takes")
        n, packs = probe.repeats, probe.dispatch == "fused"
        lists = [
            *_pair(probe, [a], [b]),
            *(probe.listed(f"{label(one.op)} x {count}", [one] * count) for one in (a, b) for count in (1, n)),
            *([probe.listed("both on one configuration", [a, b], ((0, 1),))] if packs else []),
        ]
        turn, grouped, a_once, a_many, b_once, b_many, *packed = (one.us for one in _trusted(probe, lists))
        pair = (turn - grouped) / (n - 1)
        steps = (a_many - a_once) / (n - 1) + (b_many - b_once) / (n - 1)
        dispatch = grouped - n * steps - pair
        base = reset = None
        if packs:
            reset = (a_once + b_once - 2 * dispatch - steps - pair) / 2
            base = pair - (packed[0] - dispatch - steps - reset)
        found = Calibration(dispatch, pair / 2, base, reset, probe.platform.mode, probe.timing.rounds, probe.timing.calls, today())
        probe.cache.put(found, *key, of=f"{label(a.op)} and {label(b.op)}")
        return found


def pairing(probe: Probe, reference: Variant, one: Variant) -> Pairing:
    """What entering the reference and a design takes together. CostError as `calibrate`."""
    key = (probe.entry(reference), probe.entry(one), probe.repeats)
    with probe.turn():
        kept = probe.cache.get(Pairing, *key)
        if kept is not None:
            return kept
        _two_arrays(reference, one)
        probe.said(f"what entering {label(one.op)} takes")
        turn, grouped = _trusted(probe, _pair(probe, [reference], [one]))
        rounds = [(t - g) / (probe.repeats - 1) for t, g in zip(turn.round_us, grouped.round_us, strict=False)]
        noise = 0.0 if probe.simulated else median_error(rounds)
        pair = (turn.us - grouped.us) / (probe.repeats - 1)
        found = Pairing(pair, noise, probe.timing.rounds, probe.timing.calls, probe.platform.mode, today())
        probe.cache.put(found, *key, of=f"{label(one.op)} {one.label}")
        return found


def packing(probe: Probe, reference: Variant, members: Sequence[Variant]) -> Packing:
    """Designs on one configuration: what entering it and the reference takes, and each one's step there. CostError as `calibrate`;
    UnsupportedError, of the backend, where they do not go on one."""
    key = (probe.entry(reference), tuple(map(probe.entry, members)))
    with probe.turn():
        kept = probe.cache.get(Packing, *key)
        if kept is not None:
            return kept
        names = ", ".join(label(one.op) for one in members)
        probe.said(f"{names} on one configuration")
        n, size = probe.repeats, len(members)
        lists = _pair(probe, members, [reference])
        every = tuple(range(size))
        lists.append(probe.listed("each once", members, (every,)))
        for index, one in enumerate(members):
            runs = [*members[:index], *[one] * n, *members[index + 1 :]]
            lists.append(probe.listed(f"{label(one.op)} x {n} there", runs, (tuple(range(len(runs))),)))
        turn, grouped, once, *many = (one.us for one in _trusted(probe, lists))
        steps = tuple((each - once) / (n - 1) for each in many)
        if min(steps) < 0:
            less = f"a step there is less than the noise, {min(steps):.3g} us"
            raise CostError(f"{names} on one configuration: {less}. Raise --repeats ({n}).")
        found = Packing(
            (turn - grouped) / (n - 1), steps, probe.timing.rounds, probe.timing.calls, probe.platform.mode, today()
        )
        probe.cache.put(found, *key, of=names)
        return found


def _pair(probe: Probe, first: Sequence[Variant], second: Sequence[Variant]) -> list[RunList]:
    """Two configurations, in turn and grouped; several designs are a pack."""
    n = probe.repeats
    turn = [*first, *second] * n
    grouped = [*first] * n + [*second] * n
    size, period = len(first), len(first) + len(second)
    there = [i for i in range(len(turn)) if i % period < size], list(range(n * size))
    packs = [(tuple(one),) if size > 1 else () for one in there]
    names = ", ".join(label(one.op) for one in (*first, *second))
    return [probe.listed(f"{names} in turn", turn, packs[0]), probe.listed(f"{names} grouped", grouped, packs[1])]


def _trusted(probe: Probe, lists: Sequence[RunList]) -> list[Measured]:
    found = probe.measured(lists)
    for runs, one in zip(lists, found, strict=True):
        if one.disturbed:
            raise CostError(f"{runs.name}: no figure to trust ({one.disturbed}). Measure when the machine has nothing else to do.")
    return found


def _two_arrays(a: Variant, b: Variant) -> None:
    if a.array_key == b.array_key:
        raise CostError(f"{label(a.op)} and {label(b.op)} are one array, which is entered once for both. Legal: two of different arrays.")


