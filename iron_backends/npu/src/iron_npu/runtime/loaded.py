"""Built files on the device: an ELF or an xclbin with its hardware context, its kernels, and runs that are started again and again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from iron_npu.errors import ArtifactError
from iron_npu.runtime.device import Loadable, Npu
from iron_npu.runtime.failures import said
from iron_npu.runtime.pyxrt import Bo, HwContext, RunList, XrtKernel, XrtRun
from iron_npu.runtime.words import RunScratchpad


class Handle:
    """A run of a kernel. Only arguments that changed are set. Who has one has not its context: that goes when the file is closed, and the
    run is over."""

    def __init__(self, npu: Npu, kernel: XrtKernel) -> None:
        self._npu = npu
        self._run: XrtRun | None = npu.xrt.run(kernel)
        self._bound: dict[int, Bo | int] = {}
        self._scratchpad: RunScratchpad | None = None
        self.flying = self._closing = False

    def start(self) -> None:
        self.run.start()
        self.flying = True

    def landed(self) -> None:
        """It is over, whatever came of it."""
        self.flying = False
        if self._closing:
            self.close()

    def close(self) -> None:
        self._closing = True
        if not self.flying:
            self._run = self._scratchpad = None
            self._bound.clear()

    @property
    def run(self) -> XrtRun:
        assert self._run is not None, "a run of a context that is gone"
        return self._run

    def bind(self, arguments: Sequence[Bo | int]) -> bool:
        """Set the arguments from 0 on. Did one change?"""
        changed = False
        for index, value in enumerate(arguments):
            kept = self._bound.get(index)
            if kept is value or (isinstance(value, int) and isinstance(kept, int) and kept == value):
                continue
            self.run.set_arg(index, value)
            self._bound[index] = value
            changed = True
        return changed

    def scratchpad(self, count: int) -> RunScratchpad:
        """Its own, of at least so many words."""
        if self._scratchpad is None:
            self._scratchpad = RunScratchpad(self._npu, self.run, count)
        return self._scratchpad


class LoadedFile(Loadable):
    """A file that was built. ArtifactError for one that XRT does not read."""

    def __init__(self, npu: Npu, path: Path, read: Callable[[str], Any]) -> None:
        self.npu = npu
        self.path = path
        try:
            self.file = read(str(path))
        except Exception as error:
            raise ArtifactError(f"{path}: XRT does not read it ({said(error)}). Build it again.") from error
        self._kernels: dict[str, XrtKernel] = {}
        self._handles: dict[Hashable, Handle] = {}
        self._lists: dict[Hashable, RunList] = {}
        #: How often it was loaded.
        self.loads = 0

    def close(self) -> None:
        for handle in self._handles.values():
            handle.close()
        self._lists.clear()
        self._handles.clear()
        self._kernels.clear()
        super().close()

    def kernel(self, name: str) -> XrtKernel:
        """A kernel of the context that there is."""
        if name not in self._kernels:
            assert self.context is not None
            self._kernels[name] = self._kernel(self.context, name)
        return self._kernels[name]

    def handle(self, key: Hashable, kernel: str) -> Handle:
        """The run that `key` names, made where there is none."""
        if key not in self._handles:
            self._handles[key] = Handle(self.npu, self.kernel(kernel))
        return self._handles[key]

    def runlist(self, key: Hashable, handles: Sequence[Handle], anew: bool) -> RunList:
        """A list of these runs, made again where one of them has other arguments."""
        if anew or key not in self._lists:
            assert self.context is not None
            made = self.npu.xrt.runlist(self.context)
            for handle in handles:
                made.add(handle.run)
            self._lists[key] = made
        return self._lists[key]

    def _kernel(self, context: HwContext, name: str) -> XrtKernel:
        raise NotImplementedError


class LoadedElf(LoadedFile):
    """A full ELF. Its kernels are `device:sequence`; each run has a scratchpad of its own."""

    def __init__(self, npu: Npu, path: Path) -> None:
        super().__init__(npu, path, npu.xrt.elf)

    def open(self, npu: Npu) -> HwContext:
        self.loads += 1
        return npu.xrt.hw_context(npu.device, self.file)

    def _kernel(self, context: HwContext, name: str) -> XrtKernel:
        return self.npu.xrt.ext.kernel(context, name)


class LoadedXclbin(LoadedFile):
    """An xclbin; up to 32 kernels. `entered`: the one that its array is configured for."""

    entered = ""

    def __init__(self, npu: Npu, path: Path) -> None:
        super().__init__(npu, path, npu.xrt.xclbin)
        self._uuid: Any = None

    def open(self, npu: Npu) -> HwContext:
        if self._uuid is None:
            self._uuid = npu.device.register_xclbin(self.file)
        self.loads += 1
        return npu.xrt.hw_context(npu.device, self._uuid)

    def close(self) -> None:
        self.entered = ""
        super().close()

    def _kernel(self, context: HwContext, name: str) -> XrtKernel:
        return self.npu.xrt.kernel(context, name)
