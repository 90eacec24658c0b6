"""`SimBackend`: runs plans for npu1 and npu2 on a simulated array."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from iron_core.backends.array_profile import ArrayProfile, recorded
from iron_core.backends.arrays import array_accepts, array_devices, array_supports
from iron_core.backends.measuring import Measured, Platform, Run, RunList, Timing
from iron_core.backends.protocol import Available, Backend, Unavailable
from iron_core.devices import Device, device
from iron_core.errors import CallError
from iron_core.graph.signature import Signature
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.packs import Pack
from iron_core.image.plan import Plan
from iron_core.lowering.answer import No, Yes

if TYPE_CHECKING:
    from iron_sim.executable import SimExecutable
    from iron_sim.host import SimMemory
    from iron_sim.timing.price import Price


def _path(given: str | os.PathLike[str] | None) -> str | None:
    """A file's path as text; CallError for what is none."""
    if given is None:
        return None
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else ""
    if not isinstance(path, str) or not path:
        raise CallError(f"trace={given!r}; legal: the path of a file.")
    return path


@attrs.frozen
class SimBackend(Backend):
    """Takes every operator whose array fits the device. Chosen only by name.

    trace: a file that every call writes, for Perfetto: the runs of its version until then (default: the one that
    `IRON_SIM_TRACE` names when a version is loaded, else none). CallError for what is no path.
    """

    trace: str | None = attrs.field(default=None, converter=_path, kw_only=True)
    name = "sim"
    follows_tiles = True

    def probe(self) -> Available | Unavailable:
        return Available("simulates the arrays of npu1 and npu2 and their column variants")

    def devices(self) -> tuple[str, ...]:
        return array_devices()

    def takes(self, dev: Device) -> bool:
        return dev.is_npu

    def supports(self, op: Any, dev: str) -> Yes | No:
        return array_supports(op, dev)

    def accepts(self, fold: Any, dev: str) -> bool | No:
        return array_accepts(fold, dev)

    def compile(
        self, plan: Plan, signature: Signature, coresident: Iterable[Pack] = (), feeds: Signature | None = None
    ) -> ArrayImage:
        return array_image(plan, signature, coresident, feeds)

    def price(self, image: ArrayImage, values: Mapping[str, int] = MappingProxyType({})) -> Price:
        """What a call of an image takes on the device, see `iron_sim.timing.price`."""
        from iron_sim.timing.price import price

        return price(image, values)

    def memory(self, plan: Plan) -> SimMemory:
        from iron_sim.host import SimMemory

        return SimMemory(plan)

    def load(self, image: ArrayImage, memory: SimMemory) -> SimExecutable:
        from iron_sim.executable import SimExecutable
        from iron_sim.loop import SimLoop

        kind = SimExecutable if image.program is None else SimLoop
        return kind(image, memory, trace=self.trace or os.environ.get("IRON_SIM_TRACE") or None)

    def platform(self, dev: Device | str) -> Platform:
        """The simulator with a device's table of hardware; see `iron_core.backends.measuring.Measuring`."""
        from iron_sim.timing.measure import platform

        return platform(dev)

    def measure(self, lists: Sequence[RunList], dev: Device | str, timing: Timing) -> list[Measured]:
        """Run lists on simulated time, without noise; see `Measuring`."""
        from iron_sim.measure import measure

        return measure(lists, device(dev), timing)

    def estimate(self, run: Run, dev: Device | str) -> float:
        """Microseconds of a run by itself, see `iron_core.backends.measuring.Estimating`."""
        from iron_sim.measure import estimate

        return estimate(run, device(dev))

    def profiled(self, executables: Mapping[str, SimExecutable]) -> AbstractContextManager[ArrayProfile]:
        """What these executables, by name, run inside the block, step by step; see `iron_core.backends.array_profile`. CallError inside
        another such block for one of them."""
        return recorded(executables, "times are the simulator's own, on this machine; they say nothing of the array's")
