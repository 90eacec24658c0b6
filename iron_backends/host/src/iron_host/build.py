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
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from iron_core.image.cache import Cache, digest
from iron_host import compiler

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


def compiled(text: str, name: str, with_: compiler.Compiler) -> Path:
    """The shared object of a source, from the cache or compiled into it. `name` is for messages."""

    def fill(folder: Path) -> None:
        source = folder / f"{name}.cpp"
        source.write_text(text)
        with_.run(source, folder / "kernel.so")

    return Cache("host").entry(key(text, with_), fill) / "kernel.so"


def load(units: Iterable[Unit]) -> dict[Unit, int]:
    """The address of every unit's function, compiled first where the cache does not have it."""
    with_ = compiler.find()
    wanted = list(dict.fromkeys(units))
    root = str(Cache("host").folder)
    missing = [u for u in wanted if (root, u) not in _loaded]
    if missing:
        absent = sum(Cache("host").get(key(u.text, with_)) is None for u in missing)
        if absent and sys.stderr.isatty():
            print(f"compiling {absent} kernels with {with_.name} (once for this machine) ...", file=sys.stderr)
        with ThreadPoolExecutor(max_workers=min(len(missing), os.cpu_count() or 1)) as workers:
            paths = list(workers.map(lambda u: compiled(u.text, u.symbol, with_), missing))
        for unit, path in zip(missing, paths, strict=True):
            library = ctypes.CDLL(str(path))
            function = getattr(library, unit.symbol)
            _loaded[root, unit] = (library, ctypes.cast(function, ctypes.c_void_p).value or 0)
    return {u: _loaded[root, u][1] for u in wanted}


@cache
def runtime() -> Any:
    """The run loop (csrc/run.cpp) as a ctypes library with its signatures declared."""
    library = ctypes.CDLL(str(compiled('#include "run.cpp"\n', "runtime", compiler.find())))
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
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
