"""`Npu`: the device as this process has it, and the hardware contexts that are alive on it."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from iron_core.errors import IronError, UnsupportedError
from iron_core.turn import Turn
from iron_npu.errors import ContextLost, ContextRefused, NpuError, NpuMissing
from iron_npu.runtime import failures
from iron_npu.runtime.pyxrt import UNDER_WAY, HwContext, Pyxrt, XrtRun, name

T = TypeVar("T")
#: Milliseconds of one wait: between two of them a signal's handler has its turn, and other threads, which pyxrt holds up meanwhile.
SLICE_MS = 100

#: What XRT calls a device -> our family.
FAMILIES = {
    "npu1": "npu1",
    "phoenix": "npu1",
    "hawk": "npu1",
    "npu4": "npu2",
    "npu5": "npu2",
    "npu6": "npu2",
    "strix": "npu2",
    "krackan": "npu2",
}


class Loadable(ABC):
    """A file that lies in a hardware context of its own while it is alive, with all that goes when the context goes."""

    context: HwContext | None = None
    #: Runs of it that may be under way: as long as there are some it keeps its context.
    busy = 0

    @abstractmethod
    def open(self, npu: Npu) -> HwContext:
        """A new context."""

    def close(self) -> None:
        """Let go of the context and of what refers to it; buffers stay."""
        self.context = None


class Npu:
    """Device 0 of an XRT. One thread at a time runs on it: `turn`.

    Contexts are kept until the device refuses another one; then the one that was used longest ago is given back, and made again when it
    is needed. npu1 can lose runs in the others where one alone is given back, so there all are.
    """

    def __init__(self, xrt: Pyxrt) -> None:
        self.xrt = xrt
        self.turn = Turn("the NPU")
        try:
            self.device = xrt.device(0)
            self.name = str(self.device.get_info(xrt.xrt_info_device.name))
        except Exception as error:  # whatever the binding makes of XRT's
            raise NpuMissing(
                f"backend npu cannot run here: XRT opens no device 0 ({failures.said(error)}). `xrt-smi examine` lists what it finds; "
                "the amdxdna driver has to be loaded and /dev/accel/accel0 yours to use (group render)."
            ) from error
        self.family = next((ours for theirs, ours in FAMILIES.items() if theirs in self.name.lower()), "")
        #: Contexts that are kept at once; None: as many as the device gives.
        self.most: int | None = None
        self._alive: list[weakref.ref[Loadable]] = []

    def check(self, dev: str, family: str) -> None:
        """UnsupportedError for an image of another device than this one."""
        if self.family and self.family != family:
            raise UnsupportedError(f"dev={dev!r}: the device here is {self.name}, an {self.family}. Legal: dev={self.family!r}.")

    # -- contexts ------------------------------------------------------------------------------------

    def alive(self) -> list[Loadable]:
        """What has a context, the one that was used longest ago first."""
        found = [one for one in (ref() for ref in self._alive) if one is not None and one.context is not None]
        self._alive = [weakref.ref(one) for one in found]
        return found

    def enter(self, loadable: Loadable) -> None:
        """Give it a context where it has none. ContextRefused where the device has no more to give; DeviceLost where it is gone."""
        others = [one for one in self.alive() if one is not loadable]
        if loadable.context is None and self.most is not None:
            others = self._within(others, max(self.most, 1))
        while loadable.context is None:
            try:
                loadable.context = loadable.open(self)
            except Exception as error:
                if failures.gone(error):
                    self.forget()
                    raise failures.lost("a hardware context", error) from error
                others = self._give_back(others, error)
        self._alive = [weakref.ref(one) for one in (*others, loadable)]

    def _give_back(self, others: list[Loadable], error: BaseException) -> list[Loadable]:
        """Those that stay. ContextRefused where none can go."""
        idle = [one for one in others if not one.busy]
        if not idle:
            held = f", and all {len(others)} of this process are at work" if others else ", and this process holds none"
            raise ContextRefused(
                f"the NPU gives no hardware context ({failures.said(error)}){held}. Other processes take of the same ones: "
                "`xrt-smi examine -r aie-partitions` lists them; end one and call again."
            ) from error
        return self._closed(others, idle[:1])

    def _within(self, others: list[Loadable], most: int) -> list[Loadable]:
        """Those that stay where there is to be room for one more."""
        idle = [one for one in others if not one.busy]
        return self._closed(others, idle[: max(len(others) + 1 - most, 0)])

    def _closed(self, others: list[Loadable], going: list[Loadable]) -> list[Loadable]:
        """Those that stay where these go."""
        if going and self.family == "npu1":
            going = [one for one in others if not one.busy]
        for one in going:
            one.close()
        return [one for one in others if one not in going]

    def give_back(self) -> None:
        """Every context that is not at work."""
        for one in self.alive():
            if not one.busy:
                one.close()

    def forget(self) -> None:
        """Every context is gone with the device."""
        for one in self.alive():
            one.close()
        _opened.pop(id(self.xrt), None)

    # -- runs ----------------------------------------------------------------------------------------

    def submit(self, loadable: Loadable, what: str, start: Callable[[], T], tries: int = 2) -> T:
        """Start something in a context. One that was lost meanwhile is made again, `tries` times in all: what does not start has changed
        nothing. ContextLost, DeviceLost or NpuError where it does not start."""
        for left in reversed(range(tries)):
            self.enter(loadable)
            try:
                return start()
            except Exception as error:
                loadable.close()
                if failures.gone(error):
                    self.forget()
                    raise failures.lost(what, error) from error
                if not failures.context_gone(error):
                    raise failures.raised(what, error) from error
                if not left:
                    raise ContextLost(
                        f"{what}: its hardware context was lost ({failures.said(error)}), and so was any made in its place. Weights and "
                        "states are kept: call again when `dmesg | grep amdxdna` says that the device is at rest."
                    ) from error
        raise AssertionError("the last try returns or raises")

    def finish(self, loadable: Loadable, run: XrtRun, what: str, wait_s: float) -> None:
        """Wait for a run that was started; never for ever. What it is where it does not complete: see `iron_npu.errors`. Its context is
        then given back, so that the next call begins in a new one. What a signal's handler raises is raised when the run is over."""
        try:
            self._finish(loadable, run, what, wait_s)
        except IronError:
            raise
        except BaseException:
            self._finish(loadable, run, what, wait_s)
            raise

    def _finish(self, loadable: Loadable, run: XrtRun, what: str, wait_s: float) -> None:
        left = max(int(wait_s * 1000), 1)
        try:
            while True:
                piece = min(SLICE_MS, left)
                state = name(run.wait(piece))
                if state == "COMPLETED":
                    return
                left -= piece
                if state == "TIMEOUT":  # of this wait, or of the run
                    state = name(run.state())
                if state == "COMPLETED":
                    return
                if state not in UNDER_WAY or left <= 0:
                    break
        except Exception as error:
            raise self.failed(loadable, what, "", wait_s, error) from error
        raise self.failed(loadable, what, state, wait_s)

    def failed(self, loadable: Loadable, what: str, state: str, wait_s: float, error: Exception | None = None) -> NpuError:
        """What a run is that ended in this state, or with this exception of XRT's. Its context is given back."""
        loadable.close()
        if error is not None and failures.gone(error):
            self.forget()
            return failures.lost(what, error)
        return failures.ended(what, state, wait_s) if state else failures.raised(what, error or RuntimeError(state))


#: By the module's identity, which the device keeps alive.
_opened: dict[int, Npu] = {}
_opening = Turn("opening the NPU")


def opened(xrt: Any) -> Npu:
    """The device of an XRT, opened once. NpuMissing where there is none."""
    with _opening:
        if id(xrt) not in _opened:
            _opened[id(xrt)] = Npu(xrt)
        return _opened[id(xrt)]
