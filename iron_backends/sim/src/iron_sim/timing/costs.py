"""Cycles of what is not a kernel: a core's statements and the controller's steps."""

from __future__ import annotations

from iron_core.array.program import Acquire, AcquireLock, For, Release, ReleaseLock, Statement
from iron_core.array.sequence import Await, AwaitToken, SetBarrier, Step, Sync, Transfer, WriteWord
from iron_sim.timing.hardware import Hardware

#: Words of a shim's descriptor.
DESCRIPTOR_WORDS = 8


def statement_cycles(statement: Statement, hw: Hardware) -> float:
    """Of a core, beside what it waits and its calls: a lock and the pointer to what it guards, a lock given on, a turn of a loop."""
    match statement:
        case Acquire() | AcquireLock():
            return hw.lock.value + hw.scalar_load_latency.value
        case Release() | ReleaseLock():
            return hw.lock.value
        case For():
            return hw.branch.value
    return 0.0


def step_cycles(step: Step, hw: Hardware) -> float:
    """Of the controller, until it goes on: a transfer writes its descriptors, patches their addresses and pushes them."""
    match step:
        case Transfer():
            block = hw.block_write.value + DESCRIPTOR_WORDS * hw.block_word.value + hw.address_patch.value
            return len(step.descriptors) * block + hw.write32.value + (hw.mask_write.value if step.token else 0)
        case Await() | AwaitToken():
            return hw.token_wait.value
        case WriteWord() | SetBarrier():
            return hw.write32.value
        case Sync():
            return len(step.words) * hw.write32.value
    return 0.0
