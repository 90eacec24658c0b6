"""Fifos, their ends, and links through memory tiles: what is declared is what the design holds."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.array import Lane, ObjectFifo, ObjectType, Tile, Worker
from iron_core.array.builder import building
from iron_core.array.design import FifoData, LinkData
from iron_core.array.spec import check
from iron_core.declare.formats import Q4_1
from iron_core.errors import DeclarationError

LINE = ((64,), "int32")
WIDE = ((128,), "int32")


def passing(*ends):
    """A core that takes one object of every end it is given and gives each on."""
    for end in ends:
        end.acquire()
    for end in ends:
        end.release()


def frozen(make):
    """The design that `make()` builds."""
    with building() as parts:
        make()
    return parts.freeze("made", "npu2")


def test_a_fifo_between_a_shim_and_a_core():
    def make():
        a = ObjectFifo(((4, 16), np.int32), depth=3, name="a")
        a.prod(tile=Lane("a", 0))
        Worker(passing, [a.cons()])

    design = frozen(make)
    assert design.fifo("a") == FifoData("a", ObjectType((4, 16), "int32"), 3, "shim0", ("core0",))
    assert [(lane.operand, lane.index, lane.fifo) for lane in design.lanes] == [("a", 0, "a")]


def test_every_keyword_reaches_the_design():
    def make():
        a = ObjectFifo(((56,), "int32"), name="a")
        a.prod(tile=Tile("shim"))
        b = a.cons().forward(
            LINE,
            name="b",
            depth=3,
            dims_to_stream=[(4, 14), (14, 1)],
            repeat_count=2,
            pad_dimensions=[(0, 0), (1, 1)],
            pad_value=7,
        )
        c = ObjectFifo(LINE, name="c", via_DMA=True, consumer_type=((16,), "int32"))
        Worker(passing, [b.cons(dims_from_stream=[(4, 1), (16, 4)]), c.prod(4)])
        Worker(passing, [c.cons(2)])

    design = frozen(make)
    b, c = design.fifo("b"), design.fifo("c")
    assert (b.to_stream, b.from_stream, b.repeat) == (((4, 14), (14, 1)), (((4, 1), (16, 4)),), 2)
    assert (b.pad, b.pad_value, b.depth) == (((0, 0), (1, 1)), 7, 3)
    assert (c.via_dma, c.depth, c.type_at(0).elements, c.type_at(1).elements) == (True, (4, 2), 64, 16)
    check(design)


def test_one_producing_end_and_an_end_per_cons():
    with building():
        fifo = ObjectFifo(LINE)
        assert fifo.prod() is fifo.prod()
        first, second = fifo.cons(), fifo.cons()
        assert first is not second and fifo.consumers == [first, second]


@pytest.mark.parametrize("again", [dict(depth=3), dict(tile=Tile("core"))])
def test_the_producing_end_is_described_once(again):
    with building():
        fifo = ObjectFifo(LINE, name="a")
        fifo.prod()
        with pytest.raises(DeclarationError, match=r"fifo a: its producer exists; depth= and tile= belong in the first prod\(\)"):
            fifo.prod(**again)


@pytest.mark.parametrize("port", ["prod", "cons"])
def test_an_end_belongs_to_one_worker(port):
    with building():
        end = getattr(ObjectFifo(LINE, name="a"), port)()
        Worker(passing, [end], name="first")
        with pytest.raises(DeclarationError, match=rf"fifo a: its {end.port} end is used by worker second and elsewhere"):
            Worker(passing, [end], name="second")


def test_a_worker_uses_what_it_was_given():
    """An end that its core function found elsewhere is refused by name."""
    with building():
        other = ObjectFifo(LINE, name="other").cons()
        mine = ObjectFifo(LINE, name="mine").cons()

        def core(mine):
            other.acquire()

        with pytest.raises(DeclarationError, match=r"worker core0 uses other.consume, which is not among its args"):
            Worker(core, [mine])


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("act", ["acquire", "release"])
def test_at_least_one_object(act, count):
    with building():
        end = ObjectFifo(LINE, name="a").cons()
        with pytest.raises(DeclarationError, match=rf"fifo a: {act}\({count}\); legal: at least 1"):
            Worker(lambda end: getattr(end, act)(count), [end])


def test_a_fifo_holds_something():
    with building(), pytest.raises(DeclarationError, match="fifo a: depth=0; legal: at least 1"):
        ObjectFifo(LINE, depth=0, name="a")


@pytest.mark.parametrize(
    ("type", "words"),
    [
        (((), "int32"), r"shape \(\); legal: at least one dimension"),
        (((4, 0), "int32"), r"shape \(4, 0\); legal: at least one dimension, each at least 1"),
        ((4, Q4_1), "an array moves numbers or bytes. Legal: a dtype such as np.uint8"),
    ],
)
def test_objects_are_dense_and_not_empty(type, words):
    with building(), pytest.raises(DeclarationError, match=words):
        ObjectFifo(type)


@pytest.mark.parametrize(("given", "missing"), [("prod", "consumer"), ("cons", "producer")])
def test_a_fifo_has_both_ends(given, missing):
    def make():
        Worker(passing, [getattr(ObjectFifo(LINE, name="a"), given)()])

    with pytest.raises(DeclarationError, match=f"fifo a has no {missing}"):
        frozen(make)


def test_an_end_is_somewhere():
    """An end that nobody uses is on no tile."""

    def make():
        a = ObjectFifo(LINE, name="a")
        Worker(passing, [a.prod()])
        a.cons()

    with pytest.raises(DeclarationError, match="a consumer of a is used by no worker, link or lane"):
        frozen(make)


def test_a_split_cuts_objects_at_offsets():
    def make():
        a = ObjectFifo(WIDE, name="a")
        a.prod(tile=Lane("a", 0))
        for part in a.cons().split([0, 64], [LINE, LINE], names=["left", "right"], dims_to_stream=[(8, 1), (8, 8)]):
            Worker(passing, [part.cons()])

    design = frozen(make)
    assert design.links == (LinkData("mem0", ("a",), ("left", "right"), (0, 64)),)
    assert design.links[0].kind == "split"
    assert design.fifo("right").producer == "mem0" and design.fifo("right").to_stream == ((8, 1), (8, 8))
    check(design)


def test_a_join_puts_objects_side_by_side():
    def make():
        y = ObjectFifo(WIDE, name="y")
        y.cons(tile=Lane("y", 0))
        for part in y.prod().join([0, 64], [LINE, LINE]):
            Worker(passing, [part.prod()])

    design = frozen(make)
    assert design.links == (LinkData("mem0", ("y_join0", "y_join1"), ("y",), (0, 64)),)
    assert design.links[0].kind == "join"
    check(design)


def test_a_forward_sends_on():
    def make():
        a = ObjectFifo(WIDE, name="a")
        a.prod(tile=Lane("a", 0))
        Worker(passing, [a.cons().forward(LINE).cons()])

    design = frozen(make)
    assert design.links == (LinkData("mem0", ("a",), ("a_fwd",)),) and design.links[0].kind == "forward"
    assert design.fifo("a_fwd").type.elements == 64
    check(design)


def test_a_link_uses_its_end_up():
    with building():
        end = ObjectFifo(LINE, name="a").cons()
        end.forward()
        with pytest.raises(DeclarationError, match="fifo a: its consume end is used by a forward and elsewhere"):
            end.forward(name="again")


def test_a_linked_end_is_no_workers():
    with building():
        end = ObjectFifo(LINE, name="a").cons()
        end.forward()
        with pytest.raises(DeclarationError, match="used by worker core0 and elsewhere"):
            Worker(passing, [end])


def test_an_offset_for_every_part():
    with building(), pytest.raises(DeclarationError, match=r"link of a to a_split0, a_split1: 1 offsets for 2 parts"):
        ObjectFifo(WIDE, name="a").cons().split([0], [LINE, LINE])


def test_links_share_a_tile_that_is_given():
    def make():
        where = Tile("mem", col=2)
        for name in ("a", "b"):
            fifo = ObjectFifo(LINE, name=name)
            fifo.prod(tile=Lane(name, 0))
            Worker(passing, [fifo.cons().forward(tile=where).cons()])

    design = frozen(make)
    assert [link.tile for link in design.links] == ["mem0", "mem0"]
    assert (design.tile("mem0").col, design.tile("mem0").row) == (2, 1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("memory",), r"Tile\('memory'\); legal: shim, mem, core"),
        (("shim", 0, 1), r"row=1\): the rows of a shim tile are 0"),
        (("mem", 0, 2), r"row=2\): the rows of a mem tile are 1"),
        (("core", 0, 1), r"row=1\): the rows of a core tile are 2 or more"),
    ],
)
def test_tiles_that_no_device_has(given, words):
    with pytest.raises(DeclarationError, match=words):
        Tile(*given)
