"""A version loaded into the simulator: what a call does, dispatch by dispatch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from iron_core.array.build import kernels_of
from iron_core.backends.array_profile import TimedPass, TimedStep
from iron_core.backends.memory import flat
from iron_core.backends.ports import cut, whole
from iron_core.devices import WORD
from iron_core.image.array_image import ArrayImage
from iron_core.image.array_step import ArrayStep
from iron_core.image.plan import BufferRef, Port
from iron_core.image.step_words import StepWords
from iron_sim.control import encode
from iron_sim.errors import PoisonError, SimulationError
from iron_sim.host import SimMemory, Space, host_tensors, region, spread
from iron_sim.loading import loading
from iron_sim.machine import Machine, Stats
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
        self._trace = Trace(trace) if trace else None
        self._loading = loading(image, memory, follow=self._trace is not None)
        self._words = StepWords(image)
        self._own = host_tensors(image, memory)

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> None:
        """Run once; see `Executable.run`. SimulationError where the array does something wrong, PoisonError where an output, as
        far as its bounds go, or a carried value depends on data nobody wrote."""
        words = [parameter.form.at(values) for parameter in self.image.parameters]
        self.memory.traffic.words += WORD * len(words)
        self._run_with(inputs, outputs, values, words)

    def _run_with(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int], words: Sequence[int]
    ) -> None:
        """Run once with these numbers of the image's words, which follow the values."""
        version = self.image.version
        given = [self._input(port, data) for port, data in zip(version.inputs, inputs, strict=True)]
        made = [self._output(data) for data in outputs]
        traffic = self.memory.traffic
        traffic.inputs += sum(data.nbytes for data in inputs)
        traffic.outputs += sum(data.nbytes for data in outputs)
        spaces = {"input": given, "output": made, "resident": self.memory.places, "arena": self.memory.banks, **self._own}
        for space, control in zip(self._own["control"], self.image.tensors.controls, strict=True):
            if control.ids is not None:
                ids = region(version.inputs[control.ids.index].name, given[control.ids.index], control.ids)
                table = region(control.gather.table, spaces[control.table.space][control.table.index], control.table)
                space.raw[:] = encode(control.gather, ids, table).data.view(np.uint8)
                traffic.words += space.raw.size
        self.stats = {}
        self._timed = []
        begin = time.perf_counter()
        try:
            self._dispatch(spaces, values, words)
        except BaseException:  # Ctrl-C too
            self._loading.forget()
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
        """Every entry's steps."""
        for number, entry in enumerate(self.image.entries):
            machine = self._loading.enter(number, entry[0])
            if self._trace is not None:
                self._trace.enter(self.image, number)
            for index in entry:
                step = self.image.steps[index]
                begin = time.perf_counter()
                self.stats[step.name] = stats = self._run(machine, step, spaces, self._words.numbers(index, words, values))
                if self.recording is not None:
                    self._timed.append(_timed(step, begin, stats))
        self._loading.leave()
        if self._trace is not None:
            self._trace.leave(self.image)

    # -- one step --------------------------------------------------------------------------------------

    def _run(
        self, machine: Machine, step: ArrayStep, spaces: Mapping[str, list[Space]], numbers: Mapping[str, int]
    ) -> Stats:
        design = step.design
        regions = {name: region(name, spaces[ref.space][ref.index], ref) for name, ref in step.operands.items()}
        for argument in design.sequence.arguments:
            if argument.control is not None and not self.image.elf:  # between two dispatches the host may
                words = encode(argument.control, regions[argument.operand], regions[argument.control.table])
                regions[argument.operand] = words
                self.memory.traffic.words += words.data.nbytes
        try:
            stats = machine.run(design.sequence, regions, numbers)
        except SimulationError as error:
            raise type(error)(f"step {step.name}: {error}") from None
        finally:
            if self._trace is not None:
                kernels = kernels_of(step.configured, self.image.dev)
                self._trace.add(step.name, step.design, kernels, numbers, step.placement, machine.followed())
        for name, ref in step.operands.items():
            if name in step.written:
                spread(regions[name], spaces[ref.space][ref.index], ref)
        return stats

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
    moved = {name: stats.elements(name) * ref.format.streamed.itemsize for name, ref in step.operands.items()}
    resident = sum(nbytes for name, nbytes in moved.items() if step.operands[name].space == "resident")
    return TimedStep(step, begin, time.perf_counter(), sum(moved.values()), resident)
