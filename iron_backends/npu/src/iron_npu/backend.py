"""`NpuBackend`: compiles plans into images for an NPU, and runs them with pyxrt."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import attrs

from iron_core.backends.protocol import Available, Backend, Finding, Unavailable
from iron_core.errors import CallError
from iron_core.graph.signature import Signature
from iron_core.image.plan import Plan, VersionPlan
from iron_core.lowering.answer import No, Yes

if TYPE_CHECKING:
    from iron_core.backends.array_profile import ArrayProfile
    from iron_core.backends.measuring import Measured, Platform, RunList, Timing
    from iron_core.devices import Device
    from iron_core.image.array_image import ArrayImage
    from iron_core.image.packs import Pack
    from iron_npu.image.compiled import CompiledVersion
    from iron_npu.runtime.device import Npu
    from iron_npu.runtime.executable import NpuExecutable
    from iron_npu.runtime.memory import NpuMemory

#: What versions were made of: an image is of all versions of its plan.
_arrays: WeakKeyDictionary[VersionPlan, ArrayImage] = WeakKeyDictionary()


def _positive(instance: Any, attribute: Any, value: Any) -> None:
    kind = int if attribute.name == "depth" else (int, float)
    if not isinstance(value, kind) or isinstance(value, bool) or not value > 0:
        raise CallError(f"{attribute.name}={value!r}; legal: {'1 or more' if kind is int else 'seconds, more than 0'}.")


def _mode(instance: Any, attribute: Any, value: Any) -> None:
    if value is not None and not (isinstance(value, str) and value.isascii() and value.isalpha() and value.islower()):
        raise CallError(f"pmode={value!r}; legal: None, or a mode of `xrt-smi configure --pmode`, as 'turbo'.")


def _switch(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, bool):
        raise CallError(f"{attribute.name}={value!r}; legal: True, False.")


@attrs.frozen
class NpuBackend(Backend):
    """Runs graphs on the NPU of this machine: the first choice where there is one.

    wait_s: seconds without an answer after which a run is given up. depth: steps of a loop that are under way at once where nobody is
    told of each. lists: are dispatches that follow one another in a hardware context handed over together? pmode: the power mode that
    run lists are measured in, as `xrt-smi configure --pmode` takes it; None: as the device is. CallError for other values.
    """

    wait_s: float = attrs.field(default=60.0, kw_only=True, validator=_positive)
    depth: int = attrs.field(default=2, kw_only=True, validator=_positive)
    lists: bool = attrs.field(default=False, kw_only=True, validator=_switch)
    pmode: str | None = attrs.field(default=None, kw_only=True, validator=_mode)
    name = "npu"
    preference = 0

    def probe(self) -> Available | Unavailable:
        """Where there is neither a device node nor a compiler of images nothing else is looked at: most processes start so."""
        if not _anything():
            return Unavailable("no device node in /dev/accel, and no aiecc, which makes images", "`iron doctor --npu` says what is needed.")
        from iron_npu.machine.machine import probe

        return probe()

    def examine(self) -> tuple[Finding, ...]:
        """Everything that building and running need; see `iron_npu.machine.machine.examine`."""
        from iron_npu.machine.machine import examine

        return examine()

    def devices(self) -> tuple[str, ...]:
        """The device of this machine first, else npu2."""
        from iron_core.backends.arrays import array_devices
        from iron_npu.machine.system import System

        return array_devices(next((node.family for node in System().nodes()), "npu2"))

    def supports(self, op: Any, dev: str) -> Yes | No:
        from iron_core.backends.arrays import array_supports

        return array_supports(op, dev)

    def accepts(self, fold: Any, dev: str) -> bool | No:
        from iron_core.backends.arrays import array_accepts

        return array_accepts(fold, dev)

    def printed(self, op: Any, dev: str) -> str:
        """MLIR of the `aie` and `aiex` dialects: one device with the operator's array and its sequence."""
        from iron_core.array.build import build
        from iron_npu.mlir.printer import print_design

        return print_design(build(op, dev).design).text

    def compile(
        self, plan: Plan, signature: Signature, coresident: Iterable[Pack] = (), feeds: Signature | None = None
    ) -> CompiledVersion:
        """The image of all versions there are; nothing is built, and no device is looked for. UnsupportedError for a version with a run
        that is estimated past the driver's watchdog."""
        from iron_core.image.array_image import array_image
        from iron_npu.image.compiled import compiled
        from iron_npu.image.watchdog import check_estimate
        from iron_npu.linked import linked
        from iron_npu.settings import Settings

        made = array_image(plan, signature, coresident, feeds)
        check_estimate(plan.name, made)
        _arrays[plan.version(signature)] = made
        return compiled(plan, signature, _arrays, linked=linked(Settings.read()))

    def memory(self, plan: Plan) -> NpuMemory:
        from iron_core.devices import device
        from iron_npu.runtime.memory import NpuMemory

        npu = self._opened()
        npu.check(plan.dev, device(plan.dev).family)
        return NpuMemory(plan, npu)

    def load(self, image: CompiledVersion, memory: NpuMemory) -> NpuExecutable:
        """Build what is not built yet, of all versions that the memory has room for, and make the version callable."""
        from iron_npu.loading import load
        from iron_npu.runtime.executable import Running

        return load(image, memory, _arrays, Running(float(self.wait_s), self.depth, self.lists))


    def platform(self, dev: Device | str) -> Platform:
        """The device as XRT calls it, and the power mode that is asked for."""
        from iron_core.backends.measuring import Platform

        return Platform(self._opened().name, self.pmode or "as found")

    def measure(self, lists: Sequence[RunList], dev: Device | str, timing: Timing) -> list[Measured]:
        """Time run lists on the device, alone; see `Measuring`."""
        from iron_core.devices import device
        from iron_npu.measure import measure

        return measure(self, self._opened(), lists, device(dev), timing)

    def profiled(self, executables: Mapping[str, NpuExecutable]) -> AbstractContextManager[ArrayProfile]:
        """What these executables, by name, run inside the block: of a chain each dispatch, by itself; a full ELF is one."""
        from iron_core.backends.array_profile import recorded

        return recorded(executables, "times of dispatches, with what handing them over and waiting takes")

    def _opened(self) -> Npu:
        from iron_npu.runtime.device import opened
        from iron_npu.runtime.pyxrt import pyxrt
        from iron_npu.settings import Settings

        npu = opened(pyxrt())
        npu.most = Settings.read().contexts
        return npu


def _anything() -> bool:
    """Is there a device node, or mlir-aie's driver, where `iron_npu.machine.machine` would find it?"""
    try:
        if os.listdir("/dev/accel"):
            return True
    except OSError:
        pass
    if os.environ.get("MLIR_AIE_INSTALL_DIR", "").strip():
        return True
    here = os.path.dirname(sys.executable)
    places = [os.environ.get("PATH", os.defpath), here, *(os.path.join(place, "mlir_aie", "bin") for place in sys.path)]
    return shutil.which("aiecc", path=os.pathsep.join(places)) is not None
