"""`Worker`: a core and the function it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from iron_core.array.buffer import Buffer
from iron_core.array.builder import builder
from iron_core.array.fifo import ObjectFifoHandle
from iron_core.array.kernel import STACK, Kernel
from iron_core.array.lock import WorkerRuntimeBarrier
from iron_core.array.program import Block
from iron_core.array.recording import Recorder, recording, set_rounding
from iron_core.array.tile import Tile, as_tile
from iron_core.errors import DeclarationError


@attrs.frozen
class BoundValue:
    """A `Value` as `array()` sees it: no number yet, but what `Worker(values=)` takes."""

    name: str


class Worker:
    """A core that runs `core_fn(*args, *numbers)`, over and over unless `while_true` is False.

    The function runs once, now, on symbolic handles, and is recorded. `args` are fifo ends, kernels, buffers, barriers,
    numbers, or (nested) lists of them. stack_size in bytes; None: what its kernels need.

    values: the operator's Values that the core reads. It begins each run by rounding to the nearest even number and
    waiting until the sequence has written them; the function gets their numbers behind `args`, in this order.
    """

    def __init__(
        self,
        core_fn: Callable[..., None],
        args: Sequence[Any] = (),
        *,
        values: Sequence[BoundValue] = (),
        tile: Tile | None = None,
        stack_size: int | None = None,
        while_true: bool = True,
        name: str | None = None,
    ) -> None:
        self.name = builder().name(name, "core")
        if not callable(core_fn):
            raise DeclarationError(f"worker {self.name}: its core is {core_fn!r}; legal: a function of args and the numbers of values=.")
        if not isinstance(args, list | tuple):
            raise DeclarationError(f"worker {self.name}: args={args!r}; legal: a list, [x.cons(), y.prod()].")
        if not isinstance(values, list | tuple):
            raise DeclarationError(f"worker {self.name}: values={values!r}; legal: a list of Values of the operator, [self.count].")
        if stack_size is not None and (type(stack_size) is not int or stack_size < 1):
            raise DeclarationError(f"worker {self.name}: stack_size={stack_size!r}; legal: bytes, at least 1.")
        self.tile = as_tile(tile, f"worker {self.name}") or Tile("core")
        self.forever = while_true
        parts: list[ObjectFifoHandle | Buffer] = []
        self.barriers: list[WorkerRuntimeBarrier] = []
        for arg in _flat(args):
            if isinstance(arg, ObjectFifoHandle):
                arg.settle(self.tile, f"worker {self.name}")
                parts.append(arg)
            elif isinstance(arg, Buffer):
                if arg.tile is not None and arg.tile is not self.tile:
                    raise DeclarationError(f"{arg!r} is on another worker's tile; pin both with tile= to share memory.")
                arg.tile = self.tile
                parts.append(arg)
            elif isinstance(arg, WorkerRuntimeBarrier):
                self.barriers.append(arg)
        block = self._block(values) if values else None
        active = Recorder(self.name, parts if block is None else [*parts, block])
        with recording(active):
            _fits(core_fn, len(args) + len(values), self.name)
            core_fn(*args, *(() if block is None else self._numbers(block)))
        self.program: Block = active.finish()
        self.kernels: dict[str, Kernel] = active.kernels
        needed = max((kernel.contract.stack for kernel in self.kernels.values()), default=STACK)
        self.stack = stack_size or needed
        builder().workers.append(self)

    def _block(self, values: Sequence[BoundValue]) -> Buffer:
        """The words that hold these values on this core, and the barrier in front of them."""
        for number, value in enumerate(values):
            if not isinstance(value, BoundValue):
                raise DeclarationError(
                    f"worker {self.name}: values= has {value!r}; legal: Values of the operator as array() sees them, self.count."
                )
            if value in values[:number]:
                raise DeclarationError(f"worker {self.name}: values= names {value.name} twice.")
        block = Buffer(len(values), "int32", name=f"words_{self.name}", use_write_rtp=True, tile=self.tile)
        self.barriers.append(_ready())
        for index, value in enumerate(values):
            builder().bind(value.name, block.name, index)
        return block

    def _numbers(self, block: Buffer) -> list[Any]:
        """What every run begins with: the numbers of this call, once they are there."""
        set_rounding("conv_even")  # a fresh core rounds down
        ready = self.barriers[-1]
        ready.wait_for_value(1)
        numbers = [block[index] for index in range(block.type.elements)]
        ready.release_with_value(1)  # armed again: the next run waits for the next call's words
        return numbers


def _ready() -> WorkerRuntimeBarrier:
    """What workers with `values=` wait for: one barrier, of which each has its own lock."""
    active = builder()
    active.ready = active.ready or WorkerRuntimeBarrier(name="ready")
    return active.ready


def _flat(args: Any) -> list[Any]:
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, (list, tuple)):
            found += _flat(arg)
        else:
            found.append(arg)
    return found


def _fits(core_fn: Callable[..., None], count: int, name: str) -> None:
    """DeclarationError unless a core function takes so many arguments."""
    try:
        inspect.signature(core_fn).bind(*range(count))
    except TypeError as error:
        raise DeclarationError(
            f"worker {name}: its core function does not take the {count} of args and values= together: {error}."
        ) from None
