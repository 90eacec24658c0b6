"""The NPU's backend by the tests that every backend inherits, on a simulated device."""

from __future__ import annotations

import pytest

import iron_core as iron
from iron_npu.backend import NpuBackend
from tests.backends.conformance import Conformance


@pytest.mark.usefixtures("xrt")
class TestNpu(Conformance):
    backend, dev, dtype = NpuBackend(), "npu2", iron.bfloat16
