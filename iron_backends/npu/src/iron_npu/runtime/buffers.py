"""`SharedBuffer`: a buffer object, and which of its bytes host and device still have to tell each other."""

from __future__ import annotations

import errno

import numpy as np

from iron_core.errors import OutOfMemory
from iron_core.image.arena import ALIGNMENT
from iron_npu.runtime.device import Npu
from iron_npu.runtime.failures import number, raised, said
from iron_npu.runtime.pyxrt import Bo

#: Memory group of host memory.
GROUP = 0


class SharedBuffer:
    """Memory that host and device share. `raw`: its bytes (uint8) as the host has them.

    What the host writes goes to the device before the next run, and no more than that; what the device wrote comes to the host where it is
    looked at. Parts are made of the whole: a part of a part is none.
    """

    def __init__(self, npu: Npu, nbytes: int, what: str) -> None:
        self._npu = npu
        self.nbytes = nbytes
        try:
            self.bo: Bo = npu.xrt.bo(npu.device, max(nbytes, 1), npu.xrt.bo.flags.host_only, GROUP)
            self.raw = np.frombuffer(self.bo.map(), np.uint8)[:nbytes]
        except Exception as error:
            if number(error) not in (errno.ENOMEM, errno.EAGAIN) and not isinstance(error, MemoryError):
                raise raised(f"{what}, a buffer of {nbytes} bytes", error) from error
            raise OutOfMemory(
                f"{what}: no memory for a buffer of {nbytes} bytes ({said(error)}). What an NPU uses stays in memory: `ulimit -l` has to "
                "be above the sum of weights, states and tensors (memlock unlimited in /etc/security/limits.conf).",
                what, nbytes,
            ) from error  # fmt: skip
        self._dirty: list[tuple[int, int]] = []
        self._behind = False
        self._parts: dict[tuple[int, int], Bo] = {}

    # -- the host's side -----------------------------------------------------------------------------

    def put(self, offset: int, data: np.ndarray) -> None:
        """Write bytes (uint8, flat)."""
        self.touch(offset, data.size)[:] = data

    def touch(self, offset: int, nbytes: int) -> np.ndarray:
        """Bytes that the host is about to write, all of them."""
        end = offset + nbytes
        if self._behind and (offset % ALIGNMENT or end % ALIGNMENT):
            # What shares a cache line with them would go back to the device as the host knew it.
            first, last = offset // ALIGNMENT * ALIGNMENT, min(-(-end // ALIGNMENT) * ALIGNMENT, self.nbytes)
            self.get(first, last - first)
        self._note(offset, end)
        return self.raw[offset:end]

    def get(self, offset: int, nbytes: int) -> np.ndarray:
        """Bytes as they are now: not to be written to."""
        if self._behind and nbytes:
            if self._dirty:
                self.flush()
            self._sync("FROM_DEVICE", offset, offset + nbytes)
        return self.raw[offset : offset + nbytes]

    # -- the device's side ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Give the device what the host wrote."""
        for start, stop in self._dirty:
            self._sync("TO_DEVICE", start, stop)
        self._dirty = []

    def ran(self) -> None:
        """The device may have written it."""
        self._behind = True

    def part(self, offset: int, nbytes: int) -> Bo:
        """A buffer object of some of its bytes; the whole one's own where they are all."""
        if (offset, nbytes) == (0, self.nbytes):
            return self.bo
        if (offset, nbytes) not in self._parts:
            self._parts[offset, nbytes] = self._npu.xrt.bo(self.bo, nbytes, offset)
        return self._parts[offset, nbytes]

    @property
    def address(self) -> int:
        return self.bo.address()

    def _note(self, start: int, stop: int) -> None:
        kept = []
        for a, b in self._dirty:
            if b < start or stop < a:
                kept.append((a, b))
            else:
                start, stop = min(a, start), max(b, stop)
        self._dirty = sorted([*kept, (start, stop)])

    def _sync(self, way: str, start: int, stop: int) -> None:
        direction = getattr(self._npu.xrt.xclBOSyncDirection, f"XCL_BO_SYNC_BO_{way}")
        if (start, stop) == (0, self.nbytes):
            self.bo.sync(direction)
        else:
            self.bo.sync(direction, stop - start, start)
