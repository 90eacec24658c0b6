"""Does a design fit its device: well formed, placed, within every limit, routed.

Operators' modules import this one for `memory()`; what places and routes is imported when it is called, for a run on the CPU fits
no array.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from iron_core.devices import Device, device
from iron_core.errors import Unresolvable

if TYPE_CHECKING:
    from iron_core.array.design import ArrayDesign, Design
    from iron_core.array.memory import TileMemory
    from iron_core.array.pools import TilePlacement


def fit(design: Design | ArrayDesign) -> TilePlacement:
    """Where the design's tiles go; of an array alone, whatever sequences drive it. DeclarationError for a design that is not well
    formed, Unresolvable where it does not fit: with the number used, the number there is, and what to change."""
    return _fitted(design)


@lru_cache(maxsize=1024)
def _fitted(design: Design | ArrayDesign) -> TilePlacement:
    """Once for every design: a graph, its tuner and its backend ask for the same ones."""
    from iron_core.array import limits
    from iron_core.array.design import Design
    from iron_core.array.spec_sequence import check_sequence

    array = design.array if isinstance(design, Design) else design
    placement = _array(array)
    if isinstance(design, Design):
        check_sequence(design)
    limits.check(design, device(array.dev), placement)
    return placement


@lru_cache(maxsize=1024)
def _array(array: ArrayDesign) -> TilePlacement:
    """Placed and routed; designs of one array share this."""
    from iron_core.array import spec
    from iron_core.array.router import place_and_route

    spec.check(array)
    placement, _ = place_and_route(array, device(array.dev))
    return placement


def memory(op: Any, dev: Device | str) -> tuple[TileMemory, ...]:
    """What the cores and memory tiles of an operator hold, those with the least room left first.

    op: every tunable known, as `resolve()` returns it; `compatible()` need not have agreed. What limits and placer count,
    so that an operator need not add up its own buffers.
    """
    from iron_core.array.build import build_array

    return _memory(build_array(op, dev).array, device(dev))


@lru_cache(maxsize=4096)
def _memory(array: ArrayDesign, dev: Device) -> tuple[TileMemory, ...]:
    """Once for every array: a tuner asks for many operators of one."""
    from iron_core.array import memory as accounting
    from iron_core.array.placer import place
    from iron_core.array.pools import fifo_pools

    places = None if accounting.settled(array) else place(array, dev)
    held = accounting.memory(array, dev, fifo_pools(array, places), places)
    return tuple(sorted(held, key=lambda one: one.there - one.used))


def require_memory(op: Any, dev: Device | str, advice: str) -> None:
    """Unresolvable where a core or memory tile of an operator has no room for what its array puts there.

    advice: what a caller can give instead, a sentence.
    """
    fullest = memory(op, dev)[0]
    if not fullest.fits:
        where = f"core {fullest.worker}" if fullest.worker else f"a {'memory tile' if fullest.kind == 'mem' else 'core'}"
        raise Unresolvable(
            f"{type(op).__name__}: {where} needs {fullest.used} bytes of its {fullest.there} ({fullest.listed}). {advice}"
        )
