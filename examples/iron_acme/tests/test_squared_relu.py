"""`SquaredReLU`: its cases on every backend that runs it, its kernel for the CPU, and what it is folded into."""

from __future__ import annotations

from typing import Any

import iron_core as iron
import numpy as np
import pytest
from iron_core import bfloat16
from iron_core.testing import OperatorConformance
from iron_host.backend import HostBackend
from iron_ops_aie import GEMV, ElementwiseAdd

from iron_acme import SquaredReLU

STRICT = HostBackend(strict=True)  # refuses a step that has no kernel


class TestSquaredReLU(OperatorConformance):
    """What every operator keeps: its contract, every backend here, its array and its kernels' C++."""

    operator = SquaredReLU
    name = "acme.SquaredReLU"


class Alone(iron.Graph):
    """The operator by itself."""

    def body(self, x: Any) -> Any:
        return SquaredReLU(x)


class Projected(iron.Graph):
    """Behind a product, in whose cores it runs where folds are taken."""

    def __init__(self) -> None:
        self.w = iron.weight((np.random.default_rng(1).standard_normal((64, 64)) / 8).astype(bfloat16))

    def body(self, x: Any) -> Any:
        return SquaredReLU(GEMV(self.w, x))


class Summed(iron.Graph):
    """Behind an elementwise step, with which it is one kernel of the CPU."""

    def body(self, a: Any, b: Any) -> Any:
        return SquaredReLU(ElementwiseAdd(a, b))


def drawn(size: int, dtype: Any) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(size).astype(dtype)


@pytest.mark.parametrize("case", list(SquaredReLU.test.cases(SquaredReLU)), ids=lambda case: case.id)
@pytest.mark.parametrize("backend", ["reference", "host"])
def test_a_case(case: Any, backend: str) -> None:
    """Within its tolerance; on the CPU by the C++ kernel."""
    op = SquaredReLU(**case.fields)
    x = SquaredReLU.test.draw(op, np.random.default_rng(0))["x"]
    got = Alone().compile(backend=STRICT if backend == "host" else backend, x=(x.shape, x.dtype))(x)
    op.check((got,), (op.reference(x),), x)


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_its_array(dev: str) -> None:
    """A simulated array gives what the reference does, rounded once."""
    x = drawn(4096, bfloat16)
    got = Alone().compile(backend="sim", dev=dev, x=(x.shape, x.dtype))(x)
    assert np.array_equal(got, SquaredReLU(size=x.size).reference(x).astype(bfloat16))


def test_a_product_takes_it_into_its_cores() -> None:
    """One step where there were two, with the same bits."""
    x = drawn(64, bfloat16)
    apart, folded = (Projected().compile(backend="sim", dev="npu2", fold=fold, x=(x.shape, x.dtype)) for fold in (False, True))
    assert "into the finish of gemv0: saves 1 step" in folded.explain()
    assert np.array_equal(apart(x), folded(x))


def test_the_cpu_makes_one_kernel_of_a_chain() -> None:
    """The same with the CPU's kernel, which stands in one loop with the step before it."""
    a, b = drawn(4096, np.float32), drawn(4096, np.float32)[::-1].copy()
    apart, folded = (Summed().compile(backend=STRICT, fold=fold, a=(a.shape, a.dtype), b=(b.shape, b.dtype)) for fold in (False, True))
    assert "saves 1 step" in folded.explain()
    assert np.array_equal(apart(a, b), folded(a, b))
