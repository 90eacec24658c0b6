"""A version on the device: what a call of a full ELF does, and what every version's calls have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np

from iron_core.backends.array_profile import TimedPass, TimedStep, WholeCall
from iron_core.devices import WORD
from iron_core.image.array_image import ArrayImage
from iron_core.image.plan import BufferRef
from iron_core.image.step_words import StepWords
from iron_npu.image.image import Dispatch, VersionImage
from iron_npu.runtime.loaded import Handle, LoadedElf
from iron_npu.runtime.loaded_image import LoadedImage
from iron_npu.runtime.memory import NpuMemory
from iron_npu.runtime.pyxrt import Bo
from iron_npu.runtime.regions import Regions
from iron_npu.runtime.words import numbers


@attrs.frozen
class Running:
    """How runs are waited for. wait_s: seconds after which a run is given up. depth: steps of a loop that are under way at once where
    nobody is told of each. lists: may dispatches that follow one another in a context be handed over together?"""

    wait_s: float = 60.0
    depth: int = 2
    lists: bool = False


class NpuExecutable:
    """One version over a memory. array: its steps, as the simulator has them too."""

    def __init__(self, image: LoadedImage, array: ArrayImage, memory: NpuMemory, how: Running) -> None:
        self.array = array
        self.memory = memory
        self.npu = memory.npu
        self.how = how
        #: Where calls are noted with their times, while a profile is taken.
        self.recording: list[TimedPass] | None = None
        self._timed: list[TimedStep] = []
        self.signature = array.version.signature
        self.name = memory.name
        self._checks = StepWords(array)
        self._use(image)

    def _use(self, image: LoadedImage) -> None:
        """Run as this image has it."""
        self.image = image
        self.version: VersionImage = image.image.version(self.signature)
        self.regions = Regions(self.version, self.memory)

    def _refresh(self) -> None:
        """Take the image that was loaded last, where the version is in it: so versions of a graph are one ELF."""
        newest = self.memory.image
        if newest is not None and newest is not self.image and newest.holds(self.signature):
            self._use(newest)

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> None:
        """Run once; see `Executable.run`. What the device can do wrong: see `iron_npu.errors`."""
        words = self._forms(values)
        with self.npu.turn:
            self._refresh()
            self._timed = []
            begin = time.perf_counter()
            self._give(inputs, outputs)
            self._run(values, words)
            self.regions.take(outputs, values)
            self._noted(begin, values)

    def _noted(self, begin: float, values: Mapping[str, int]) -> None:
        """A call, or a step of a loop, is over."""
        if self.recording is not None:
            self.recording.append(TimedPass(begin, time.perf_counter(), dict(values), tuple(self._timed)))

    def _forms(self, values: Mapping[str, int]) -> list[int]:
        """The version's own numbers. BoundsError for one that no array takes: it would never end."""
        words = [parameter.form.at(values) for parameter in self.array.parameters]
        self._checks.check(words, values)
        self.memory.traffic.words += WORD * len(words)
        return words

    def _give(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        traffic = self.memory.traffic
        traffic.inputs += sum(data.nbytes for data in inputs)
        traffic.outputs += sum(data.nbytes for data in outputs)
        self.regions.give(inputs)
        self.regions.clear()

    def _run(self, values: Mapping[str, int], words: Sequence[int]) -> None:
        raise NotImplementedError


class ElfExecutable(NpuExecutable):
    """One dispatch a call: the words go to its scratchpad, everything else into flat arguments."""

    def _use(self, image: LoadedImage) -> None:
        super()._use(image)
        (self.dispatch,) = self.version.dispatches
        self.elf: LoadedElf = image.elf(self.dispatch.binary)
        self.kernel = image.kernel(self.dispatch)
        image.check(self.dispatch.binary, self.version.words)
        self._names = [value.name for value in self.version.version.values]

    def _run(self, values: Mapping[str, int], words: Sequence[int]) -> None:
        self._start_from(values)
        self._ended(self._start(0, numbers(self.version.table, self._names, values)))

    def _start_from(self, values: Mapping[str, int]) -> None:
        """Leave a call's values where the version's last step looks for them: in plane 0."""
        if self.version.program is None:
            return
        planes = self.planes
        want = np.array([values[term.name] & 0xFFFFFFFF for term in self.array.version.carry], np.uint32)
        buffer, offset = self.regions.buffer(planes)
        if (buffer.get(offset, want.nbytes).view(np.uint32) != want).any():
            buffer.put(offset, want.view(np.uint8))
            self.memory.traffic.words += want.nbytes

    @property
    def planes(self) -> BufferRef:
        planes = self.array.version.planes
        assert planes is not None
        return planes

    def _start(
        self,
        number: int,
        words: np.ndarray | None,
        feedback: Callable[[], Bo] | None = None,
        there: int | None = None,
        tries: int = 2,
    ) -> Handle:
        """Start the run of this number with these words; with those that its scratchpad has where that is None, or where the ELF was
        loaded `there` times: nobody took its context away since. feedback: where it leaves its next words."""
        buffers = self.regions.buffers()

        def start() -> Handle:
            handle = self._handle(number)
            if handle.flying:  # what interrupted the call that started it came before its wait
                self._ended(handle)
            given = [buffer.bo for buffer in buffers]
            if feedback is not None:
                given[self.regions.names.index("feedback")] = feedback()
            handle.bind(given)
            if words is not None and words.size and there != self.elf.loads:
                handle.scratchpad(len(self.version.words)).write(words)
            for buffer in buffers:
                buffer.flush()
            handle.start()
            return handle

        self.memory.traffic.loads += len(self.array.entries)
        self._begin = time.perf_counter()
        return self.npu.submit(self.elf, self.name, start, tries)

    def _handle(self, number: int) -> Handle:
        return self.elf.handle((self.version.name, number), self.kernel)

    def _ended(self, handle: Handle) -> None:
        try:
            self.npu.finish(self.elf, handle.run, self.name, self.how.wait_s)
            if self.recording is not None:
                refs = [ref for step in self.array.steps for ref in step.operands.values()]
                resident = sum(ref.nbytes for ref in refs if ref.space == "resident")
                whole = WholeCall(self.version.name)
                self._timed = [TimedStep(whole, self._begin, time.perf_counter(), sum(ref.nbytes for ref in refs), resident)]
        finally:
            handle.landed()
            for buffer in self.regions.buffers():
                buffer.ran()


def control_words(regions: Regions, dispatch: Dispatch) -> dict[int, np.ndarray]:
    """Of a dispatch, the tensors that the host makes of ids just before, by position."""
    found = {}
    for position, control in dispatch.control:
        assert control.ids is not None
        found[position] = regions.encode(control.gather, regions.numbers(control.ids), control.table)
    return found
