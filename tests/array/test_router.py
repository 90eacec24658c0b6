"""Paths are trees of ports that exist, each used by one stream; what does not fit names the switch that is full."""

import random
import time

import pytest

from iron_core.array import Lane, ObjectFifo, Tile, Worker
from iron_core.array.build import build
from iron_core.array.builder import building
from iron_core.array.placer import place
from iron_core.array.router import Channel, Flow, Hop, _Router, flows, place_and_route, route
from iron_core.devices import PORTS, device
from iron_core.errors import Unresolvable
from iron_ops_aie.elementwise.elementwise_add import ElementwiseAdd

NPU2 = device("npu2")
LINE = ((64,), "int32")


def sound(routes, dev):
    """What a switch can do, told independently of the router."""
    taken = set()
    for one in routes:
        reached = {one.flow.source.place: None}
        for hop in one.hops:
            (_col, row), there = hop.place, hop.to
            assert 0 <= there[0] < dev.columns and 0 <= there[1] < 2 + dev.core_rows
            assert hop.place in reached and there not in reached
            assert 0 <= hop.port < PORTS[hop.direction]
            assert (hop.place, hop.direction, hop.port) not in taken
            taken.add((hop.place, hop.direction, hop.port))
            if row == 1:
                assert hop.direction in ("north", "south")
                came = reached[hop.place]
                assert came is None or came.direction != hop.direction or came.port == hop.port
            reached[there] = hop
        assert {sink.place for sink in one.flow.sinks} <= set(reached)
        ends = {sink.place for sink in one.flow.sinks}
        inner = {hop.place for hop in one.hops}
        assert all(hop.to in ends or hop.to in inner for hop in one.hops)  # nothing leads nowhere


def test_an_elementwise_array_goes_straight_up():
    design = build(ElementwiseAdd(size=4096), "npu2").design.array
    _places, routes = place_and_route(design, NPU2)
    sound(routes, NPU2)
    assert all({hop.direction for hop in one.hops} <= {"north", "south"} for one in routes)
    assert len(routes) == len(design.fifos)


def test_sixteen_streams_into_two_columns():
    design = build(ElementwiseAdd(size=4096), "npu2").design.array
    places = place(design, NPU2, 4)
    routes = route(design, places, NPU2)
    sound(routes, NPU2)
    assert routes == route(design, places, NPU2)


def taking(*ends):
    for end in ends:
        end.acquire()
        end.release()


def whole_array(dev):
    """A matrix product's streams: rows of cores share A, columns share B, and memory tiles join C column by column."""
    with building() as parts:
        a = []
        for row in range(dev.core_rows):
            fifo = ObjectFifo(LINE, name=f"a{row}")
            fifo.prod(tile=Lane("a", row))
            a.append(fifo.cons().forward(name=f"arow{row}"))
        for col in range(dev.columns):
            fifo = ObjectFifo(LINE, name=f"b{col}")
            fifo.prod(tile=Lane("b", col))
            onward = fifo.cons().forward(name=f"bcol{col}")
            out = ObjectFifo(((256,), "int32"), name=f"c{col}")
            joined = out.prod().join([64 * i for i in range(4)], [LINE] * 4)
            out.cons(tile=Lane("c", col))
            for row in range(dev.core_rows):
                Worker(taking, [a[row].cons(), onward.cons(), joined[row].prod()])
        return parts.freeze("product", dev.name)


@pytest.mark.parametrize("name", ["npu1", "npu2", "npu2_4col"])
def test_a_whole_array_is_placed_and_routed(name):
    dev = device(name)
    design = whole_array(dev)
    began = time.process_time()
    places, routes = place_and_route(design, dev)
    spent = time.process_time() - began
    sound(routes, dev)
    assert len(set(places[core.tile] for core in design.cores)) == dev.cores
    assert spent < 5  # processor time: it takes a tenth of a second


def test_flows_name_channels_of_placed_tiles():
    design = build(ElementwiseAdd(size=4096), "npu2").design.array
    found = {flow.name: flow for flow in flows(design, place(design, NPU2, 4))}
    assert found["a0"].source == Channel((0, 0), "dma", 0) and found["b0"].source == Channel((0, 0), "dma", 1)
    assert found["b0"].sinks == (Channel((0, 2), "dma", 1),)


@pytest.mark.parametrize("seed", range(12))
def test_random_streams_are_laid_soundly(seed):
    rng = random.Random(seed)
    cells = [(c, r) for c in range(8) for r in range(6)]
    free = {place: 2 for place in cells}
    streams = []
    for i in range(40):
        source, *sinks = rng.sample([cell for cell in cells if free[cell]], rng.randint(2, 4))
        for sink in sinks:
            free[sink] -= 1
        streams.append(Flow(f"f{i}", Channel(source, "dma", 0), tuple(Channel(sink, "dma", 0) for sink in sinks)))
    across = [
        sum(flow.source.place[0] <= col < max(s.place[0] for s in flow.sinks) for flow in streams) for col in range(7)
    ]
    router = _Router(NPU2, tuple(streams), "random")
    if max(across) > 5 * PORTS["east"]:  # rows with ports east and west
        with pytest.raises(Unresolvable, match="4 ports east"):
            router.run()
    else:
        sound(router.run(), NPU2)


def test_passing_a_memory_tile_keeps_the_port():
    up = Flow("up", Channel((0, 0), "dma", 0), (Channel((0, 2), "dma", 0),))
    short = Flow("short", Channel((0, 0), "dma", 1), (Channel((0, 1), "dma", 0),))
    routes = _Router(device("npu2_1col"), (short, up), "passing").run()
    assert routes[1].hops == (Hop((0, 0), "north", 0), Hop((0, 1), "north", 0))
    assert routes[0].hops == (Hop((0, 0), "north", 1),)


def five_down():
    """Five streams from cores of one column to its memory tile, four of which find ports."""
    with building() as parts:
        out = ObjectFifo(((320,), "int32"), name="out")
        joined = out.prod().join([64 * i for i in range(5)], [LINE] * 5)
        out.cons(tile=Lane("y", 0))
        for i in range(4):
            Worker(taking, [fifo.prod() for fifo in joined[i :: 4]], tile=Tile("core", 0, 2 + i))
        return parts.freeze("down", "npu2")


def test_a_full_switch_is_named():
    words = r"stream out_join\d: the switch of column 0, row 2 has 4 ports south and 5 streams want them"
    with pytest.raises(Unresolvable, match=words):
        place_and_route(five_down(), device("npu2_1col"))
    sound(place_and_route(five_down(), device("npu2_2col"))[1], device("npu2_2col"))  # one goes round by the next column
