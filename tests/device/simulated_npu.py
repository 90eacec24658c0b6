"""A machine with an NPU, for tests of the tests: `-p tests.device.simulated_npu`. Backend npu runs on tests.npu's simulated device.

What `-m` asks for is what is plugged in: a Phoenix for npu1, else a Strix.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from iron_core.backends.protocol import Available
from iron_npu import building
from iron_npu.backend import NpuBackend
from iron_npu.machine.system import System
from tests.device import target
from tests.npu.simulated_device import Builder, Xrt, stream
from tests.npu.tree import Tree


def pytest_configure(config: pytest.Config) -> None:
    folder = Path(tempfile.mkdtemp(prefix="iron-simulated-"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    phoenix = "npu1" in config.getoption("markexpr")
    machine = Tree.whole(folder / "root", "npu1" if phoenix else "npu2").system()
    target.System = lambda: System(machine.root, machine.user)
    sys.modules["pyxrt"] = Xrt("NPU Phoenix" if phoenix else "NPU Strix")
    made = Builder(folder)
    building.files, building.stream = made.files, stream
    NpuBackend.probe = lambda self: Available("simulated")
