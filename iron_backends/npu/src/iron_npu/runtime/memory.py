"""`NpuMemory`: residents and arena of one compiled graph as buffer objects of the device."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakValueDictionary

import attrs
import numpy as np

from iron_core.backends.memory import Memory
from iron_core.image.plan import Plan, Resident
from iron_npu.runtime.buffers import SharedBuffer
from iron_npu.runtime.device import Npu
from iron_npu.runtime.loaded import LoadedFile
from iron_npu.runtime.loaded_image import LoadedImage


@attrs.frozen(eq=False)
class Place:
    """Where a resident is: a bank of residents, and a byte of it."""

    bank: int
    offset: int


class NpuMemory(Memory):
    """Weights and states lie in banks of residents, as the plan has them, and are given to the device once. A bank that has to be larger
    is made anew, with what it held; executables take it from here at every call."""

    def __init__(self, plan: Plan, npu: Npu) -> None:
        self.npu = npu
        self.plan = plan
        self.held: list[SharedBuffer] = []
        #: What was loaded last: its ELFs hold every version of then.
        self.image: LoadedImage | None = None
        #: By path, as long as an image has them.
        self.files: WeakValueDictionary[Path, LoadedFile] = WeakValueDictionary()
        super().__init__(plan)

    def grow(self, plan: Plan) -> None:
        for number, nbytes in enumerate(plan.resident_banks):
            if number == len(self.held):
                self.held.append(SharedBuffer(self.npu, nbytes, f"{self.name}'s weights and states"))
            elif nbytes > self.held[number].nbytes:
                self.held[number] = self._larger(nbytes, self.held[number], f"{self.name}'s weights and states")
        super().grow(plan)
        self.plan = plan

    def place(self, resident: Resident) -> Place:
        raw = super().place(resident)
        assert resident.spot is not None, "a plan for an NPU places every resident"
        made = Place(resident.spot.bank, resident.spot.offset)
        self.held[made.bank].put(made.offset, raw)
        self.traffic.residents += resident.nbytes
        return made

    def bank(self, nbytes: int, before: SharedBuffer | None) -> SharedBuffer:
        what = f"{self.name}'s intermediate tensors"
        if before is not None:
            return self._larger(nbytes, before, what)
        made = SharedBuffer(self.npu, nbytes, what)
        made.touch(0, nbytes)[:] = 0xFF  # NaN in every float dtype, so that a read of what nobody wrote shows
        return made

    def fetch(self, place: Place | SharedBuffer, offset: int, nbytes: int) -> np.ndarray:
        with self.npu.turn:
            if isinstance(place, Place):
                return self.held[place.bank].get(place.offset + offset, nbytes)
            return place.get(offset, nbytes)

    def replace(self, number: int, raw: np.ndarray) -> None:
        self.begin(number, raw)

    def begin(self, number: int, raw: np.ndarray) -> None:
        place = self.places[number]
        self.held[place.bank].put(place.offset, raw)

    def _larger(self, nbytes: int, before: SharedBuffer, what: str) -> SharedBuffer:
        made = SharedBuffer(self.npu, nbytes, what)
        into = made.touch(0, nbytes)
        into[: before.nbytes] = before.get(0, before.nbytes)
        into[before.nbytes :] = 0xFF
        return made
