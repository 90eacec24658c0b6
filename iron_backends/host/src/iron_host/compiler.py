"""Which C++ compiler compiles kernels: the machine's own, else the one the `ziglang` wheel brings."""

from __future__ import annotations

import errno
import os
import platform
import re
import shlex
import tempfile
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import attrs

from iron_core.backends.protocol import Unavailable
from iron_core.cache.eviction import ZIG
from iron_core.cache.home import home, unusable
from iron_core.cache.keys import digest
from iron_core.errors import BackendUnavailable, CacheError
from iron_core.processes import Running, cxx_commands, output, run
from iron_host import scratch
from iron_host.errors import KernelError


def native(machine: str) -> str:
    """The flag for code that this very processor runs.

    On 64-bit Arm clang takes `-march=native` late, and up to 22 for no more than what all processors of the architecture have:
    instructions for products of bytes are left out.
    """
    return "-mcpu=native" if machine.lower() in ("aarch64", "arm64") else "-march=native"


NATIVE = native(platform.machine())

#: Kernels include C headers only, so nothing of a C++ run-time library is asked for.
FLAGS = (
    *("-x", "c++", "-std=c++17", "-O3", NATIVE, "-fPIC", "-shared", "-pthread"),
    *("-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-ffp-contract=fast", "-w"),
)

#: For some processors GCC makes two instructions of some multiply-adds, which round twice: a row's sum would depend on how
#: many rows are summed beside it. Loops begin at 32 bytes: where GCC's own choice of 16 put those of attention, one edit
#: elsewhere in its file made it 17 % slower or faster.
GCC_FLAGS = ("--param=avoid-fma-max-bits=0", "-falign-loops=32")

#: Bytes that compiling a kernel takes at least: with less free, that is why it failed.
_NEEDED = 1 << 18


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
        if _zig(self.command):
            tool = "zig"
        elif tool == "c++":
            tool = "clang++" if "clang" in first else "g++" if _gcc(self.version) else tool
        found = re.search(r"(\d+\.\d+)", first.rpartition(")")[2] or first)
        return f"{tool} {found.group(1)}" if found else tool

    @property
    def identity(self) -> str:
        """What the code it makes depends on: command, version as run, flags and this CPU."""
        return digest(self.command, self.version, self.flags, cpu())

    def run(self, source: Path, target: Path, running: Running | None = None, include: Sequence[Path] = ()) -> None:
        """Compile one source into a shared object; KernelError with the compiler's words, which are also in a log beside the source,
        OSError where a disk is full.

        running: what the compiler is added to, for who may want to end it. What interrupts this call ends it. include:
        folders where headers are looked for.
        """
        places = [word for folder in include for word in ("-I", str(folder))]
        line = [*self.command, *self.flags, *places, str(source), "-o", str(target), "-lm"]
        environment = os.environ | {"LC_ALL": "C"} | dict(self.environment)
        try:
            code, said = run(line, environment, running)
        except OSError as error:
            raise BackendUnavailable(f"host: {self.name} did not start for {source.name}: {error.strerror}.") from None
        if code:
            full = _full(said, target.parent)
            if full is not None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(full))
            errors = [text for text in said.splitlines() if "error" in text] or said.splitlines() or ["no output"]
            source.with_suffix(".log").write_text(f"$ {shlex.join(line)}\n{said}", encoding="utf-8", errors="replace")
            raise KernelError(source.stem, f"{self.name} did not compile {source.name}: {errors[0]}", words=said)
        if not target.is_file():
            raise KernelError(source.stem, f"{self.name} made no file of {source.name} and reported no error.")


def _full(errors: str, folder: Path) -> Path | None:
    """The folder that is full, going by a compiler's errors and by what is free where it writes; None if none is."""
    places = (folder, Path(tempfile.gettempdir()))
    if any(os.strerror(number) in errors for number in (errno.ENOSPC, errno.EDQUOT)):
        return min(places, key=_free)
    return next((place for place in places if _free(place) < _NEEDED), None)


def _free(folder: Path) -> int:
    try:
        disk = os.statvfs(folder)
    except (OSError, AttributeError):
        return _NEEDED
    return disk.f_bavail * disk.f_frsize


@cache
def cpu() -> str:
    """What `NATIVE` depends on: machine, model and features."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
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


def _output(command: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> str | None:
    return output(command, os.environ | dict(environment))


def _gcc(version: str) -> bool:
    """Is this what GCC says of its version?"""
    return "Free Software Foundation" in version


def _zig(command: tuple[str, ...]) -> bool:
    """Is this zig's C or C++ compiler: `zig cc`, `python -m ziglang c++` and the like?"""
    return len(command) > 1 and command[-1] in ("cc", "c++") and "zig" in Path(command[-2]).name


def _made(command: tuple[str, ...], more: tuple[str, ...]) -> Compiler | None:
    """The compiler of a command, with `more` flags behind ours; None if it does not run."""
    if not _zig(command):
        version = _output((*command, "--version"), ())
        return None if version is None else Compiler(command, version, flags=(*FLAGS, *(GCC_FLAGS if _gcc(version) else ()), *more))
    folder = _zig_folder()
    places = (("ZIG_LOCAL_CACHE_DIR", str(folder / "local")), ("ZIG_GLOBAL_CACHE_DIR", str(folder / "global")))
    version = _output((*command[:-1], "version"), places)
    if version is None:
        return None
    # Its code is for the libc it finds here.
    libc = " ".join(platform.libc_ver())
    return Compiler(command, f"zig {version}\n{libc}", places, (*FLAGS, "-fno-sanitize=undefined", *more))


def _zig_folder() -> Path:
    """Where zig keeps what it compiles: in the cache, or where that cannot be used with this process."""
    try:
        if not unusable(home()):
            return home() / "iron" / "host" / ZIG
    except CacheError:
        pass
    try:
        return scratch.folder() / ZIG
    except OSError:
        return Path(tempfile.gettempdir())


@lru_cache(maxsize=4)
def _find(given: str | None, path: str | None, cache_home: str | None, flags: str) -> Compiler | Unavailable:
    """The compiler under these variables. path and cache_home are read from the environment; here they are the key."""
    try:
        more = tuple(shlex.split(flags))
    except ValueError:
        return Unavailable(f"$IRON_HOST_CXXFLAGS={flags!r} has a quote that is not closed.", "Correct or unset it.")
    if given:
        try:
            found = _made(tuple(shlex.split(given)), more)
        except ValueError:  # a quote that is not closed
            found = None
        fix = "Correct or unset CXX; without it c++, g++, clang++ and the ziglang wheel are looked for."
        return found or Unavailable(f"$CXX={given!r} does not run as a compiler.", fix)
    for command in cxx_commands():
        found = _made(command, more)
        if found:
            return found
    return Unavailable(
        "no C++ compiler: looked for c++, g++ and clang++ on PATH and for the ziglang wheel.",
        "Install one (Debian: apt-get install g++), or install iron-host with its zig extra.",
    )


def probe() -> Compiler | Unavailable:
    """The compiler, or why there is none. Never raises."""
    get = os.environ.get
    return _find(get("CXX", "").strip(), get("PATH"), get("NPU_CACHE_HOME"), get("IRON_HOST_CXXFLAGS", ""))


def find() -> Compiler:
    """$CXX if it is set, else the first of c++, g++, clang++ and the ziglang wheel that runs; else BackendUnavailable.

    A $CXX that does not run is refused: whoever set it did not ask for another compiler. The flags in $IRON_HOST_CXXFLAGS
    come after ours; what they make has keys of its own in the cache.
    """
    found = probe()
    if isinstance(found, Unavailable):
        raise BackendUnavailable(f"host: {found.reason} {found.fix}")
    return found
