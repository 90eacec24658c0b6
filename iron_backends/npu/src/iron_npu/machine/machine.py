"""What this machine lacks to build for an NPU, and to run on it: each thing that is needed, found or not, and what to do about it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

from iron_core.backends.protocol import Available, Finding, Unavailable
from iron_core.errors import IronError, printable
from iron_core.processes import output
from iron_npu.machine.system import DRIVER, FAMILIES, Node, System
from iron_npu.settings import Settings
from iron_npu.settings import settings as fields
from iron_npu.tools import programs
from iron_npu.tools.programs import Missing, find

#: The firmware that published results are known of, oldest first seen to run what is built here.
KNOWN_FIRMWARE = {"npu1": (1, 5, 5, 391), "npu2": (1, 1, 2, 65)}
#: Bytes that must be lockable: the device's heap; weights and caches of a model of 1B parameters in bfloat16 with 32768 positions.
HEAP, MODEL = 64 << 20, 3_700_000_000
#: Milliseconds of the driver's watchdog, unless it is told otherwise.
WATCHDOG = 2000

_IDS = " or ".join(f"1022:{device[2:]} ({family})" for device, family in FAMILIES.items())
_UPDATE = "Update the driver, linux-firmware and XRT to one release, and start the machine anew."
_LOCK = (
    "Put `* - memlock unlimited` into /etc/security/limits.d/99-npu.conf and log in anew; of a service, and of all sessions on Fedora, "
    "LimitMEMLOCK=infinity (user@.service) decides."
)


def probe(settings: Settings | None = None, system: System | None = None) -> Available | Unavailable:
    """Can this process build for an NPU and run on it? Looks at files alone, and never raises."""
    try:
        chosen = Settings.read() if settings is None else settings
        found = System() if system is None else system
        nodes = [node for node in found.nodes() if node.usable]
        device = [] if nodes else [one for one in _device(found) if one.state == "problem"]
        runs = device or ([] if _importable("pyxrt") else [_no_pyxrt(found, chosen)])
        tools = [one for one in _building(chosen) if one.state == "problem"]
    except IronError as error:
        return Unavailable(str(error))
    if not runs and not tools:
        node = nodes[0]
        return Available(f"{node.family} at {node.path}" + (f", firmware {node.firmware}" if node.firmware else ""))
    lacks = [*runs, *tools]
    fix = lacks[0].fix if len(lacks) == 1 else "`iron doctor --npu` says what to do about each."
    return Unavailable("; ".join(one.says for one in lacks), fix, compiles=not tools)


def examine(settings: Settings | None = None, system: System | None = None) -> tuple[Finding, ...]:
    """Everything that is needed, found or not; see `Finding`. Imports pyxrt in a process of its own. Never raises."""
    found = System() if system is None else system
    try:
        chosen = Settings.read() if settings is None else settings
    except IronError as error:
        wrong = [Finding("settings", str(error), "problem", "Correct or unset it.")]
        return (*wrong, *_device(found), *_limits(found))
    rest = [*_xrt(found, chosen), *_building(chosen), *_packing(chosen, found), _set(chosen)]
    return (*_device(found), *_limits(found), *rest)


def _device(system: System) -> Iterator[Finding]:
    nodes = system.nodes()
    for name in system.unknown():
        yield Finding("device", f"{name} is AMD's, and no device that is known here", "note", f"Known are {_IDS}.")
    if not nodes:
        yield _no_node(system)
        return
    for node in nodes:
        yield Finding("device", f"{node.family} at {node.path}")
        if not node.usable:
            yield _no_access(node)
        yield _firmware(node)
    driver = system.driver()
    yield Finding("driver", f"{DRIVER} {driver}" if driver else f"{DRIVER} is part of this kernel")


def _no_node(system: System) -> Finding:
    """Why there is no device node, going from the bus to the driver."""
    hardware = system.hardware()
    if not hardware:
        fix = "If the machine has one, turn it on in its firmware setup (NPU, IPU). backend='sim' simulates one."
        return Finding("device", f"no NPU on the PCI bus: {_IDS}", "problem", fix)
    place, family = hardware[0]
    what = f"{family} at {place} has no device node /dev/accel/accel*"
    if system.driver() is None:
        fix = f"`modprobe {DRIVER}`; Linux has it from 6.14 on, and AMD's xdna-driver brings it for others."
        return Finding("driver", f"{what}: the driver {DRIVER} is not loaded", "problem", fix)
    refused = system.refused()
    if refused:
        return Finding("firmware", f"{what}: {DRIVER} did not take its firmware ({refused})", "problem", _UPDATE)
    if not system.bound(place):
        fix = f"`dmesg | grep {DRIVER}` says why. {_UPDATE}"
        return Finding("driver", f"{what}: {DRIVER} is loaded and did not take it", "problem", fix)
    fix = "See that /dev is the machine's own; a container is given it by `--device /dev/accel/accel0`."
    return Finding("device", what, "problem", fix)


def _no_access(node: Node) -> Finding:
    who = f"{node.path} is for user {node.owner} and group {node.group} (mode {node.mode:o}), and this user is neither"
    if node.group.isdigit() or not node.mode & 0o060:
        rule = 'SUBSYSTEM=="accel", GROUP="render", MODE="0660"'
        return Finding("access", who, "problem", f"Let a group have it: a udev rule `{rule}`.")
    return Finding("access", who, "problem", f"`sudo usermod -aG {node.group} $USER`, and log in anew.")


def _firmware(node: Node) -> Finding:
    known = KNOWN_FIRMWARE[node.family]
    numbers = tuple(int(part) for part in re.findall(r"\d+", node.firmware)[:4])
    if not numbers:
        return Finding("firmware", "the driver does not say which", "note", "`xrt-smi examine` may.")
    if numbers < known:
        said = f"{node.firmware} is older than {'.'.join(map(str, known))}, the oldest that runs of {node.family} are known of"
        return Finding("firmware", said, "note", f"Where runs are aborted: {_UPDATE}")
    return Finding("firmware", node.firmware)


def _limits(system: System) -> Iterator[Finding]:
    limit = system.watchdog()
    if limit is not None:
        said = "off" if limit == 0 else f"{limit} ms without progress end what runs"
        yield Finding("watchdog", said + ("" if limit != WATCHDOG else "; a dispatch of 4 to 6 s is stopped"))
    lockable = system.lockable()
    if lockable is None or lockable >= MODEL:
        yield Finding("memlock", "any memory may be locked" if lockable is None else f"{lockable / 1e9:.1f} GB may be locked")
    elif lockable < HEAP:
        said = f"{lockable / 1e6:.1f} MB may be locked; the device's heap alone takes {HEAP / 1e6:.0f} MB"
        yield Finding("memlock", said, "problem", _LOCK)
    else:
        said = f"{lockable / 1e9:.1f} GB may be locked; all that a device reads is: 3.7 GB of Llama 3.2 1B with 32768 positions"
        yield Finding("memlock", said, "note", _LOCK)


def _xrt(system: System, settings: Settings) -> Iterator[Finding]:
    folder = system.xrt(settings)
    if folder is None:
        if settings.xrt is not None:
            yield Finding("XRT", f"XILINX_XRT={printable(settings.xrt)} is no folder", "problem", "Correct or unset XILINX_XRT.")
        else:
            # Some distributions install it among their own libraries.
            yield Finding("XRT", f"no {programs.XRT}", "note", "Install XRT and its amdxdna plug-in, unless pyxrt is found without.")
    else:
        yield Finding("XRT", f"{system.xrt_version(folder) or 'version unknown'} at {printable(folder)}")
    if not _importable("pyxrt"):
        yield _no_pyxrt(system, settings)
        return
    code = "import pyxrt, sys; sys.stdout.write('imported')"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    if output((sys.executable, "-c", code), environment, 60.0) == "imported":
        yield Finding("pyxrt", "pyxrt is imported by this Python")
    else:
        fix = "`python -c 'import pyxrt'` says why; it must be built for this Python, and find XRT's libraries."
        yield Finding("pyxrt", "pyxrt is there and its import fails", "problem", fix)


def _no_pyxrt(system: System, settings: Settings) -> Finding:
    return Finding("pyxrt", "pyxrt cannot be imported", "problem", _for_pyxrt(system, settings))


def _for_pyxrt(system: System, settings: Settings) -> str:
    """What to do where this Python finds none."""
    folder = system.xrt(settings)
    if folder is None:
        return "Install XRT with its Python module."
    there = sorted((folder / "python").glob("pyxrt*.so"))
    if not there:
        return f"{printable(folder)} has no python/pyxrt: install XRT with its Python module."
    others = [found[1] for path in there for found in [re.search(r"cpython-3(\d+)", path.name)] if found]
    if others and str(sys.version_info.minor) not in others:
        mine = f"3.{sys.version_info.minor}"
        return f"{printable(there[0])} is for Python 3.{others[0]}, this is {mine}: use that Python, or build XRT for {mine}."
    return f"`source {printable(folder)}/setup.sh`, or put {printable(folder / 'python')} on PYTHONPATH."


def _building(settings: Settings) -> Iterator[Finding]:
    """What compiling needs: mlir-aie's driver and Python, and Peano."""
    aiecc = find(programs.AIECC, settings)
    if isinstance(aiecc, Missing):
        yield Finding("mlir-aie", aiecc.reason, "problem", aiecc.fix)
    else:
        yield Finding("mlir-aie", f"{_version('mlir_aie')}{printable(aiecc.path)} (by {aiecc.found})")
        if not _importable("aie") and not (aiecc.folder / "python" / "aie").is_dir():
            said = "mlir-aie's Python (aie.iron.kernels) cannot be imported: kernels of the catalog come from there"
            fix = f"Put mlir-aie's `python` folder on PYTHONPATH, as {printable(aiecc.folder / 'python')}."
            yield Finding("mlir-aie", said, "problem", fix)
    peano = [find(name, settings) for name in (programs.CLANG, programs.OBJCOPY, programs.LINKER)]
    missing = [one for one in peano if isinstance(one, Missing)]
    if missing:
        others = f"; nor is there {', '.join(one.name for one in missing[1:])}" if missing[1:] else ""
        yield Finding("Peano", missing[0].reason + others, "problem", missing[0].fix)
    elif not isinstance(peano[0], Missing):
        yield Finding("Peano", f"{_version('llvm-aie')}{printable(peano[0].path)} (by {peano[0].found})")


def _packing(settings: Settings, system: System) -> Iterator[Finding]:
    """What xclbins take besides: npu1 has nothing else, npu2 needs none for full ELFs."""
    families = {node.family for node in system.nodes()} or {family for _, family in system.hardware()}
    state = "problem" if "npu1" in families else "note"
    for what, name, why in (
        ("xclbinutil", programs.XCLBINUTIL, "xclbins need it"),
        ("C++", programs.CXX, "streams that are made for a call's numbers need it"),
    ):
        found = find(name, settings)
        if isinstance(found, Missing):
            yield Finding(what, f"{found.reason}; {why}", state, found.fix)
        else:
            yield Finding(what, f"{printable(found.path)} (by {found.found})")


def _set(settings: Settings) -> Finding:
    """The variables that are set, but for the system's PATH."""
    given = [(field.metadata["variable"], getattr(settings, field.name)) for field in fields() if field.name != "path"]
    usual = {field.metadata["variable"]: field.default for field in fields()}
    said = ", ".join(f"{name}={printable(value)}" for name, value in given if value != usual[name])
    return Finding("settings", said or "all as by default")


def _importable(module: str) -> bool:
    """Is there such a module? It is not imported."""
    if module in sys.modules:
        return True
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _version(distribution: str) -> str:
    """A wheel's version and a comma; "" where there is none of that name."""
    try:
        return f"{metadata.version(distribution)}, "
    except metadata.PackageNotFoundError:
        return ""
