"""The rules operators hold their fields to: what is legal nearby, and one sentence where one is broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.devices import device
from iron_core.errors import Unresolvable


class Op(iron.Operator):
    M: int = iron.Param()
    T: Any = iron.DType(default=iron.bfloat16)
    x = iron.In(M, dtype=T)


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


def test_a_dtype_is_what_an_array_computes_on():
    iron.require_dtype(Op(M=4), iron.bfloat16, "T")
    with pytest.raises(Unresolvable, match=r"^Op: T=float32; its array computes on bfloat16. Legal: T=bfloat16\.$"):
        iron.require_dtype(Op(M=4, T=np.float32), iron.bfloat16, "T")


@pytest.mark.parametrize("dev", ["host", None])
def test_an_array_needs_a_device_that_has_one(dev):
    iron.require_npu(Op(M=4), device("npu1"))
    with pytest.raises(Unresolvable, match=rf"^Op: dev={dev} has no array. Legal: npu1, npu2 and their column variants\.$"):
        iron.require_npu(Op(M=4), dev and device(dev))
