"""Residents and arena in plain numpy, which a backend has that brings no memory of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core.backends.memory import Memory
from iron_core.declare.formats import Dense
from iron_core.image.plan import Plan, Resident


def plan(*names: str, banks: tuple[int, ...]) -> Plan:
    """States of four numbers, and banks."""
    residents = tuple(Resident(name, "state", (4,), Dense(np.dtype(np.float32))) for name in names)
    return Plan("p", "tiny", "host", None, (), residents, banks)


def test_a_larger_bank_begins_with_what_there_was():
    """The bytes after it nobody wrote: they are a NaN in every float dtype. What was placed stays where it is."""
    memory = Memory(plan("s", banks=(8,)))
    memory.banks[0][:] = 7
    place = memory.view("resident", 0)
    memory.grow(plan("s", "t", banks=(12, 4)))
    assert memory.banks[0].tolist() == [7] * 8 + [255] * 4 and memory.banks[1].tolist() == [255] * 4
    assert memory.view("resident", 0) is place and memory.read("t").tolist() == [0] * 4


def test_a_bank_that_is_large_enough_stays_where_it_is():
    """A version that needs as much, or less, moves nothing: who knows where a bank is still knows."""
    memory = Memory(plan("s", banks=(8, 16)))
    banks: list[Any] = list(memory.banks)
    memory.grow(plan("s", banks=(8, 12)))
    assert all(now is before for now, before in zip(memory.banks, banks, strict=True))
