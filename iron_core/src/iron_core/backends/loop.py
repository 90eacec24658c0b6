"""The carried loop: what ends it on every backend, and the loop of a backend that has none of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from iron_core.errors import CallError
from iron_core.graph.traced import PerCallValue
from iron_core.image.plan import VersionPlan

#: What native loops count in.
_MOST_STEPS = (1 << 63) - 1


def step_count(given: Any) -> int:
    """How many steps a caller wants, as an int; CallError for what is no such number."""
    try:
        steps = operator.index(given)
    except TypeError:
        raise CallError(f"steps={given!r}: a loop makes a whole number of steps, an int or numpy integer.") from None
    if not 0 <= steps <= _MOST_STEPS:
        raise CallError(f"steps={steps}; legal: 0 to {_MOST_STEPS}.")
    return steps


def check_carried(values: Iterable[PerCallValue], carried: Mapping[str, int]) -> None:
    """CallError where a carried number does not fit its dtype: no step may run on it. values: the version's."""
    for value in values:
        if value.name in carried:
            value.number(carried[value.name])


def after_steps(error: BaseException, made: int, steps: int) -> None:
    """Note on what ends a loop how many of its steps are made."""
    error.add_note(f"The loop was ended after {made} of {steps} steps.")


def loop_by_calls(
    call: Callable[[dict[str, int]], Mapping[str, int]],
    version: VersionPlan,
    steps: int,
    values: Mapping[str, int],
    on_step: Callable[[int, dict[str, int]], bool] | None = None,
) -> dict[str, int]:
    """The loop of a backend that has none of its own: `call(values)` runs once and gives the carried values' next numbers.

    See `iron_core.backends.protocol.Looping`.
    """
    now, made = dict(values), 0
    try:
        while made < steps:
            carried = dict(call(now))
            now.update(carried)
            made += 1
            if on_step is not None and on_step(made - 1, carried):
                break
            if made < steps:
                check_carried(version.values, carried)
    except BaseException as error:
        after_steps(error, made, steps)
        raise
    return {term.name: now[term.name] for term in version.carry}
