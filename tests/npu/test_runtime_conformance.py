"""The NPU's backend by the tests that every backend inherits, on a simulated device."""

from __future__ import annotations

import pytest

import iron_core as iron
from iron_core.testing import BackendConformance
from iron_npu.backend import NpuBackend


@pytest.mark.usefixtures("xrt")
class TestNpu(BackendConformance):
    backend, dev, dtype = NpuBackend(), "npu2", iron.bfloat16
