"""What the system says of an NPU: device nodes, the driver, its firmware, limits, and XRT's files. Read below a root, and nothing is run,
but for the kernel's log."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import attrs

from iron_core.errors import printable
from iron_core.processes import output
from iron_npu.settings import Settings
from iron_npu.tools.programs import XRT

#: AMD's NPUs by their PCI device.
AMD, FAMILIES = "0x1022", {"0x1502": "npu1", "0x17f0": "npu2"}
DRIVER = "amdxdna"
#: What the driver logs where it does not take the firmware.
_PROTOCOL = re.compile(
    r"Incompatible firmware protocol (?:version )?major (\d+) minor (\d+)|(Firmware minor version smaller than supported)"
)


@attrs.frozen
class User:
    """Who asks: a user's number and those of all groups."""

    uid: int
    groups: frozenset[int]

    @classmethod
    def current(cls) -> User:
        return cls(os.geteuid(), frozenset((os.getegid(), *os.getgroups())))


@attrs.frozen
class Node:
    """A device node of an NPU. family: "npu1", "npu2". group: the name of the one it belongs to. usable: may the user read and write it?"""

    path: str
    family: str
    firmware: str
    owner: int
    group: str
    mode: int
    usable: bool


@attrs.frozen
class System:
    """A machine's tree of files below `root`. user: who would use the NPU."""

    root: Path = Path("/")
    user: User = attrs.field(factory=User.current)

    def at(self, path: str | Path) -> Path:
        """Where an absolute path of the machine is."""
        return self.root / str(path).lstrip("/")

    def text(self, path: str) -> str:
        """A file's content without the space around it; "" where it cannot be read."""
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def nodes(self) -> tuple[Node, ...]:
        """The device nodes of NPUs that are known here, by their names."""
        return tuple(node for node in map(self._node, self._names("/dev/accel", "accel")) if node is not None)

    def unknown(self) -> tuple[str, ...]:
        """AMD's accelerators whose device is none of the families known here: "accel1 (0x17f9)"."""
        found = []
        for name in self._names("/sys/class/accel", "accel"):
            ids = [self.text(f"/sys/class/accel/{name}/device/{file}") for file in ("vendor", "device")]
            if ids[0] == AMD and ids[1] not in FAMILIES:
                found.append(f"{name} ({printable(ids[1], 20)})")
        return tuple(found)

    def hardware(self) -> tuple[tuple[str, str], ...]:
        """(PCI address, family) of every NPU on the bus, whether a driver has it or not."""
        found = []
        for place in self._names("/sys/bus/pci/devices", ""):
            vendor, device = (self.text(f"/sys/bus/pci/devices/{place}/{file}") for file in ("vendor", "device"))
            if vendor == AMD and device in FAMILIES:
                found.append((place, FAMILIES[device]))
        return tuple(found)

    def bound(self, place: str) -> bool:
        """Has the driver the device at a PCI address?"""
        return os.path.lexists(self.at(f"/sys/bus/pci/devices/{place}/driver"))

    def driver(self) -> str | None:
        """The driver's version, or the kernel's whose part it is; None where it is not loaded."""
        if not self.at(f"/sys/module/{DRIVER}").is_dir():
            return None
        own = self.text(f"/sys/module/{DRIVER}/version")
        return own or f"of Linux {self.text('/proc/sys/kernel/osrelease') or '(version unknown)'}"

    def watchdog(self) -> int | None:
        """Milliseconds without progress after which the driver stops what runs; 0: never. None where it does not say."""
        said = self.text(f"/sys/module/{DRIVER}/parameters/tdr_timeout_ms")
        return int(said) if said.isdigit() else None

    def refused(self) -> str:
        """What the driver logged of a firmware of another protocol, shortly; "" if nothing, or where the log cannot be read."""
        log = self.text("/var/log/kern.log") + "\n" + self.text("/var/log/dmesg")
        if DRIVER not in log and self.root == Path("/"):
            log = output(("dmesg",), os.environ, 10.0) or ""
        said = [found for line in log.splitlines() if DRIVER in line for found in [_PROTOCOL.search(line)] if found]
        if not said:
            return ""
        return "its minor version is too small" if said[-1][3] else f"it speaks protocol {said[-1][1]}.{said[-1][2]}"

    def lockable(self) -> int | None:
        """Bytes that a process may lock in memory; None for any number."""
        found = re.search(r"^Max locked memory\s+(\w+)", self.text("/proc/self/limits"), re.M)
        return int(found[1]) if found and found[1].isdigit() else None

    def xrt(self, settings: Settings) -> Path | None:
        """XRT's folder, if it is there."""
        place = settings.xrt or self.at(XRT)
        return place if place.is_dir() else None

    def xrt_version(self, folder: Path) -> str:
        """By its version.json; "" where that says none."""
        try:
            said: Any = json.loads((folder / "version.json").read_text(encoding="utf-8"))
            return printable(said["BUILD_VERSION"], 40)
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _names(self, folder: str, prefix: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.at(folder)) if name.startswith(prefix))
        except OSError:
            return []

    def _node(self, name: str) -> Node | None:
        device = f"/sys/class/accel/{name}/device"
        family = FAMILIES.get(self.text(f"{device}/device"))
        if family is None:
            return None
        try:
            status = self.at(f"/dev/accel/{name}").stat()
        except OSError:
            return None
        firmware = printable(self.text(f"{device}/fw_version"), 40)
        group, mode = self._group(status.st_gid), stat.S_IMODE(status.st_mode)
        return Node(f"/dev/accel/{name}", family, firmware, status.st_uid, group, mode, self._may(status))

    def _group(self, number: int) -> str:
        for line in self.text("/etc/group").splitlines():
            name, *rest = line.split(":")
            if len(rest) > 1 and rest[1] == str(number):
                return printable(name, 40)
        return str(number)

    def _may(self, status: os.stat_result) -> bool:
        """May the user read and write it, going by its mode? (Lists of access rights say more, which are not looked at.)"""
        if self.user.uid == 0:
            return True
        shift = 6 if status.st_uid == self.user.uid else 3 if status.st_gid in self.user.groups else 0
        return status.st_mode >> shift & 0o6 == 0o6
