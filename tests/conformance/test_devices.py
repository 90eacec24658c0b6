"""The devices there are, by the tests that every device inherits; and one of a pack."""

from __future__ import annotations

import attrs

from iron_core.devices import DEVICES, device
from iron_core.testing import DeviceConformance

for _name, _device in DEVICES.items():
    if _device.is_npu:
        globals()[f"Test{_name.title().replace('_', '')}"] = type(_name, (DeviceConformance,), dict(device=_device, name=_name))


class TestOfAPack(DeviceConformance):
    """Not registered here: what runs by a name is skipped."""

    device = attrs.evolve(device("npu2"), name="acme_npu", columns=6)
