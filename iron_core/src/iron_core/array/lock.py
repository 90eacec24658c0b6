"""Locks of a tile: `Lock` between cores, and `WorkerRuntimeBarrier`, which the runtime sequence opens."""

from __future__ import annotations

from iron_core.array.builder import builder
from iron_core.array.program import AcquireLock, RaiseBarrier, ReleaseLock, WaitBarrier
from iron_core.array.recording import recorder
from iron_core.array.tile import Tile, as_tile


class Lock:
    """A counting semaphore on a tile, starting at `init`."""

    def __init__(self, *, init: int = 0, name: str | None = None, tile: Tile | None = None) -> None:
        self.name = builder().name(name, "lock")
        self.init = init
        self.tile = as_tile(tile, f"lock {self.name}")
        builder().locks.append(self)

    def acquire(self, value: int = 1) -> None:
        """Wait until it is at least `value`, then take that from it."""
        recorder().add(AcquireLock(self.name, value))

    def release(self, value: int = 1) -> None:
        recorder().add(ReleaseLock(self.name, value))


class WorkerRuntimeBarrier:
    """What a sequence opens after it wrote the words that cores are about to read.

    Each worker it is given to has a lock of its own. A core waits for a value without consuming it, reads its words, then
    re-arms with `release_with_value`, so that it passes again only after the next `set`.
    """

    def __init__(self, initial_value: int = 0, *, name: str | None = None) -> None:
        self.initial = initial_value
        self.name = builder().name(name, "barrier")

    def lock_name(self, worker: str) -> str:
        return f"{self.name}_{worker}"

    def wait_for_value(self, value: int) -> None:
        """Go on when it is exactly `value`."""
        recorder().add(WaitBarrier(self.lock_name(recorder().worker), value))

    def release_with_value(self, value: int) -> None:
        """Add `value` to it."""
        recorder().add(RaiseBarrier(self.lock_name(recorder().worker), value))
