"""Kernels for Arm's processors of 64 bits on a machine that is none: another compiler makes a program of them, and qemu runs it."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from iron_host import compiler

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
#: Debian's packages of both that are not here.
MISSING = [
    package for program, package in ((COMPILER, "g++-aarch64-linux-gnu"), (EMULATOR, "qemu-user")) if shutil.which(program) is None
]
#: What code is made for: NEON alone, and with products of bytes.
PROCESSORS = ("armv8-a", "armv8.2-a+dotprod")

#: Bytes that a call's arrays may take, in memory that both see; what is not written takes none.
SIZE = 1 << 28

#: Calls come on standard input, a byte goes back for each. The first word is the memory's descriptor; pointers are places in it, 0 for
#: none.
MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void (*const kernels[])(const iron_args*, int32_t, int32_t) = {@KERNELS@};

int main(int, char** words) {
  char* memory = (char*)mmap(0, @SIZE@, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(words[1]), 0);
  struct { int64_t kernel, threads, scratch; iron_args args; } call;
  while (fread(&call, sizeof call, 1, stdin) == 1) {
    iron_args& a = call.args;
    for (void*& p : a.p) p = p ? memory + (int64_t)p : nullptr;
    a.shared = a.shared ? memory + (int64_t)a.shared : nullptr;
    a.scratch = memory + (int64_t)a.scratch;
    for (int32_t tid = 0; tid < call.threads; tid++) {
      memset(a.scratch, 0, call.scratch);
      kernels[call.kernel](&a, tid, (int32_t)call.threads);
    }
    putchar('.');
    fflush(stdout);
  }
}
"""


def compiler_for(processor: str) -> compiler.Compiler:
    """The other compiler, making a program for `processor` with the flags that kernels have."""
    version = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    kept = [flag for flag in (*compiler.FLAGS, *compiler.GCC_FLAGS) if flag not in (compiler.NATIVE, "-fPIC", "-shared")]
    return compiler.Compiler((COMPILER,), version, flags=(*kept, "-static", f"-march={processor}"))


def makes(with_: compiler.Compiler) -> bool:
    """Does this compiler make such programs?"""
    return with_.command == (COMPILER,)


def main(symbols: Sequence[str]) -> str:
    """What follows kernels of these names in the source of a program."""
    return MAIN.replace("@KERNELS@", ", ".join(symbols)).replace("@SIZE@", str(SIZE))


def _whole(array: np.ndarray) -> np.ndarray:
    """The array whose memory this one is a part of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Program:
    """Kernels in a program that qemu runs; they are called by their numbers."""

    def __init__(self, path: Path) -> None:
        descriptor = os.memfd_create(path.parent.name)
        os.ftruncate(descriptor, SIZE)
        self._memory = mmap.mmap(descriptor, SIZE)
        line = [EMULATOR, str(path), str(descriptor)]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(descriptor,))
        os.close(descriptor)
        weakref.finalize(self, _end, self._process)

    def __call__(
        self, kernel: int, args: Any, pointers: Sequence[np.ndarray | None], shared: np.ndarray | None, scratch: int, threads: int
    ) -> None:
        """As `threads` threads would call it, one after the other. args: `iron_args` with its numbers."""
        memory, places, end = np.frombuffer(self._memory, np.uint8), {}, 64
        for array in (*pointers, shared):
            if array is not None and id(whole := _whole(array)) not in places:
                at = end + (whole.ctypes.data - end) % 64  # as far from a line of 64 bytes as here
                end = at + whole.nbytes
                assert end <= SIZE, "more than a program's memory"
                places[id(whole)] = whole, at
                ctypes.memmove(memory.ctypes.data + at, whole.ctypes.data, whole.nbytes)

        def place(array: np.ndarray | None) -> int | None:
            if array is None:
                return None
            whole, at = places[id(_whole(array))]
            return at + array.ctypes.data - whole.ctypes.data

        for i, array in enumerate(pointers):
            args.p[i] = place(array)
        args.shared, args.scratch = place(shared), end + -end % 64
        assert end + 64 + scratch <= SIZE, "more than a program's memory"
        self._process.stdin.write(np.array([kernel, threads, scratch], np.int64).tobytes() + bytes(args))
        self._process.stdin.flush()
        if not self._process.stdout.read(1):
            raise RuntimeError(f"kernel {kernel}: the program ended with {self._process.wait()}")
        for whole, at in places.values():
            if whole.flags.writeable:
                ctypes.memmove(whole.ctypes.data, memory.ctypes.data + at, whole.nbytes)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.communicate()
