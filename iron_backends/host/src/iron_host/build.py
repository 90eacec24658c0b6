"""Kernels from templates: a unit is compiled once for this CPU and compiler, cached by content, and loaded.

A unit's key covers its text, every header of ours it includes, the flags, the compiler actually run and the
CPU, so an edit anywhere rebuilds and a touch does not. Missing units compile side by side.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from iron_core.aside import aside
from iron_core.cache.entry import About
from iron_core.cache.home import home, is_noexec, refusal
from iron_core.cache.keys import digest
from iron_core.cache.store import Cache, optional
from iron_core.errors import CacheError, CacheHomeError
from iron_core.side_by_side import side_by_side
from iron_host import compiler, scratch

SOURCES = Path(__file__).parent / "csrc"
_INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.M)
_loaded: dict[tuple[str, Unit], tuple[Any, int]] = {}


@attrs.frozen
class Unit:
    """A kernel: the template function `template` of csrc/`header`, exported as `symbol`.

    source: C++ text between the two, for a template argument (or a whole function) that csrc does not have: how a
    pack of its own brings a kernel.
    """

    header: str
    template: str
    symbol: str
    source: str = ""

    @property
    def text(self) -> str:
        """The source compiled for it."""
        return (
            f'#include "{self.header}"\n{self.source}\n'
            f'extern "C" void {self.symbol}(const iron_args* a, int32_t tid, int32_t nt) {{ {self.template}(a, tid, nt); }}\n'
        )


def headers(text: bytes, sources: Path = SOURCES) -> dict[str, bytes]:
    """Every header of ours that a source includes, directly or not: name -> content."""
    found: dict[str, bytes] = {}
    queue = [text]
    while queue:
        for name in _INCLUDE.findall(queue.pop()):
            key = name.decode()
            if key not in found:
                found[key] = (sources / key).read_bytes()
                queue.append(found[key])
    return found


@cache
def _header_digest(header: str) -> str:
    return digest(*sorted(headers(f'#include "{header}"\n'.encode()).items()))


def key(text: str, with_: compiler.Compiler) -> str:
    """The cache key of a source compiled by `with_`."""
    names = _INCLUDE.findall(text.encode())
    return digest(text, *(_header_digest(n.decode()) for n in names), with_.identity)


def found(text: str, with_: compiler.Compiler) -> Path | None:
    """The shared object of a source, if the cache has it."""
    with optional():
        entry = Cache("host").get(key(text, with_))
        return entry / "kernel.so" if entry is not None else None
    return None


def compiled(text: str, name: str, with_: compiler.Compiler, running: compiler.Running | None = None) -> Path:
    """The shared object of a source, from the cache or compiled into it. `name` is for messages; `running` as for `run`.

    Where the cache cannot be used it is compiled for this process alone, with a warning; CacheError if that cannot be done
    either, or NPU_CACHE_HOME names no folder.
    """

    def fill(folder: Path) -> None:
        source = folder / f"{name}.cpp"
        source.write_text(text, encoding="utf-8")
        with_.run(source, folder / "kernel.so", running)

    def made(root: Path | None) -> Path:
        return Cache("host", root).entry(key(text, with_), fill, about=About("kernel", name)) / "kernel.so"

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
    root = os.environ.get("NPU_CACHE_HOME", "")
    missing = [u for u in wanted if (root, u) not in _loaded]
    if missing:
        paths = {u: found(u.text, with_) for u in missing}
        absent = [u for u in missing if paths[u] is None]
        if absent:
            if sys.stderr is not None and sys.stderr.isatty():
                aside(f"compiling {len(absent)} kernels with {with_.name} (once for this machine) ...")
            running = compiler.Running()
            made = side_by_side(lambda u: compiled(u.text, u.symbol, with_, running), absent, running.end)
            paths.update(zip(absent, made, strict=True))
        for unit, path in paths.items():
            loaded = library(path)  # type: ignore[arg-type]
            _loaded[root, unit] = (loaded, ctypes.cast(getattr(loaded, unit.symbol), ctypes.c_void_p).value or 0)
    return {u: _loaded[root, u][1] for u in wanted}


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
