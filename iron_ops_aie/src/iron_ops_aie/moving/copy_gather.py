"""`Copy` of a table's rows by ids, on an array: descriptors that a call's ids have written through a control port.

Feed k takes two columns. What the host makes of the ids (see `iron_core.array.gather`) leaves the shim of column 2k + 1 and
writes descriptors of the shim of column 2k; the rows these read pass a memory tile and leave by column 2k + 1 into y.
"""

from __future__ import annotations

from typing import Any

from iron_core import Lane, ObjectFifo, ObjectType, Pattern, Tile, nearest, require
from iron_core.array.control import ControlFlow
from iron_core.array.descriptors import BdLimits, plan
from iron_core.array.gather import BATCH, Gather
from iron_core.devices import QUEUE, SHARING, WORD
from iron_core.errors import Unresolvable
from iron_ops_aie.moving.copy_patterns import MANY, chained, dtype, largest_object, legal_tiles, offset, packed, word_elements

#: Feeds there may be: more would not read faster.
FEEDS = 4


def row(op: Any) -> int:
    """Elements moved of one row."""
    return packed(op, op.source)[0].size


def gather(op: Any, feeds: int) -> Gather:
    """The gather that so many feeds share."""
    return Gather("x", op.table_rows, op.rows, row(op) * dtype(op).itemsize, feeds)


def legal_feeds(op: Any, columns: int = 2 * FEEDS) -> list[int]:
    """Numbers of feeds that leave none without rows."""
    return [n for n in range(1, min(FEEDS, columns // 2) + 1) if gather(op, n).share(n - 1)[1]]


def check(op: Any, dev: Any) -> None:
    """Unresolvable where the rows, the feeds or the objects are none an array moves."""
    itemsize, wide = dtype(op).itemsize, row(op)
    size = wide * itemsize
    require(
        size % WORD == 0,
        f"Copy: a row of the table is {wide} elements, {size} bytes; a gathered row must be whole {WORD}-byte words. "
        f"Nearest legal: rows of {nearest(size, WORD)} bytes.",
    )
    bound = op.src_axis is not None or op.dst_axis is not None
    require(not bound, "Copy: a gather takes its ids whole; a bound on them is refused on an array. Legal: no axis bounded.")
    feeds = legal_feeds(op)
    require(
        op.num_channels in feeds,
        f"Copy: num_channels={op.num_channels} feeds for {op.rows} rows; a feed takes whole batches of {BATCH}, and there are at "
        f"most {FEEDS}. Nearest legal: num_channels={nearest(op.num_channels, feeds)}.",
    )
    pairs = dev.columns // 2 if dev is not None else op.num_channels
    require(
        op.num_channels <= pairs,
        f"Copy: num_channels={op.num_channels} feeds of a gather take two columns each; {dev} has "
        f"{getattr(dev, 'columns', 0)}. Legal: {f'num_channels={pairs}' if pairs else 'a device of two columns or more'}.",
    )
    words, legal = word_elements(op), legal_tiles(wide, itemsize)
    require(
        op.tile_size in legal,
        f"Copy: tile_size={op.tile_size} is no object of a gathered row of {wide} elements; it must divide that, be a "
        f"multiple of {words} and at most {largest_object(op)}. Nearest legal: tile_size={nearest(op.tile_size, legal)}.",
    )


def build(op: Any) -> None:
    """Fifos and control flows of the array; `op` as `array()` sees it."""
    kind = ObjectType.of(op.tile_size, dtype(op))
    for feed in range(op.num_channels):
        reads, writes = Tile("shim", col=2 * feed), Tile("shim", col=2 * feed + 1)
        rows = ObjectFifo(kind, depth=op.x.depth, name=f"rows{feed}")
        rows.prod(tile=reads)
        onward = rows.cons().forward(tile=Tile("mem", col=2 * feed), depth=op.y.depth, name=f"y{feed}")
        onward.cons(tile=op.y.lane(feed, writes))
        ControlFlow(Lane("ids", feed, writes), reads, rows, name=f"control{feed}")


def record(op: Any, rt: Any) -> None:
    """The sequence: everything is drained first; a batch goes out when the one before last, whose descriptors it takes, is done."""
    for member in ("in_offset", "src_valid", "dst_valid"):
        if member in rt.bound:
            raise Unresolvable(f"Copy: {member} is given per call; a gather on an array takes whole ids of a table in place.")
    made = gather(op, op.num_channels)
    rt.control("ids", made)
    for feed in range(op.num_channels):
        for descriptors in _drains(op, rt, made, feed):
            rt.drain("y", feed, descriptors, wait=True, offset_by=offset(op, rt, "out_offset"))
    parts = [made.parts(feed) for feed in range(op.num_channels)]
    sent: dict[tuple[int, int], Any] = {}
    for number in range(max(map(len, parts)) + 2):
        for feed, words in enumerate(parts):
            if 2 <= number < len(words) + 2:
                rt.await_token(f"rows{feed}")
                sent.pop((feed, number - 2)).finish()
            if number < len(words):
                at, count = words[number]
                group = sent[feed, number] = rt.group()
                rt.fill("ids", feed, Pattern(at, (count,), (1,)), group=group)


def _drains(op: Any, rt: Any, made: Gather, feed: int) -> list[Any]:
    """What a feed writes, as descriptors of each transfer. All of them are under way at once."""
    limits = BdLimits.of(rt.dev.shim, dtype(op).itemsize)
    first, count = made.share(feed)
    wide = row(op)
    pieces = chained(tuple(part(packed(op, op.target), first * wide, (first + count) * wide)))
    try:
        descriptors = [d for p in pieces for d in plan(p, limits, most=MANY)]
    except Unresolvable as error:
        raise Unresolvable(f"Copy: dst, feed {feed} of {op.num_channels}: {error}") from None
    most = min(QUEUE, limits.descriptors // SHARING)
    if len(descriptors) > most:
        raise Unresolvable(
            f"Copy: dst of a gather's feed takes {len(descriptors)} descriptors, and {most} can be under way at once. Legal: a "
            "dst that steps evenly, or a contiguous one and a copy after it."
        )
    return [(d,) for d in descriptors] if "out_offset" in rt.bound else [tuple(descriptors)]


def part(patterns: tuple[Pattern, ...], start: int, stop: int) -> list[Pattern]:
    """The elements `start` to `stop` of a walk, as patterns."""
    found = []
    at = 0
    for pattern in patterns:
        low, high = max(start - at, 0), min(stop - at, pattern.size)
        if low < high:
            found += _within(pattern, low, high)
        at += pattern.size
    return found


def _within(pattern: Pattern, low: int, high: int) -> list[Pattern]:
    if (low, high) == (0, pattern.size):
        return [pattern]
    (n, *sizes), (stride, *strides) = pattern.sizes, pattern.strides
    each = pattern.size // n
    inner = Pattern(pattern.offset, tuple(sizes), tuple(strides))
    first, last = -(-low // each), high // each
    if first > last:
        return _within(inner.shifted(last * stride), low - last * each, high - last * each)
    found = []
    if low % each:
        found += _within(inner.shifted((first - 1) * stride), low % each, each)
    if first < last:
        found.append(Pattern(pattern.offset + first * stride, (last - first, *sizes), pattern.strides))
    if high % each:
        found += _within(inner.shifted(last * stride), 0, high % each)
    return found
