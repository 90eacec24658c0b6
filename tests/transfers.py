"""What a design's sequence moves, held to what shims have."""

from __future__ import annotations

from collections import Counter
from typing import Any

from iron_core.array.sequence import Await, Free, Transfer


def moved_by(design: Any) -> Counter[str]:
    """Elements by operand. Each transfer is one descriptor; no tile ever has more than 16 of them under way, nor a channel more than 4
    tasks; and all are finished."""
    place = {fifo.name: fifo.producer if fifo.producer.startswith("shim") else fifo.consumers[0] for fifo in design.array.fifos}
    live: dict[int, str] = {}
    tile, queue, moved = Counter[str](), Counter[str](), Counter[str]()
    for step in design.sequence.steps:
        if isinstance(step, Transfer):
            assert len(step.descriptors) == 1
            live[step.task] = step.fifo
            queue[step.fifo] += 1
            tile[place[step.fifo]] += 1
            assert queue[step.fifo] <= 4 and tile[place[step.fifo]] <= 16
            moved[step.operand] += step.elements
        elif isinstance(step, Await | Free):
            fifo = live.pop(step.task)
            queue[fifo] -= 1
            tile[place[fifo]] -= 1
    assert not live
    return moved
