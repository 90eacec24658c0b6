"""The dataflow vocabulary of arrays: what an operator's `array()` and `sequence()` are written in.

`array()` builds object fifos, workers, kernels and buffers with the names and meaning of `aie.iron`; each core function
runs once, on symbolic handles, and is recorded. `iron_core.array.build.build` gives the frozen `Design`.
"""

from iron_core.array.buffer import Buffer
from iron_core.array.expression import maximum, minimum
from iron_core.array.fifo import Consumer, ObjectFifo, Producer
from iron_core.array.kernel import Kernel, KernelContract
from iron_core.array.lock import Lock, WorkerRuntimeBarrier
from iron_core.array.recording import MemoryHandle, else_, if_, range_, set_rounding
from iron_core.array.tile import Lane, Tile
from iron_core.array.work import Loop
from iron_core.array.worker import Worker
from iron_core.declare.objects import ObjectType

__all__ = [
    "Buffer",
    "Consumer",
    "Kernel",
    "KernelContract",
    "Loop",
    "Lane",
    "Lock",
    "MemoryHandle",
    "ObjectFifo",
    "ObjectType",
    "Producer",
    "Tile",
    "Worker",
    "WorkerRuntimeBarrier",
    "else_",
    "if_",
    "maximum",
    "minimum",
    "range_",
    "set_rounding",
]
