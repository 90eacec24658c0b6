"""The backends there are, and one of a page, by the tests that every backend inherits."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.reference import ReferenceBackend
from iron_core.errors import CallError, UnsupportedError
from iron_core.testing import BackendConformance
from iron_host.backend import HostBackend
from iron_ops_aie import SiLU
from iron_sim.backend import SimBackend
from tests.backends import tiny_backend
from tests.backends.tiny_backend import TinyBackend


class TestReference(BackendConformance):
    backend = ReferenceBackend()


class TestHost(BackendConformance):
    backend = HostBackend(threads=2)


class TestSim(BackendConformance):
    backend, dev, dtype = SimBackend(), "npu2", iron.bfloat16


class TestTiny(BackendConformance):
    backend = TinyBackend(most=1000)

    def test_it_has_options_and_limits_of_its_own(self) -> None:
        """As any backend's: checked where it is made, and steps that it does not take are named."""
        with pytest.raises(CallError, match="most=0; legal: 1 or more"):
            TinyBackend(most=0)

        class Smooth(iron.Graph):
            def body(self, x: Any) -> Any:
                return SiLU(x)

        with pytest.raises(UnsupportedError, match=r"SiLU .*it computes ElementwiseAdd, ElementwiseMul, ReLU"):
            Smooth().compile(backend=TinyBackend(), x=((4,), np.float32))

    def test_it_is_a_page(self) -> None:
        """What a backend has to bring."""
        assert len(inspect.getsource(tiny_backend).splitlines()) <= 110
