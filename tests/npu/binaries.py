"""Hypothesis's streams: any operations with any values that a stream holds."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import strategies as some

from iron_npu.formats.instructions import Header, Stream
from iron_npu.formats.operations import OPERATIONS, Operation

WORD = some.integers(0, 0xFFFFFFFF)


@some.composite
def operations(draw: Any, header: Header) -> Operation:
    kind = OPERATIONS[draw(some.sampled_from(sorted(OPERATIONS)))]
    bits = {field.name: field.bits for field in kind.fields}
    given: dict[str, Any] = {}
    for field in attrs.fields(kind):
        if field.name == "address":
            column, row = draw(some.integers(0, header.columns - 1)), draw(some.integers(0, header.rows - 1))
            given["address"] = column << 25 | row << 20 | draw(some.integers(0, 0x3FF00)) * 4
        elif field.name == "data":
            given["data"] = tuple(draw(some.lists(WORD, max_size=8)))
        else:
            most = {"direction": 1, "function": 2}.get(field.name, (1 << bits[field.name]) - 1)
            given[field.name] = draw(some.integers(0, most))
    if kind.tail and "address" in given:
        beside = draw(some.booleans())
        given |= {"column": given["address"] >> 25 if beside else 0, "row": given["address"] >> 20 & 31 if beside else 0}
    return kind(**given)


@some.composite
def streams(draw: Any) -> Stream:
    header = Header(draw(some.sampled_from((3, 4))), draw(some.integers(1, 8)), 6, 1)
    return Stream(header, tuple(draw(some.lists(operations(header), max_size=6))))
