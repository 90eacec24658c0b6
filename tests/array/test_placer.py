"""Places: columns filled upwards, peers that need it next to each other, memory tiles and shims near what they serve."""

import itertools

import attrs
import pytest

from iron_core.array import Lane, ObjectFifo, Tile, Worker
from iron_core.array.build import build
from iron_core.array.builder import building
from iron_core.array.placer import near, place
from iron_core.array.pools import shared_on
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie.elementwise.elementwise_add import ElementwiseAdd
from iron_ops_aie.elementwise.silu import SiLU

NPU2 = device("npu2")
LINE = ((64,), "int32")


def taking(*ends):
    for end in ends:
        end.acquire()
        end.release()


def made(make, dev="npu2"):
    with building() as parts:
        make()
        return parts.freeze("made", dev)


def pipeline(stages, extra=1, tiles=None):
    """Cores in a row, each with `extra` inputs and outputs of its own from shims besides the fifo to the next."""

    def make():
        last = None
        for i in range(stages):
            into = [ObjectFifo(LINE, name=f"in{i}_{k}") for k in range(extra)]
            out = [ObjectFifo(LINE, name=f"out{i}_{k}") for k in range(extra)]
            onward = ObjectFifo(LINE, name=f"on{i}") if i + 1 < stages else None
            for fifo in into:
                fifo.prod(tile=Tile("shim"))
            ends = [fifo.cons() for fifo in into] + [fifo.prod() for fifo in out]
            ends += [last.cons()] if last else []
            ends += [onward.prod()] if onward else []
            Worker(taking, ends, tile=tiles[i] if tiles else None, name=f"stage{i}")
            for fifo in out:
                fifo.cons(tile=Tile("shim"))
            last = onward

    return made(make)


def cores(design, places):
    return [places[core.tile] for core in design.cores]


def test_cores_that_only_talk_to_shims_are_spread():
    design = build(ElementwiseAdd(size=4096), "npu2").design.array
    places = place(design, NPU2)
    assert cores(design, places) == [(c, 2) for c in range(8)]
    assert place(design, NPU2) == places
    assert sorted({places[t.name] for t in design.tiles if t.kind == "shim"}) == [(c, 0) for c in range(8)]


def test_columns_are_filled_upwards():
    design = build(SiLU(size=4096), "npu2").design.array
    assert cores(design, place(design, NPU2, 4)) == [(c, r) for c in range(2) for r in range(2, 6)]
    assert cores(design, place(design, NPU2, 2)) == [(c, r) for c in range(4) for r in range(2, 4)]


def test_shims_are_shared_up_to_their_channels():
    design = build(ElementwiseAdd(size=4096), "npu2").design.array
    places = place(design, NPU2, 4)
    out = {}
    for fifo in design.fifos:
        if design.tile(fifo.producer).kind == "shim":
            out[places[fifo.producer]] = out.get(places[fifo.producer], 0) + 1
    assert out == {(c, 0): 2 for c in range(8)}


def test_peers_share_memory_where_channels_run_out():
    design = pipeline(3, extra=2)
    places = place(design, NPU2)
    assert all(shared_on(design, design.fifo(f"on{i}"), places) for i in range(2))


def test_peers_are_neighbours_even_where_channels_suffice():
    design = pipeline(6, extra=1)
    spots = cores(design, place(design, NPU2))
    assert all(near(a, b) for a, b in itertools.pairwise(spots))


def test_a_pinned_peer_draws_the_free_one():
    tiles = [Tile("core", 5, 4), Tile("core"), Tile("core", 5, None)]
    places = place(pipeline(3, extra=2, tiles=tiles), NPU2)
    spots = [places[f"core{i}"] for i in range(3)]
    assert spots[0] == (5, 4) and spots[2][0] == 5
    assert near(spots[0], spots[1]) and near(spots[1], spots[2])


def test_pinned_apart_they_cannot_be():
    tiles = [Tile("core", 0, 2), Tile("core", 6, 5), Tile("core")]
    with pytest.raises(Unresolvable, match=r"core stage\d .*need more DMA channels than the 2 in and 2 out"):
        place(pipeline(3, extra=2, tiles=tiles), NPU2)


def star(leaves):
    """One core that feeds many by fifos of their own, and takes from as many."""

    def make():
        fifos = [ObjectFifo(LINE, name=f"leaf{i}") for i in range(leaves)]
        Worker(taking, [fifo.prod() for fifo in fifos], name="centre")
        for fifo in fifos:
            Worker(taking, [fifo.cons()])

    return made(make)


def test_a_core_has_four_neighbours():
    for leaves in range(1, 7):  # 2 by DMA, 4 by memory
        design = star(leaves)
        places = place(design, NPU2)
        far = [fifo for fifo in design.fifos if shared_on(design, fifo, places) is None]
        assert len(far) <= 2
    with pytest.raises(Unresolvable, match="and no places are left on npu2"):
        place(star(7), NPU2)


def test_too_many_cores_or_inputs_are_refused_by_number():
    def many():
        for i in range(33):
            fifo = ObjectFifo(LINE, name=f"f{i}")
            fifo.prod(tile=Tile("core", 0, 2))
            Worker(taking, [fifo.cons()])

    with pytest.raises(Unresolvable, match="34 cores; npu2 has 32"):
        place(made(many), NPU2)
    with pytest.raises(Unresolvable, match=r"core stage0 has 3 fifos in by DMA .in0_0, in0_1, in0_2.; a core tile has 2"):
        place(pipeline(1, extra=3), NPU2)


def test_shims_run_out_by_number():
    design = build(ElementwiseAdd(size=4096), "npu2").design.array
    with pytest.raises(Unresolvable, match="16 streams go out of shims; npu1 has 8"):
        place(attrs.evolve(design, cores=design.cores), device("npu1"), 4)


def joined(parts, size=64, depth=2):
    def make():
        out = ObjectFifo(((parts * size,), "int32"), name="out", depth=depth)
        fifos = out.prod().join([i * size for i in range(parts)], [((size,), "int32")] * parts, depth=depth)
        out.cons(tile=Lane("y", 0))
        for i, fifo in enumerate(fifos):
            Worker(taking, [fifo.prod()], tile=Tile("core", 3, 2 + i % 4) if i < 4 else None)

    return made(make)


def test_memory_and_shim_come_under_their_cores():
    places = place(joined(4), NPU2)
    assert places["mem0"] == (3, 1) and places["shim0"] == (3, 0)


def test_memory_tiles_run_out_by_number():
    with pytest.raises(Unresolvable, match=r"memory tile mem0 of .*needs 7 channels in and there are 6. Use"):
        place(joined(7), NPU2)
    with pytest.raises(Unresolvable, match=r"needs 655360 bytes and there are 524288. Use smaller objects"):
        place(joined(4, size=10240, depth=4), NPU2)


def test_memory_tiles_that_share_a_column_fit_together():
    def make():
        for i in range(4):
            into = ObjectFifo(((32768,), "int32"), name=f"into{i}")  # two of 128 KB: half a memory tile
            into.prod(tile=Tile("shim"))
            onward = into.cons().forward(((8,), "int32"))
            Worker(taking, [onward.cons()], tile=Tile("core", 2, 2 + i))

    design = made(make)
    places = place(design, NPU2)
    columns = sorted(places[t.name][0] for t in design.tiles if t.kind == "mem")
    assert columns == [1, 2, 2, 3]
