"""Which C++ compiler compiles kernels: the machine's own, else the one the `ziglang` wheel brings."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

import attrs

from iron_core.backends.protocol import Unavailable
from iron_core.errors import BackendUnavailable
from iron_core.image.cache import digest, home

#: Kernels include C headers only, so nothing of a C++ run-time library is asked for.
FLAGS = (
    *("-x", "c++", "-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-pthread"),
    *("-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-ffp-contract=fast", "-w"),
)


@attrs.frozen
class Compiler:
    """A compiler and how it says its version. `command` starts every command line; `environment` is added to ours."""

    command: tuple[str, ...]
    version: str
    environment: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = FLAGS

    @property
    def name(self) -> str:
        """For people: "g++ 12.2"."""
        first = self.version.partition("\n")[0]
        tool = Path(self.command[0]).name
        if "ziglang" in self.command:
            tool = "zig"
        elif tool == "c++":
            tool = "clang++" if "clang" in first else "g++" if "Free Software Foundation" in self.version else tool
        found = re.search(r"(\d+\.\d+)", first.rpartition(")")[2] or first)
        return f"{tool} {found.group(1)}" if found else tool

    @property
    def identity(self) -> str:
        """What the code it makes depends on: command, version as run, flags and this CPU."""
        return digest(self.command, self.version, self.flags, cpu())

    def run(self, source: Path, target: Path) -> None:
        """Compile one source into a shared object; BackendUnavailable with the compiler's first error."""
        line = [*self.command, *self.flags, "-I", str(Path(__file__).parent / "csrc"), str(source), "-o", str(target), "-lm"]
        done = subprocess.run(line, capture_output=True, text=True, env=os.environ | dict(self.environment))
        if done.returncode:
            errors = [text for text in done.stderr.splitlines() if "error" in text] or done.stderr.splitlines() or ["no output"]
            raise BackendUnavailable(f"host: {self.name} did not compile {source.name}: {errors[0]}")


@cache
def cpu() -> str:
    """What -march=native depends on: machine, model and features."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    keep = dict.fromkeys(t for t in text.splitlines() if t.startswith(("model name", "flags", "Features", "CPU part")))
    return "\n".join([platform.machine(), *keep])


def vector_width() -> str:
    """The widest vector instructions kernels use here: "AVX-512", "AVX2", "NEON" or "portable"."""
    features = cpu()
    if platform.machine() in ("aarch64", "arm64"):
        return "NEON"
    if " avx512vl" in features and " avx512_vnni" in features:
        return "AVX-512"
    return "AVX2" if " avx2" in features and " fma" in features else "portable"


def _version(command: tuple[str, ...], environment: tuple[tuple[str, str], ...] = ()) -> str | None:
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=60, env=os.environ | dict(environment)
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _candidates() -> list[tuple[tuple[str, ...], tuple[tuple[str, str], ...]]]:
    found: list[tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = []
    if os.environ.get("CXX"):
        found.append((tuple(shlex.split(os.environ["CXX"])), ()))
    for tool in ("c++", "g++", "clang++"):
        path = shutil.which(tool)
        if path:
            found.append(((path,), ()))
    if find_spec("ziglang") is not None:
        folder = home() / "iron" / "host" / "zig"
        places = (("ZIG_LOCAL_CACHE_DIR", str(folder / "local")), ("ZIG_GLOBAL_CACHE_DIR", str(folder / "global")))
        found.append(((sys.executable, "-m", "ziglang", "cc"), places))
    return found


@lru_cache(maxsize=4)
def _find(key: tuple[str | None, str | None, str | None]) -> Compiler | None:
    for command, environment in _candidates():
        version = _version(command, environment)
        if version is not None:
            extra = ("-fno-sanitize=undefined",) if "ziglang" in command else ()
            return Compiler(command, version, environment, FLAGS + extra)
    return None


def find() -> Compiler:
    """The first of $CXX, c++, g++, clang++ and the ziglang wheel that runs; BackendUnavailable if none does."""
    found = _find((os.environ.get("CXX"), os.environ.get("PATH"), os.environ.get("NPU_CACHE_HOME")))
    if found is None:
        none = _none()
        raise BackendUnavailable(f"host: {none.reason} {none.fix}")
    return found


def _none() -> Unavailable:
    tried = [f"$CXX ({os.environ['CXX']})"] if os.environ.get("CXX") else []
    return Unavailable(
        f"no C++ compiler: looked for {', '.join([*tried, 'c++', 'g++', 'clang++'])} on PATH and for the ziglang wheel.",
        "Install one (Debian: apt-get install g++), or install iron-host with its zig extra.",
    )


@attrs.frozen
class Probe:
    """A compiler is there; `summary` for tables."""

    summary: str


def probe() -> Probe | Unavailable:
    """Is there a compiler? Never raises."""
    try:
        return Probe(f"{find().name}, {vector_width()}")
    except BackendUnavailable:
        return _none()
