"""The host's memory as the simulator keeps it: bytes, and which of them nobody wrote."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core.backends.reference import as_bytes
from iron_core.declare.formats import Format, format_of
from iron_core.declare.tensor import plain
from iron_core.errors import ShapeError
from iron_core.image.plan import BufferRef, Plan
from iron_sim.dma import Region
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


class SimMemory:
    """Residents and arena of one compiled graph. A weight's bytes stay where they are; its address is its place in the plan."""

    def __init__(self, plan: Plan) -> None:
        self.residents: dict[str, Space] = {}
        self.kinds: dict[str, tuple[tuple[int, ...], Format]] = {}
        self.banks: list[Space] = []
        self._next = ALIGN
        self.grow(plan)

    def space(self, raw: np.ndarray, marks: np.ndarray | None) -> Space:
        made = Space(raw, marks, self._next)
        self._next += -(-raw.size // ALIGN) * ALIGN + ALIGN
        return made

    def grow(self, plan: Plan) -> None:
        """Add what the plan has and this has not; what is there keeps its content."""
        for resident in plan.residents:
            if resident.name in self.residents:
                continue
            state = resident.data is None
            raw = np.zeros(resident.nbytes, np.uint8) if state else as_bytes(resident.data)
            marks = np.zeros(resident.nbytes, bool) if state else None
            assert resident.spot is not None, "a plan for an NPU places every resident"
            at = RESIDENTS + resident.spot.bank * NEXT_BANK + resident.spot.offset
            self.residents[resident.name] = Space(raw, marks, at)
            self.kinds[resident.name] = (resident.shape, resident.format)
        for number, nbytes in enumerate(plan.banks):
            if number == len(self.banks):
                self.banks.append(self.space(*unwritten(nbytes)))
            elif self.banks[number].raw.size < nbytes:
                old, new = self.banks[number], self.space(*unwritten(nbytes))
                new.raw[: old.raw.size] = old.raw
                assert new.marks is not None and old.marks is not None
                new.marks[: old.raw.size] = old.marks
                self.banks[number] = new

    def read(self, name: str) -> Any:
        """A copy of a resident. PoisonError where part of it came from data nobody wrote."""
        space = self.residents[name]
        if space.marks is not None and space.marks.any():
            raise PoisonError(f"{name} holds data nobody wrote, first at byte {int(space.marks.argmax())}.")
        shape, format = self.kinds[name]
        return format.tensor(space.raw.copy(), shape)

    def write(self, name: str, array: Any) -> None:
        """Replace a resident's content; the array that a weight came from stays as it is."""
        shape, format = self.kinds[name]
        array = plain(array, name)
        if tuple(array.shape) != shape or format_of(array) != format:
            raise ShapeError(f"{name} is {shape} {format.name}; got {tuple(array.shape)} {format_of(array).name}.")
        raw = as_bytes(array).copy()
        self.residents[name] = Space(raw, np.zeros(raw.size, bool), self.residents[name].base)


def region(name: str, space: Space, ref: BufferRef) -> Region:
    """An operand's bytes as flat numbers (packed bytes for a block format)."""
    part = space.raw[ref.offset : ref.offset + ref.nbytes]
    marks = None if space.marks is None else space.marks[ref.offset : ref.offset + ref.nbytes]
    base = space.base + ref.offset
    item = ref.format.dtype.itemsize
    # One mark per number: a transfer marks whole numbers, so its first byte's stands for all.
    return Region(name, part.view(ref.format.dtype), None if marks is None else marks[::item], base)


def spread(region: Region, space: Space, ref: BufferRef) -> None:
    """Give every byte of the numbers a step may have written its number's mark."""
    if space.marks is None or region.mask is None:
        return
    item = region.data.itemsize
    marks = space.marks[ref.offset : ref.offset + ref.nbytes].reshape(-1, item)
    marks[:, 1:] = marks[:, :1]
