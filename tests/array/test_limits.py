"""What does not fit a device is refused with the number used, the number there is, and what to change."""

import attrs
import pytest

from iron_core import In, Out
from iron_core.array import (
    Buffer,
    Kernel,
    KernelContract,
    Lane,
    Lock,
    ObjectFifo,
    ObjectType,
    Tile,
    Worker,
    WorkerRuntimeBarrier,
)
from iron_core.array.build import build
from iron_core.array.builder import building
from iron_core.array.descriptors import Descriptor
from iron_core.array.design import Design
from iron_core.array.limits import check
from iron_core.array.sequence import Await, Free, Sequence, SequenceArgument, Transfer, Word
from iron_core.declare.affine import Affine
from iron_core.errors import Unresolvable
from iron_ops_aie.elementwise.elementwise_add import ElementwiseAdd

LINE = ((64,), "int32")


def made(make, dev="npu2"):
    with building() as parts:
        make()
        return parts.freeze("made", dev)


def refused(words, design, dev="npu2", error=Unresolvable):
    with pytest.raises(error, match=words):
        check(design, dev)


def taking(*ends):
    for end in ends:
        end.acquire()
        end.release()


def from_shim(type=LINE, name="a", lane=0, **options):
    fifo = ObjectFifo(type, name=name, **options)
    fifo.prod(tile=Lane(name, lane))
    return fifo


def through(forward, size=256, dtype="int32"):
    def make():
        onward = forward(from_shim(((size,), dtype)).cons(tile=None))
        Worker(taking, [onward.cons()])

    return made(make)


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_elementwise_designs_fit(dev):
    design = build(ElementwiseAdd(size=4096), dev, {"valid"}).design
    places = check(design, dev)
    assert set(places) == {tile.name for tile in design.array.tiles}
    assert check(design, dev, places) == places


# -- what cores have -----------------------------------------------------------------------------


def one_core(size, depth=2, stack=1024, buffer=0):
    def make():
        extra = [Buffer(buffer, "int32")] if buffer else []
        Worker(lambda end, *_: taking(end), [from_shim(((size,), "int32"), depth=depth).cons(), *extra], stack_size=stack, name="x")

    return made(make)


def test_memory_of_a_core_is_counted_to_the_byte():
    check(one_core(8064), "npu2")  # 2 x 32256 + 1024 = 65536
    refused(r"core x .column 0, row 2. needs 65600 bytes of memory and has 65536 .fifo a_cons, 2 x 8072 int32: 64576", one_core(8072))
    refused(r"its stack: 2048", one_core(8064, stack=2048))
    refused(r"buffer buffer0: 32", one_core(8064, buffer=1))
    refused("smaller depth=", one_core(16384))


def test_a_shared_pool_lies_with_one_core():
    def make():
        fifo = ObjectFifo(((15000,), "int32"), depth=1, name="shared")
        Worker(taking, [fifo.prod()], name="first")
        other = ObjectFifo(((2000,), "int32"), depth=1, name="other")
        Worker(taking, [fifo.cons(), other.prod()], name="second")
        other.cons(tile=Lane("y", 0))

    check(made(make), "npu2")


def test_acquires_stay_within_the_depth():
    def make(depth):
        def inner():
            def core(end):
                end.acquire(3)
                end.release(3)

            Worker(core, [from_shim(depth=depth).cons()], name="x")

        return made(inner)

    check(make(3), "npu2")
    refused("core x acquires 3 objects of fifo a, whose depth is 2. Give the fifo depth=3", make(2))


def test_stacks_suffice_for_the_kernels():
    kind = ObjectType.of(*LINE)

    def make(stack, unsupported=()):
        contract = KernelContract(roles=(In, Out), reference=lambda x: x, stack=2048, unsupported=unsupported)
        copy = Kernel.inline("copy", "", (kind, kind), contract)

        def inner():
            out = ObjectFifo(LINE, name="y")

            def core(a, y):
                copy(a.acquire(), y.acquire())
                a.release()
                y.release()

            Worker(core, [from_shim().cons(), out.prod()], stack_size=stack)
            out.cons(tile=Lane("y", 0))

        return made(inner)

    check(make(2048), "npu2")
    refused("stack_size=1024 and kernel copy_.* needs 2048", make(1024))
    refused("does not run on npu2; it is refused for npu2", make(2048, ("npu2",)), error=Unresolvable)


def test_locks_of_a_core_are_counted():
    def make(count):
        def inner():
            Worker(taking, [from_shim().cons()], tile=Tile("core", 0, 2), name="x")
            where = Tile("core", 0, 2)
            for _ in range(count):
                Lock(tile=where)

        return made(inner)

    check(make(14), "npu2")
    refused(r"core x .* needs 17 locks and has 16 .2 of its fifos, 15", make(15))


def test_descriptors_of_a_core_are_counted():
    def make(depth):
        def inner():
            Worker(taking, [from_shim(((8,), "int32"), depth=depth).cons(depth=depth)], name="x")

        return made(inner)

    check(make(16), "npu2")
    refused(r"core x .* needs 17 descriptors and has 16 .a: 17", make(17))


def test_locks_count_to_63():
    def make():
        def core(end, barrier):
            barrier.wait_for_value(64)
            barrier.release_with_value(1)

        Worker(core, [from_shim().cons(), WorkerRuntimeBarrier()])

    refused("counts a lock to 64; legal: up to 63", made(make), error=Unresolvable)


# -- what memory tiles have ----------------------------------------------------------------------


def test_memory_of_a_memory_tile_is_counted():
    check(through(lambda end: end.forward(((4096,), "int32")), 65536), "npu2")
    refused("524800 bytes", through(lambda end: end.forward(((64,), "int32")), 65600))


def test_halves_of_a_memory_tiles_descriptors():
    def many(repeat):
        return through(lambda end: end.forward(repeat_count=repeat))

    check(many(11), "npu2")
    refused("memory tile of column 0 needs 26 descriptors of every other channel and has 24 .a?_?.*: 24", many(12))


def test_a_lock_counts_every_repeat():
    def make(repeat):
        def inner():
            Worker(taking, [from_shim(depth=1).cons().forward(repeat_count=repeat).cons()])

        return made(inner)

    check(make(63), "npu2")
    refused("1 objects sent 64 times each, 64 in all; a lock counts to 63", make(64))


def pinned(count):
    """Fifos from one shim to a memory tile and on to cores."""

    def make():
        shim = Tile("shim", 0)
        for i in range(count):
            fifo = ObjectFifo(LINE, name=f"a{i}")
            fifo.prod(tile=Lane("a", i, shim))
            Worker(taking, [fifo.cons()])

    return made(make)


def test_channels_of_a_pinned_shim():
    check(pinned(2), "npu2")
    refused("shim shim0 of a0, a1, a2 needs 3 channels out and there are 2. Pin fewer streams", pinned(3))
    places = {"shim0": (0, 0), "core0": (0, 2), "core1": (0, 3), "core2": (0, 4)}
    with pytest.raises(Unresolvable, match=r"shim of column 0 has 3 fifos out by DMA .a0, a1, a2.; there are 2"):
        check(pinned(3), "npu2", places)


# -- what descriptors walk -----------------------------------------------------------------------


def test_orders_fit_descriptors():
    def ordered(dims, size=4096, dtype="int32"):
        return through(lambda end: end.forward(dims_to_stream=dims), size, dtype)

    check(ordered(((8, 512), (8, 8), (8, 64), (8, 1))), "npu2")
    for design, words in (
        (ordered(((2, 2048), (2, 1024), (2, 512), (2, 256), (256, 1))), "has 5 dimensions; a mem tile's descriptors have 4"),
        (ordered(((4, 1024), (1024, 1)), 4096, "int8"), None),
        (ordered(((2, 2048), (2048, 1))), None),
        (ordered(((1024, 1), (4, 1024))), "has size 1024; there it may have 512"),
        (ordered(((64, 1), (64, 64)), dtype="bfloat16"), "an innermost stride of 64"),
    ):
        if words is None:
            check(design, "npu2")
        else:
            refused(words, design, error=Unresolvable)


def test_cores_order_in_three_dimensions():
    def make(dims):
        def inner():
            fifo = ObjectFifo(LINE, name="a", dims_to_stream=dims)
            Worker(taking, [fifo.prod()], name="x")
            fifo.cons(tile=Lane("y", 0))

        return made(inner)

    check(make(((4, 1), (4, 4), (4, 16))), "npu2")
    words = "has 4 dimensions; a core tile's descriptors have 3"
    refused(words, make(((2, 1), (2, 2), (4, 4), (4, 16))), error=Unresolvable)


def test_objects_are_whole_words():
    words = "a run of 63 elements is 63 bytes; a run must be whole 4-byte words"
    refused(words, made(lambda: Worker(taking, [from_shim(((63,), "int8")).cons()])), error=Unresolvable)


# -- sequences -----------------------------------------------------------------------------------


def driven(steps, dtype="int32", lanes=1):
    def make():
        shim = Tile("shim", 0)
        for i in range(lanes):
            fifo = ObjectFifo(LINE, name=f"a{i}")
            fifo.prod(tile=Lane("a", i, shim))
            Worker(taking, [fifo.cons()])

    return Design(made(make), Sequence((SequenceArgument("a", dtype, 4096),), (), tuple(steps)))


def fill(task, size=64, fifo="a0", count=1, stride=1, token=True, **options):
    one = Descriptor(0, (1, 1, 1, size), (0, 0, 0, stride))
    return Transfer(task, "fill", "a", fifo, (one,) * count, token, **options)


def test_queues_hold_four_tasks():
    check(driven([*(fill(n) for n in range(4)), Await(3), fill(4)]), "npu2")
    check(driven([*(fill(n) for n in range(4)), Await(0), fill(4)]), "npu2")
    check(driven([*(fill(n) for n in range(4)), Free(1), fill(4)]), "npu2")
    check(driven([fill(0), fill(1), Await(1), Free(0)]), "npu2")
    refused("task 4, fill of a by fifo a0: 5 tasks wait on that channel .a0.; its queue holds 4", driven([fill(n) for n in range(5)]))


def test_descriptors_that_iterate_queue_one_by_one():
    one = Descriptor(0, (2, 1, 1, 64), (64, 0, 0, 1))
    chain = Transfer(0, "fill", "a", "a0", (one,) * 5, True)
    refused("5 tasks wait on that channel", driven([chain]))
    check(driven([attrs.evolve(chain, descriptors=(attrs.evolve(one, sizes=(1, 1, 1, 64), strides=(0, 0, 0, 1)),) * 5)]), "npu2")


def test_a_shim_has_sixteen_descriptors():
    steps = [fill(0, count=8), fill(1, count=8, fifo="a1")]
    check(driven(steps, lanes=2), "npu2")
    words = r"17 descriptors are in use on the shim of column 0 .a0: 9, a1: 8.; it has 16"
    refused(words, driven([fill(0, count=8), fill(1, count=8, fifo="a1"), fill(2)], lanes=2))
    check(driven([*steps, Free(1), fill(2)], lanes=2), "npu2")


def test_transfers_are_whole_words_and_legal_walks():
    refused("must be whole 4-byte words", driven([fill(0, 63)], "int8"), error=Unresolvable)
    refused("an innermost stride of 2", driven([fill(0, 64, stride=2)], "bfloat16"), error=Unresolvable)
    check(driven([fill(0, 64, stride=2)]), "npu2")


def test_lengths_per_call_count_sixteen_bytes():
    word = Word("n", "length", Affine("n"))
    check(driven([fill(0, length_by=word, unit=4)]), "npu2")
    refused("in units of 2 elements, 8 bytes; legal: multiples of 16", driven([fill(0, length_by=word, unit=2)]), error=Unresolvable)


def test_padding_fits_its_fields():
    def padded(pad, dtype="int32"):
        dims = ((2, 64), (4, 16), (2, 8), (8, 1))
        sizes = [n + sum(side) for (n, _), side in zip(dims, pad, strict=True)]
        total = sizes[0] * sizes[1] * sizes[2] * sizes[3]
        return through(lambda end: end.forward(((total,), dtype), dims_to_stream=dims, pad_dimensions=pad), 128, dtype)

    check(padded(((0, 0), (0, 15), (0, 0), (0, 8))), "npu2")
    for pad, words in (
        (((1, 0), (0, 0), (0, 0), (0, 0)), "1 numbers in dimension 0; a descriptor holds 0"),
        (((0, 0), (16, 0), (0, 0), (0, 0)), "16 numbers in dimension 1; a descriptor holds 15"),
        (((0, 0), (0, 0), (0, 32), (0, 0)), "32 numbers in dimension 2; a descriptor holds 31"),
        (((0, 0), (0, 0), (0, 0), (64, 0)), "64 words in dimension 3; a descriptor holds 63"),
    ):
        refused(words, padded(pad), error=Unresolvable)
    refused("the innermost padding of 1 is 2 bytes", padded(((0, 0),) * 3 + ((1, 1),), dtype="bfloat16"), error=Unresolvable)


def test_packets_have_their_shim_alone(gather):
    places = check(gather, "npu2")
    control = gather.array.controls[0]
    drain = next(f.consumers[0] for f in gather.array.fifos if gather.array.tile(f.consumers[0]).kind == "shim")
    moved = {**places, drain: places[control.target]}
    with pytest.raises(Unresolvable, match="whose descriptors the packets of control flow"):
        check(gather, "npu2", moved)


def test_control_words_queue_like_any_others(gather):
    def again(step):
        return [attrs.evolve(step, task=100 + n) for n in range(5)]

    fills = [s for s in gather.sequence.steps if isinstance(s, Transfer) and s.way == "fill"]
    crowded = attrs.evolve(gather, sequence=attrs.evolve(gather.sequence, steps=tuple(again(fills[0]))))
    refused("5 tasks wait on that channel", crowded)
