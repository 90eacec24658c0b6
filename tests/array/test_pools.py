"""Which pools, locks, channels and descriptors fifo ends become."""

from iron_core.array import ObjectFifo, Tile, Worker
from iron_core.array.build import build
from iron_core.array.builder import building
from iron_core.array.pools import fifo_pools, reaches, shared_on
from iron_ops_aie.elementwise.elementwise_add import ElementwiseAdd

LINE = ((64,), "int32")


def passing(source, target, ahead=1):
    def core(source, target):
        source.acquire(ahead)
        target.acquire()
        source.release()
        target.release()

    return core


def chain(first=None, second=None, **options):
    """shim -> core -> core -> shim; the middle fifo takes the options."""
    with building() as parts:
        into, middle, out = ObjectFifo(LINE, name="into"), ObjectFifo(LINE, name="middle", **options), ObjectFifo(LINE, name="out")
        into.prod(tile=Tile("shim"))
        Worker(passing(0, 0), [into.cons(), middle.prod()], tile=first)
        Worker(passing(0, 0), [middle.cons(), out.prod()], tile=second)
        out.cons(tile=Tile("shim"))
        return parts.freeze("chain", "npu2")


def test_ends_of_an_elementwise_array():
    design = build(ElementwiseAdd(size=4096), "npu2").design.array
    found = fifo_pools(design)
    arriving, leaving = found.end("b0", 1), found.end("y0", 0)
    assert (arriving.way, arriving.channel, arriving.port) == ("in", 1, "consume")
    assert (leaving.way, leaving.channel, leaving.port) == ("out", 0, "produce")
    assert found.pool_of(arriving).nbytes == 2 * 256 * 2
    assert found.pool_of(found.end("a0", 0)) is None
    assert len(found.pools) == 3 * 8


def test_cores_reach_their_own_and_three_neighbours():
    assert [n for n in ((1, 3), (1, 2), (1, 4), (0, 3), (2, 3), (0, 2)) if reaches((1, 3), n)] == [(1, 3), (1, 2), (1, 4), (0, 3)]
    assert not reaches((1, 2), (1, 1))


def test_neighbours_share_one_pool():
    design = chain(Tile("core", 0, 2), Tile("core", 0, 3))
    assert shared_on(design, design.fifo("middle"))
    found = fifo_pools(design)
    assert found.end("middle", 0).pool == found.end("middle", 1).pool == "middle"
    assert found.end("middle", 1).way == "" and found.pool("middle").tile == "core0"


def test_the_pool_lies_where_both_cores_reach():
    design = chain(Tile("core", 1, 2), Tile("core", 0, 2))
    assert fifo_pools(design).pool("middle").tile == "core1"  # the producer reaches west


def test_what_is_far_or_not_placed_goes_by_dma():
    assert shared_on(chain(), chain().fifo("middle")) is None
    far = chain(Tile("core", 0, 2), Tile("core", 0, 4))
    assert shared_on(far, far.fifo("middle")) is None
    free = chain()
    assert shared_on(free, free.fifo("middle"), {"core0": (2, 3), "core1": (3, 3)})
    forced = chain(Tile("core", 0, 2), Tile("core", 0, 3), via_DMA=True)
    found = fifo_pools(forced)
    assert found.pool("middle").tile == "core0" and found.pool("middle_cons").tile == "core1"


def test_depths_follow_what_cores_acquire():
    with building() as parts:
        ahead, exact, single, shared = (
            ObjectFifo(LINE, name=n, depth=d) for n, d in (("ahead", 3), ("exact", 3), ("single", 1), ("unused", 4))
        )
        for fifo in (ahead, exact, single, shared):
            fifo.prod(tile=Tile("shim"))

        def core(ahead, exact, single, unused):
            ahead.acquire(3)
            ahead.release(3)
            exact.acquire(3)
            exact.release(3)
            single.acquire()
            single.release()

        Worker(core, [ahead.cons(), exact.cons(depth=3), single.cons(), shared.cons()])
        design = parts.freeze("depths", "npu2")
    found = fifo_pools(design)
    assert [found.end(n, 1).depth for n in ("ahead", "exact", "single", "unused")] == [4, 3, 1, 4]


def linked(make):
    with building() as parts:
        into = ObjectFifo(((256,), "int32"), name="into")
        into.prod(tile=Tile("shim"))
        make(into)
        return parts.freeze("linked", "npu2")


def drain(fifo):
    def core(source):
        source.acquire()
        source.release()

    Worker(core, [fifo.cons()])


def test_a_forward_is_one_pool():
    design = linked(lambda into: drain(into.cons(depth=3).forward(name="on")))
    found = fifo_pools(design)
    assert found.end("into", 1).pool == found.end("on", 0).pool == "into_cons"
    assert found.pool("into_cons").depth == 3 and found.pool("into_cons").locks == 2
    assert found.end("on", 0).descriptors == 3


def test_a_forward_of_other_objects_holds_the_larger():
    design = linked(lambda into: drain(into.cons().forward(((1024,), "int32"), name="on")))
    assert fifo_pools(design).end("into", 1).pool == "on"
    design = linked(lambda into: drain(into.cons().forward(((64,), "int32"), name="on")))
    assert fifo_pools(design).end("on", 0).pool == "into_cons"


def test_a_split_has_locks_for_every_part():
    design = linked(lambda into: [drain(f) for f in into.cons().split([0, 64], [((64,), "int32"), ((192,), "int32")])])
    found = fifo_pools(design)
    pool = found.pool("into_cons")
    assert pool.parts == ((0, 64), (64, 192)) and pool.locks == 4
    assert [found.end(f"into_split{i}", 0).part for i in range(2)] == [0, 1]
    assert found.end("into", 1).part is None and found.end("into", 1).descriptors == 4


def test_repeats_take_descriptors_unless_one_object_is_all():
    design = linked(lambda into: drain(into.cons().forward(name="on", repeat_count=3)))
    found = fifo_pools(design)
    assert found.end("on", 0).descriptors == 6 and found.pool("into_cons").repeat == 3
    design = linked(lambda into: drain(into.cons(depth=1).forward(name="on", repeat_count=3)))
    assert fifo_pools(design).end("on", 0).descriptors == 1
