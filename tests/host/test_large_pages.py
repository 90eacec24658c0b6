"""Large pages: what was filled moves to them, what was not takes no memory."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from iron_core.declare.formats import Dense, bfloat16
from iron_core.image.arena import guard_bytes
from iron_core.image.plan import Packaging, Plan, Resident
from iron_host import large_pages
from iron_host.anonymous import address, anonymous
from iron_host.large_pages import LARGE, Filling
from iron_host.memory import HostMemory


def has_large_pages() -> bool:
    probe = anonymous(2 * LARGE)
    probe[:] = 1
    filling = Filling(probe)
    filling.settle()
    return bool(filling.large.any())


needs_large_pages = pytest.mark.skipif(not has_large_pages(), reason="this system makes no large pages when asked to")


def starting_at_a_border(count: int) -> tuple[np.ndarray, int]:
    """Memory with room for so many large pages, and where the first would begin."""
    whole = anonymous((count + 1) * LARGE)
    return whole, -address(whole) % LARGE


@needs_large_pages
def test_what_is_nearly_full_becomes_large_and_keeps_its_content():
    """Neighbours and those that stand alone; seven eighths of small pages are enough, one fewer are not."""
    whole, at = starting_at_a_border(6)
    enough = LARGE * 7 // 8
    for i, nbytes in enumerate((LARGE, enough, enough - mmap.PAGESIZE, 0, LARGE, 1)):
        whole[at + i * LARGE : at + i * LARGE + nbytes] = i + 1
    filling = Filling(whole)
    for _ in range(2):
        filling.settle()
        assert filling.large[:6].tolist() == [True, True, False, False, True, False]
    assert (whole[at : at + LARGE] == 1).all() and (whole[at + LARGE : at + LARGE + enough] == 2).all()
    assert not whole[at + LARGE + enough : at + 2 * LARGE].any() and (whole[at + 4 * LARGE : at + 5 * LARGE] == 5).all()
    whole[at + 2 * LARGE : at + 3 * LARGE] = 3
    filling.settle()
    assert filling.large[:6].tolist() == [True, True, True, False, True, False]


def test_where_the_system_has_none_nothing_changes(monkeypatch):
    """An older kernel refuses; another system has no way to ask."""
    whole, _ = starting_at_a_border(2)
    whole[:] = 9
    monkeypatch.setattr(large_pages, "_COLLAPSE", 1 << 20)
    refused, of_an_array = Filling(whole), Filling(np.ones(3 * LARGE, np.uint8))
    refused.settle()
    monkeypatch.setattr(large_pages, "_mincore", lambda: None)
    for filling in (refused, of_an_array, Filling(whole)):
        filling.settle()
        assert not filling.large.any() and (whole == 9).all()


@pytest.mark.skipif(guard_bytes() > 0, reason="a guarded process keeps buffers apart")
@needs_large_pages
def test_small_states_lie_behind_one_another():
    """So that full ones share large pages; each keeps its bytes, and those of a version that comes later are found too."""

    def plan(count: int) -> Plan:
        states = tuple(Resident(f"s{i}", "state", (400_000,), Dense(bfloat16)) for i in range(count))
        return Plan("g", "host", "host", Packaging("host", "run list", ()), (), states, ())

    memory = HostMemory(plan(20))
    memory.grow(plan(32))
    for i in range(32):
        assert not memory.read(f"s{i}").any()
        memory.write(f"s{i}", np.full(400_000, i).astype(bfloat16))
    first = [address(memory.view("resident", i)) for i in range(32)]
    memory.settle()
    # 16 MB and 9.6 MB in two maps, wherever they begin
    assert sum(int(one.large.sum()) for one in memory._filling) >= 6 + 3
    assert first == [address(memory.view("resident", i)) for i in range(32)]
    assert all((memory.read(f"s{i}") == i).all() for i in range(32))
