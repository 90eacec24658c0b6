"""`Regions`: a version's flat regions as buffers, and how tensors of calls get there and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from iron_core.array.gather import Gather
from iron_core.backends.memory import flat
from iron_core.backends.ports import cut
from iron_core.image.plan import BufferRef, Port
from iron_npu.errors import UnwrittenOutput
from iron_npu.image.image import VersionImage
from iron_npu.runtime.buffers import SharedBuffer
from iron_npu.runtime.memory import NpuMemory

#: Shims see the host's memory from here on. A run's tensors are moved there for it; addresses in control words are not.
WINDOW = 0x8000_0000
#: Regions of the arena and of residents, which a graph's versions share, by what their names begin with.
_ARENA, _RESIDENTS = "bank", "residents"
_ONES = 0xFF


class Regions:
    """Those of one version: its own, made once, and the memory's, taken as they are now."""

    def __init__(self, image: VersionImage, memory: NpuMemory) -> None:
        self.image = image
        self.memory = memory
        self._own: dict[str, SharedBuffer] = {}
        #: By the regions' numbers, from where each is: a list of the memory's and an index there.
        self._places: list[tuple[list[SharedBuffer] | list[Any] | None, int, str]] = []
        self.names = [name for name, _ in image.regions]
        for name, nbytes in image.regions:
            if name.startswith(_RESIDENTS):
                self._places.append((memory.held, int(name.removeprefix(_RESIDENTS)), name))
            elif name.startswith(_ARENA):
                self._places.append((memory.banks, int(name.removeprefix(_ARENA)), name))
            else:
                self._own[name] = SharedBuffer(memory.npu, nbytes, f"{memory.name}: {name}")
                self._places.append((None, 0, name))
        self._base = {number: (at.argument, at.offset) for number, at in image.addresses.addresses}
        self._addresses: list[int] = []
        for number, control in enumerate(image.tensors.controls):
            self._put("control", number, control.gather.template())
        if image.program is not None:
            self._put("program", 0, np.array(image.program, np.int32))

    def buffers(self) -> list[SharedBuffer]:
        """By the regions' numbers. Memory may have larger ones than at the last call."""
        found = [self._own[name] if held is None else held[number] for held, number, name in self._places]
        tables = [self.address(table) for table in self.image.tensors.addresses]
        if tables != self._addresses:  # of a bank that was made anew
            self._addresses = tables
            for number, at in enumerate(tables):
                self._put("address", number, np.array([at & 0xFFFFFFFF, at >> 32], np.uint32))
        return found

    def own(self, name: str) -> SharedBuffer:
        """A region that no other version has."""
        return self._own[name]

    def buffer(self, ref: BufferRef) -> tuple[SharedBuffer, int]:
        """A plan's buffer: in which, and from which byte on."""
        if ref.space == "resident":
            place = self.memory.places[ref.index]
            return self.memory.held[place.bank], place.offset + ref.offset
        if ref.space == "arena":
            return self.memory.banks[ref.index], ref.offset
        region, offset = self._base[ref.space, ref.index]
        return self._own[self.names[region]], offset + ref.offset

    def address(self, ref: BufferRef) -> int:
        """Of a plan's buffer, as shims see it."""
        buffer, offset = self.buffer(ref)
        return WINDOW + buffer.address + offset

    # -- a call's tensors ----------------------------------------------------------------------------

    def give(self, inputs: Sequence[np.ndarray]) -> None:
        """Inputs, whole or cut to this call's bounds: behind these lies what no call gave. And the control words that ids become."""
        for number, (port, data) in enumerate(zip(self.image.version.inputs, inputs, strict=True)):
            self._give(number, port, data)
        for number, control in enumerate(self.image.tensors.controls):
            if control.ids is not None:
                ids = self.numbers(control.ids)
                self._put("control", number, self.encode(control.gather, ids, control.table))

    def _give(self, number: int, port: Port, data: np.ndarray) -> None:
        region, offset = self._base["input", number]
        into = self._own[self.names[region]].touch(offset, port.format.nbytes(port.shape))
        shape = port.format.stored(port.shape)
        if data.shape == shape:
            into[:] = flat(data)
            return
        into[:] = _ONES
        into.view(data.dtype).reshape(shape)[tuple(slice(n) for n in data.shape)] = data

    def clear(self) -> None:
        """Outputs, before a run: all ones, which in every float dtype is a number that no array makes."""
        if self.image.version.outputs:
            output = self._own["output"]
            output.touch(0, output.nbytes)[:] = _ONES

    def take(self, outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> None:
        """Fill these arrays. UnwrittenOutput where a float within the call's bounds is what `clear` left."""
        for number, (port, made) in enumerate(zip(self.image.version.outputs, outputs, strict=True)):
            region, offset = self._base["output", number]
            buffer = self._own[self.names[region]]
            flat(made)[:] = buffer.get(offset, port.format.nbytes(port.shape))
            if port.format.packed or made.dtype.kind in "iub":
                continue
            bare = np.dtype(f"u{made.dtype.itemsize}")
            left = cut(made.view(bare), port, values) == np.iinfo(bare).max
            if left.any():
                at = [int(i) for i in np.unravel_index(int(left.argmax()), left.shape)]
                raise UnwrittenOutput(
                    f"{self.memory.name}: the run ended well, and output {port.name}{at} is as nobody wrote it. The image is not the one "
                    "that its buffers are laid out for, or its context was taken away under it: build it again (`iron cache clean` throws "
                    "away what was built)."
                )

    def numbers(self, ref: BufferRef) -> np.ndarray:
        """A plan's buffer as it is now, as flat numbers."""
        buffer, offset = self.buffer(ref)
        return buffer.get(offset, ref.nbytes).view(ref.format.dtype)

    def encode(self, gather: Gather, ids: np.ndarray, table: BufferRef) -> np.ndarray:
        """The control words of a gather of these ids."""
        words = gather.control_words(ids, self.address(table))
        self.memory.traffic.words += words.nbytes
        return words

    def _put(self, space: str, number: int, data: np.ndarray) -> None:
        region, offset = self._base[space, number]
        self._own[self.names[region]].put(offset, flat(np.ascontiguousarray(data)))
