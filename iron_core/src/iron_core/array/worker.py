"""`Worker`: a core and the function it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from iron_core.array.buffer import Buffer
from iron_core.array.builder import builder
from iron_core.array.fifo import End
from iron_core.array.kernel import Kernel
from iron_core.array.lock import WorkerRuntimeBarrier
from iron_core.array.placement import Tile
from iron_core.array.program import Block
from iron_core.array.recording import Recorder, recording
from iron_core.errors import DeclarationError


class Worker:
    """A core that runs `core_fn(*args)`, over and over unless `while_true` is False.

    The function runs once, now, on symbolic handles, and is recorded. `args` are fifo ends, kernels, buffers, barriers,
    numbers, or (nested) lists of them. stack_size in bytes; None: what its kernels need.
    """

    def __init__(
        self,
        core_fn: Callable[..., None],
        args: Sequence[Any] = (),
        *,
        tile: Tile | None = None,
        stack_size: int | None = None,
        while_true: bool = True,
        name: str | None = None,
    ) -> None:
        self.name = builder().name(name, "core")
        self.tile = tile or Tile("core")
        self.forever = while_true
        self._own: set[int] = set()
        self.barriers: list[WorkerRuntimeBarrier] = []
        for arg in _flat(args):
            if isinstance(arg, End):
                arg.settle(self.tile, f"worker {self.name}")
                self._own.add(id(arg))
            elif isinstance(arg, Buffer):
                if arg.tile is not None and arg.tile is not self.tile:
                    raise DeclarationError(f"{arg!r} is on another worker's tile; pin both with tile= to share memory.")
                arg.tile = self.tile
                self._own.add(id(arg))
            elif isinstance(arg, WorkerRuntimeBarrier):
                self.barriers.append(arg)
        active = Recorder(self)
        with recording(active):
            core_fn(*args)
        self.program: Block = active.finish()
        self.kernels: dict[str, Kernel] = active.kernels
        needed = max((kernel.contract.stack for kernel in self.kernels.values()), default=1024)
        self.stack = stack_size or needed
        builder().workers.append(self)

    def owns(self, part: Any) -> None:
        """DeclarationError unless the fifo end or buffer was among this worker's arguments."""
        if id(part) not in self._own:
            raise DeclarationError(f"worker {self.name} uses {part!r}, which is not among its args.")


def _flat(args: Any) -> list[Any]:
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, (list, tuple)):
            found += _flat(arg)
        else:
            found.append(arg)
    return found
