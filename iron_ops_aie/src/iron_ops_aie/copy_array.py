"""`Copy` on an array: no cores. Each channel is a shim, a memory tile that passes on, and a shim.

A channel carries the same share of every run both sides step through, so that the k-th element it reads is the k-th it
writes. What passes is cut into objects of `tile_size` elements; a transfer that ends within an object would never end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from iron_core import Pattern
from iron_core.array.descriptors import BdLimits, Descriptor, plan
from iron_core.array.runtime import SHARING
from iron_core.declare.formats import as_format
from iron_core.devices import REPEATS, WORD, device
from iron_core.errors import Unresolvable, UnsupportedError

#: Bytes of the largest object: two of them take a quarter of a memory tile.
OBJECT_BYTES = 64 * 1024
#: Descriptors a pattern may be cut into: they are given a few at a time.
MANY = 1 << 16


def dtype(op: Any) -> np.dtype:
    """What is moved: numbers of `X`, or a block format's bytes."""
    return as_format(op.X).dtype


def packed(op: Any, patterns: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    """Patterns over what is moved."""
    from iron_ops_aie.copy import byte_pattern

    return tuple(byte_pattern(p, op.X) for p in patterns) if as_format(op.X).packed else patterns


# -- patterns ---------------------------------------------------------------------------------------


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


def run(op: Any) -> int:
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
    """Elements of a channel of which every transfer has whole multiples, whatever is bounded (of a gather: its row)."""
    if op.gather:
        return packed(op, op.source)[0].size
    parts = []
    for side, axis in zip(sides(op), (op.src_axis, op.dst_axis), strict=True):
        for p in side:
            parts.append(p.size // channels if axis is None else p.size // p.sizes[axis] // channels)
    return math.gcd(*parts)


def steady(op: Any, channels: int, dev: Any) -> int:
    """Elements of a channel of which every descriptor has whole multiples: what an object may be wherever a copy is cut."""
    found = grain(op, channels)
    if dev is None or op.gather or run(op) % channels:
        return found
    limits = BdLimits.of(device(dev).shim, dtype(op).itemsize)  # type: ignore[arg-type]
    for side, axis in zip(sides(op), (op.src_axis, op.dst_axis), strict=True):
        for pattern in side if axis is None else ():
            try:
                descriptors = plan(share(pattern, run(op), channels, 0), limits.itemsize, limits, most=MANY)
            except UnsupportedError:
                return found  # (what refuses it says so when the sequence is made)
            found = math.gcd(found, *(d.size for d in descriptors))
    return found


def of(op: Any) -> Any:
    """The module of a copy's array: this one, or that of gathers."""
    from iron_ops_aie import copy_array, copy_gather

    return copy_gather if op.gather else copy_array


# -- tunables ---------------------------------------------------------------------------------------


def channels(op: Any, dev: Any) -> int:
    """One channel; of a gather, as many feeds as there may be."""
    from iron_ops_aie import copy_gather

    if dev is None or not op.gather:
        return 1
    return max(copy_gather.legal_feeds(op, device(dev).columns), default=1)


def near(wanted: int, legal: list[int]) -> str:
    """The legal values on both sides of one that is not."""
    below = [n for n in legal if n < wanted]
    above = [n for n in legal if n > wanted]
    return " or ".join(str(n) for n in (*below[-1:], *above[:1]))


def divisors(n: int) -> list[int]:
    """Smallest first."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def legal_tiles(elements: int, itemsize: int) -> list[int]:
    """Objects that divide a channel's transfers, are whole words and fit."""
    return [n for n in divisors(elements) if n * itemsize % WORD == 0 and n * itemsize <= OBJECT_BYTES]


def check(op: Any) -> None:
    """Unresolvable where the copy does not suit its channels and objects, or is none that bytes alone make."""
    from iron_ops_aie import copy_gather

    if op.X != op.Y:
        raise Unresolvable(
            f"Copy: an array moves bytes as they are, and X={_name(op.X)} to Y={_name(op.Y)} makes other numbers. "
            f"Legal: Y={_name(op.X)}; the CPU converts."
        )
    itemsize = dtype(op).itemsize
    if itemsize not in (1, 2, 4):
        raise Unresolvable(f"Copy: X={_name(op.X)} has {itemsize} bytes; an array moves numbers of 1, 2 or 4.")
    if op.gather:
        copy_gather.check(op)
        return
    if (op.src_axis is None) != (op.dst_axis is None):
        given, missing = ("src", "dst") if op.dst_axis is None else ("dst", "src")
        raise Unresolvable(f"Copy: {given}_axis is given and {missing}_axis is not; a bound shortens both sides alike.")
    for what, side, axis in zip(("src", "dst"), sides(op), (op.src_axis, op.dst_axis), strict=True):
        if axis is None:
            continue
        if len(side) > 1:
            raise Unresolvable(f"Copy: {what} is {len(side)} patterns; a bound shortens one. Legal: one pattern.")
        if not 0 <= axis < len(side[0].sizes):
            raise Unresolvable(f"Copy: {what}_axis={axis}; {what}={side[0]} has axes 0 to {len(side[0].sizes) - 1}.")
        if op.num_channels > 1 and axis == len(side[0].sizes) - 1:
            raise Unresolvable(
                f"Copy: num_channels={op.num_channels} share out the innermost axis, which {what}_axis={axis} bounds. "
                "Legal: num_channels=1, or a bound on another axis."
            )
    shared = run(op)
    if shared % op.num_channels:
        raise Unresolvable(
            f"Copy: num_channels={op.num_channels} does not divide the run of {shared} elements that src and dst both step "
            f"through. Nearest legal: num_channels={near(op.num_channels, divisors(shared))}."
        )
    whole = grain(op, op.num_channels)
    tile, words = op.tile_size, WORD // math.gcd(WORD, itemsize)
    legal = legal_tiles(whole, itemsize)
    if not legal:
        raise Unresolvable(
            f"Copy: a channel's transfers are multiples of {whole} elements of {itemsize} bytes, {whole * itemsize} bytes; "
            f"they must be whole {WORD}-byte words. Legal: runs of a multiple of {words} elements, or fewer channels than "
            f"num_channels={op.num_channels}."
        )
    if tile not in legal:
        raise Unresolvable(
            f"Copy: tile_size={tile} is no object of every channel's transfers, which are multiples of {whole} elements; it "
            f"must divide that, be a multiple of {words} and at most {OBJECT_BYTES // itemsize}. Nearest legal: "
            f"tile_size={near(tile, legal)}."
        )


def _name(format: Any) -> str:
    return str(getattr(format, "name", format))


# -- array and sequence -----------------------------------------------------------------------------


def build(op: Any, target: Any) -> None:
    """Fifos of the array; `op` as `array()` sees it."""
    from iron_core.array import ObjectFifo, ObjectType

    most = target.dev.columns * target.dev.shim.channels
    if op.num_channels > most:
        raise Unresolvable(f"Copy: num_channels={op.num_channels}; {target.dev} has {most} shim channels each way.")
    kind = ObjectType.of(op.tile_size, dtype(op))
    for lane in range(op.num_channels):
        into = ObjectFifo(kind, depth=op.x.depth, name=f"x{lane}")
        into.prod(tile=op.x.lane(lane))
        onward = into.cons().forward(depth=op.y.depth, name=f"y{lane}")
        onward.cons(tile=op.y.lane(lane))


def record(op: Any, rt: Any) -> None:
    """The sequence: both sides' transfers of all channels in the order of what they carry, drains first."""
    shared = run(op)
    read, written = sides(op)
    words = _words(op, rt)
    tasks = []
    for channel in range(op.num_channels):
        tasks += [(at, 0, channel, "y", task) for at, task in _tasks(op, rt, "dst", written, shared, channel)]
        tasks += [(at, 1, channel, "x", task) for at, task in _tasks(op, rt, "src", read, shared, channel)]
    # A wait for an earlier transfer then never needs one that is still to be given.
    for _, way, channel, operand, pattern in sorted(tasks, key=lambda task: task[:3]):
        moves, size = words[operand]
        rt.transfer(("drain", "fill")[way], operand, channel, pattern, offset_by=moves, size_by=size, managed=False)


def offset(op: Any, rt: Any, member: str) -> Any:
    """The word that moves an operand by a member's elements, over what is moved."""
    unit = (op.X.block[1], op.X.block_bytes) if as_format(op.X).packed else (1, 1)
    return rt.offset(member, step=WORD // math.gcd(WORD, dtype(op).itemsize), unit=unit)


def _words(op: Any, rt: Any) -> dict[str, tuple[Any, Any]]:
    """Per operand the word that moves it and, under a bound, the (axis, word) that shortens it."""
    found = {}
    bound = {member for member in ("src_valid", "dst_valid") if member in rt.bound}
    if len(bound) == 1:
        raise UnsupportedError(f"Copy: {min(bound)} alone is given per call; a bound shortens both sides alike. Give both.")
    for operand, moves, valid, axis in (("x", "in_offset", "src_valid", "src_axis"), ("y", "out_offset", "dst_valid", "dst_axis")):
        if valid in bound and getattr(op, axis) is None:
            raise UnsupportedError(f"Copy: {valid} is given per call and {axis} is not; it says what is bounded.")
        size = (getattr(op, axis), rt.count(valid)) if valid in bound else None
        found[operand] = (offset(op, rt, moves), size)
    return found


def _tasks(
    op: Any, rt: Any, what: str, patterns: tuple[Pattern, ...], shared: int, channel: int
) -> Iterator[tuple[int, Any]]:
    """A channel's transfers of one side and the element each begins with: descriptors, or a pattern to be bounded."""
    itemsize = dtype(op).itemsize
    limits = BdLimits.of(rt.dev.shim, itemsize)
    # Descriptors of one transfer; where a call moves it, each is one of its own.
    moves = {"src": "in_offset", "dst": "out_offset"}[what]
    most = 1 if moves in rt.bound else limits.descriptors // SHARING
    at = 0
    for pattern in patterns:
        part = share(pattern, shared, op.num_channels, channel)
        if f"{what}_valid" in rt.bound:
            yield at, part
            continue
        try:
            descriptors = plan(part, itemsize, limits, most=MANY)
        except UnsupportedError as error:
            raise UnsupportedError(f"Copy: {what}, channel {channel} of {op.num_channels}: {error}") from None
        held: list[Descriptor] = []
        for descriptor in descriptors:
            held.append(descriptor)
            moved = sum(d.size for d in held)
            if moved % op.tile_size == 0:
                yield at, tuple(held)
                at, held = at + moved, []
            elif len(held) == most:
                raise UnsupportedError(
                    f"Copy: {what}={pattern} takes {len(descriptors)} descriptors, and {most} of them, all that one transfer "
                    f"may have, are {moved} elements, not whole objects of tile_size={op.tile_size}. Nearest legal: "
                    f"tile_size={near(op.tile_size, divisors(math.gcd(*(d.size for d in descriptors))))}."
                )
