"""The control scratchpad of a run: this call's numbers, by the table that the tools wrote of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from iron_core.declare.row import Row
from iron_core.devices import WORD
from iron_core.image.parameters import Parameter
from iron_npu.errors import ArtifactError, ImageError
from iron_npu.formats.parameters import ADDRESS, CORE, ParameterTable
from iron_npu.runtime.device import Npu
from iron_npu.runtime.pyxrt import Bo, XrtRun

#: XRT takes a host's address as a capsule.
_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))


def check_table(path: Path | None, words: Sequence[Parameter]) -> None:
    """ArtifactError for a table without one of the words, or that has it at another place or in another way: descriptors that are patched,
    and what a run leaves for the next, count words as they are declared."""
    table: dict[str, tuple[int, str]] = {}
    if path is not None:
        try:
            table = {entry.name: (entry.index, entry.kind) for entry in ParameterTable.read(path.read_bytes()).entries}
        except (ImageError, OSError) as error:
            raise ArtifactError(f"{path}: {error} Build it again (`iron cache clean` throws away what was built).") from error
    for number, word in enumerate(words):
        want = number, CORE if word.shift else ADDRESS
        if table.get(word.symbol) != want:
            has = "has it as {} {}".format(*table[word.symbol]) if word.symbol in table else f"has {', '.join(table) or 'none'}"
            raise ArtifactError(
                f"{path}: the image's word {word.symbol} is number {number}, of kind {want[1]}, and the table {has}. Build it again (`iron "
                "cache clean` throws away what was built)."
            )


def numbers(table: Iterable[Sequence[int]], values: Sequence[str], call: Mapping[str, int]) -> np.ndarray:
    """The words (uint32) as a scratchpad keeps them. table: a `Row` each; values: their names in the rows' order."""
    plane = [[call[name] for name in values] or [0]]
    return np.array([Row(*row).at(plane) & 0xFFFFFFFF for row in table], np.uint32)


class RunScratchpad:
    """A run's own. Its buffer object is on the device's heap, where no shim reaches it: what another run is to leave there goes through
    `alias`, a buffer object over the same memory as the host has it."""

    def __init__(self, npu: Npu, run: XrtRun, count: int) -> None:
        self._npu = npu
        self._bo: Bo = run.get_ctrl_scratchpad_bo()
        self._raw = np.frombuffer(self._bo.map(), np.uint32)
        self._count = count
        self._alias: Bo | None = None
        if count > self._raw.size:
            raise ArtifactError(
                f"{count} words and a scratchpad of {self._raw.size}: the ELF and its table are not of one build. Build it again (`iron "
                "cache clean` throws away what was built)."
            )

    def write(self, words: np.ndarray) -> None:
        """Give the device these words (uint32), in the image's order."""
        self._raw[: words.size] = words
        self._bo.sync(self._npu.xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, words.size * WORD, 0)

    def read(self) -> np.ndarray:
        """The words (uint32) that another run left here."""
        alias = self.alias()
        alias.sync(self._npu.xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE)
        return self._raw[: self._count].copy()

    def alias(self) -> Bo:
        """For another run's argument."""
        if self._alias is None:
            self._alias = self._npu.xrt.ext.bo(self._npu.device, _capsule(self._raw.ctypes.data, None, None), self._raw.nbytes)
        return self._alias
