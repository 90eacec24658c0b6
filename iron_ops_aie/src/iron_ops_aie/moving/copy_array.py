"""The array of `Copy`: no cores. Each channel is a shim, a memory tile that passes on, and a shim.

A channel carries the same share of every run both sides step through, so that the k-th element it reads is the k-th it
writes. What passes is cut into objects of `tile_size` elements; a transfer that ends within an object would never end.
For a gather see `copy_gather`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from iron_core import ObjectFifo, ObjectType, Pattern, nearest, require
from iron_core.array.descriptors import BdLimits, Descriptor, plan
from iron_core.devices import SHARING, WORD
from iron_core.errors import Unresolvable
from iron_ops_aie.moving import copy_gather
from iron_ops_aie.moving.copy_patterns import (
    MANY,
    common_run,
    dtype,
    grain,
    joined,
    largest_object,
    legal_tiles,
    offset,
    share,
    sides,
    steady,
    word_elements,
)
from iron_ops_aie.rules import divisors


class CopyArray:
    """How a `Copy` is moved by an array."""

    def resolve(self: Any, dev: Any) -> Any:
        """One channel, or for a gather as many feeds as there may be; the largest object that divides every transfer."""
        feeds = copy_gather.legal_feeds(self, dev.columns) if self.gather and dev is not None else ()
        channels = self.num_channels or max(feeds, default=1)
        tiles = legal_tiles(steady(self, channels, dev), dtype(self).itemsize)
        return self.evolve(num_channels=channels, tile_size=self.tile_size or max(tiles, default=1))

    def compatible(self: Any, dev: Any) -> None:
        """Unresolvable unless y is the same bytes as x, and channels and objects divide what is moved."""
        x, y, itemsize = self.X.name, self.Y.name, dtype(self).itemsize
        require(
            self.X == self.Y,
            f"Copy: an array moves bytes as they are, and X={x} to Y={y} makes other numbers. Legal: Y={x}; the CPU converts.",
        )
        require(itemsize in (1, 2, 4), f"Copy: X={x} has {itemsize} bytes; an array moves numbers of 1, 2 or 4.")
        if self.gather:
            copy_gather.check(self, dev)
            return
        most = dev.columns * dev.shim.channels if dev is not None else self.num_channels
        require(
            self.num_channels <= most,
            f"Copy: num_channels={self.num_channels}; {dev} has {most} shim channels each way. Legal: num_channels={most}.",
        )
        _in_words(self)
        _bounds_agree(self)
        run = common_run(self)
        require(
            run % self.num_channels == 0,
            f"Copy: num_channels={self.num_channels} does not divide the run of {run} elements that src and dst both step "
            f"through. Nearest legal: num_channels={nearest(self.num_channels, divisors(run))}.",
        )
        whole = grain(self, self.num_channels)
        words, legal = word_elements(self), legal_tiles(whole, itemsize)
        fewer = (n for n in divisors(run) if n < self.num_channels and legal_tiles(grain(self, n), itemsize))
        most = max(fewer, default=0)
        require(
            legal,
            f"Copy: num_channels={self.num_channels}: a channel's transfers are multiples of {whole} elements of {itemsize} bytes, "
            f"{whole * itemsize} bytes; they must be whole {WORD}-byte words. "
            f"Legal: {f'num_channels={most}' if most else f'runs of a multiple of {words} elements'}.",
        )
        require(
            self.tile_size in legal,
            f"Copy: tile_size={self.tile_size} is no object of every channel's transfers, which are multiples of {whole} "
            f"elements; it must divide that, be a multiple of {words} and at most {largest_object(self)}. Nearest legal: "
            f"tile_size={nearest(self.tile_size, legal)}.",
        )

    def array(self: Any, target: Any) -> None:
        if self.gather:
            copy_gather.build(self)
            return
        kind = ObjectType.of(self.tile_size, dtype(self))
        for lane in range(self.num_channels):
            into = ObjectFifo(kind, depth=self.x.depth, name=f"x{lane}")
            into.prod(tile=self.x.lane(lane))
            onward = into.cons().forward(depth=self.y.depth, name=f"y{lane}")
            onward.cons(tile=self.y.lane(lane))

    def sequence(self: Any, rt: Any) -> None:
        """Both sides' transfers of all channels in the order of what they carry, drains first."""
        rt.preamble()
        if self.gather:
            copy_gather.record(self, rt)
            return
        run = common_run(self)
        read, written = sides(self)
        words = _words(self, rt)
        tasks = []
        for channel in range(self.num_channels):
            tasks += [(at, 0, channel, "y", task) for at, task in _tasks(self, rt, "dst", written, run, channel)]
            tasks += [(at, 1, channel, "x", task) for at, task in _tasks(self, rt, "src", read, run, channel)]
        # A wait for an earlier transfer then never needs one that is still to be given.
        for _, way, channel, operand, pattern in sorted(tasks, key=lambda task: task[:3]):
            moves, size = words[operand]
            rt.transfer(("drain", "fill")[way], operand, channel, pattern, offset_by=moves, size_by=size, managed=False)

    def composed(self: Any, *inputs: Any, **rest: Any) -> Any:
        """A mover computes nothing: what it moves is the reference."""
        return self.reference(*inputs, **rest)


def _in_words(op: Any) -> None:
    """Unresolvable where numbers smaller than a word are moved across rows, one by one or from the middle of a word."""
    itemsize = dtype(op).itemsize
    across = "Legal: Transpose, which makes rows of columns; Copy takes rows at any step."
    for what, side in zip(("src", "dst"), sides(op), strict=True):
        for pattern in map(joined, side if itemsize < WORD else ()):
            *rows, (run, step) = zip(pattern.sizes, pattern.strides, strict=True)
            require(
                run == 1 or step == 1,
                f"Copy: {what}={pattern}: an innermost stride of {step}; numbers of {itemsize} bytes must be consecutive, stride 1, for "
                f"an array moves whole {WORD}-byte words. {across}",
            )
            # Rows that are no whole words themselves are none as columns either.
            if not rows or any(stride * itemsize % WORD for _, stride in rows):
                continue
            for name, n in (("offset", pattern.offset), ("run", run)):
                require(
                    n * itemsize % WORD == 0,
                    f"Copy: {what}={pattern}: {name} {n} is {n * itemsize} bytes; every {name} must be whole {WORD}-byte words. {across}",
                )


def _bounds_agree(op: Any) -> None:
    """Unresolvable where a bound shortens one side alone, several patterns, or what the channels share out."""
    given, missing = ("src", "dst") if op.dst_axis is None else ("dst", "src")
    both = (op.src_axis is None) == (op.dst_axis is None)
    require(both, f"Copy: {given}_axis is given and {missing}_axis is not; a bound shortens both sides alike.")
    for what, side, axis in zip(("src", "dst"), sides(op), (op.src_axis, op.dst_axis), strict=True):
        if axis is None:
            continue
        require(len(side) == 1, f"Copy: {what} is {len(side)} patterns; a bound shortens one. Legal: one pattern.")
        last = len(side[0].sizes) - 1
        require(0 <= axis <= last, f"Copy: {what}_axis={axis}; {what}={side[0]} has axes 0 to {last}.")
        require(
            op.num_channels == 1 or axis != last,
            f"Copy: num_channels={op.num_channels} share out the innermost axis, which {what}_axis={axis} bounds. "
            "Legal: num_channels=1, or a bound on another axis.",
        )


def _words(op: Any, rt: Any) -> dict[str, tuple[Any, Any]]:
    """Per operand the word that moves it and, under a bound, the (axis, word) that shortens it."""
    found = {}
    bound = {member for member in ("src_valid", "dst_valid") if member in rt.bound}
    if len(bound) == 1:
        raise Unresolvable(f"Copy: {min(bound)} alone is given per call; a bound shortens both sides alike. Give both.")
    for operand, moves, valid, axis in (("x", "in_offset", "src_valid", "src_axis"), ("y", "out_offset", "dst_valid", "dst_axis")):
        if valid in bound and getattr(op, axis) is None:
            raise Unresolvable(f"Copy: {valid} is given per call and {axis} is not; it says what is bounded.")
        size = (getattr(op, axis), rt.count(valid)) if valid in bound else None
        found[operand] = (offset(op, rt, moves), size)
    return found


def _tasks(op: Any, rt: Any, what: str, patterns: tuple[Pattern, ...], run: int, channel: int) -> Iterator[tuple[int, Any]]:
    """A channel's transfers of one side and the element each begins with: descriptors, or a pattern to be bounded."""
    limits = BdLimits.of(rt.dev.shim, dtype(op).itemsize)
    # Descriptors of one transfer; where a call moves it, each is one of its own.
    moves = {"src": "in_offset", "dst": "out_offset"}[what]
    most = 1 if moves in rt.bound else limits.descriptors // SHARING
    at = 0
    for pattern in patterns:
        part = share(pattern, run, op.num_channels, channel)
        if f"{what}_valid" in rt.bound:
            yield at, part
            continue
        try:
            descriptors = plan(part, limits, most=MANY)
        except Unresolvable as error:
            raise Unresolvable(f"Copy: {what}, channel {channel} of {op.num_channels}: {error}") from None
        held: list[Descriptor] = []
        for descriptor in descriptors:
            held.append(descriptor)
            moved = sum(d.size for d in held)
            if moved % op.tile_size == 0:
                yield at, tuple(held)
                at, held = at + moved, []
            elif len(held) == most:
                raise Unresolvable(
                    f"Copy: {what}={pattern} takes {len(descriptors)} descriptors, and {most} of them, all that one transfer "
                    f"may have, are {moved} elements, not whole objects of tile_size={op.tile_size}. Nearest legal: "
                    f"tile_size={nearest(op.tile_size, divisors(math.gcd(*(d.size for d in descriptors))))}."
                )
