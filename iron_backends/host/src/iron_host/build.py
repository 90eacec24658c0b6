"""Kernels from templates: a unit is compiled once for this CPU and compiler, cached by content, and loaded.

A unit's key covers its text, every header it includes by a quoted name, the generated slots.h among them, the flags, the
compiler actually run and the CPU, so an edit anywhere rebuilds and a touch does not. Missing units compile side by side.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from iron_core.aside import aside
from iron_core.cache import failed
from iron_core.cache.entry import About
from iron_core.cache.home import home, is_noexec, refusal
from iron_core.cache.keys import digest
from iron_core.cache.store import Cache, optional
from iron_core.errors import CacheError, CacheHomeError, DeclarationError, printable
from iron_core.processes import Running
from iron_core.side_by_side import side_by_side
from iron_host import compiler, kernels, scratch, slots
from iron_host.errors import KernelError
from iron_host.slots import Slots

SOURCES = Path(__file__).parent / "csrc"
_INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.M)
#: By the cache they are of, what compiled them and the unit: the library, and the address of its function.
_loaded: dict[tuple[str, str, Unit], tuple[Any, int]] = {}


@attrs.frozen
class Header:
    """A pack's own C++ header, and the slots of its kernels.

    path: the file, in the pack's package; what it includes by a quoted name is looked for beside it, then in csrc.
    slots: their structs are in the slots.h that common.h includes, beside those of csrc's own kernels. DeclarationError where
    there is no such file.
    """

    path: Path
    slots: tuple[Slots, ...] = ()

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.slots, tuple):
            raise DeclarationError(f"Header {printable(self.path)}: slots={self.slots!r}; legal: a tuple of Slots, as (SLOTS,).")
        if not self.path.is_file():
            raise DeclarationError(
                f"Header {printable(self.path)}: there is no such file. A kernel's header is a file of its pack's package, "
                "in its wheel too."
            )


@attrs.frozen
class Unit:
    """A kernel: the template function `template` of `header`, exported as `symbol`.

    header: the name of one in csrc, or a pack's own. In the template's text namespace iron need not be named. source: what the
    template's arguments need and no header has, as the struct of a format.
    """

    header: str | Header
    template: str
    symbol: str
    source: str = ""

    @property
    def own(self) -> Header | None:
        """The pack's header, if it is a pack's."""
        return self.header if isinstance(self.header, Header) else None

    @property
    def text(self) -> str:
        """The source compiled for it."""
        name = self.header.path.name if isinstance(self.header, Header) else self.header
        return f'#include "{name}"\n{self.source}{self.function}'

    @property
    def function(self) -> str:
        """What of the source is the kernel that is loaded."""
        head = f'extern "C" void {self.symbol}(const iron_args* a, int32_t tid, int32_t nt)'
        return f"{head} {{\n  using namespace iron;\n  {self.template}(a, tid, nt);\n}}\n"


def folders(own: Header | None) -> tuple[Path, ...]:
    """Where headers are looked for, after the folder of the file that includes them."""
    return (SOURCES,) if own is None else (own.path.parent, SOURCES)


@cache
def slots_header(own: Header | None) -> str:
    """The slots.h that a source finds."""
    return slots.header((*kernels.TABLES, *(own.slots if own is not None else ())))


def headers(text: bytes, own: Header | None = None) -> dict[str, bytes]:
    """Every header that a source includes by a quoted name, directly or not: where it is found -> content.

    What is in none of the folders is the system's.
    """
    found: dict[str, bytes] = {}
    queue: list[tuple[bytes, tuple[Path, ...]]] = [(text, ())]
    while queue:
        content, beside = queue.pop()
        for name in (match.decode() for match in _INCLUDE.findall(content)):
            path = next((f / name for f in (*beside, *folders(own)) if (f / name).is_file()), None)
            if name == slots.FILE:
                place, text = name, slots_header(own).encode()
            elif path is not None:
                place, text = str(path), path.read_bytes()
            else:
                continue
            if place not in found:
                found[place] = text
                queue.append((text, () if path is None else (path.parent,)))
    return found


@cache
def _header_digest(header: str, own: Header | None) -> str:
    found = headers(f'#include "{header}"\n'.encode(), own)
    return digest(*sorted((Path(path).name, content) for path, content in found.items()))


def key(text: str, with_: compiler.Compiler, own: Header | None = None) -> str:
    """The cache key of a source compiled by `with_`."""
    names = _INCLUDE.findall(text.encode())
    return digest(text, *(_header_digest(n.decode(), own) for n in names), with_.identity)


def found(text: str, with_: compiler.Compiler, own: Header | None = None) -> Path | None:
    """The shared object of a source, if the cache has it."""
    with optional():
        entry = Cache("host").get(key(text, with_, own))
        return entry / "kernel.so" if entry is not None else None
    return None


def compiled(
    text: str, name: str, with_: compiler.Compiler, running: Running | None = None, own: Header | None = None
) -> Path:
    """The shared object of a source, from the cache or compiled into it. `name` is for messages; `running` as for `run`.

    own: the pack's header that it includes, if it is a pack's.

    Where the cache cannot be used it is compiled for this process alone, with a warning; CacheError if that cannot be done
    either, or NPU_CACHE_HOME names no folder.
    """

    def fill(folder: Path) -> None:
        source = folder / f"{name}.cpp"
        source.write_text(text, encoding="utf-8")
        (folder / slots.FILE).write_text(slots_header(own), encoding="utf-8")
        try:
            with_.run(source, folder / "kernel.so", running, (folder, *folders(own)))
        except KernelError as error:
            raise _with_source(error, folder, key(text, with_, own)) from None

    def made(root: Path | None) -> Path:
        return Cache("host", root).entry(key(text, with_, own), fill, about=About("kernel", name)) / "kernel.so"

    try:
        return made(None)
    except CacheHomeError:
        raise
    except CacheError as error:
        first = error
    with optional():
        raise first
    try:
        return made(scratch.folder())
    except OSError as error:
        raise CacheError(f"{first} Nor can kernels be compiled for this process alone: {error}") from None


def _with_source(error: KernelError, folder: Path, key: str) -> KernelError:
    """The error with what was compiled kept, where the compiler's words say that it is; as it is, if nothing can be kept."""
    try:
        work = Path(tempfile.mkdtemp(prefix="iron-host-"))
        for file in folder.iterdir():
            if file.suffix in (".cpp", ".h", ".log"):
                shutil.copyfile(file, work / file.name)
    except OSError:
        return error
    kept = failed.keep(work, f"{error.symbol}-{key[:8]}")
    said, words = (text.replace(str(folder), str(kept)) for text in (error.said, error.words))
    return KernelError(error.symbol, said, words=words, kept=kept)


def library(path: Path) -> ctypes.CDLL:
    """A shared object, loaded. From a file system that programs may not run from it is copied to memory."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        first = error
    try:
        descriptor = os.memfd_create(path.parent.name, 0)
        with open(descriptor, "wb", closefd=False) as copy:  # open for good: its number is the name it is known by
            copy.write(path.read_bytes())
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    except (OSError, AttributeError) as error:
        why = "it is mounted noexec" if is_noexec(path) else str(first)
        raise refusal(home(), f"{why}; nor can kernels be loaded from memory: {error}") from None


def load(units: Iterable[Unit]) -> dict[Unit, int]:
    """The address of every unit's function, compiled first where the cache does not have it."""
    with_ = compiler.find()
    wanted = list(dict.fromkeys(units))
    place = (os.environ.get("NPU_CACHE_HOME", ""), with_.identity)
    missing = [u for u in wanted if (*place, u) not in _loaded]
    if missing:
        paths = {u: found(u.text, with_, u.own) for u in missing}
        absent = [u for u in missing if paths[u] is None]
        if absent:
            if sys.stderr is not None and sys.stderr.isatty():
                aside(f"compiling {len(absent)} kernels with {with_.name} (once for this machine) ...")
            running = Running()
            made = side_by_side(lambda u: compiled(u.text, u.symbol, with_, running, u.own), absent, running.end)
            paths.update(zip(absent, made, strict=True))
        for unit, path in paths.items():
            loaded = library(path)  # type: ignore[arg-type]
            _loaded[*place, unit] = (loaded, ctypes.cast(getattr(loaded, unit.symbol), ctypes.c_void_p).value or 0)
    return {u: _loaded[*place, u][1] for u in wanted}


@cache
def runtime() -> Any:
    """The run loop (csrc/run.cpp) as a ctypes library with its signatures declared."""
    native = library(compiled('#include "run.cpp"\n', "runtime", compiler.find()))
    pointer, i32, i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    for name, result, arguments in (
        ("iron_pool_create", pointer, (i32,)),
        ("iron_pool_threads", i32, (pointer,)),
        ("iron_pool_reserve", i64, (pointer, i64, i64)),
        ("iron_pool_forked", None, (pointer,)),
        ("iron_pool_free", None, (pointer,)),
        ("iron_begin", i32, (pointer, pointer, i64, i32, i64)),
        ("iron_go_on", i32, (pointer, pointer)),
        ("iron_timing_create", pointer, (i32,)),
        ("iron_timing_free", None, (pointer,)),
        ("iron_timing_read", i64, (pointer, i32, pointer)),
        ("iron_time", None, (pointer, pointer)),
    ):
        function = getattr(native, name)
        function.restype, function.argtypes = result, arguments
    return native
