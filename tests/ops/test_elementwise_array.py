"""The elementwise operators' arrays: which lines and columns there are, and how near their kernels come."""

from __future__ import annotations

import re

import numpy as np
import pytest

from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import ElementwiseAdd, ReLU, Sigmoid, SiLU
from iron_sim.run import simulate
from tests.catalog import ARRAYS, named

ELEMENTWISE = [cls for cls in ARRAYS if cls.elementwise]
NUMBER = re.compile(r"Nearest legal (\w+): (\d+)")


@pytest.mark.parametrize(
    ("cls", "dev", "fields", "sentence"),
    [
        (SiLU, "npu2", dict(size=4800, tile_size=48), r"SiLU: tile_size=48; .* vectors of 32\. Nearest legal tile_size: 32 or 64\."),
        (ElementwiseAdd, "npu1", dict(size=64, tile_size=8), r"tile_size=8; .* of 16\. Nearest legal tile_size: 16\."),
        (ReLU, "npu1", dict(size=1 << 14, tile_size=8192), r"tile_size=8192; .*\. Nearest legal tile_size: 4096\."),
        (ReLU, "npu1", dict(size=4096, num_aie_columns=8), r"num_aie_columns=8 with num_channels=1; .* channels for 4\."),
        (ReLU, "npu2", dict(size=4096, num_channels=2, num_aie_columns=16), r"columns=16 .* Nearest legal num_aie_columns: 8\."),
        (ElementwiseAdd, "npu2", dict(size=8192, num_channels=2, num_aie_columns=8), r"Nearest legal num_aie_columns: 4\."),
        (ReLU, "npu1", dict(size=4096, num_channels=3), r"num_channels=3; a column has 2 channels\. Legal: 1, 2\."),
        (ReLU, "npu2", dict(size=1000), r"size=1000 is not whole lines of tile_size=32 .* Nearest legal size: 992 or 1024"),
        (Sigmoid, "npu1", dict(size=4800, tile_size=48), r"Sigmoid: tile_size=48; .* Nearest legal tile_size: 32 or 64\."),
    ],
)
def test_what_no_array_takes_is_refused(cls, dev, fields, sentence):
    """By keyword, value and rule; the nearest legal value that is named is legal."""
    with pytest.raises(Unresolvable, match=sentence) as refused:
        build(cls(**fields), dev)
    for keyword, number in NUMBER.findall(str(refused.value)):
        build(cls(**{**fields, keyword: int(number)}), dev)


def test_lines_are_as_long_as_the_columns_leave_them():
    """256 numbers, or fewer where so many columns were asked for."""
    tiles = {columns: ReLU(size=1024, num_aie_columns=columns).resolved(device("npu2")).tile_size for columns in (1, 4, 8)}
    assert tiles == {1: 256, 4: 256, 8: 128}
    assert ReLU(size=1024).resolved(device("npu2")).num_aie_columns == 4


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("cls", ELEMENTWISE, ids=named)
def test_a_call_bounds_the_numbers(cls, dev, rng):
    """The first of them come out as composed, and whole lines alone are read and written; one array serves every bound."""
    case = next(c for c in cls.test.cases(cls) if c.fields.get("size") == 4096 and "T" not in c.fields)
    op = cls(**case.fields, tile_size=64, num_aie_columns=2).resolved(device(dev))
    drawn = cls.test.draw(op, rng)
    want = op.composed(*drawn.values())
    for valid in (1, 700, 4096):
        got, poison, stats = simulate(op, dev, drawn, {"valid": valid})
        assert got["y"][:valid].tobytes() == want[:valid].tobytes()
        assert not poison["y"][:valid].any()
        assert all(stats.elements(name) == -(-valid // 128) * 128 for name in drawn)


def test_two_channels_of_two_inputs_need_two_columns():
    """A device of one column has two channels into its cores."""
    with pytest.raises(Unresolvable, match=r"num_channels=2 needs more streams than the shims of npu1_1col have. Legal: 1"):
        build(ElementwiseAdd(size=4096, num_channels=2), "npu1_1col")
    build(ElementwiseAdd(size=4096, num_channels=1), "npu1_1col")


@pytest.mark.parametrize("cls", ELEMENTWISE, ids=named)
def test_tile_references_keep_the_contract(cls, rng):
    """Also where an array is allowed more: the numbers of every size that a float32 product keeps."""
    case = next(c for c in cls.test.cases(cls) if c.fields.get("size") == 4096 and "T" not in c.fields)
    op = cls(**case.fields).resolved(device("npu2"))
    sizes = np.exp(rng.uniform(-40, 40, op.size)) * rng.choice([-1, 1], op.size)
    near = np.linspace(-12, 12, op.size)
    for values in (sizes, near):
        inputs = [np.asarray(values[:: 1 - 2 * i], bfloat16) for i, _ in enumerate(op.inputs)]
        assert op.check(op.composed(*inputs), op.reference(*inputs), *inputs).compared == op.size
