"""`Memory`: residents and arena of one compiled graph, which its versions share."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from iron_core.backends.traffic import Traffic
from iron_core.declare.formats import PackedArray
from iron_core.declare.tensor import plain
from iron_core.errors import ShapeError, UnknownName
from iron_core.image.plan import BufferRef, Plan, Resident


def flat(array: np.ndarray) -> np.ndarray:
    """A contiguous array's bytes (uint8), one after another."""
    return array.reshape(-1).view(np.uint8)


def as_bytes(tensor: Any, resident: Resident) -> np.ndarray:
    """The bytes (uint8, flat) of an array or PackedArray of a resident's shape and format, without a copy where it is
    contiguous. ShapeError for another."""
    tensor = plain(tensor, f"`{resident.name}`")
    packed = isinstance(tensor, PackedArray)
    got = tensor.format if packed else tensor.dtype
    if got != resident.format.spec or tuple(tensor.shape) != tuple(resident.shape):
        raise ShapeError(
            f"`{resident.name}` is {resident.format} of shape {tuple(resident.shape)}; got {got} of shape {tuple(tensor.shape)}."
        )
    return flat(np.ascontiguousarray(tensor.data if packed else tensor))


def beginning(resident: Resident, rows: int | None) -> Resident:
    """Its first `rows`, along its leading axis; all of it where that is None."""
    return resident if rows is None else attrs.evolve(resident, shape=(rows, *resident.shape[1:]))


class Memory:
    """Every resident's place, and the arena's banks: numpy bytes, unless a backend keeps them elsewhere.

    A backend with memory of another kind derives from it and says how one place is made and reached, by `place`, `bank`,
    `fetch` and `replace`; what a place is, it alone knows. It needs no lock: one thread at a time uses it and what runs on
    it, and nothing is grown or written inside a step. Between two steps of a loop, in `on_step`, both may happen, and other
    versions, or the loop's own, may run.
    """

    def __init__(self, plan: Plan) -> None:
        self.name = plan.name
        #: What calls and loads copied; whoever copies, counts.
        self.traffic = Traffic()
        self.residents: list[Resident] = []
        self.places: list[Any] = []
        self.banks: list[Any] = []
        self._sizes: list[int] = []
        self._index: dict[str, int] = {}
        self.grow(plan)

    # -- what core asks of it ---------------------------------------------------------------------

    def grow(self, plan: Plan) -> None:
        """Make room for what a newly planned version adds; what is placed keeps its content.

        What it raises leaves what there was: another try goes on from there.
        """
        for resident in plan.residents[len(self.places) :]:
            place = self.place(resident)
            self._index[resident.name] = len(self.places)
            self.residents[len(self.places) :] = [resident]
            self.places.append(place)
        for number, nbytes in enumerate(plan.banks):
            if number == len(self.banks):
                self.banks[number:] = [self.bank(nbytes, None)]
                self._sizes[number:] = [nbytes]
            elif nbytes > self._sizes[number]:
                self.banks[number] = self.bank(nbytes, self.banks[number])
                self._sizes[number] = nbytes

    def read(self, name: str, rows: int | None = None) -> Any:
        """A copy of a resident, or of its first `rows`: a numpy array, or a PackedArray. UnknownName lists what there is."""
        number = self._find(name)
        part = beginning(self.residents[number], rows)
        return part.format.tensor(self.fetch(self.places[number], 0, part.nbytes).copy(), part.shape)

    def write(self, name: str, tensor: Any, rows: int | None = None) -> None:
        """Replace a resident's content, or its first `rows`; the array that a weight came from stays as it is. ShapeError for another
        shape or format."""
        number = self._find(name)
        raw = as_bytes(tensor, beginning(self.residents[number], rows))
        if raw.size == self.residents[number].nbytes:
            self.replace(number, raw)
        else:
            self.begin(number, raw)
        self.traffic.residents += raw.size

    def at(self, ref: BufferRef) -> np.ndarray:
        """The bytes (uint8) of a place in a resident or in the arena, as they are now."""
        return self.fetch(self.view(ref.space, ref.index), ref.offset, ref.nbytes)

    def view(self, space: str, number: int) -> Any:
        """The place of a resident, or a bank."""
        return self.places[number] if space == "resident" else self.banks[number]

    def _find(self, name: str) -> int:
        if name not in self._index:
            raise UnknownName(f"`{name}` is no weight or state of this graph. It has: {', '.join(self._index) or 'none'}.")
        return self._index[name]

    # -- what memory of another kind says ---------------------------------------------------------

    def place(self, resident: Resident) -> Any:
        """A resident's place: a weight is the bytes the graph holds, not to be written to; a state is zeros."""
        return np.zeros(resident.nbytes, np.uint8) if resident.data is None else as_bytes(resident.data, resident)

    def bank(self, nbytes: int, before: Any) -> Any:
        """A fresh bank, which begins with the content of a smaller one, `before`, where that is not None. Bytes nobody wrote
        are all ones, a NaN in every float dtype, so that a read of them shows."""
        made = np.full(nbytes, 0xFF, np.uint8)
        if before is not None:
            made[: before.size] = before
        return made

    def fetch(self, place: Any, offset: int, nbytes: int) -> np.ndarray:
        """Bytes (uint8) of a place; perhaps the bytes themselves, so they are not written to."""
        return place[offset : offset + nbytes]

    def replace(self, number: int, raw: np.ndarray) -> None:
        """Give the resident of this number new content; the bytes given are copied."""
        self.places[number] = raw.copy()

    def begin(self, number: int, raw: np.ndarray) -> None:
        """Give its first bytes new content. A backend that can leaves the others untouched, so that no page of them is taken."""
        whole = self.fetch(self.places[number], 0, self.residents[number].nbytes).copy()
        whole[: raw.size] = raw
        self.replace(number, whole)
