"""Every case of the operators that declare arrays, printed for both devices: the text holds together, equal arrays are equal text."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

from iron_npu.catalog import Item, items
from tests.catalog import ARRAYS, families, named
from tests.npu.structural import check

DEVICES = ("npu1", "npu2")


@cache
def catalog(cls: type) -> tuple[Item, ...]:
    return tuple(items([cls], DEVICES))


@pytest.mark.parametrize("cls", ARRAYS, ids=named)
def test_every_case_holds_together(cls):
    printed = Counter()
    for item in catalog(cls):
        if item.printed is None:
            assert item.refused
            continue
        assert check(item.printed.text) == (), item.name
        printed[item.dev] += 1
    assert all(printed[dev] for dev in families(cls)), printed


@pytest.mark.parametrize("cls", ARRAYS, ids=named)
def test_only_the_sequence_follows_how_a_call_is_made(cls):
    """Cases of one array print one device, whatever their extents and members are."""
    devices: dict[object, str] = {}
    printed = [item for item in catalog(cls) if item.printed is not None]
    for item in printed:
        found = re.search(r"aie\.device.*?(?=\n    aie\.runtime_sequence)", item.printed.text, re.S)
        assert found and item.array_key is not None
        assert devices.setdefault((item.dev, item.array_key), found[0]) == found[0], item.name
    assert len(devices) < len(printed) or not (cls.extents or cls.scratchpads), "else nothing was compared"
