"""A machine with an NPU as a tree of files, whole or with something wrong."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from iron_npu.machine.system import System, User

IDS = {"npu1": "0x1502", "npu2": "0x17f0"}
#: The group that nodes belong to here, and one who is in it.
RENDER = 109
MEMBER, STRANGER = User(1000, frozenset((1000, RENDER))), User(1000, frozenset((1000,)))


@attrs.frozen
class Tree:
    """Files below a root; see `System`."""

    root: Path

    @classmethod
    def whole(cls, root: Path, family: str = "npu2", firmware: str = "1.1.2.66") -> Tree:
        """A machine on which everything is well, but for what a tree of files cannot say: pyxrt and the toolchain."""
        tree = cls(root)
        tree.write("/etc/group", f"root:x:0:\nrender:x:{RENDER}:\n")
        tree.write("/proc/sys/kernel/osrelease", "6.14.2\n")
        tree.lockable("unlimited")
        tree.bus(family)
        tree.driver("2.21.0_20251207")
        tree.write("/sys/class/accel/accel0/device/vendor", "0x1022\n")
        tree.write("/sys/class/accel/accel0/device/device", f"{IDS[family]}\n")
        tree.write("/sys/class/accel/accel0/device/fw_version", f"{firmware}\n")
        tree.node()
        tree.write("/opt/xilinx/xrt/version.json", '{"BUILD_VERSION" : "2.21.0", "BUILD_BRANCH" : "HEAD"}')
        tree.write("/opt/xilinx/xrt/python/pyxrt.cpython-399-x86_64-linux-gnu.so", "")
        return tree

    def write(self, path: str, text: str) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def remove(self, path: str) -> None:
        place = self.root / path.lstrip("/")
        if place.is_dir():
            for below in place.iterdir():
                self.remove(str(below.relative_to(self.root)))
            place.rmdir()
        else:
            place.unlink()

    def bus(self, family: str) -> None:
        """The NPU on the PCI bus, with its driver."""
        self.write("/sys/bus/pci/devices/0000:c7:00.1/vendor", "0x1022\n")
        self.write("/sys/bus/pci/devices/0000:c7:00.1/device", f"{IDS[family]}\n")
        (self.root / "sys/bus/pci/devices/0000:c7:00.1/driver").symlink_to("../../../../bus/pci/drivers/amdxdna")

    def driver(self, version: str, watchdog: int = 2000) -> None:
        if version:
            self.write("/sys/module/amdxdna/version", f"{version}\n")
        self.write("/sys/module/amdxdna/parameters/tdr_timeout_ms", f"{watchdog}\n")

    def node(self, mode: int = 0o660, group: int = RENDER) -> None:
        file = self.write("/dev/accel/accel0", "")
        file.chmod(mode)
        if os.geteuid() == 0:
            os.chown(file, 0, group)

    def lockable(self, said: str) -> None:
        head = "Limit                     Soft Limit           Hard Limit           Units"
        self.write("/proc/self/limits", f"{head}\n{'Max locked memory':26}{said:21}{said:21}bytes\n")

    def system(self, user: User = MEMBER) -> System:
        return System(self.root, user)
