"""docs/arrays.md: its operators hold up where the page does not take them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from iron_core.cli.operators import find
from iron_core.declare.chained import fold
from iron_core.devices import device
from iron_ops_aie import GEMM, GEMV
from iron_sim.command import main
from iron_sim.run import simulate
from tests.docs.pages import page

PAGE = page("arrays")


@pytest.fixture(scope="module")
def shortest(tmp_path_factory):
    """The page's first example as a file, and its class as `iron sim` names it."""
    file = tmp_path_factory.mktemp("page") / "positive.py"
    file.write_text(re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)[0])
    return f"{file}:Positive"


def test_the_shortest_array_is_simulated_by_the_command(shortest, capsys):
    """`iron sim` composes its tile references itself: `kernel()` is asked outside of any array()."""
    assert main([shortest, "--dev", "npu1,npu2"]) == 0
    assert "2 simulated, 0 refused, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("product", [GEMV(M=256, K=64), GEMM(M=64, K=64, N=64)], ids=["GEMV", "GEMM"])
def test_the_shortest_array_is_folded_into_a_product(shortest, product):
    """Its kernel on the product's tiles: the array equals the composition, and the sign is as the page says."""
    size = product.C.size
    op = fold(product, find(shortest)(size=size)).resolved(device("npu2"))
    drawn = type(product).test.draw(product, np.random.default_rng(0))
    outputs, poison, _ = simulate(op, "npu2", drawn)
    assert outputs["C"].tobytes() == op.composed(*(drawn.get(o.name) for o in op.inputs)).tobytes()
    assert not poison["C"].any() and (outputs["C"] >= 0).all() and outputs["C"].any()
