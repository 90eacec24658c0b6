"""Every case of the operators that declare arrays, printed for both devices: the text holds together, equal arrays are equal text."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

import iron_ops_aie
from iron_npu.catalog import Item, items
from iron_npu.structural import check

OPERATORS = ("ElementwiseAdd", "SiLU", "ReLU", "GEMV", "GEMM", "MHA", "Copy")
DEVICES = ("npu1", "npu2")


@cache
def catalog(name: str) -> tuple[Item, ...]:
    return tuple(items([getattr(iron_ops_aie, name)], DEVICES))


@pytest.mark.parametrize("name", OPERATORS)
def test_every_case_holds_together(name):
    printed = Counter()
    for item in catalog(name):
        if item.printed is None:
            assert item.refused
            continue
        assert check(item.printed.text) == (), item.name
        printed[item.dev] += 1
    assert printed["npu2"] and (printed["npu1"] or name == "MHA"), printed


@pytest.mark.parametrize("name", OPERATORS)
def test_only_the_sequence_follows_how_a_call_is_made(name):
    """Cases of one array print one device, whatever their extents and members are."""
    devices: dict[object, str] = {}
    for item in catalog(name):
        if item.printed is not None:
            found = re.search(r"aie\.device.*?(?=\n    aie\.runtime_sequence)", item.printed.text, re.S)
            assert found and item.array_key is not None
            assert devices.setdefault((item.dev, item.array_key), found[0]) == found[0], item.name
