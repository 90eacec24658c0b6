"""A plan kept for npu1 is not npu2's: folds are asked of the arrays of the device that is compiled for."""

from __future__ import annotations

import numpy as np

import iron_core as iron
from iron_core import bfloat16
from iron_ops_aie import GEMV, SiLU


class Activated(iron.Graph):
    def __init__(self):
        self.w = iron.weight(np.ones((256, 256), bfloat16))

    def body(self, x):
        return SiLU(GEMV(self.w, x))


def test_another_device_is_traced_anew(tmp_path, monkeypatch):
    """With one key and fold=True: npu2 finds no plan of npu1's, and the second start on each finds its own."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    traced = []
    trace = iron.Graph.trace
    monkeypatch.setattr(iron.Graph, "trace", lambda self, **shapes: traced.append(1) or trace(self, **shapes))
    for wanted in (1, 0):
        for dev in ("npu1", "npu2"):
            traced.clear()
            compiled = Activated().compile(backend="sim", dev=dev, fold=True, cache_key="model", x=(256,))
            assert len(traced) == wanted
            assert [len(version.folds) for version in compiled.plan.versions] == [1]
