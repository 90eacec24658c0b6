"""Well-formed designs pass; every rule refuses the design that breaks it, by the name of the part."""

import attrs
import pytest

from iron_core import In, Out, bfloat16
from iron_core.array import (
    Buffer,
    Kernel,
    KernelContract,
    Lane,
    Lock,
    ObjectFifo,
    Tile,
    Worker,
    WorkerRuntimeBarrier,
    else_,
    if_,
    range_,
    set_rounding,
)
from iron_core.array.builder import building
from iron_core.array.expression import Const
from iron_core.array.program import Call, Element, Release
from iron_core.array.spec import check
from iron_core.errors import DeclarationError


def worked(core, *names, depth=4, dtype="int32", extra=(), **options):
    """One core between a fifo `a` that arrives and `y` that leaves."""
    with building() as parts:
        a, y = (ObjectFifo(((64,), dtype), depth=depth, name=name) for name in ("a", "y"))
        a.prod(tile=Lane("a", 0))
        Worker(core, [a.cons(), y.prod(), *[make() for make in extra]], **options)
        y.cons(tile=Lane("y", 0))
        return parts.freeze("worked", "npu2")


def refused(words, design):
    with pytest.raises(DeclarationError, match=words):
        check(design)


def test_elementwise_designs_are_well_formed(add, plain):
    check(add)
    check(plain)
    check(add.array)


# -- core programs -------------------------------------------------------------------------------


def test_a_release_needs_something_held():
    def core(a, y):
        a.acquire(2)
        a.release(3)

    refused(r"release\(3\) of fifo a \(consume\) where 2", worked(core))


def test_a_release_is_covered_on_every_path():
    def core(a, y):
        for i in range_(8):
            with if_(i > 3):
                a.acquire()
            a.release()

    refused("where 0 objects are held", worked(core))


def test_branches_on_the_same_condition_go_the_same_way():
    words = lambda: Buffer(1, "int32", name="words")  # noqa: E731

    def core(a, y, words):
        n = words[0]
        with if_(n > 0):
            a.acquire()
        with if_(n > 0):
            a.release()

    check(worked(core, extra=(words,)))


def test_a_window_that_slides_is_steady():
    def core(a, y):
        for _ in range_(8):
            a.acquire(3)
            a.release()
        a.release(2)

    check(worked(core))


def test_a_window_left_over_an_unknown_count_is_not():
    def core(a, y, words):
        for _ in range_(words[0]):
            a.acquire(3)
            a.release()

    refused("ends with 0 or 2 objects of fifo a", worked(core, extra=(lambda: Buffer(1, "int32"),)))


def test_weights_may_be_kept_from_pass_to_pass():
    def core(a, y):
        a.acquire()
        for _ in range_(3):
            y.acquire()
            y.release()

    check(worked(core))


def test_loops_that_hold_on_more_each_round_are_refused():
    def core(a, y):
        a.acquire()
        for _ in range_(3):
            a.release()

    refused("where 0 objects", worked(core))


def test_an_object_is_used_while_it_is_held():
    copy = kernel("int32")

    def core(a, y):
        first, _second = a.acquire(2)
        out = y.acquire()
        a.release()
        copy(first, out)
        a.release()
        y.release()

    refused(r"object 0 of fifo a \(consume\) is used after it was released", worked(core))

    def fine(a, y):
        _first, second = a.acquire(2)
        out = y.acquire()
        a.release()
        copy(second, out)
        a.release()
        y.release()

    check(worked(fine))


def test_an_object_does_not_leave_its_loop():
    copy = kernel("int32")

    def core(a, y):
        out = y.acquire()
        for _ in range_(2):
            kept = a.acquire()
        copy(kept, out)
        a.release()
        y.release()

    refused("fifo a is used outside of where it is acquired", worked(core))


def test_a_variable_does_not_leave_its_branch():
    def core(a, y, words):
        with if_(words[0] > 1):
            kept = words[0]
        with else_():
            words[0] = kept

    refused("outside of the loop or branch", worked(core, extra=(lambda: Buffer(1, "int32"),)))


def kernel(dtype, rounding="core"):
    line = ((64,), dtype)
    from iron_core.array import ObjectType

    kind = ObjectType.of(*line)
    contract = KernelContract(roles=(In, Out), reference=lambda x: x, rounding=rounding)
    return Kernel.inline("copy", "", (kind, kind), contract)


@pytest.mark.parametrize("rounding", ["core", "conv_even"])
def test_bfloat16_is_stored_after_the_rounding_mode_is_set(rounding):
    copy = kernel(bfloat16, rounding)

    def core(mode):
        def body(a, y):
            if mode:
                set_rounding("conv_even")
            copy(a.acquire(), y.acquire())
            a.release()
            y.release()

        return body

    check(worked(core(True), dtype=bfloat16))
    if rounding == "core":
        refused("stores bfloat16 before the rounding mode is set", worked(core(False), dtype=bfloat16))
    else:
        check(worked(core(False), dtype=bfloat16))


def barrier_core(order):
    def core(a, y, words, barrier):
        for one in order:
            if one == "wait":
                barrier.wait_for_value(1)
            elif one == "arm":
                barrier.release_with_value(1)
            else:
                a.acquire()
                words[0] = words[0] + 1
                a.release()

    return worked(core, extra=(lambda: Buffer(1, "int32", use_write_rtp=True, name="words"), WorkerRuntimeBarrier))


def test_words_come_after_the_wait_and_barriers_are_armed_again():
    check(barrier_core(["wait", "read", "arm"]))
    check(barrier_core(["wait", "arm", "read"]))
    refused("uses words of buffer words before it waits", barrier_core(["read", "wait", "arm"]))
    refused("without re-arming", barrier_core(["wait", "read"]))
    refused("again before re-arming", barrier_core(["wait", "wait", "arm"]))
    refused("without having waited", barrier_core(["arm"]))


def test_a_core_uses_its_own_tile():
    def core(a, y):
        a.acquire()
        a.release()

    design = worked(core)
    elsewhere = attrs.evolve(design.fifo("a"), consumers=("core9",))
    tile = attrs.evolve(design.tile("core0"), name="core9")
    moved = attrs.evolve(
        design,
        fifos=(elsewhere, design.fifo("y")),
        tiles=(*design.tiles, tile),
        cores=(*design.cores, attrs.evolve(design.cores[0], name="other", tile="core9", program=())),
    )
    refused("uses fifo a .consume., whose end is on core9", moved)
    wrong = attrs.evolve(design.cores[0], program=(Release("a", "produce", 1),))
    refused("uses fifo a .produce., whose end is on shim", attrs.evolve(design, cores=(wrong,)))


def test_locks_of_pinned_neighbours_can_be_used():
    def shared(where):
        with building() as parts:
            lock = Lock(init=1, tile=Tile("core", 0, 4))

            def core():
                lock.acquire()
                lock.release()

            Worker(core, tile=where)
            return parts.freeze("locked", "npu2")

    check(shared(Tile("core", 0, 3)))
    refused("lock lock0 is on core", shared(Tile("core", 0, 2)))


def test_arguments_of_kernels_agree(plain):
    core = plain.array.cores[0]
    call = next(s for s in core.program[-1].body if isinstance(s, Call))

    def with_args(*args):
        body = tuple(attrs.evolve(call, args=args) if s is call else s for s in core.program[-1].body)
        program = (*core.program[:-1], attrs.evolve(core.program[-1], body=body))
        return attrs.evolve(plain.array, cores=(attrs.evolve(core, program=program), *plain.array.cores[1:]))

    refused("takes 4 arguments; 3 are given", with_args(*call.args[:3]))
    refused("argument 3 is a scalar int32", with_args(*call.args[:3], call.args[0]))
    short = attrs.evolve(call.args[0], type=attrs.evolve(call.args[0].type, shape=(8,)))
    refused("argument 0 is 256 bfloat16; 8 bfloat16 is given", with_args(short, *call.args[1:]))
    gone = Element(call.args[0].acquired, 1, call.args[0].type)
    refused("object 1 of fifo a0", with_args(gone, *call.args[1:]))


def test_floats_are_for_kernels_alone(plain):
    core = plain.array.cores[0]
    loop = attrs.evolve(core.program[-1], stop=Const(2.5))
    broken = attrs.evolve(core, program=(*core.program[:-1], loop))
    refused("2.5 computes with a float", attrs.evolve(plain.array, cores=(broken, *plain.array.cores[1:])))


# -- fifos and links -----------------------------------------------------------------------------


def moved_by_memory(make, size=256, **options):
    with building() as parts:
        into = ObjectFifo(((size,), "int32"), name="into")
        into.prod(tile=Lane("x", 0))
        made = make(into)

        def core(*ends):
            for end in ends:
                end.acquire()
                end.release()

        for fifo in made:
            Worker(core, [fifo.cons()])
        return parts.freeze("memory", options.get("dev", "npu2"))


def test_orders_cover_what_they_order():
    good = lambda f: [f.cons().forward(dims_to_stream=((16, 1), (16, 16)))]  # noqa: E731
    check(moved_by_memory(good))
    refused(
        "visits 240 elements; what it orders has 256", moved_by_memory(lambda f: [f.cons().forward(dims_to_stream=((15, 1), (16, 16)))])
    )
    refused("reaches element 270", moved_by_memory(lambda f: [f.cons().forward(dims_to_stream=((16, 2), (16, 16)))]))


def test_orders_of_a_forward_to_smaller_objects_order_the_larger():
    order = ((64, 1), (4, 64))
    check(moved_by_memory(lambda f: [f.cons().forward(((64,), "int32"), dims_to_stream=order)]))


def test_a_shim_orders_by_its_sequence():
    design = moved_by_memory(lambda f: [f.cons().forward()])
    into = design.fifo("into")
    rest = [f for f in design.fifos if f is not into]
    for change, words in (
        (dict(to_stream=((256, 1),)), "dims_to_stream on a shim"),
        (dict(repeat=2), "repeat_count on a shim"),
        (dict(pad=((1, 1),)), "pad_dimensions on a shim"),
        (dict(depth=0), "depth=0"),
        (dict(depth=(2,)), r"one for each of 2 ends"),
        (dict(consumers=("mem0", "mem0")), "two consumers on one tile"),
    ):
        refused(words, attrs.evolve(design, fifos=(attrs.evolve(into, **change), *rest)))


def test_padding_of_a_value_needs_aie2p():
    pad = lambda value: lambda f: [  # noqa: E731
        f.cons().forward(((288,), "int32"), dims_to_stream=((16, 16), (16, 1)), pad_dimensions=((1, 1), (0, 0)), pad_value=value)
    ]
    check(moved_by_memory(pad(3)))
    check(moved_by_memory(pad(0), dev="npu1"))
    refused("pad_value=3 on npu1", moved_by_memory(pad(3), dev="npu1"))


def test_parts_lie_side_by_side():
    half = ((128,), "int32")
    check(moved_by_memory(lambda f: f.cons().split([0, 128], [half, half])))
    refused("legal: rising, from 0", moved_by_memory(lambda f: f.cons().split([128, 0], [half, half])))
    refused("part 0 reaches from 0 to 64", moved_by_memory(lambda f: f.cons().split([0, 64], [half, half])))
    refused("legal: a memory tile", moved_by_memory(lambda f: f.cons().split([0, 128], [half, half], tile=Tile("core"))))


def test_links_hold_one_dtype_and_whole_multiples():
    refused("one a whole multiple", moved_by_memory(lambda f: [f.cons().forward(((96,), "int32"))]))
    refused("one dtype", moved_by_memory(lambda f: [f.cons().forward(((256,), "float32"))]))


def test_what_arrives_in_memory_leaves_by_one_link():
    design = moved_by_memory(lambda f: [f.cons().forward()])
    refused("is in no link", attrs.evolve(design, links=()))
    refused("is in 2 links", attrs.evolve(design, links=design.links * 2))


def test_names_are_names_of_one_part(plain):
    array = plain.array
    refused("two parts", attrs.evolve(array, fifos=(*array.fifos, array.fifos[0])))
    renamed = attrs.evolve(array.buffers[0], name="a0_cons")
    refused("'a0_cons'", attrs.evolve(array, buffers=(renamed, *array.buffers[1:])))


def test_tiles_are_on_the_device(plain):
    array = plain.array
    refused("col=9", attrs.evolve(array, tiles=(attrs.evolve(array.tiles[0], col=9), *array.tiles[1:])))
    refused("row=6", attrs.evolve(array, tiles=(attrs.evolve(array.tiles[0], row=6), *array.tiles[1:])))
    both = tuple(attrs.evolve(t, col=1, row=3) for t in array.tiles[:2])
    refused("both pinned", attrs.evolve(array, tiles=(*both, *array.tiles[2:])))


def test_control_flows_go_from_shim_to_shim(gather):
    check(gather)
    array, control = gather.array, gather.array.controls[0]
    for change, words in (
        (dict(target=control.source), "legal: two shim tiles with col="),
        (dict(source="mem0"), "legal: two shim tiles with col="),
        (dict(fifo=next(f.name for f in array.fifos if f.name != control.fifo)), "does not leave from"),
        (dict(name=array.fifos[0].name), "two parts"),
    ):
        refused(words, attrs.evolve(array, controls=(attrs.evolve(control, **change), *array.controls[1:])))
