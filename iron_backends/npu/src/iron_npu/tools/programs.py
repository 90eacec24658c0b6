"""Where the vendor's programs are, and which they are.

mlir-aie's lie in its `bin`, on PATH, beside this Python, or in its wheel; Peano's in its own folder or wheel, never on PATH, where
`clang++` is this machine's; xclbinutil is XRT's. A variable that is set decides: whoever set it did not ask for another.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import attrs

from iron_core.cache.keys import FileIdentity, digest
from iron_core.errors import printable
from iron_core.processes import output
from iron_npu.errors import MissingTool
from iron_npu.settings import Settings, variable

#: XRT's folder where nobody says another.
XRT = Path("/opt/xilinx/xrt")


@attrs.frozen
class Origin:
    """Whose a program is. setting: the one that names its folder. wheel: the folder that a wheel of it makes beside Python's packages.
    on_path: may it be on PATH? fix: what to do where it is missing."""

    owner: str
    setting: str
    wheel: str
    on_path: bool
    fix: str


MLIR_AIE = Origin(
    "mlir-aie", "mlir_aie", "mlir_aie", True, "Install mlir-aie's wheel beside Iron, or set MLIR_AIE_INSTALL_DIR to where it was built."
)
PEANO = Origin(
    "Peano", "peano", "llvm-aie", False, "Install the llvm-aie wheel of mlir-aie's releases, or set PEANO_INSTALL_DIR to its folder."
)
XRT_TOOLS = Origin("XRT", "xrt", "", True, "Install XRT and `source /opt/xilinx/xrt/setup.sh`, or set AIE_XCLBINUTIL to the program.")

#: The programs, by what they are for.
AIECC, AIE_OPT, AIE_TRANSLATE, BOOTGEN = "aiecc", "aie-opt", "aie-translate", "bootgen"
CLANG, OBJCOPY, LINKER = "clang++", "llvm-objcopy", "ld.lld"
XCLBINUTIL = "xclbinutil"
#: This machine's C++ compiler: streams that are made for a call are C++ first.
CXX = "C++ compiler"
COMPILERS = ("c++", "g++", "clang++")
ORIGINS = {
    AIECC: MLIR_AIE,
    AIE_OPT: MLIR_AIE,
    AIE_TRANSLATE: MLIR_AIE,
    BOOTGEN: MLIR_AIE,
    CLANG: PEANO,
    OBJCOPY: PEANO,
    LINKER: PEANO,
    XCLBINUTIL: XRT_TOOLS,
    CXX: Origin("this machine's", "cxx", "", True, "Install one (Debian: apt-get install g++), or set CXX to one."),
}


@attrs.frozen
class Program:
    """A program that is there. found: how it was found, for people: "PEANO_INSTALL_DIR", "PATH", "wheel"."""

    name: str
    path: Path
    found: str

    @property
    def identity(self) -> str:
        """What it makes depends on: which bytes it is."""
        return _identity(str(self.path))

    @property
    def version(self) -> str:
        """The first line with a number that it says of its version; "" where it says none."""
        return _version(str(self.path), self.identity)

    @property
    def folder(self) -> Path:
        """That of its installation, whose `bin` it is in."""
        return self.path.parent.parent


@attrs.frozen
class Missing:
    """A program that is not there: where it was looked for, and what to do."""

    name: str
    reason: str
    fix: str


def find(name: str, settings: Settings) -> Program | Missing:
    """Where a program is. Nothing is run."""
    origin = ORIGINS[name]
    if name == CXX:
        return _compiler(settings)
    if name == XCLBINUTIL and settings.xclbinutil is not None:
        said = variable("xclbinutil")
        if _runs(settings.xclbinutil):
            return Program(name, settings.xclbinutil, said)
        return Missing(name, f"{said}={printable(settings.xclbinutil)} is no program", f"Correct or unset {said}.")
    given = getattr(settings, origin.setting)
    if given is not None and origin is not XRT_TOOLS:
        said = variable(origin.setting)
        place = given / "bin" / name
        if _runs(place):
            return Program(name, place, said)
        return Missing(name, f"{said}={printable(given)} has no bin/{name}", f"Correct or unset {said}.")
    looked = []
    for place, found in _places(origin, settings):
        looked.append(found)
        path = shutil.which(name, path=place)
        if path is not None:
            return Program(name, Path(os.path.abspath(path)), found)
    return Missing(name, f"no {name} ({origin.owner}): looked in {', '.join(dict.fromkeys(looked))}", origin.fix)


def found(names: Iterable[str], settings: Settings) -> dict[str, Program]:
    """All of these programs; MissingTool names every one that is not there, and says what to do once for each owner."""
    looked = {name: find(name, settings) for name in names}
    missing = [one for one in looked.values() if isinstance(one, Missing)]
    if missing:
        fixes = dict.fromkeys(one.fix for one in missing)
        raise MissingTool(f"npu: {'; '.join(one.reason for one in missing)}. {' '.join(fixes)}")
    return {name: one for name, one in looked.items() if isinstance(one, Program)}


def _compiler(settings: Settings) -> Program | Missing:
    """The one that CXX names, which may give it flags, or the first on PATH."""
    said = variable("cxx")
    try:
        given = shlex.split(settings.cxx)
    except ValueError:  # a quote that is not closed
        given = [settings.cxx]
    for name in given[:1] or COMPILERS:
        path = shutil.which(name, path=settings.path)
        if path is not None:
            return Program(CXX, Path(os.path.abspath(path)), said if given else "PATH")
    if given:
        return Missing(CXX, f"{said}={printable(settings.cxx)} is no program", f"Correct or unset {said}.")
    return Missing(CXX, f"no C++ compiler: looked for {', '.join(COMPILERS)} on PATH", ORIGINS[CXX].fix)


def _places(origin: Origin, settings: Settings) -> Iterator[tuple[str, str]]:
    """(folders as PATH has them, what they are called)."""
    if origin is XRT_TOOLS and settings.xrt is not None:
        yield str(settings.xrt / "bin"), variable("xrt")
    if origin.on_path:
        yield settings.path, "PATH"
    if origin is MLIR_AIE:
        yield os.path.dirname(sys.executable), "this Python's folder"
    if origin.wheel:
        yield os.pathsep.join(os.path.join(place, origin.wheel, "bin") for place in sys.path), f"the wheel {origin.wheel}"
    if origin is XRT_TOOLS:
        yield str(XRT / "bin"), str(XRT)


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _identity(path: str) -> str:
    real = os.path.realpath(path)
    status = os.stat(real)
    return _digest(real, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=64)
def _digest(real: str, *stamps: int) -> str:
    with open(real, "rb") as file:
        return digest(FileIdentity.of(real, file.fileno()))


@lru_cache(maxsize=64)
def _version(path: str, identity: str) -> str:
    lines = (output((path, "--version"), os.environ | {"LC_ALL": "C"}, 20.0) or "").splitlines()
    return printable(next((line.strip() for line in lines if any(c.isdigit() for c in line)), ""), 100)
