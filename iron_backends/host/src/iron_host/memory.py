"""Residents and arena of one compiled graph on the host.

A weight is a pointer into the array it was given (a mapped file stays mapped), or, where that one's bytes are made when they are asked
for, the array itself until a kernel reads it in its own order; a state is anonymous memory, zero until touched; the arena's banks
likewise. Versions of a graph share one `HostMemory`.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from iron_core.backends.memory import Memory
from iron_core.declare.formats import LazyPackedArray
from iron_core.image.arena import guard_bytes
from iron_core.image.plan import Plan, Resident
from iron_host.anonymous import anonymous
from iron_host.guard import fence
from iron_host.large_pages import LARGE, Filling
from iron_host.runtime import Runtime
from iron_host.tiles import Tiles
from iron_host.tiling import bytes_of, made


class HostMemory(Memory):
    """Every resident's bytes, and the arena. `epoch` counts the times an address changed.

    After OutOfMemory what there was is as it was; so it is in a child that was forked meanwhile.
    """

    def __init__(self, plan: Plan) -> None:
        self.epoch = 0
        self._tiles: dict[Tiles, np.ndarray] = {}
        self._filling: list[Filling] = []
        #: Where small states go, one behind another: a large page may hold parts of several.
        self._room = np.empty(0, np.uint8)
        super().__init__(plan)

    def grow(self, plan: Plan) -> None:
        """As `Memory.grow`; room for small states is made at once."""
        small = [one.nbytes for one in plan.residents[len(self.places) :] if one.data is None and one.nbytes < LARGE]
        if small and not guard_bytes():
            self._room = self._filled(sum(map(_paged, small)), "small states")
        super().grow(plan)

    def place(self, resident: Resident) -> Any:
        """A weight is a pointer into the array it was given, or that array; a state is anonymous memory."""
        if resident.data is None:
            if (size := _paged(resident.nbytes)) <= self._room.size and resident.nbytes < LARGE:
                state, self._room = self._room[: resident.nbytes], self._room[size:]
                return state
            return self._filled(resident.nbytes, f"state {resident.name}")
        return resident.data if isinstance(resident.data, LazyPackedArray) else super().place(resident)

    def view(self, space: str, number: int) -> Any:
        """As `Memory.view`, of what is there from now on."""
        place = super().view(space, number)
        if isinstance(place, LazyPackedArray):
            place = self.places[number] = bytes_of(place)
        return place

    def fetch(self, place: Any, offset: int, nbytes: int) -> np.ndarray:
        """As `Memory.fetch`."""
        return bytes_of(place)[offset : offset + nbytes]

    def _filled(self, nbytes: int, what: str) -> np.ndarray:
        found = anonymous(nbytes, f"{self.name}: {what}")
        self._filling.append(Filling(found))
        return found

    def settle(self) -> None:
        """What states were filled with since moves to large pages, where the system has them. It stays where it is."""
        for one in self._filling:
            one.settle()

    def bank(self, nbytes: int, before: np.ndarray | None) -> np.ndarray:
        """A bank of zeros; one that must be larger moves with its content."""
        larger = anonymous(nbytes, f"{self.name}: intermediate results")
        if before is not None:
            fence(before, [(0, before.size)])
            larger[: before.size] = before
            self.epoch += 1
        return larger

    def replace(self, number: int, raw: np.ndarray) -> None:
        """A state's bytes stay where they are; a weight's own array (perhaps a mapped file) is left as it is."""
        if self.residents[number].data is None:
            self.places[number][: raw.size] = raw
            return
        own = raw.copy()
        self.epoch += 1
        self.places[number] = own
        self._tiles = {key: tiles for key, tiles in self._tiles.items() if key.resident != number}

    def begin(self, number: int, raw: np.ndarray) -> None:
        """As `Memory.begin`: the pages of a state that stay are not touched."""
        if self.residents[number].data is None:
            self.places[number][: raw.size] = raw
        else:
            super().begin(number, raw)

    def keep(self, spots: Sequence[tuple[int, int, int]]) -> None:
        """Let kernels touch of the arena only these places, where the process is guarded (see `iron_host.guard`)."""
        for index, bank in enumerate(self.banks):
            fence(bank, [(offset, nbytes) for number, offset, nbytes in spots if number == index])

    def tiles(self, wanted: Sequence[Tiles], engine: Runtime) -> list[np.ndarray]:
        """The bytes (uint8) of each, made by `engine` where they are not there yet."""
        missing = [one for one in wanted if one not in self._tiles]
        if missing:
            found = made(missing, self.places.__getitem__, engine)
            self._tiles.update(zip(missing, found, strict=True))
            self.traffic.residents += sum(tiles.size for tiles in found)
        return [self._tiles[one] for one in wanted]

    def weights(self) -> list[np.ndarray]:
        """The bytes (uint8) weights are read from: their tiles where some were made, else their own."""
        tiled = {one.resident for one in self._tiles}
        own = [place for i, place in enumerate(self.places) if self.residents[i].kind == "weight" and i not in tiled]
        return [*self._tiles.values(), *(place for place in own if not isinstance(place, LazyPackedArray))]


def _paged(nbytes: int) -> int:
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
