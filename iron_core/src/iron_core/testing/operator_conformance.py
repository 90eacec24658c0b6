"""Everything that an operator keeps, in one class to inherit."""

from __future__ import annotations

from typing import Any

from iron_core.testing.operator_arrays import OperatorArrays
from iron_core.testing.operator_contract import OperatorContract
from iron_core.testing.operator_runs import OperatorRuns


class OperatorConformance(OperatorContract, OperatorRuns, OperatorArrays):
    """Tests of an operator: what it declares, its reference and tolerance, every backend that can run here, its array and kernels.

        class TestSquaredReLU(OperatorConformance):
            operator = SquaredReLU
            name = "acme.SquaredReLU"       # as it is registered
            devices = ("npu2",)             # where its array is for npu2 alone
    """

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """`case`, `place` and `dev`."""
        super().pytest_generate_tests(metafunc)
