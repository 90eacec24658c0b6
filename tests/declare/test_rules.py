"""The rules operators hold their fields to: what is legal nearby, and one sentence where one is broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.devices import device
from iron_core.errors import CallError, Unresolvable
from iron_ops_aie import GEMV, ReLU


class Op(iron.Operator):
    M: int = iron.Param()
    T: Any = iron.DType(default=iron.bfloat16)
    x = iron.In(M, dtype=T)
    y = iron.Out(M, dtype=T)

    def reference(self, x):
        return x


@pytest.mark.parametrize(
    ("value", "legal", "words"),
    [
        (100, 32, "96 or 128"), (96, 32, "96"), (5, 32, "32"), (0, 8, "8"),
        (5, [8, 2, 4], "4 or 8"), (1, [2, 4], "2"), (9, (2, 4), "4"), (3, [], ""),
    ],
)  # fmt: skip
def test_the_nearest_legal_values(value, legal, words):
    """Multiples of a step, from itself on; or of the values given, the next below and above."""
    assert iron.nearest(value, legal) == words


def test_a_rule_that_is_broken_is_said():
    iron.require(True, "Op: never said.")
    with pytest.raises(Unresolvable, match=r"^Op: M=3; legal: 4\.$"):
        iron.require(False, "Op: M=3; legal: 4.")


def test_a_field_is_whole_units():
    """The units in words and in number, the nearest legal values, and further ways out."""
    iron.require_whole(Op(M=96), "M", 32, "tiles of 32")
    with pytest.raises(Unresolvable, match=r"^Op: M=100 is not whole tiles of t=32, 32 in all. Nearest legal M: 96 or 128; or give t=\.$"):
        iron.require_whole(Op(M=100), "M", 32, "tiles of t=32", "give t=")


def test_lanes_are_of_columns_and_channels_that_a_device_has():
    """Where any device is meant, as many columns as one likes; channels are two everywhere."""
    wide = ReLU(size=1 << 16, num_aie_columns=9, num_channels=3)
    iron.require_columns(wide, None)
    iron.require_columns(wide.evolve(num_aie_columns=8), device("npu2"))
    with pytest.raises(Unresolvable, match=r"^ReLU: num_aie_columns=9; npu2 has 8\. Legal: num_aie_columns=8\.$"):
        iron.require_columns(wide, device("npu2"))
    iron.require_channels(wide.evolve(num_channels=2))
    with pytest.raises(Unresolvable, match=r"^ReLU: num_channels=3; a column has 2 channels\. Legal: 1, 2\.$"):
        iron.require_channels(wide)


def test_a_dtype_is_what_an_array_computes_on():
    iron.require_dtype(Op(M=4), iron.bfloat16, "T")
    with pytest.raises(Unresolvable, match=r"^Op: T=float32; its array computes on bfloat16. Legal: T=bfloat16\.$"):
        iron.require_dtype(Op(M=4, T=np.float32), iron.bfloat16, "T")


@pytest.mark.parametrize("dev", ["host", None])
def test_an_array_needs_a_device_that_has_one(dev):
    iron.require_npu(Op(M=4), device("npu1"))
    with pytest.raises(Unresolvable, match=rf"^Op: dev={dev} has no array. Legal: npu1, npu2 and their column variants\.$"):
        iron.require_npu(Op(M=4), dev and device(dev))


GIVEN = {
    "a class": lambda: iron.fold(ReLU, ReLU(size=8)),
    "a class as a step": lambda: iron.fold(ReLU(size=8), ReLU),
    "a number as a step": lambda: iron.prefold(ReLU(size=8), 3),
    "the key of a class": lambda: iron.contract_key(ReLU),
    "the array key of a number": lambda: iron.array_key(3),
    "the label of a number": lambda: iron.label(3),
    "the key of a number of numpy's, which has a base": lambda: iron.contract_key(np.int64(3)),
    "a number of numpy's with a step": lambda: iron.fold(np.int64(3), ReLU(size=8)),
    "the domains of a class": lambda: iron.domains(ReLU, "npu2"),
    "the explanation of a class": lambda: iron.explain(ReLU, "npu2"),
}


@pytest.mark.parametrize("ask", GIVEN.values(), ids=GIVEN)
def test_what_is_asked_of_an_operator_refuses_anything_else(ask):
    """A class is not an operator: it has no fields yet."""
    with pytest.raises(CallError, match=r"of (ReLU|3|np.int64\(3\)); legal: an operator with its fields, as SiLU\(size=64\)"):
        ask()


def test_a_fold_names_an_input_that_there_is():
    """Else the step and its number of inputs are told."""
    with pytest.raises(Unresolvable, match=r"ReLU has no input q; it has 1\."):
        iron.fold(GEMV(M=64, K=64), ReLU(size=64), at="q")
