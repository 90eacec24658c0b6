"""What a machine lacks, on trees of files: every message with its advice; what a probe says."""

from __future__ import annotations

import os
import sys

import attrs
import pytest

from iron_core.backends.protocol import Available, Unavailable
from iron_npu.machine import machine
from iron_npu.machine.system import System, User
from iron_npu.settings import Settings
from tests.npu.tree import MEMBER, STRANGER, Tree
from tests.npu.vendor import Vendor

owned = pytest.mark.skipif(os.geteuid() != 0, reason="the group of a node is changed by root alone")


@pytest.fixture
def tree(tmp_path):
    """A whole machine with an npu2."""
    return Tree.whole(tmp_path / "root")


@pytest.fixture
def vendor(tmp_path):
    """The toolchain, mlir-aie's Python beside it; XRT is the tree's."""
    made = Vendor.install(tmp_path / "tools", tmp_path / "cache")
    (made.folder / "mlir-aie" / "python" / "aie").mkdir(parents=True)
    xclbinutil = made.folder / "xrt" / "bin" / "xclbinutil"
    return attrs.evolve(made, settings=attrs.evolve(made.settings, xrt=None, xclbinutil=xclbinutil, cxx=str(xclbinutil)))


@pytest.fixture
def pyxrt(tmp_path, monkeypatch):
    """A pyxrt on Python's path; pyxrt(source) changes what it is."""
    (tmp_path / "modules").mkdir()

    def write(source=""):
        (tmp_path / "modules" / "pyxrt.py").write_text(source)

    write()
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    return write


def findings(tree: Tree, settings: Settings, user: User = MEMBER) -> dict[str, tuple[str, str, str]]:
    """By what was looked at: (state, what it says, what to do); of several the worst."""
    order = ("ok", "note", "problem")
    found = sorted(machine.examine(settings, tree.system(user)), key=lambda one: order.index(one.state))
    assert all("\n" not in one.says + one.fix and "pip install" not in one.says + one.fix for one in found)
    assert all(bool(one.fix) == (one.state != "ok") for one in found)
    return {one.what: (one.state, one.says, one.fix) for one in found}


@owned
def test_a_whole_machine_has_nothing_to_do(tree, vendor, pyxrt):
    found = findings(tree, vendor.settings)
    assert {state for state, _, _ in found.values()} == {"ok"}
    said = {what: says for what, (_, says, _) in found.items()}
    assert said["device"] == "npu2 at /dev/accel/accel0" and said["driver"] == "amdxdna 2.21.0_20251207"
    assert said["firmware"] == "1.1.2.66" and said["memlock"] == "any memory may be locked"
    assert said["XRT"].startswith("2.21.0 at ") and said["mlir-aie"].endswith("bin/aiecc (by MLIR_AIE_INSTALL_DIR)")
    host = {"device", "driver", "firmware", "watchdog", "memlock"}
    assert set(said) == {*host, "XRT", "pyxrt", "mlir-aie", "Peano", "xclbinutil", "C++", "settings"}
    state = machine.probe(vendor.settings, tree.system())
    assert state == Available("npu2 at /dev/accel/accel0, firmware 1.1.2.66")


def test_the_settings_that_are_set_are_told(tree, vendor):
    """PATH and the system's defaults are none."""
    assert findings(tree, Settings())["settings"] == ("ok", "all as by default", "")
    said = findings(tree, attrs.evolve(vendor.settings, jobs=3))["settings"][1]
    assert said.startswith("NPU_CACHE_HOME=") and said.endswith("IRON_NPU_JOBS=3") and ", PEANO_INSTALL_DIR=" in said
    assert " PATH=" not in said


def test_no_npu_on_the_bus(tree, vendor):
    tree.remove("/sys/bus")
    tree.remove("/dev/accel/accel0")
    state, says, fix = findings(tree, vendor.settings)["device"]
    assert (state, says) == ("problem", "no NPU on the PCI bus: 1022:1502 (npu1) or 1022:17f0 (npu2)")
    assert "firmware setup" in fix and "backend='sim'" in fix


def test_no_node_because_the_driver_is_not_loaded(tree, vendor):
    tree.remove("/dev/accel/accel0")
    tree.remove("/sys/module/amdxdna")
    state, says, fix = findings(tree, vendor.settings)["driver"]
    assert (state, says) == ("problem", "npu2 at 0000:c7:00.1 has no device node /dev/accel/accel*: the driver amdxdna is not loaded")
    assert fix.startswith("`modprobe amdxdna`; Linux has it from 6.14 on")


LOG = "[    5.1] amdxdna 0000:c7:00.1: [drm] *ERROR* aie2_check_protocol: {}\n"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Incompatible firmware protocol major 7 minor 2", "it speaks protocol 7.2"),
        ("Incompatible firmware protocol version major 4 minor 9", "it speaks protocol 4.9"),
        ("Firmware minor version smaller than supported", "its minor version is too small"),
    ],
)
def test_no_node_because_of_a_firmware_of_another_protocol(tree, vendor, line, why):
    """As the kernel's log says."""
    tree.remove("/dev/accel/accel0")
    tree.write("/var/log/kern.log", "usb 1-1: new device\n" + LOG.format(line))
    state, says, fix = findings(tree, vendor.settings)["firmware"]
    assert state == "problem" and says.endswith(f"amdxdna did not take its firmware ({why})")
    assert fix == "Update the driver, linux-firmware and XRT to one release, and start the machine anew."


def test_no_node_and_the_driver_did_not_take_the_device(tree, vendor):
    tree.remove("/dev/accel/accel0")
    tree.remove("/sys/bus/pci/devices/0000:c7:00.1/driver")
    state, says, fix = findings(tree, vendor.settings)["driver"]
    assert state == "problem" and says.endswith("amdxdna is loaded and did not take it")
    assert fix.startswith("`dmesg | grep amdxdna` says why.")


def test_no_node_in_a_container(tree, vendor):
    tree.remove("/dev/accel/accel0")
    state, says, fix = findings(tree, vendor.settings)["device"]
    assert (state, says) == ("problem", "npu2 at 0000:c7:00.1 has no device node /dev/accel/accel*")
    assert "--device /dev/accel/accel0" in fix


@owned
def test_a_node_that_is_another_groups(tree, vendor, pyxrt):
    state, says, fix = findings(tree, vendor.settings, STRANGER)["access"]
    assert state == "problem"
    assert says == "/dev/accel/accel0 is for user 0 and group render (mode 660), and this user is neither"
    assert fix == "`sudo usermod -aG render $USER`, and log in anew."
    said = machine.probe(vendor.settings, tree.system(STRANGER))
    assert said == Unavailable(says, fix, compiles=True)


def test_a_node_that_no_group_may_use(tree, vendor):
    tree.node(0o600)
    state, _, fix = findings(tree, vendor.settings, User(1000, frozenset((1000,))))["access"]
    assert state == "problem" and fix.startswith('Let a group have it: a udev rule `SUBSYSTEM=="accel", GROUP="render"')


@owned
@pytest.mark.parametrize(
    ("mode", "user", "may"),
    [(0o660, MEMBER, True), (0o660, STRANGER, False), (0o666, STRANGER, True), (0o640, MEMBER, False), (0o000, User(0, frozenset()), True)],
)
def test_who_may_use_a_node(tree, mode, user, may):
    tree.node(mode)
    (node,) = tree.system(user).nodes()
    assert node.usable is may


@pytest.mark.parametrize(("family", "firmware", "oldest"), [("npu1", "1.5.2.391", "1.5.5.391"), ("npu2", "1.0.0.166", "1.1.2.65")])
def test_an_old_firmware_is_a_note(tmp_path, vendor, family, firmware, oldest):
    tree = Tree.whole(tmp_path / "old", family, firmware)
    state, says, fix = findings(tree, vendor.settings)["firmware"]
    assert state == "note" and says == f"{firmware} is older than {oldest}, the oldest that runs of {family} are known of"
    assert fix.startswith("Where runs are aborted: Update the driver, linux-firmware and XRT")


@pytest.mark.parametrize("firmware", ["1.1.2.65", "255.0.5.35", "1.10.0.0"])
def test_a_firmware_is_compared_by_its_numbers(tmp_path, vendor, firmware):
    tree = Tree.whole(tmp_path / "new", firmware=firmware)
    assert findings(tree, vendor.settings)["firmware"][0] == "ok"


def test_a_firmware_that_nobody_tells(tree, vendor):
    tree.remove("/sys/class/accel/accel0/device/fw_version")
    assert findings(tree, vendor.settings)["firmware"] == ("note", "the driver does not say which", "`xrt-smi examine` may.")


@pytest.mark.parametrize(
    ("limit", "state", "says"),
    [
        ("8388608", "problem", "8.4 MB may be locked; the device's heap alone takes 67 MB"),
        ("2954000000", "note", "3.0 GB may be locked; all that a device reads is: 3.7 GB of Llama 3.2 1B with 32768 positions"),
        ("16000000000", "ok", "16.0 GB may be locked"),
        ("unlimited", "ok", "any memory may be locked"),
    ],
)
def test_memory_must_be_lockable(tree, vendor, limit, state, says):
    tree.lockable(limit)
    found = findings(tree, vendor.settings)["memlock"]
    assert found[:2] == (state, says)
    assert state == "ok" or ("`* - memlock unlimited`" in found[2] and "LimitMEMLOCK=infinity" in found[2])


@pytest.mark.parametrize(
    ("ms", "says"),
    [
        (2000, "2000 ms without progress end what runs; a dispatch of 4 to 6 s is stopped"),
        (10000, "10000 ms without progress end what runs"),
        (0, "off"),
    ],
)
def test_the_watchdog_is_told(tree, vendor, ms, says):
    tree.driver("", ms)
    assert findings(tree, vendor.settings)["watchdog"] == ("ok", says, "")


def test_a_driver_of_the_kernels_own(tree, vendor):
    tree.remove("/sys/module/amdxdna/version")
    assert findings(tree, vendor.settings)["driver"] == ("ok", "amdxdna of Linux 6.14.2", "")


def test_an_accelerator_of_amds_that_is_not_known(tree, vendor):
    tree.write("/sys/class/accel/accel0/device/device", "0x17f9\n")
    tree.remove("/sys/bus")
    first, second = [one for one in machine.examine(vendor.settings, tree.system()) if one.what == "device"]
    assert (first.state, first.says) == ("note", "accel0 (0x17f9) is AMD's, and no device that is known here")
    assert second.state == "problem"


def test_an_accelerator_of_somebody_else_is_none(tree, vendor):
    tree.write("/sys/class/accel/accel0/device/vendor", "0x8086\n")
    tree.write("/sys/class/accel/accel0/device/device", "0x643e\n")
    assert tree.system().nodes() == () and tree.system().unknown() == ()


def test_no_pyxrt_for_this_python(tree, vendor):
    """What XRT has is for another one."""
    state, says, fix = findings(tree, vendor.settings)["pyxrt"]
    mine = f"3.{sys.version_info.minor}"
    assert (state, says) == ("problem", "pyxrt cannot be imported")
    assert fix.endswith(f"is for Python 3.99, this is {mine}: use that Python, or build XRT for {mine}.")


def test_no_pyxrt_on_the_path(tree, vendor):
    tree.write(f"/opt/xilinx/xrt/python/pyxrt.cpython-3{sys.version_info.minor}-x86_64-linux-gnu.so", "")
    fix = findings(tree, vendor.settings)["pyxrt"][2]
    assert fix.startswith(f"`source {tree.root}/opt/xilinx/xrt/setup.sh`, or put ")


def test_no_pyxrt_in_xrt_nor_xrt(tree, vendor):
    tree.remove("/opt/xilinx/xrt/python")
    assert findings(tree, vendor.settings)["pyxrt"][2].endswith("has no python/pyxrt: install XRT with its Python module.")
    bare = attrs.evolve(vendor.settings, xrt=None)
    tree.remove("/opt/xilinx/xrt")
    found = findings(tree, bare)
    assert found["XRT"] == ("note", "no /opt/xilinx/xrt", "Install XRT and its amdxdna plug-in, unless pyxrt is found without.")
    assert found["pyxrt"][2] == "Install XRT with its Python module."


def test_a_pyxrt_that_does_not_import(tree, vendor, pyxrt):
    pyxrt("raise ImportError('libxrt_coreutil.so.2: no such file')")
    state, says, fix = findings(tree, vendor.settings)["pyxrt"]
    assert (state, says) == ("problem", "pyxrt is there and its import fails") and fix.startswith("`python -c 'import pyxrt'` says why")


def test_a_variable_of_xrts_that_names_no_folder(tree, vendor, tmp_path):
    settings = attrs.evolve(vendor.settings, xrt=tmp_path / "nowhere")
    said = findings(tree, settings)["XRT"]
    assert said == ("problem", f"XILINX_XRT={tmp_path}/nowhere is no folder", "Correct or unset XILINX_XRT.")


@pytest.fixture
def bare(tmp_path):
    """Settings under which there is no program at all."""
    (tmp_path / "empty").mkdir()
    return Settings(path=str(tmp_path / "empty"), cache_home=tmp_path / "cache")


def test_no_toolchain(tree, bare):
    """mlir-aie and Peano are problems, with where they were looked for; xclbinutil where the NPU is no npu1 is none."""
    found = findings(tree, bare)
    state, says, fix = found["mlir-aie"]
    assert state == "problem" and says == "no aiecc (mlir-aie): looked in PATH, this Python's folder, the wheel mlir_aie"
    assert "MLIR_AIE_INSTALL_DIR" in fix
    state, says, fix = found["Peano"]
    assert state == "problem" and says == "no clang++ (Peano): looked in the wheel llvm-aie; nor is there llvm-objcopy, ld.lld"
    assert "PEANO_INSTALL_DIR" in fix
    assert found["xclbinutil"][0] == "note" and found["xclbinutil"][1].endswith("xclbins need it")


def test_npu1_has_nothing_but_xclbins(tmp_path, bare):
    tree = Tree.whole(tmp_path / "phoenix", "npu1", "1.5.5.391")
    found = findings(tree, bare)
    assert found["xclbinutil"][0] == "problem" and "AIE_XCLBINUTIL" in found["xclbinutil"][2]
    state, says, fix = found["C++"]
    assert (state, fix) == ("problem", "Install one (Debian: apt-get install g++), or set CXX to one.")
    assert says == "no C++ compiler: looked for c++, g++, clang++ on PATH; streams that are made for a call's numbers need it"


def test_an_mlir_aie_without_its_python(tree, vendor):
    (vendor.folder / "mlir-aie" / "python" / "aie").rmdir()
    state, says, fix = findings(tree, vendor.settings)["mlir-aie"]
    assert state == "problem" and says.startswith("mlir-aie's Python (aie.iron.kernels) cannot be imported") and "PYTHONPATH" in fix


def test_a_variable_that_names_no_program(tree, vendor, tmp_path):
    settings = attrs.evolve(vendor.settings, peano=tmp_path, xclbinutil=tmp_path / "none")
    found = findings(tree, settings)
    assert found["Peano"][1].startswith(f"PEANO_INSTALL_DIR={tmp_path} has no bin/clang++")
    assert found["Peano"][2] == "Correct or unset PEANO_INSTALL_DIR."
    assert found["xclbinutil"][1].startswith(f"AIE_XCLBINUTIL={tmp_path}/none is no program")


@owned
def test_a_probe_names_all_that_is_missing(tree, bare, vendor):
    """And the one thing to do where it is one."""
    tree.remove("/dev/accel/accel0")
    said = machine.probe(bare, tree.system())
    assert isinstance(said, Unavailable) and not said.compiles
    assert said.reason.startswith("npu2 at 0000:c7:00.1 has no device node") and "no aiecc" in said.reason and "no clang++" in said.reason
    assert said.fix == "`iron doctor --npu` says what to do about each."
    said = machine.probe(vendor.settings, tree.system())
    assert isinstance(said, Unavailable) and said.compiles and "aiecc" not in said.reason
    tree.node()
    said = machine.probe(vendor.settings, tree.system())
    assert said.reason == "pyxrt cannot be imported" and said.fix.startswith(f"{tree.root}/opt/xilinx/xrt/python/") and said.compiles


def test_wrong_settings_are_told_and_nothing_is_raised(monkeypatch, tree):
    """By the probe and in the list."""
    monkeypatch.setenv("IRON_NPU_JOBS", "many")
    said = machine.probe(system=tree.system())
    assert said == Unavailable("IRON_NPU_JOBS=many; legal: a number, at least 1.")
    first, *rest = machine.examine(system=tree.system())
    assert first.state == "problem" and first.says == said.reason and any(one.what == "memlock" for one in rest)


def test_a_tree_that_is_empty_or_nonsense_raises_nothing(tmp_path, bare):
    """Not even where files are folders and numbers words."""
    assert machine.examine(bare, System(tmp_path / "nothing", MEMBER))
    odd = Tree(tmp_path / "odd")
    odd.write("/dev/accel", "\x1b[31m")
    for folder in ("/sys/class/accel/accel0/device/vendor", "/sys/bus/pci/devices/a/vendor", "/proc/self/limits", "/sys/module/amdxdna"):
        odd.write(f"{folder}/x", "\x1b[31m")
    odd.write("/sys/class/accel/accel1/device/vendor", "0x1022")
    odd.write("/sys/class/accel/accel1/device/device", "\x1b[31m")
    found = machine.examine(bare, odd.system())
    assert all(one.says.isprintable() and one.fix.isprintable() for one in found)
    assert isinstance(machine.probe(bare, odd.system()), Unavailable)


def test_this_machine_can_be_looked_at():
    """Whatever it is."""
    assert machine.examine() and isinstance(machine.probe(), Available | Unavailable)
