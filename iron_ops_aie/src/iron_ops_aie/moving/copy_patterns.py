"""The patterns of a `Copy`: what it reads and writes, over what is moved, and how channels share them out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iron_core import Format, Pattern
from iron_core.array.descriptors import BdLimits, plan
from iron_core.declare.formats import as_format
from iron_core.devices import REPEATS, WORD, device
from iron_core.errors import ParamError, ShapeError, Unresolvable
from iron_ops_aie.rules import divisors

#: Bytes of the largest object: two of them take a quarter of a memory tile.
OBJECT_BYTES = 64 * 1024
#: Descriptors a pattern may be cut into: they are given a few at a time.
MANY = 1 << 16


def byte_pattern(pattern: Pattern, format: Format) -> Pattern:
    """A pattern over the logical elements of a block format as one over its bytes; ParamError unless whole blocks."""
    if not format.by_rows:
        raise ParamError(f"Copy: rows of {format.name} do not stand by themselves, so no part of it is moved. Dequant makes numbers.")
    try:
        return pattern.in_units(format.block[1], format.block_bytes)
    except ShapeError as error:
        raise ParamError(f"Copy: of {format.name}, {error}") from None


def dtype(op: Any) -> np.dtype:
    """What is moved: numbers of `X`, or a block format's bytes."""
    return as_format(op.X).dtype


def packed(op: Any, patterns: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """Patterns over what is moved."""
    return tuple(byte_pattern(p, op.X) for p in patterns) if as_format(op.X).packed else patterns


def joined(pattern: Pattern) -> Pattern:
    """The same walk with as few dimensions as there can be: none of 1, no two that step as one."""
    dims: list[tuple[int, int]] = []
    for n, stride in zip(pattern.sizes, pattern.strides, strict=True):
        if n == 1:
            continue
        if dims and dims[-1][1] == n * stride:
            n *= dims.pop()[0]
        dims.append((n, stride))
    sizes, strides = zip(*(dims or [(1, 1)]), strict=True)
    return Pattern(pattern.offset, sizes, strides)


def chained(patterns: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """Alike patterns whose offsets step evenly as one pattern, twice: rows make runs, and runs a grid."""
    return _runs(_runs(tuple(joined(p) for p in patterns if p.size)))


def _runs(patterns: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    made = []
    at = 0
    while at < len(patterns):
        first = patterns[at]
        step = patterns[at + 1].offset - first.offset if at + 1 < len(patterns) else -1
        # A descriptor steps forward only, and stands still in its outermost dimension alone.
        most = len(patterns) if step > 0 else REPEATS if step == 0 else 1
        count = 1
        while count < most and at + count < len(patterns) and 0 not in first.strides:
            other = patterns[at + count]
            if (other.sizes, other.strides, other.offset) != (first.sizes, first.strides, first.offset + count * step):
                break
            count += 1
        made.append(joined(Pattern(first.offset, (count, *first.sizes), (step, *first.strides))) if count > 1 else first)
        at += count
    return tuple(made)


def sides(op: Any) -> tuple[tuple[Pattern, ...], tuple[Pattern, ...]]:
    """What is read and what is written, over what is moved, as few patterns as can be. A bounded side is as it was given."""
    made = []
    for patterns, axis in ((op.source, op.src_axis), (op.target, op.dst_axis)):
        whole = packed(op, patterns)
        made.append(chained(whole) if axis is None else whole)
    return made[0], made[1]


def common_run(op: Any) -> int:
    """Elements that every pattern steps through at a time: what channels share out."""
    return math.gcd(*(p.sizes[-1] for side in sides(op) for p in side if p.sizes))


def share(pattern: Pattern, run: int, channels: int, channel: int) -> Pattern:
    """The part of every run of a pattern that one channel carries."""
    if channels == 1 or not pattern.sizes:
        return pattern
    *outer, n = pattern.sizes
    stride, part = pattern.strides[-1], run // channels
    return Pattern(
        pattern.offset + channel * part * stride,
        (*outer, n // run, part),
        (*pattern.strides[:-1], run * stride, stride),
    )


def grain(op: Any, channels: int) -> int:
    """Elements of a channel of which every transfer has whole multiples, whatever is bounded (of a gather: its row).

    Under a bound that is one unit of the bounded axis: dimensions outside it are executions of their own.
    """
    if op.gather:
        return packed(op, op.source)[0].size
    parts = []
    for side, axis in zip(sides(op), (op.src_axis, op.dst_axis), strict=True):
        for p in side:
            parts.append((p.size if axis is None else math.prod(p.sizes[axis + 1 :])) // channels)
    return math.gcd(*parts)


def steady(op: Any, channels: int, dev: Any) -> int:
    """Elements of a channel of which every descriptor has whole multiples: what an object may be wherever a copy is cut."""
    found, run = grain(op, channels), 0 if op.gather else common_run(op)
    if dev is None or op.gather or run % channels:
        return found
    limits = BdLimits.of(device(dev).shim, dtype(op).itemsize)  # type: ignore[arg-type]
    for side, axis in zip(sides(op), (op.src_axis, op.dst_axis), strict=True):
        for pattern in side if axis is None else ():
            try:
                descriptors = plan(share(pattern, run, channels, 0), limits, most=MANY)
            except Unresolvable:
                return found  # (what refuses it says so when the sequence is made)
            found = math.gcd(found, *(d.size for d in descriptors))
    return found


def offset(op: Any, rt: Any, member: str) -> Any:
    """The word that moves an operand by a member's elements, over what is moved."""
    unit = (op.X.block[1], op.X.block_bytes) if as_format(op.X).packed else (1, 1)
    return rt.offset(member, step=word_elements(op), unit=unit)


def word_elements(op: Any) -> int:
    """Elements moved that are whole 4-byte words."""
    return max(1, WORD // dtype(op).itemsize)


def largest_object(op: Any) -> int:
    """Elements of the largest object."""
    return OBJECT_BYTES // dtype(op).itemsize


def legal_tiles(elements: int, itemsize: int) -> list[int]:
    """Objects that divide a channel's transfers, are whole words and fit."""
    return [n for n in divisors(elements) if n * itemsize % WORD == 0 and n * itemsize <= OBJECT_BYTES]
