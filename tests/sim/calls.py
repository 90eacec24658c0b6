"""`Calls`: an operator whose array tells whether it was reset."""

from __future__ import annotations

from typing import Any

import numpy as np

import iron_core as iron
from iron_core import Auto, DType, In, Operator, Out, Param
from iron_core.array import Buffer, Kernel, KernelContract, ObjectFifo, Worker


class Calls(Operator):
    """Adds to its input how many objects this configuration of the array has seen. Not what an operator should do: it tells
    whether the array was reset."""

    size: int = Param()
    tag: int = Param(default=0, array=True)
    fails: bool = Param(default=False)
    half: bool = Param(default=False)
    kind: int = Param(default=0)
    T: Any = DType(default=np.int32)
    tile: int = Auto(default=16)
    x = In(size, dtype=T, tile=tile)
    y = Out(size, dtype=T, tile=tile)

    def array(self, target):
        tile = self.x.tile
        contract = KernelContract(roles=("in", "inout", "out"), reference=lambda x, n: (n + 1, x + n[0] + 1))
        kernel = Kernel.inline("count", f"// {self.tag}", [tile, tile, tile], contract)

        def core(x, y, kernel, seen):
            kernel(x.acquire(), seen, y.acquire())
            x.release()
            y.release()

        x, y = ObjectFifo(tile, name="x"), ObjectFifo(tile, name="y")
        x.prod(tile=self.x.lane(0))
        y.cons(tile=self.y.lane(0))
        Worker(core, [x.cons(), y.prod(), kernel, Buffer(16, "int32", initial_value=[0] * 16)])

    def sequence(self, rt):
        made = self.size // 2 if self.half else self.size
        rt.drain("y", 0, iron.Pattern.whole((made,)), wait=True)
        rt.fill("x", 0, iron.Pattern.whole((made // 2 if self.fails else made,)))

    def reference(self, x):
        return x
