"""The host's memory as the simulator keeps it: bytes, and which of them nobody wrote."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from iron_core.backends.memory import Memory, beginning
from iron_core.image.array_image import ArrayImage
from iron_core.image.plan import BufferRef, Plan, Resident
from iron_sim.control import BASE
from iron_sim.dma import HostRegion
from iron_sim.errors import PoisonError

#: Inputs, outputs and the arena's banks start at multiples of this, so that no two share a word.
ALIGN = 4096
#: Where the first bank of residents is, beyond all others, and how far it is to the next: a bank has its address before its size.
RESIDENTS, NEXT_BANK = 1 << 40, 1 << 32


class Space:
    """Some bytes, their marks (None: all written), and an address no other space has."""

    def __init__(self, raw: np.ndarray, marks: np.ndarray | None, base: int) -> None:
        self.raw = raw
        self.marks = marks
        self.base = base


def unwritten(nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Fresh bytes and their marks. All ones are a NaN in every float dtype."""
    return np.full(nbytes, 0xFF, np.uint8), np.ones(nbytes, bool)


class SimMemory(Memory):
    """Residents and arena of one compiled graph. A weight's bytes stay where they are; its address is its place in the plan.

    contexts: what `iron_sim.loading` keeps loaded of its versions' arrays, as long as one of them is there.
    """

    def __init__(self, plan: Plan) -> None:
        self._next = ALIGN
        self.contexts: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        super().__init__(plan)

    def space(self, raw: np.ndarray, marks: np.ndarray | None) -> Space:
        """Bytes at an address of their own."""
        made = Space(raw, marks, self._next)
        self._next += -(-raw.size // ALIGN) * ALIGN + ALIGN
        return made

    def place(self, resident: Resident) -> Space:
        raw = super().place(resident)
        assert resident.spot is not None, "a plan for an NPU places every resident"
        self.traffic.residents += resident.nbytes  # a device has memory of its own
        at = RESIDENTS + resident.spot.bank * NEXT_BANK + resident.spot.offset
        return Space(raw, np.zeros(resident.nbytes, bool) if resident.data is None else None, at)

    def bank(self, nbytes: int, before: Space | None) -> Space:
        made = self.space(*unwritten(nbytes))
        if before is not None:
            assert made.marks is not None and before.marks is not None
            made.raw[: before.raw.size] = before.raw
            made.marks[: before.raw.size] = before.marks
        return made

    def fetch(self, place: Space, offset: int, nbytes: int) -> np.ndarray:
        return place.raw[offset : offset + nbytes]

    def replace(self, number: int, raw: np.ndarray) -> None:
        self.places[number] = Space(raw.copy(), np.zeros(raw.size, bool), self.places[number].base)

    def read(self, name: str, rows: int | None = None) -> Any:
        """A copy of a resident, or of its first `rows`. PoisonError where part of it came from data nobody wrote."""
        number = self._find(name)
        marks = self.places[number].marks
        if marks is not None and marks[: beginning(self.residents[number], rows).nbytes].any():
            raise PoisonError(f"{name} holds data nobody wrote, first at byte {int(marks.argmax())}.")
        return super().read(name, rows)


def host_tensors(image: ArrayImage, memory: SimMemory) -> dict[str, list[Space]]:
    """The spaces of a full ELF beside its plan's, as the host leaves them once: control words but for what each call gives, addresses
    of tables, the rows of the next call, and room for that call's words."""

    def written(data: np.ndarray) -> Space:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        return memory.space(raw, np.zeros(raw.size, bool))

    def address(table: BufferRef) -> np.ndarray:
        at = BASE + memory.places[table.index].base + table.offset
        return np.array([at & 0xFFFFFFFF, at >> 32], np.uint32)

    found = {
        "control": [written(control.gather.template()) for control in image.tensors.controls],
        "address": [written(address(table)) for table in image.tensors.addresses],
    }
    if image.program is not None:
        found["program"] = [written(np.array(image.program, np.int32))]
        found["feedback"] = [memory.space(*unwritten(image.own["feedback"][0]))]
    return found


def region(name: str, space: Space, ref: BufferRef) -> HostRegion:
    """An operand's bytes as flat numbers (of a packed format what arrays move them as)."""
    part = space.raw[ref.offset : ref.offset + ref.nbytes]
    marks = None if space.marks is None else space.marks[ref.offset : ref.offset + ref.nbytes]
    base = space.base + ref.offset
    dtype = ref.format.streamed
    # One mark per number: a transfer marks whole numbers, so its first byte's stands for all.
    return HostRegion(name, part.view(dtype), None if marks is None else marks[:: dtype.itemsize], base)


def spread(region: HostRegion, space: Space, ref: BufferRef) -> None:
    """Give every byte of the numbers a step may have written its number's mark."""
    if space.marks is None or region.mask is None:
        return
    item = region.data.itemsize
    marks = space.marks[ref.offset : ref.offset + ref.nbytes].reshape(-1, item)
    marks[:, 1:] = marks[:, :1]
