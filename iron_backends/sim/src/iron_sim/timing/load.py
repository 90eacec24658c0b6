"""What configuring an array takes: its cores' programs and its registers, and in a chain what comes before them."""

from __future__ import annotations

from collections.abc import Mapping

from iron_core.array.design import ArrayDesign
from iron_core.array.kernel import Kernel
from iron_core.array.pools import TilePlacement, fifo_pools
from iron_core.array.program import Call, walk
from iron_sim.timing.hardware import Hardware

#: Bytes of registers: of a tile's descriptor and of a shim's, a lock's first value, and of a stream's way through one switch.
_DESCRIPTOR, _LOCK, _HOP = 24, 4, 8
#: Switches on a stream's way, where its ends' places are not asked for.
_HOPS = 4


def program_bytes(array: ArrayDesign, kernels: Mapping[str, Kernel], hw: Hardware) -> int:
    """Bytes of program memory of all cores: each has its loop, and every kernel it calls."""
    total = 0.0
    for core in array.cores:
        called = {statement.kernel for statement in walk(core.program) if isinstance(statement, Call)}
        total += min(hw.core_program.value + sum(kernels[symbol].contract.program for symbol in called), hw.program_memory.value)
    return round(total)


def register_bytes(array: ArrayDesign) -> int:
    """Bytes of descriptors, locks and switches."""
    pools = fifo_pools(array)
    descriptors = sum(end.descriptors for end in pools.ends)
    locks = sum(pool.locks for pool in pools.pools) + len(array.locks)
    streams = sum(len(fifo.consumers) for fifo in array.fifos if pools.end(fifo.name, 0).way)
    return descriptors * _DESCRIPTOR + locks * _LOCK + streams * _HOPS * _HOP


def load_us(array: ArrayDesign, kernels: Mapping[str, Kernel], hw: Hardware) -> float:
    """Microseconds of an array's programs and registers."""
    return program_bytes(array, kernels, hw) / hw.program_rate.value * 1e-3 + register_bytes(array) / hw.register_rate.value * 1e-3


def switch_us(array: ArrayDesign, placement: TilePlacement, hw: Hardware) -> float:
    """What a step of a chain takes to come to an array from another, before that is loaded: columns with cores are reset one by one."""
    columns = {placement[core.tile][0] for core in array.cores}
    return hw.chain_switch.value + len(columns) * hw.chain_column.value
