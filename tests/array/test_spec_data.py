"""Designs changed by hand: every rule about tiles, fifos, links, memory and lanes refuses what breaks it, by name and value."""

from __future__ import annotations

import attrs
import pytest

from iron_core.array import Buffer, Lane, Lock, ObjectFifo, Tile, Worker
from iron_core.array.builder import building
from iron_core.array.design import LaneData, LinkData, LockData, TileData, ValueData
from iron_core.array.spec import check
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError

LINE, HALF = ObjectType.of(64, "int32"), ObjectType.of(32, "int32")


def passing(a, y, *more):
    a.acquire()
    y.acquire()
    a.release()
    y.release()


@pytest.fixture(scope="module")
def array():
    """shim -a-> memory tile -left, right-> two cores -t, u-> memory tile -y-> shim, with a buffer, words and a lock."""
    with building() as parts:
        a, y = ObjectFifo(LINE, name="a"), ObjectFifo(LINE, name="y")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))
        left, right = a.cons().split([0, 32], [HALF, HALF], names=["left", "right"])
        t, u = y.prod().join([0, 32], [HALF, HALF], names=["t", "u"])
        where = Tile("core", 0, 2)
        extra = [Buffer(4, "int32", name="kept"), Buffer(2, "int32", name="words", use_write_rtp=True)]
        Lock(name="turn", tile=where)
        Worker(passing, [left.cons(), t.prod(), *extra], name="core0", tile=where)
        Worker(passing, [right.cons(), u.prod()], name="core1")
        parts.bind("n", "words", 1)
    return parts.freeze("Made", "npu2")


def with_one(array, kind, name, /, **changes):
    """The array with one part of `kind` changed; named None: the only or first one."""
    parts = getattr(array, kind)
    chosen = next(p for p in parts if name is None or p.name == name)
    return attrs.evolve(array, **{kind: tuple(attrs.evolve(p, **changes) if p is chosen else p for p in parts)})


def linked(array, *args):
    """The array with one more link, before its others."""
    return attrs.evolve(array, links=(LinkData(*args), *array.links))


def test_the_array_is_well_formed(array):
    check(array)


FIFO = [
    ("a", dict(producer="nowhere"), "fifo a: nowhere is no tile of Made"),
    ("a", dict(consumers=("shim1",)), "fifo a goes from shim to shim; a sequence could not tell its ends apart"),
    ("left", dict(consumers=("core0", "core0")), r"fifo left has two consumers on one tile; .* Give it one cons\(\)"),
    ("y", dict(consumers=("shim0", "shim1")), "fifo y has 2 consumers on shims; legal: one"),
    ("a", dict(depth=0), "fifo a: depth=0; legal: a number of at least 1, or one for each of 2 ends"),
    ("a", dict(depth=(2, 0)), r"fifo a: depth=\(2, 0\); legal: a number of at least 1"),
    ("a", dict(depth=(2, 2, 2)), r"fifo a: depth=\(2, 2, 2\); legal: .* one for each of 2 ends"),
    ("left", dict(from_stream=((), ())), "fifo left: 2 orders from the stream for 1 consumers"),
    ("a", dict(to_stream=((64, 1),)), "fifo a: dims_to_stream on a shim; there the pattern of each fill says what is sent"),
    ("a", dict(repeat=2), "fifo a: repeat_count on a shim"),
    ("a", dict(init=((0,) * 64,)), "fifo a: init_values on a shim"),
    ("y", dict(from_stream=(((64, 1),),)), "fifo y: dims_from_stream on a shim; there the pattern of each drain says where data goes"),
    ("left", dict(repeat=0), "fifo left: repeat_count=0; legal: at least 1"),
    ("left", dict(consumers=("free",)), "fifo left has an end on free, where no worker runs"),
    ("left", dict(pad_value=3), "fifo left: pad_value=3 without pad_dimensions"),
    ("t", dict(pad=((0, 1),), to_stream=((32, 1),)), "fifo t: pad_dimensions on a core tile; legal: a producer on a memory tile"),
    ("left", dict(pad=((0, 0), (0, 1)), to_stream=((32, 1),)), "fifo left: 2 pad_dimensions for 1 dims_to_stream; legal: one for each"),
    ("left", dict(pad=((0, 1),), to_stream=((32, 1),)), "fifo left: padded, dims_to_stream sends 33 elements; its objects have 32"),
    ("t", dict(init=((0,) * 32,)), "fifo t: 1 init_values for depth=2; legal: one for each object"),
    ("t", dict(init=((0,) * 32, (0,) * 31)), "fifo t: init_values of 31 numbers; an object is 32 int32"),
    ("left", dict(consumer_type=ObjectType.of(24, "int32")), "fifo left: consumer_type=24 int32; legal: int32, whole parts of 32"),
    ("left", dict(consumer_type=ObjectType.of(16, "int8")), "fifo left: consumer_type=16 int8; legal: int32, whole parts of 32"),
    ("left", dict(to_stream=((0, 1),)), r"fifo left: dims_to_stream=\(\(0, 1\),\); legal: sizes of at least 1, strides of at least 0"),
    ("left", dict(to_stream=((32, -1),)), "strides of at least 0"),
    ("left", dict(to_stream=((16, 1),)), r"fifo left: dims_to_stream=\(\(16, 1\),\) visits 16 elements; what it orders has 32"),
    ("left", dict(to_stream=((32, 2),)), r"fifo left: dims_to_stream=\(\(32, 2\),\) reaches element 62; what it orders has 32"),
    ("left", dict(type=ObjectType.of(32, "float32")), "float32 and int32; both sides of a link hold one dtype"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "words"), FIFO, ids=[words[:50] for _, _, words in FIFO])
def test_fifos(array, name, changes, words):
    spare = (TileData("shim1", "shim"), TileData("free", "core"))
    wider = attrs.evolve(array, tiles=array.tiles + tuple(t for t in spare if t.name not in {u.name for u in array.tiles}))
    shims = [t.name for t in array.tiles if t.kind == "shim"]
    assert shims == ["shim0", "shim1"]
    with pytest.raises(DeclarationError, match=words):
        check(with_one(wider, "fifos", name, **changes))


LINKS = [
    (("mem0", ("a",), ("left", "gone"), (0, 32)), "link of a to left, gone: gone is no fifo of Made"),
    (("mem0", ("a",), ()), "link of a to : an empty side is no fifo of Made"),
    (("mem0", ("a", "t"), ("left", "right"), (0, 32)), "link of a, t to left, right: a link joins or splits, not both"),
    (("mem0", ("a",), ("left", "right"), (0,)), "link of a to left, right: 1 offsets for 2 parts; legal: one for each"),
    (("shim0", ("a",), ("left", "right"), (0, 32)), "link of a to left, right on shim0, a shim tile; legal: a memory tile"),
    (("core0", ("a",), ("left", "right"), (0, 32)), "link of a to left, right on core0, a core tile; legal: a memory tile"),
    (("mem0", ("y",), ("left", "right"), (0, 32)), "link of y to left, right: fifo y does not arrive at mem0"),
    (("mem0", ("a",), ("t", "u"), (0, 32)), "link of a to t, u: fifo t does not leave from mem0"),
    (("mem0", ("a",), ("left", "right"), (0, 0)), r"offsets \(0, 0\) of 64 elements; legal: rising, from 0, inside it"),
    (("mem0", ("a",), ("left", "right"), (8, 32)), r"offsets \(8, 32\) of 64 elements; legal: rising, from 0"),
    (("mem0", ("a",), ("left", "right"), (0, 64)), r"offsets \(0, 64\) of 64 elements"),
    (("mem0", ("a",), ("left", "right"), (0, 40)), "part 0 reaches from 0 to 40, 40 elements; its objects have 32. Parts lie"),
    (("mem0", ("a",), ("left",)), "fifo a is in 2 links; legal: one"),
]  # fmt: skip


@pytest.mark.parametrize(("link", "words"), LINKS, ids=[words[:50] for _, words in LINKS])
def test_links(array, link, words):
    assert array.fifo("a").consumers == ("mem0",) == (array.fifo("left").producer,)
    with pytest.raises(DeclarationError, match=words):
        check(linked(array, *link))


def test_parts_of_a_split_repeat_alike(array):
    with pytest.raises(DeclarationError, match=r"link of a to left, right: the parts repeat \[1, 2\] times; legal: all alike"):
        check(with_one(array, "fifos", "left", repeat=2))


def test_an_order_of_unequal_parts(array):
    """It would have to be another for each."""
    parts = {"left": ObjectType.of(16, "int32"), "right": ObjectType.of(48, "int32")}
    split, join = array.links
    changed = attrs.evolve(array, links=(attrs.evolve(split, offsets=(0, 16)), join))
    for name, kind in parts.items():
        changed = with_one(changed, "fifos", name, type=kind)
    changed = with_one(changed, "fifos", "a", from_stream=(((8, 8), (8, 1)),))
    with pytest.raises(DeclarationError, match="dims_from_stream applies to every part of its link, and they are not equally large"):
        check(changed)


def test_a_forward_in_whole_multiples(array):
    changed = with_one(linked(array, "mem0", ("a",), ("left",)), "fifos", "left", type=ObjectType.of(24, "int32"))
    with pytest.raises(DeclarationError, match="objects of 24 and 64 elements; legal: one a whole multiple of the other"):
        check(changed)


def test_tiles(array):
    for change, words in (
        (dict(kind="gpu"), "tile core0 is of kind 'gpu'; legal: shim, mem, core"),
        (dict(row=6), "tile core0: row=6; rows of a core tile on npu2 are 2 to 5"),
        (dict(col=8), "tile core0: col=8; columns of npu2 are 0 to 7"),
        (dict(kind="mem", row=1), "core core0 is on core0, a mem tile; legal: a core tile"),
    ):
        with pytest.raises(DeclarationError, match=words):
            check(with_one(array, "tiles", "core0", **change))


def test_one_place_is_one_tile(array):
    with pytest.raises(DeclarationError, match="tiles core0 and core1 are both pinned to column 0, row 2"):
        check(with_one(array, "tiles", "core1", col=0, row=2))


def test_one_tile_runs_one_program(array):
    with pytest.raises(DeclarationError, match="core core0 shares its tile core0 with another core"):
        check(with_one(array, "cores", "core1", tile="core0"))


def test_a_core_has_a_stack(array):
    with pytest.raises(DeclarationError, match="core core0: stack_size=0; legal: at least 1 byte"):
        check(with_one(array, "cores", "core0", stack=0))


def test_memory(array):
    for part, words in (
        (dict(tile="mem0"), "buffer kept is on mem0; legal: the tile of a worker"),
        (dict(initial=(1, 2)), "buffer kept: 2 initial numbers; it is 4 int32"),
        (dict(written=True, type=ObjectType.of(4, "float32")), "buffer kept: 4 float32 with use_write_rtp; legal: int32 or uint32"),
        (dict(written=True, type=ObjectType.of(4, "int8")), "buffer kept: 4 int8 with use_write_rtp; legal: int32 or uint32"),
    ):
        with pytest.raises(DeclarationError, match=words):
            check(with_one(array, "buffers", "kept", **part))


@pytest.mark.parametrize("change", [dict(initial=-1), dict(kind="flag"), dict(tile="nowhere")])
def test_locks(array, change):
    with pytest.raises(DeclarationError, match=r"lock turn: kind .* is no lock of a tile"):
        check(with_one(array, "locks", "turn", **change))


def test_values(array):
    for value, words in (
        (ValueData("n", (("kept", 0),)), "value n is bound to kept, which is no buffer with use_write_rtp=True"),
        (ValueData("n", (("gone", 0),)), "value n is bound to gone, which is no buffer"),
        (ValueData("n", (("words", 2),)), "value n is number 2 of buffer words, which has 2 int32"),
    ):
        with pytest.raises(DeclarationError, match=words):
            check(attrs.evolve(array, values=(value,)))


def test_lanes(array):
    for lane, words in (
        (LaneData("x", 0, "left"), "lane 0 of x is fifo left, which has no end on a shim"),
        (LaneData("x", 0, "gone"), "lane 0 of x is fifo gone, which has no end on a shim"),
        (LaneData("x", 1, "a"), r"lanes of x are \[1\]; legal: each of 0 to 0 once"),
    ):
        with pytest.raises(DeclarationError, match=words):
            check(attrs.evolve(array, lanes=(lane, array.lanes[1])))


def test_names(array):
    lock = LockData("kept", "core0")
    with pytest.raises(DeclarationError, match="two parts of Made are named 'kept'; give each its own name="):
        check(attrs.evolve(array, locks=(*array.locks, lock)))
    with pytest.raises(DeclarationError, match="a part is named 'left_cons', which is what the consuming end of fifo left is called"):
        check(attrs.evolve(array, locks=(*array.locks, attrs.evolve(lock, name="left_cons"))))
