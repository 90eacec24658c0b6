"""A version loaded into the simulator: what a call does, dispatch by dispatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from iron_core.array.build import array_of
from iron_core.array.words import fits, refuse
from iron_core.backends.loop import loop_by_calls
from iron_core.backends.reference import as_bytes, cut, taken
from iron_core.declare.affine import evaluate
from iron_core.errors import ShapeError
from iron_core.image.array_image import ArrayImage, ArrayStep
from iron_core.image.plan import BufferRef, Port
from iron_sim.control import encode
from iron_sim.errors import PoisonError, SimulationError
from iron_sim.host import SimMemory, Space, region, spread, unwritten
from iron_sim.machine import Machine, Stats
from iron_sim.trace import Trace


class SimExecutable:
    """One version over a memory. `stats` holds what each step of the last call did, by step name."""

    def __init__(self, image: ArrayImage, memory: SimMemory, *, trace: str | None = None) -> None:
        self.image = image
        self.memory = memory
        self.stats: dict[str, Stats] = {}
        self._machine: Machine | None = None
        self._loaded_empty: int | None = None
        self._chain = 0
        self._chains = {step: n for n, steps in enumerate(image.chains) for step in steps}
        self._trace = Trace(trace) if trace else None
        # Per step its words, each with the number of its parameter and what the graph gives for the member it follows.
        places = {use: n for n, parameter in enumerate(image.parameters) for use in parameter.uses}
        self._words = [
            [(word, places[index, word.name], given[word.form.value]) for word in step.design.sequence.words]
            for index, step in enumerate(image.steps)
            for given in [{binding.member: binding.expression for binding in step.bindings}]
        ]

    def call(self, inputs: Sequence[Any], values: Mapping[str, int]) -> tuple[list[Any], dict[str, int]]:
        """Run once; see `Executable.call`. SimulationError where the array does something wrong."""
        version = self.image.version
        given = [self._input(port, tensor, values) for port, tensor in zip(version.inputs, inputs, strict=True)]
        made = [self.memory.space(*unwritten(port.format.nbytes(port.shape))) for port in version.outputs]
        spaces = {
            "input": given,
            "output": made,
            "resident": list(self.memory.residents.values()),
            "arena": self.memory.banks,
        }
        self.stats = {}
        try:
            self._dispatch(spaces, values)
        except Exception:
            # What is left of the array is of no use to the next call: it begins as the first one did.
            self._machine = self._loaded_empty = None
            raise
        finally:
            if self._trace is not None:
                self._trace.write()
        carried = {}
        for term in version.carry:
            source = term.source
            carried[term.name] = (
                self._word(term.name, spaces, source) if isinstance(source, BufferRef) else evaluate(source, values)
            )
        outputs = []
        for port, space in zip(version.outputs, made, strict=True):
            assert space.marks is not None
            valid = cut(space.marks.reshape(_rows(port)), port.bounds, values)
            if not port.format.packed:
                valid = valid[..., 0]  # a number's bytes are marked alike
            if valid.any():
                at = [int(i) for i in np.unravel_index(int(valid.argmax()), valid.shape)]
                raise PoisonError(f"output {port.name}{at} depends on data nobody wrote.")
            outputs.append(cut(port.format.tensor(space.raw, port.shape), port.bounds, values))
        return outputs, carried

    def loop(
        self, steps: int, values: Mapping[str, int], on_step: Callable[[int, dict[str, int]], bool] | None = None
    ) -> dict[str, int]:
        """Run a version without tensors again and again; see `Executable.loop`."""
        return loop_by_calls(self, self.image.version, steps, values, on_step)

    def _dispatch(self, spaces: Mapping[str, list[Space]], values: Mapping[str, int]) -> None:
        """Every entry's steps, and the resets at the end."""
        words = [parameter.form.at(values) for parameter in self.image.parameters]
        for entry_number, entry in enumerate(self.image.entries):
            machine = self._enter(entry_number, entry[0])
            for index in entry:
                step = self.image.steps[index]
                self.stats[step.name] = self._run(machine, step, spaces, self._numbers(index, words, values))
        if self.image.elf:
            for extra in range(self.image.resets):
                self._load_empty(len(self.image.entries) + extra)
                self._machine = None

    # -- one step --------------------------------------------------------------------------------------

    def _run(
        self, machine: Machine, step: ArrayStep, spaces: Mapping[str, list[Space]], numbers: Mapping[str, int]
    ) -> Stats:
        design = step.design
        regions = {name: region(name, spaces[ref.space][ref.index], ref) for name, ref in step.operands.items()}
        for port in design.sequence.ports:
            if port.control is not None:
                regions[port.operand] = encode(port.control, regions[port.operand], regions[port.control.table])
        try:
            stats = machine.run(design.sequence, regions, numbers)
        except SimulationError as error:
            raise type(error)(f"step {step.name}: {error}") from None
        finally:
            if self._trace is not None:
                self._trace.add(step.name, machine)
        for name, ref in step.operands.items():
            if name in step.written:
                spread(regions[name], spaces[ref.space][ref.index], ref)
        return stats

    def _numbers(self, index: int, words: Sequence[int], values: Mapping[str, int]) -> dict[str, int]:
        """A step's words in this call, of all its parameters. BoundsError for what no array takes."""
        found = {}
        for word, parameter, member in self._words[index]:
            found[word.name] = words[parameter]
            if not fits(word, words[parameter], member.at(values) if word.every > 1 else 0):
                step = self.image.steps[index]
                refuse(step.operator, word, words[parameter], {b.member: b.expression.at(values) for b in step.bindings})
        return found

    def _enter(self, entry_number: int, step: int) -> Machine:
        """The array of a step configured for an entry. A full ELF resets it every time; a chain keeps what is loaded."""
        entered = self.image.steps[step]
        array = entered.design.array
        before, self._chain = self._chain, self._chains.get(step, 0)
        if self.image.elf:
            self._load_empty(entry_number)
        elif self._machine is not None and self._machine.array is array and self._chain == before:
            return self._machine
        kernels = array_of(entered.array_key, self.image.dev).kernels
        self._machine = Machine(array, kernels, entered.placement, trace=self._trace is not None)
        return self._machine

    def _load_empty(self, entry_number: int) -> None:
        """The firmware takes a second load of the image it loaded last for none, and the array is not reset."""
        if self._loaded_empty == entry_number % 2:
            raise SimulationError(
                f"entry {entry_number} loads the empty image {entry_number % 2} again: the firmware skips it and the array is not reset. "
                "An odd number of entries needs one more empty reset."
            )
        self._loaded_empty = entry_number % 2

    # -- tensors ---------------------------------------------------------------------------------------

    def _input(self, port: Port, given: Any, values: Mapping[str, int]) -> Space:
        """An input at its compiled shape; rows past a bound that were not given are unwritten."""
        given = taken(port, given)
        if tuple(given.shape) == port.shape:
            return self.memory.space(as_bytes(given), None)
        raw, marks = unwritten(port.format.nbytes(port.shape))
        part = cut(raw.reshape(_rows(port)), port.bounds, values)
        shape = (*part.shape[:-1], port.shape[-1]) if port.format.packed else part.shape[:-1]
        if tuple(given.shape) != shape:
            raise ShapeError(
                f"input `{port.name}` has shape {tuple(given.shape)}; it takes {port.shape} or, cut to this call's bound, {shape}."
            )
        part[...] = as_bytes(given).reshape(part.shape)
        cut(marks.reshape(_rows(port)), port.bounds, values)[...] = False
        return self.memory.space(raw, marks)

    def _word(self, name: str, spaces: Mapping[str, list[Space]], ref: BufferRef) -> int:
        found = region(name, spaces[ref.space][ref.index], ref)
        if found.mask is not None and found.mask[0]:
            raise PoisonError(f"the carried value {name} is read from data nobody wrote.")
        return int(found.data[0])


def _rows(port: Port) -> tuple[int, ...]:
    """The bytes of a port: its shape and a number's bytes, or, for a packed format, what stores it."""
    stored = port.format.stored(port.shape)
    return stored if port.format.packed else (*stored, port.format.dtype.itemsize)
