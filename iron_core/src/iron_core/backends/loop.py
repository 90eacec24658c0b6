"""The carried loop of a backend that has none of its own: one call after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def loop_by_calls(
    executable: Any,
    carry: tuple[Any, ...],
    steps: int,
    values: Mapping[str, int],
    on_step: Callable[[int, dict[str, int]], bool] | None = None,
) -> dict[str, int]:
    """Run a version without tensors again and again; see `Executable.loop`. carry: its `CarryTerm`s."""
    now = dict(values)
    for index in range(steps):
        _, carried = executable.call([], now)
        now.update(carried)
        if on_step is not None and on_step(index, carried):
            break
    return {term.name: now[term.name] for term in carry}
