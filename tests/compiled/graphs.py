"""Graphs that the tests of compiled graphs share."""

from __future__ import annotations

import numpy as np

import iron_core as iron
from iron_ops_aie import GEMM, Copy

F32 = np.float32


class Project(iron.Graph):
    """The first `n` rows of `x`, projected by `w`."""

    def __init__(self, w):
        self.w = iron.weight(w)

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return GEMM(x[:n], self.w, b_col_maj=True)


class Walk(iron.Graph):
    """Follows `successor` from node to node, noting the way."""

    def __init__(self, successor):
        self.successor = iron.weight(np.asarray(successor, np.int32).reshape(-1, 1))
        self.way = iron.state((8, 1), np.int32)

    def body(self, *, node: iron.Carried[np.int32], steps: iron.Carried[np.int32]):
        here = Copy(self.successor[node])
        Copy(here, self.way[steps])
        return iron.carry(node=here, steps=steps + 1)
