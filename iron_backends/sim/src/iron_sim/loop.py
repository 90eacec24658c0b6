"""`SimLoop`: a version that computes the next call, and, where that is its own, is looped as the device does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from iron_core.backends.loop import loop_by_calls
from iron_core.declare.affine import evaluate
from iron_core.devices import WORD
from iron_core.image.array_image import ArrayImage
from iron_core.image.plan import BufferRef
from iron_sim.executable import SimExecutable
from iron_sim.host import SimMemory


class SimLoop(SimExecutable):
    """A full ELF whose last step is `Emit`; it loops where it takes no tensor. The host gives the first step of a loop its words and
    carried values; every other takes the words that `Emit` made of them, and the values that it left in the planes (see
    `VersionPlan.planes`)."""

    def __init__(self, image: ArrayImage, memory: SimMemory, *, trace: str | None = None) -> None:
        super().__init__(image, memory, trace=trace)
        assert image.version.planes is not None
        self._planes: BufferRef = image.version.planes
        self._names = [term.name for term in image.version.carry]

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> None:
        self._start_from(values)
        super().run(inputs, outputs, values)

    def loop(
        self,
        steps: int,
        outputs: Sequence[np.ndarray],
        values: Mapping[str, int],
        on_step: Callable[[int, dict[str, int]], bool] | None = None,
    ) -> dict[str, int]:
        """See `Looping.loop`."""
        fed: list[int] = []

        def call(now: dict[str, int]) -> dict[str, int]:
            if fed:
                # What was called between two steps may have left other values; the loop's own are there already.
                self._start_from(now)
                self._run_with([], outputs, now, fed)
            else:
                self.run([], outputs, now)
            fed[:] = self._fed()
            left = self._left()
            # An expression may leave 32 bits, which the loop is to see.
            terms = self.image.version.carry
            return {t.name: left[t.name] if isinstance(t.source, BufferRef) else evaluate(t.source, now) for t in terms}

        return loop_by_calls(call, self.image.version, steps, values, on_step)

    def _plane(self) -> np.ndarray:
        """Plane 0: the values that a call starts from."""
        ref, space = self._planes, self.memory.banks[self._planes.index]
        return space.raw[ref.offset : ref.offset + WORD * len(self._names)].view(np.int32)

    def _start_from(self, values: Mapping[str, int]) -> None:
        """Put a call's values into plane 0 where others are."""
        want = np.array([values[name] & 0xFFFFFFFF for name in self._names], np.uint32).view(np.int32)
        plane, ref = self._plane(), self._planes
        if (plane != want).any():
            plane[:] = want
            self.memory.traffic.words += plane.nbytes
        marks = self.memory.banks[ref.index].marks
        assert marks is not None
        marks[ref.offset : ref.offset + WORD * len(self._names)] = False

    def _left(self) -> dict[str, int]:
        """The carried values that `Emit` left, as their dtypes have them."""
        kinds = {value.name: value.dtype for value in self.image.version.values}
        return {name: int(self._plane().view(kinds[name])[at]) for at, name in enumerate(self._names)}

    def _fed(self) -> list[int]:
        """The words that `Emit` left, as their forms are."""
        (space,) = self._own["feedback"]
        kept = space.raw.view(np.int32).tolist()
        return [word >> parameter.shift for word, parameter in zip(kept, self.image.parameters, strict=True)]
