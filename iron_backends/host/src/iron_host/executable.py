"""One loaded version: ports, per-call numbers, and one native call."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from iron_core.backends.loop import after_steps, check_carried
from iron_core.backends.ports import whole
from iron_core.image.arena import guard_bytes
from iron_core.image.plan import BufferRef
from iron_host.anonymous import address
from iron_host.build import Unit
from iron_host.callback import run_reference
from iron_host.memory import HostMemory
from iron_host.runlist import HostImage, RunArrays
from iron_host.runtime import Run, Runtime


class HostExecutable:
    """A host image over a memory. A call is one native call; so is a whole loop.

    One thread at a time calls what shares a memory (`iron_core.compiled.program`). Between two steps of a loop, in `on_step`,
    it may be called again: that call leaves the loop's numbers as they were.
    """

    def __init__(self, image: HostImage, memory: HostMemory, kernels: Mapping[Unit, int], runtime: Runtime) -> None:
        self.image = image
        self.memory = memory
        self._runtime = runtime
        self._arrays = RunArrays(image, kernels)
        self._names = tuple(value.name for value in image.values)
        self._word_bytes = self._arrays.values.itemsize * len(self._names)
        self._carried = tuple(term.name for term in image.carry)
        places = self._arrays.places
        ports = ("input", len(image.inputs)), ("output", len(image.outputs))
        self._slots = {space: [places.get((space, i), []) for i in range(count)] for space, count in ports}
        # Rows of a bound on the leading axis lie where a whole tensor's would; any other bound needs a whole one.
        self._staged = [
            (i, port) for i, port in enumerate(image.inputs) for axis, _ in port.bounds if any(n != 1 for n in port.shape[:axis])
        ]
        self._run = runtime.prepare(self._arrays, len(image.steps), len(image.values), len(image.carry))
        self._looping = False
        self._ports: dict[tuple[str, int], int] = {}
        self._epoch = -1
        self._guarded = guard_bytes() > 0

    @property
    def runtime(self) -> Runtime:
        """The pool it runs on."""
        return self._runtime

    @property
    def run_address(self) -> int:
        """What a recording knows its passes by."""
        return ctypes.addressof(self._run)

    @property
    def value_names(self) -> tuple[str, ...]:
        """Its per-call numbers, in the order the native loop has them."""
        return self._names

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> dict[str, int]:
        """Run once; see `Executable.run`."""
        if self._looping:
            with self._aside():
                return self.run(inputs, outputs, values)
        self._begin(values)
        if self._staged:
            inputs = list(inputs)
            for i, port in self._staged:
                given = inputs[i]
                inputs[i] = whole(port, given, fill=0)
                if inputs[i] is not given:
                    self.memory.traffic.inputs += given.nbytes
        self._place_ports("input", inputs)
        self._place_ports("output", outputs)
        self._runtime.run(self._run, self._callback)
        return self._carry()

    def loop(
        self,
        steps: int,
        outputs: Sequence[np.ndarray],
        values: Mapping[str, int],
        on_step: Callable[[int, dict[str, int]], bool] | None = None,
    ) -> dict[str, int]:
        """Run `steps` times, each on the values the last one carried; see `Looping.loop`."""
        if self._looping:
            with self._aside():
                return self.loop(steps, outputs, values, on_step)
        self.memory.settle()
        self._begin(values)
        self._place_ports("output", outputs)
        after = None if on_step is None else self._between(on_step)
        self._run.made = 0
        try:
            self._looping = True
            fits = self._runtime.loop(self._run, steps, self._callback, after)
            carried = self._carry()
            if not fits:
                check_carried(self.image.values, carried)
        except BaseException as error:
            after_steps(error, self._run.made, steps)
            raise
        finally:
            self._looping = False
        return carried

    def _between(self, on_step: Callable[[int, dict[str, int]], bool]) -> Callable[[int], bool]:
        """`on_step`, after which the loop goes on where memory then is."""

        def after(index: int) -> bool:
            stop = on_step(index, self._carry())
            self._reach()
            return stop

        return after

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """Put what a loop that is between two steps goes on with aside, and back."""
        numbers, run = self._arrays.values.copy(), Run.from_buffer_copy(self._run)
        outputs = [(slots, self._ports["output", i]) for i, slots in enumerate(self._slots["output"])]
        self._looping = False
        try:
            yield
        finally:
            self._looping = True
            self._arrays.values[:] = numbers
            ctypes.pointer(self._run)[0] = run
            for i, (slots, where) in enumerate(outputs):
                self._point("output", i, slots, where)

    def _begin(self, values: Mapping[str, int]) -> None:
        self._reach()
        row = self._arrays.values
        self.memory.traffic.words += self._word_bytes
        for i, name in enumerate(self._names):
            row[i] = values[name]

    def _reach(self) -> None:
        """Know where memory is now; a guarded process lets kernels touch what is this version's."""
        if self._epoch != self.memory.epoch:
            self._bind_memory()
        if self._guarded:
            self.memory.keep(self.image.spots)

    def _bind_memory(self) -> None:
        """Fill in the addresses of residents, banks and constants."""
        tiles = self.memory.tiles(self.image.tiles, self._runtime)
        for (space, index), slots in self._arrays.places.items():
            if space == "tiles":
                self._place(space, index, slots, tiles[index])
            elif space == "constant":
                self._place(space, index, slots, self.image.constants[index])
            elif space in ("resident", "arena"):
                self._place(space, index, slots, self.memory.view(space, index))
        self._epoch = self.memory.epoch

    def _place(self, space: str, index: int, slots: list[tuple[Any, int, int]], data: np.ndarray) -> None:
        self._point(space, index, slots, address(data))

    def _point(self, space: str, index: int, slots: list[tuple[Any, int, int]], where: int) -> None:
        self._ports.pop((space, index), None)  # a signal's handler may end this: then nobody knows where it is
        for words, word, offset in slots:
            words[word] = where + offset
        self._ports[space, index] = where

    def _place_ports(self, space: str, arrays: Sequence[np.ndarray]) -> None:
        for i, slots in enumerate(self._slots[space]):
            where = address(arrays[i])
            if self._ports.get((space, i)) != where:  # where it was the last time: the steps know it
                self._point(space, i, slots, where)

    def _numbers(self) -> dict[str, int]:
        return dict(zip(self._names, self._arrays.values.tolist(), strict=False))

    def _carry(self) -> dict[str, int]:
        if not self._carried:
            return {}
        numbers = self._numbers()
        return {name: numbers[name] for name in self._carried}

    def _callback(self, index: int) -> None:
        def where(ref: BufferRef) -> int:
            return self._where(ref.space, ref.index) + ref.offset

        run_reference(self.image.steps[index].plan, where, self._numbers())

    def _where(self, space: str, index: int) -> int:
        if space in ("resident", "arena"):
            return address(self.memory.view(space, index))
        return self._ports[space, index]
