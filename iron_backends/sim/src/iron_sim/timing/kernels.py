"""Cycles of one kernel call, from what its contract says that it does and from what a core's hardware takes for that.

A contract's own `cycles`, where a source gives them; else its loops; else, from its operations, one loop over the largest of its tiles
whose turns do not overlap: a vector is loaded, goes through the operations on each of its numbers one after the other, and is stored.
"""

from __future__ import annotations

import math

from iron_core.array.kernel import Kernel
from iron_core.array.work import Loop
from iron_core.declare.objects import ObjectType
from iron_sim.timing.hardware import Hardware


def kernel_cycles(kernel: Kernel, hw: Hardware) -> float:
    """Cycles of one call, from the branch into the kernel to the one out of it."""
    contract = kernel.contract
    if contract.cycles is not None:
        inside = contract.cycles
    else:
        inside = sum(loop_cycles(loop, hw) for loop in contract.loops or loops_of(kernel, hw))
    return inside + 2 * hw.branch.value + len(kernel.data.arguments) * hw.scalar_latency.value


def loop_cycles(loop: Loop, hw: Hardware) -> float:
    """Cycles of all turns of a loop."""
    loads = math.ceil(loop.reads / hw.load_width.value / hw.loads.value)
    stores = math.ceil(loop.writes / hw.store_width.value)
    issue = max(1, loads, stores, loop.issued or loop.chain + loop.conversions + loop.special + loop.scalar)
    latency = loop.scalar * hw.scalar_latency.value + loop.chain * hw.mac_latency.value + loop.conversions * hw.convert_latency.value
    latency += loop.special * (hw.transcendental_latency.value + hw.convert_latency.value)
    if loop.reads:
        latency += hw.load_latency.value + max(loads - 1, 0)
    if loop.writes:
        latency += hw.store_latency.value + max(stores - 1, 0)
        if loop.chain:
            latency += hw.convert_latency.value
    if loop.overlapped:
        return loop.times * issue + latency
    return loop.times * max(latency, issue)


def loops_of(kernel: Kernel, hw: Hardware) -> tuple[Loop, ...]:
    """The loop that a contract's operations stand for."""
    tiles = [(role, a) for role, a in zip(kernel.data.roles, kernel.data.arguments, strict=True) if isinstance(a, ObjectType)]
    if not tiles:
        return ()
    numbers = max(tile.elements for _, tile in tiles)
    read = sum(tile.nbytes for role, tile in tiles if role != "out")
    written = max((tile.nbytes for role, tile in tiles if role != "in"), default=0)
    ops = kernel.contract.ops
    if not ops and not read:
        return (Loop(times=math.ceil(written / hw.store_width.value), writes=int(hw.store_width.value), chain=0, overlapped=True),)
    if not ops:
        wide = int(hw.store_width.value)
        return (Loop(times=math.ceil(max(read, written) / wide), reads=wide, writes=wide, chain=0),)
    turns = math.ceil(numbers / hw.lanes.value)
    return (Loop(times=turns, reads=math.ceil(read / turns), writes=math.ceil(written / turns), chain=math.ceil(ops / numbers)),)
