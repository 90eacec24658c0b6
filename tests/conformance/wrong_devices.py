"""Devices with a mistake each, under the suite that devices inherit: `test_device_mistakes.py` runs this and reads what failed."""

from __future__ import annotations

import attrs

from iron_core.devices import HOST, device
from iron_core.testing import DeviceConformance

NPU2 = device("npu2")


def wrong(**changes):
    """npu2 under another name, with these numbers changed."""
    return type("Wrong", (DeviceConformance,), dict(device=attrs.evolve(NPU2, name="acme_npu", **changes)))


class TestRight(DeviceConformance):
    device = NPU2
    name = "npu2"


class TestRenamed(DeviceConformance):
    device = attrs.evolve(NPU2, name="acme_npu")
    name = "npu2"


class TestOther(DeviceConformance):
    device = attrs.evolve(NPU2, clock_mhz=1000)
    name = "npu2"


class TestHost(DeviceConformance):
    device = HOST
    name = "host"


TestSpaced = type("TestSpaced", (DeviceConformance,), dict(device=attrs.evolve(NPU2, name="acme npu")))
TestStill = wrong(clock_mhz=0)
TestFast = wrong(read_gbs=1e6)
TestUnknown = wrong(macs=(("int8", 256), ("int7", 3)))
TestTwice = wrong(macs=(("int8", 256), ("int8", 3)))
TestAlone = wrong(contexts=0)
TestEmpty = wrong(program_memory=0)
TestOdd = wrong(core=attrs.evolve(NPU2.core, memory=65537))
TestMute = wrong(memtile=attrs.evolve(NPU2.memtile, channels=0))
TestNarrow = wrong(shim=attrs.evolve(NPU2.shim, wrap_bits=0))
