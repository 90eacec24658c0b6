"""pyxrt as far as it is used: its classes and calls as protocols, and the late import of it.

Written after XRT's own binding. A run's number arguments are 32 bits with a sign; a wait of 0 ms waits for ever, so none is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, cast, overload

from iron_npu.errors import NpuMissing

#: What a run's state is called, without its prefix.
PREFIX = "ERT_CMD_STATE_"
#: States of runs that are not over.
UNDER_WAY = frozenset({"NEW", "QUEUED", "SUBMITTED"})

FIX = (
    "Install XRT with its Python module (pyxrt) and the amdxdna driver, and see that this Python finds it: `source "
    "/opt/xilinx/xrt/setup.sh`."
)


class Bo(Protocol):
    """A buffer object: memory that host and device share. What one wrote, the other sees after `sync`."""

    def map(self) -> memoryview: ...

    @overload
    def sync(self, direction: Any) -> None: ...
    @overload
    def sync(self, direction: Any, size: int, offset: int) -> None: ...

    def size(self) -> int: ...

    def address(self) -> int: ...


class Flags(Protocol):
    host_only: Any
    cacheable: Any


class BoClass(Protocol):
    flags: Flags

    @overload
    def __call__(self, device: Any, size: int, flags: Any, group: int) -> Bo: ...
    @overload
    def __call__(self, parent: Bo, size: int, offset: int) -> Bo: ...


class HwContext(Protocol):
    """An ELF's or xclbin's hardware context; it is given back when nothing refers to it any more, kernels and runs included."""


class XrtKernel(Protocol):
    def group_id(self, index: int) -> int: ...


class XrtRun(Protocol):
    """One execution of a kernel, which can be started again when it is over."""

    def set_arg(self, index: int, value: Bo | int) -> None: ...

    def start(self) -> None: ...

    def wait(self, timeout_ms: int) -> Any: ...

    def state(self) -> Any: ...

    def get_ctrl_scratchpad_bo(self) -> Bo: ...


class RunList(Protocol):
    """Runs of one context, each in one list only and not started by itself. `wait` raises where one fails."""

    def add(self, run: XrtRun) -> None: ...

    def execute(self) -> None: ...

    def wait(self, timeout: Any) -> Any: ...


class XrtDevice(Protocol):
    def register_xclbin(self, xclbin: Any) -> Any: ...

    def get_info(self, key: Any) -> str: ...


class Ext(Protocol):
    """kernel: by name out of an ELF's context. bo: over memory of the host's, given as a capsule of its address."""

    kernel: Callable[[HwContext, str], XrtKernel]
    bo: Callable[[XrtDevice, Any, int], Bo]


class Pyxrt(Protocol):
    """The module."""

    device: Callable[[int], XrtDevice]
    xclbin: Callable[[str], Any]
    elf: Callable[[str], Any]
    hw_context: Callable[[XrtDevice, Any], HwContext]
    kernel: Callable[[HwContext, str], XrtKernel]
    run: Callable[[XrtKernel], XrtRun]
    runlist: Callable[[HwContext], RunList]
    bo: BoClass
    ext: Ext
    xclBOSyncDirection: Any
    ert_cmd_state: Any
    xrt_info_device: Any


def pyxrt() -> Pyxrt:
    """The module, imported now. NpuMissing says what to install."""
    try:
        module: ModuleType = import_module("pyxrt")
    except ImportError as error:
        raise NpuMissing(f"backend npu runs images with XRT, and pyxrt cannot be imported: {error}. {FIX}") from error
    return cast(Pyxrt, module)


def name(state: Any) -> str:
    """A state's name without its prefix: "COMPLETED", "TIMEOUT"."""
    return str(getattr(state, "name", state)).rpartition(".")[2].removeprefix(PREFIX)
