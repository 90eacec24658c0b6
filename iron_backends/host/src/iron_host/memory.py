"""Residents and arena of one compiled graph on the host.

A weight is a pointer into the array it was given (a mapped file stays mapped); a state is anonymous
memory, zero until touched; the arena's banks likewise. Versions of a graph share one `HostMemory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iron_core.declare.formats import PackedArray
from iron_core.declare.tensor import plain
from iron_core.errors import ShapeError, UnknownName
from iron_core.image.plan import Plan, Resident
from iron_host.anonymous import anonymous
from iron_host.guard import fence
from iron_host.runtime import Runtime
from iron_host.tiles import Tiles
from iron_host.tiling import made


def as_bytes(tensor: Any, name: str, shape: tuple[int, ...], format: Any) -> np.ndarray:
    """The bytes (uint8, flat) of an array or PackedArray of this shape and format, without a copy if it is contiguous.

    ShapeError when shape or format differ.
    """
    tensor = plain(tensor, f"`{name}`")
    packed = isinstance(tensor, PackedArray)
    data, got = (tensor.data, tensor.format) if packed else (tensor, tensor.dtype)
    fits = got == format if format.packed else not packed and got == format.dtype
    if not fits or tuple(tensor.shape) != tuple(shape):
        raise ShapeError(f"`{name}` is {format} of shape {tuple(shape)}; got {got} of shape {tuple(tensor.shape)}.")
    data = np.ascontiguousarray(data)
    return data.reshape(-1).view(np.uint8)


class HostMemory:
    """Every resident's bytes, and the arena. `epoch` counts the times an address changed.

    It has no lock: whoever uses it has its program's turn, and nothing of it moves while a run is inside a step.
    """

    def __init__(self, plan: Plan) -> None:
        self.name = plan.name
        self.residents: list[Resident] = []
        self.banks: list[np.ndarray] = []
        self.epoch = 0
        self._bytes: list[np.ndarray] = []
        self._index: dict[str, int] = {}
        self._tiles: dict[Tiles, np.ndarray] = {}
        self.grow(plan)

    def grow(self, plan: Plan) -> None:
        """Make room for what a newly planned version adds. A bank that must be larger moves with its content.

        OutOfMemory leaves what there was, as does a fork meanwhile to its child: another try goes on from there.
        """
        for resident in plan.residents[len(self._bytes) :]:
            if resident.data is None:
                raw = anonymous(resident.nbytes, f"{self.name}: state {resident.name}")
            else:
                raw = as_bytes(resident.data, resident.name, resident.shape, resident.format)
            self._index[resident.name] = len(self._bytes)
            self.residents[len(self._bytes) :] = [resident]
            self._bytes.append(raw)
        for index, nbytes in enumerate(plan.banks):
            what = f"{self.name}: intermediate results"
            if index == len(self.banks):
                self.banks.append(anonymous(nbytes, what))
            elif nbytes > self.banks[index].size:
                larger = anonymous(nbytes, what)
                fence(self.banks[index], [(0, self.banks[index].size)])
                larger[: self.banks[index].size] = self.banks[index]
                self.epoch += 1
                self.banks[index] = larger

    def read(self, name: str) -> Any:
        """A copy of a resident, as a numpy array (PackedArray for a block format)."""
        resident, raw = self._find(name)
        return resident.format.tensor(raw.copy(), resident.shape)

    def write(self, name: str, array: Any) -> None:
        """Replace a resident's content. A weight's own array (perhaps a mapped file) is left as it is."""
        resident, raw = self._find(name)
        new = as_bytes(array, name, resident.shape, resident.format)
        if resident.data is None:
            raw[: new.size] = new
        else:
            index = self._index[name]
            own = new.copy()
            self.epoch += 1
            self._bytes[index] = own
            self._tiles = {key: tiles for key, tiles in self._tiles.items() if key.resident != index}

    def keep(self, spots: Sequence[tuple[int, int, int]]) -> None:
        """Let kernels touch of the arena only these places, where the process is guarded (see `iron_host.guard`)."""
        for index, bank in enumerate(self.banks):
            fence(bank, [(offset, nbytes) for number, offset, nbytes in spots if number == index])

    def view(self, space: str, index: int) -> np.ndarray:
        """The bytes (uint8) of a resident or of a bank."""
        return self._bytes[index] if space == "resident" else self.banks[index]

    def tiles(self, wanted: Sequence[Tiles], engine: Runtime) -> list[np.ndarray]:
        """The bytes (uint8) of each, made by `engine` where they are not there yet."""
        missing = [one for one in wanted if one not in self._tiles]
        if missing:
            self._tiles.update(zip(missing, made(missing, self._bytes.__getitem__, engine), strict=True))
        return [self._tiles[one] for one in wanted]

    def weights(self) -> list[np.ndarray]:
        """The bytes (uint8) weights are read from: their tiles where some were made, else their own."""
        tiled = {one.resident for one in self._tiles}
        own = [raw for i, raw in enumerate(self._bytes) if self.residents[i].kind == "weight" and i not in tiled]
        return [*self._tiles.values(), *own]

    def _find(self, name: str) -> tuple[Resident, np.ndarray]:
        if name not in self._index:
            known = ", ".join(self._index) or "none"
            raise UnknownName(f"`{name}` is no weight or state of this graph. It has: {known}.")
        index = self._index[name]
        resident = self.residents[index]
        return resident, self._bytes[index][: resident.nbytes]
