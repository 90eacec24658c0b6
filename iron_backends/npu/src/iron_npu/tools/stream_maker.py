"""Streams of a call's numbers: the C++ that `aie-translate --aie-npu-to-cpp` makes of a sequence, compiled once and called.

The function takes the sequence's scalars and gives the words of a stream, or none where a number breaks a rule of the sequence. Compiling
needs this machine's C++ compiler ($CXX, c++, g++ or clang++; C++17) and mlir-aie's headers; what it gives is kept in the cache.
"""

from __future__ import annotations

import ctypes
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from iron_core.cache.entry import About
from iron_core.cache.keys import digest
from iron_core.cache.store import Cache
from iron_core.errors import BoundsError
from iron_npu.errors import ToolError
from iron_npu.settings import Settings
from iron_npu.tools.programs import AIECC, CXX, Program, find, found
from iron_npu.tools.run import Runner

#: Changes with what is compiled around the C++.
FORMAT = 1
LIBRARY = "stream.so"
#: Words of the first stream's buffer; a longer one is made again in one that holds it.
ROOM = 1 << 14
#: What it is called where the C++ gives no stream.
REFUSED = -1
_FUNCTION = re.compile(r"\b(generate_txn_\w+)\s*\(([^)]*)\)\s*\{")


class StreamMaker:
    """The compiled function of one sequence of a file. MissingTool without a compiler, ToolError where the file has no such function, or
    the compiler takes none of it."""

    def __init__(self, path: Path, sequence: str, settings: Settings | None = None) -> None:
        self.path = path
        self._room = ROOM
        chosen = Settings.read() if settings is None else settings
        source = path.read_text(encoding="utf-8")
        found = next((one for one in _FUNCTION.finditer(source) if one[1].endswith(f"_{sequence}")), None)
        if found is None:
            raise ToolError("aie-translate", path.name, f"what it made has no function generate_txn_..._{sequence}")
        self.name = found[1]
        self.takes = len([one for one in found[2].split(",") if one.strip()])
        compiler = _compiler(chosen)
        aiecc = find(AIECC, chosen)
        include, headers = ([f"-I{aiecc.folder / 'include'}"], aiecc.identity) if isinstance(aiecc, Program) else ([], "")
        line = [*compiler, "-std=c++17", "-O1", "-shared", "-fPIC", *include]
        key = digest("stream", FORMAT, source, self.name, line, Program("c++", Path(line[0]), "").identity, headers)

        def fill(folder: Path) -> None:
            runner = Runner(self.name, chosen)
            with runner.folder(key) as work:
                (work / "stream.cpp").write_text(_around(path, self.name, self.takes), encoding="utf-8")
                runner.run([*line, str(work / "stream.cpp"), "-o", str(work / LIBRARY)], work)
                shutil.copy(work / LIBRARY, folder / LIBRARY)

        folder = Cache("npu", chosen.cache_home).entry(key, fill, about=About("stream", self.name))
        self._call = ctypes.CDLL(str(folder / LIBRARY)).iron_stream
        self._call.restype = ctypes.c_long

    def __call__(self, scalars: Sequence[int]) -> bytes:
        """The stream for these scalars. BoundsError where the sequence takes none of such."""
        if len(scalars) != self.takes:
            raise ToolError("aie-translate", self.path.name, f"{self.name} takes {self.takes} numbers, and the image gives {len(scalars)}")
        given = np.array([n & 0xFFFFFFFF for n in scalars], np.uint32).view(np.int32)
        while True:
            made = np.empty(self._room, np.uint32)
            words = self._call(ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(made.ctypes.data), ctypes.c_long(made.size))
            if words == REFUSED:
                raise BoundsError(f"{self.name}: no stream for {', '.join(map(str, scalars))}; the sequence's rules refuse such numbers.")
            if words <= made.size:
                return made[:words].tobytes()
            self._room = words


def _compiler(settings: Settings) -> list[str]:
    """The compiler and its own flags, which CXX may give behind it."""
    return [str(found((CXX,), settings)[CXX].path), *shlex.split(settings.cxx)[1:]]


def _around(path: Path, name: str, takes: int) -> str:
    """The C++ with a C function around it."""
    scalars = ", ".join(f"given[{n}]" for n in range(takes))
    return f"""#include "{path}"
#include <cstdint>
#include <cstring>
extern "C" long iron_stream(const int32_t *given, uint32_t *into, long room) {{
  (void)given;
  auto made = {name}({scalars});
  if (!made) return {REFUSED};
  if ((long)made->size() <= room) std::memcpy(into, made->data(), made->size() * sizeof(uint32_t));
  return (long)made->size();
}}
"""
