"""A version loaded into the simulator: what a call does, dispatch by dispatch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from iron_core.array.build import array_of
from iron_core.array.words import fits, refuse
from iron_core.backends.memory import flat
from iron_core.backends.ports import cut, whole
from iron_core.image.array_image import ArrayImage
from iron_core.image.array_step import ArrayStep
from iron_core.image.plan import BufferRef, Port
from iron_sim.control import encode
from iron_sim.errors import PoisonError, SimulationError
from iron_sim.host import SimMemory, Space, host_tensors, region, spread
from iron_sim.machine import Machine, Stats
from iron_sim.profile import TimedPass, TimedStep
from iron_sim.trace import Trace


class SimExecutable:
    """One version over a memory. `stats` holds what each step of the last call did, by step name."""

    def __init__(self, image: ArrayImage, memory: SimMemory, *, trace: str | None = None) -> None:
        self.image = image
        self.memory = memory
        self.stats: dict[str, Stats] = {}
        #: Where calls are noted with their times, while a profile is taken.
        self.recording: list[TimedPass] | None = None
        self._timed: list[TimedStep] = []
        self._machine: Machine | None = None
        self._loaded_empty: int | None = None
        self._chain = 0
        self._chains = {step: n for n, steps in enumerate(image.chains) for step in steps}
        self._trace = Trace(trace) if trace else None
        # Per step its words, each with the number of its parameter and what the graph gives for the member it follows.
        places = {use: n for n, parameter in enumerate(image.parameters) for use in parameter.uses}
        self._words = []
        for index, step in enumerate(image.steps):
            given = {binding.member: binding.expression for binding in step.bindings}
            self._words.append([(word, places[index, word.name], given[word.form.value]) for word in step.design.sequence.words])
        self._own = host_tensors(image, memory)

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> None:
        """Run once; see `Executable.run`. SimulationError where the array does something wrong, PoisonError where an output, as
        far as its bounds go, or a carried value depends on data nobody wrote."""
        self._run_with(inputs, outputs, values, [parameter.form.at(values) for parameter in self.image.parameters])

    def _run_with(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int], words: Sequence[int]
    ) -> None:
        """Run once with these numbers of the image's words, which follow the values."""
        version = self.image.version
        given = [self._input(port, data) for port, data in zip(version.inputs, inputs, strict=True)]
        made = [self._output(data) for data in outputs]
        spaces = {"input": given, "output": made, "resident": self.memory.places, "arena": self.memory.banks, **self._own}
        for space, control in zip(self._own["control"], self.image.tensors.controls, strict=True):
            if control.ids is not None:
                ids = region(version.inputs[control.ids.index].name, given[control.ids.index], control.ids)
                table = region(control.gather.table, self.memory.places[control.table.index], control.table)
                space.raw[:] = encode(control.gather, ids, table).data.view(np.uint8)
        self.stats = {}
        self._timed = []
        begin = time.perf_counter()
        try:
            self._dispatch(spaces, values, words)
        except BaseException:  # Ctrl-C too
            # What is left of the array is of no use to the next call: it begins as the first one did.
            self._machine = self._loaded_empty = None
            raise
        finally:
            if self._trace is not None:
                self._trace.write()
        if self.recording is not None:
            self.recording.append(TimedPass(begin, time.perf_counter(), dict(values), tuple(self._timed)))
        for term in version.carry:
            if isinstance(term.source, BufferRef):
                self._written(term.name, spaces, term.source)
        for port, data, space in zip(version.outputs, outputs, made, strict=True):
            assert space.marks is not None
            # A number's bytes are marked alike.
            valid = cut(space.marks[:: data.itemsize].reshape(data.shape), port, values)
            if valid.any():
                at = [int(i) for i in np.unravel_index(int(valid.argmax()), valid.shape)]
                raise PoisonError(f"output {port.name}{at} depends on data nobody wrote.")

    def _dispatch(self, spaces: Mapping[str, list[Space]], values: Mapping[str, int], words: Sequence[int]) -> None:
        """Every entry's steps, and the resets at the end."""
        for entry_number, entry in enumerate(self.image.entries):
            machine = self._enter(entry_number, entry[0])
            for index in entry:
                step = self.image.steps[index]
                begin = time.perf_counter()
                self.stats[step.name] = stats = self._run(machine, step, spaces, self._numbers(index, words, values))
                if self.recording is not None:
                    self._timed.append(_timed(step, begin, stats))
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
        for argument in design.sequence.arguments:
            if argument.control is not None and not self.image.elf:  # between two dispatches the host may
                regions[argument.operand] = encode(argument.control, regions[argument.operand], regions[argument.control.table])
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
                members = {b.member: b.expression.at(values) for b in step.bindings}
                followed = {b.expression.value: values[b.expression.value] for b in step.bindings if b.expression.value}
                refuse(step.operator, word, words[parameter], members, followed)
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

    def _input(self, port: Port, data: np.ndarray) -> Space:
        """An input at its compiled shape; rows past a bound that were not given are unwritten."""
        full = whole(port, data)
        if full is data:
            return self.memory.space(flat(data), None)
        marks = np.ones(full.shape, bool)
        marks[tuple(slice(n) for n in data.shape)] = False
        return self.memory.space(flat(full), marks.reshape(-1).repeat(data.itemsize))

    def _output(self, data: np.ndarray) -> Space:
        raw = flat(data)
        raw[:] = 0xFF
        return self.memory.space(raw, np.ones(raw.size, bool))

    def _written(self, name: str, spaces: Mapping[str, list[Space]], ref: BufferRef) -> None:
        found = region(name, spaces[ref.space][ref.index], ref)
        if found.mask is not None and found.mask[0]:
            raise PoisonError(f"the carried value {name} is read from data nobody wrote.")


def _timed(step: ArrayStep, begin: float, stats: Stats) -> TimedStep:
    """A step that just ended, with the bytes its operands moved through the shim."""
    moved = {name: stats.elements(name) * ref.format.dtype.itemsize for name, ref in step.operands.items()}
    resident = sum(nbytes for name, nbytes in moved.items() if step.operands[name].space == "resident")
    return TimedStep(step, begin, time.perf_counter(), sum(moved.values()), resident)
