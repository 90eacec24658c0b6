"""One loaded version: ports, per-call numbers, and one native call."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from iron_core.backends.loop import after_steps, check_carried
from iron_core.declare.affine import evaluate
from iron_core.declare.formats import DTYPES, PackedArray
from iron_core.declare.tensor import plain
from iron_core.errors import CallError, ShapeError
from iron_core.image.arena import guard_bytes
from iron_core.image.plan import BufferRef, Port
from iron_host.anonymous import address
from iron_host.build import Unit
from iron_host.callback import cut, run_reference
from iron_host.memory import HostMemory
from iron_host.runlist import HostImage, RunArrays
from iron_host.runtime import Run, Runtime


class InputPort:
    """Takes the caller's tensor and says where its bytes are."""

    def __init__(self, port: Port, slots: list[tuple[Any, int, int]]) -> None:
        self.port = port
        self.slots = slots
        self.dtype = None if port.format.packed else port.format.dtype
        self.bounded = bool(port.bounds)
        # Rows of a bound on the leading axis lie where a whole tensor's would; any other bound needs a whole one.
        self.staged = any(any(n != 1 for n in port.shape[:axis]) for axis, _ in port.bounds)

    def take(self, tensor: Any, values: Mapping[str, int]) -> np.ndarray:
        """A contiguous array of the port's dtype: the tensor itself where it is one already."""
        port = self.port
        if type(tensor) is np.ndarray and tensor.dtype == self.dtype and tensor.shape == port.shape:
            flags = tensor.flags
            return tensor if flags.c_contiguous and flags.aligned else _laid_out(tensor)
        tensor = plain(tensor, f"input `{port.name}`")  # from here on it is what it is, whatever it was
        data = self._checked(tensor)
        if tensor.shape == port.shape:
            return _laid_out(data)
        shape = list(port.shape)
        for axis, expression in port.bounds:
            shape[axis] = evaluate(expression, values)
        if tensor.shape != tuple(shape):
            either = f" or, cut to this call's bound, {tuple(shape)}" if port.bounds else ""
            raise ShapeError(f"input `{port.name}` has shape {tensor.shape}; it takes {port.shape}{either}.")
        if not self.staged:
            return _laid_out(data)
        whole = np.zeros(port.shape, self.dtype)
        whole[tuple(slice(n) for n in shape)] = data
        return whole

    def _checked(self, tensor: Any) -> np.ndarray:
        """The tensor's data in the port's dtype; CallError when that would change a number."""
        port = self.port
        packed = isinstance(tensor, PackedArray)
        if self.dtype is None:
            if not packed or tensor.format != port.format:
                got = f"{tensor.format} one" if packed else f"{tensor.dtype} array"
                raise CallError(f"input `{port.name}` is a {port.format.name} PackedArray; got a {got}.")
            return tensor.data  # type: ignore[no-any-return]
        if packed:
            raise CallError(f"input `{port.name}` is {port.format.name}; got a {tensor.format} PackedArray.")
        data = tensor
        if data.dtype == self.dtype:
            return data  # type: ignore[no-any-return]
        if data.dtype.kind not in "biuf" and data.dtype.name not in DTYPES:
            raise CallError(f"input `{port.name}` is {port.format.name}; got {data.dtype}. Legal: real numbers.")
        with np.errstate(all="ignore"):
            exact = data.astype(self.dtype)
            same = np.array_equal(exact.astype(data.dtype), data) and not (data.dtype.kind == "f" and self.dtype.kind in "iu")
        if not same:
            raise CallError(
                f"input `{port.name}` is {port.format.name}; these {data.dtype} numbers are not all exact in it. Round "
                f"them first, or compile for {data.dtype}."
            )
        return exact


def _laid_out(data: np.ndarray) -> np.ndarray:
    """The numbers one after another, each at a multiple of its size, as kernels read them."""
    return np.require(data, requirements=("C", "A"))


class OutputPort:
    """Makes the tensor that comes back."""

    def __init__(self, port: Port, slots: list[tuple[Any, int, int]]) -> None:
        self.port = port
        self.slots = slots
        self.dtype, self.shape = port.format.dtype, port.format.stored(port.shape)

    def finish(self, data: np.ndarray, values: Mapping[str, int]) -> Any:
        """The filled array as the caller sees it: cut to its bounds."""
        port = self.port
        tensor = PackedArray(data, port.shape, port.format) if port.format.packed else data
        if not port.bounds:
            return tensor
        part = cut(tensor, port.bounds, values)
        return part if isinstance(part, PackedArray) else np.ascontiguousarray(part)


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
        self._carried = tuple(term.name for term in image.carry)
        places = self._arrays.places
        self._inputs = [InputPort(p, places.get(("input", i), [])) for i, p in enumerate(image.inputs)]
        self._outputs = [OutputPort(p, places.get(("output", i), [])) for i, p in enumerate(image.outputs)]
        self._run = runtime.prepare(self._arrays, len(image.steps), len(image.values), len(image.carry))
        self._looping = False
        self._ports: dict[tuple[str, int], int] = {}
        self._epoch = -1
        self._has_callbacks = bool(image.callbacks)
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

    def call(self, inputs: Sequence[Any], values: Mapping[str, int]) -> tuple[list[Any], dict[str, int]]:
        """Run once; see `Executable.call`."""
        if self._looping:
            with self._aside():
                return self.call(inputs, values)
        self._begin(values)
        if len(inputs) != len(self._inputs):
            raise CallError(f"{self.image.name} takes {len(self._inputs)} tensors; got {len(inputs)}.")
        taken = [port.take(tensor, values) for port, tensor in zip(self._inputs, inputs, strict=True)]
        for i, data in enumerate(taken):
            self._place("input", i, self._inputs[i].slots, data)
        made = self._make_outputs()
        self._runtime.run(self._run, self._callback if self._has_callbacks else None)
        outputs = [port.finish(data, values) for port, data in zip(self._outputs, made, strict=True)]
        return outputs, self._carry()

    def loop(
        self, steps: int, values: Mapping[str, int], on_step: Callable[[int, dict[str, int]], bool] | None = None
    ) -> dict[str, int]:
        """Run `steps` times, each on the values the last one carried; see `Executable.loop`."""
        if self._inputs:
            raise CallError(f"{self.image.name} takes tensors; a loop runs a version that takes none.")
        if self._looping:
            with self._aside():
                return self.loop(steps, values, on_step)
        self._begin(values)
        made = self._make_outputs()
        after = None if on_step is None else self._between(on_step)
        self._run.made = 0
        try:
            self._looping = True
            fits = self._runtime.loop(self._run, steps, self._callback if self._has_callbacks else None, after)
            carried = self._carry()
            if not fits:
                check_carried(self.image.values, carried)
        except BaseException as error:
            after_steps(error, self._run.made, steps)
            raise
        finally:
            self._looping = False
        del made
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
        outputs = [(port.slots, self._ports["output", i]) for i, port in enumerate(self._outputs)]
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
        self._ports[space, index] = where
        for words, word, offset in slots:
            words[word] = where + offset

    def _make_outputs(self) -> list[np.ndarray]:
        made = [np.zeros(port.shape, port.dtype) for port in self._outputs]
        for i, data in enumerate(made):
            self._place("output", i, self._outputs[i].slots, data)
        return made

    def _numbers(self) -> dict[str, int]:
        return dict(zip(self._names, self._arrays.values.tolist(), strict=False))

    def _carry(self) -> dict[str, int]:
        numbers = self._numbers()
        return {name: numbers[name] for name in self._carried}

    def _callback(self, index: int) -> None:
        step = self.image.steps[index].plan
        assert step is not None, "only a step without a kernel calls back"

        def where(ref: BufferRef) -> int:
            return self._where(ref.space, ref.index) + ref.offset

        run_reference(step, where, self._numbers())

    def _where(self, space: str, index: int) -> int:
        if space in ("resident", "arena"):
            return address(self.memory.view(space, index))
        return self._ports[space, index]
