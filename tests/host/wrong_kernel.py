"""`python wrong_kernel.py STATEMENT`: a graph whose middle step is a kernel that is right but for one C++ statement.

The statement may name x and y (float pointers at two buffers of the arena), n (their numbers), scratch and shared (areas of
which the step asked for 64 bytes, its neighbours for more), tid. Nothing is checked here: who watches the process does.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import iron_core as iron
from iron_host.backend import HostBackend
from iron_host.build import Header, Unit
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.kernels import UNARY
from iron_ops_aie import ReLU, SiLU

SOURCE = """
#include "common.h"

static volatile float sink;
static void copied(const iron::slots::Unary<float>& a, int32_t tid, int32_t nt, bool wrong) {{
  const float* x = a.x;
  float* y = a.y;
  char *scratch = (char*)a.scratch, *shared = (char*)a.shared;
  int64_t n = a.valid;
  iron::Share s = iron::share(n, tid, nt);
  for (int64_t i = s.begin; i < s.end; i++) y[i] = x[i];
  if (wrong) {{ {statement}; }}
}}
static void wrong(const iron_args* a, int32_t tid, int32_t nt) {{ copied(a, tid, nt, true); }}
static void right(const iron_args* a, int32_t tid, int32_t nt) {{ copied(a, tid, nt, false); }}
"""


class Middle(HostLowering):
    """ReLU by that kernel, before and after it one that asks for larger areas."""

    def __init__(self, header: Path) -> None:
        self.header = Header(header)

    def step(self, op: Any, operands: Any, bindings: Any, tunables: Any) -> list[KernelCall]:
        def call(which: str, nbytes: int) -> KernelCall:
            unit = Unit(self.header, which, f"iron_test_{which}")
            slots = UNARY(x="x", y="y", valid=op.size, number=0)
            return KernelCall(unit, slots, scratch_bytes=nbytes, shared_bytes=nbytes)

        return [call("right", 4096), call("wrong", 64), call("right", 4096)]


class Chain(iron.Graph):
    """x -> SiLU -> ReLU -> SiLU -> y: what is in the middle lies in the arena."""

    def body(self, x):
        return SiLU(ReLU(SiLU(x)))


def main(statement: str, folder: Path) -> None:
    header = folder / "wrong.h"
    header.write_text(SOURCE.format(statement=statement))
    middle, known = Middle(header), HostBackend._lowering
    HostBackend._lowering = staticmethod(lambda op: middle if isinstance(op, ReLU) else known(op))
    size = 4090  # no multiple of a cache line
    graph = Chain().compile(backend=HostBackend(threads=2), x=((size,), np.float32))
    for _ in range(20):
        graph(np.ones(size, np.float32))
    print("ran to its end")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1], Path(folder))
