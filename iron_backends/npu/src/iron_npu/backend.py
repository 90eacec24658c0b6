"""`NpuBackend`: compiles plans into images for an NPU, and runs them with pyxrt."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import attrs

from iron_core.backends.protocol import Available, Backend, Unavailable
from iron_core.errors import CallError
from iron_core.graph.signature import Signature
from iron_core.image.plan import Plan, VersionPlan
from iron_core.lowering.answer import No, Yes

if TYPE_CHECKING:
    from iron_core.image.array_image import ArrayImage
    from iron_core.image.packs import Pack
    from iron_npu.compiled import CompiledVersion
    from iron_npu.runtime.executable import NpuExecutable
    from iron_npu.runtime.memory import NpuMemory

#: Where the system lists accelerators, and the driver of ours.
ACCELERATORS, DRIVER = Path("/sys/class/accel"), "amdxdna"
_FIX = "Install the amdxdna driver and XRT with its Python module."

#: What versions were made of: an image is of all versions of its plan.
_arrays: WeakKeyDictionary[VersionPlan, ArrayImage] = WeakKeyDictionary()


def _positive(instance: Any, attribute: Any, value: Any) -> None:
    kind = int if attribute.name == "depth" else (int, float)
    if not isinstance(value, kind) or isinstance(value, bool) or not value > 0:
        raise CallError(f"{attribute.name}={value!r}; legal: {'1 or more' if kind is int else 'seconds, more than 0'}.")


def _switch(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, bool):
        raise CallError(f"{attribute.name}={value!r}; legal: True, False.")


@attrs.frozen
class NpuBackend(Backend):
    """Runs graphs on the NPU of this machine: the first choice where there is one.

    wait_s: seconds without an answer after which a run is given up. depth: steps of a loop that are under way at once where nobody is
    told of each. lists: are dispatches that follow one another in a hardware context handed over together? CallError for other values.
    """

    wait_s: float = attrs.field(default=60.0, kw_only=True, validator=_positive)
    depth: int = attrs.field(default=2, kw_only=True, validator=_positive)
    lists: bool = attrs.field(default=True, kw_only=True, validator=_switch)
    name = "npu"
    preference = 0

    def probe(self) -> Available | Unavailable:
        found = _accelerator()
        if not found:
            return Unavailable(f"no NPU here: {ACCELERATORS} has no device of the driver {DRIVER}", _FIX)
        if find_spec("pyxrt") is None:
            return Unavailable(f"{found} is an NPU, and pyxrt, which runs it, is not installed", _FIX)
        return Available(f"{found}, pyxrt")

    def devices(self) -> tuple[str, ...]:
        from iron_core.backends.arrays import array_devices

        return array_devices()

    def supports(self, op: Any, dev: str) -> Yes | No:
        from iron_core.backends.arrays import array_supports

        return array_supports(op, dev)

    def accepts(self, fold: Any, dev: str) -> bool | No:
        from iron_core.backends.arrays import array_accepts

        return array_accepts(fold, dev)

    def compile(self, plan: Plan, signature: Signature, coresident: Iterable[Pack] = ()) -> CompiledVersion:
        """The image of all versions there are; nothing is built, and no device is looked for."""
        from iron_core.image.array_image import array_image
        from iron_npu.compiled import compiled

        _arrays[plan.version(signature)] = array_image(plan, signature, coresident)
        return compiled(plan, signature, _arrays)

    def memory(self, plan: Plan) -> NpuMemory:
        from iron_core.devices import device
        from iron_npu.runtime.device import opened
        from iron_npu.runtime.memory import NpuMemory
        from iron_npu.runtime.pyxrt import pyxrt

        npu = opened(pyxrt())
        npu.check(plan.dev, device(plan.dev).family)
        return NpuMemory(plan, npu)

    def load(self, image: CompiledVersion, memory: NpuMemory) -> NpuExecutable:
        """Build what is not built yet, of all versions that the memory has room for, and make the version callable."""
        from iron_npu.loading import load
        from iron_npu.runtime.executable import Running

        return load(image, memory, _arrays, Running(float(self.wait_s), self.depth, self.lists))


def _accelerator() -> str:
    """The first device of our driver, by its name; "" where there is none."""
    try:
        for device in sorted(ACCELERATORS.iterdir()):
            if (device / "device" / "driver").resolve().name == DRIVER:
                return device.name
    except OSError:
        pass
    return ""
