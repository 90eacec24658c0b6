"""Printing: the small array byte for byte, and each part of the vocabulary as the operations it becomes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.array import Buffer, Lock, ObjectFifo, Worker, else_, if_, maximum, range_, set_rounding
from iron_core.array.build import build, build_array
from iron_core.array.builder import Builder
from iron_core.array.descriptors import Descriptor
from iron_core.array.design import Design
from iron_core.array.sequence import Await, Free, Sequence, SequenceArgument, Transfer
from iron_core.array.tile import Lane, Tile
from iron_core.declare.objects import ObjectType
from iron_core.devices import device
from iron_core.errors import CallError, DeclarationError, UnsupportedError
from iron_npu.mlir.printer import Printed, print_array, print_design
from tests.npu.structural import check, require

HERE = Path(__file__).parent
X = ObjectType.of(64, "int32")


def sequence(*transfers: Transfer, more: tuple[Any, ...] = (), size: int = 4096) -> Sequence:
    """Transfers, then whatever frees them."""
    arguments = (SequenceArgument("x", "int32", size), SequenceArgument("y", "int32", size))
    ends = tuple(Await(t.task) if t.token else Free(t.task) for t in transfers)
    return Sequence(arguments, (), (*more, *transfers, *ends))


def line(n: int, offset: int = 0) -> Descriptor:
    return Descriptor.of(offset, ((n, 1),))


def fill(task: int, *descriptors: Descriptor, token: bool = False) -> Transfer:
    return Transfer(task, "fill", "x", "x0", descriptors, token)


def drain(task: int, n: int) -> Transfer:
    return Transfer(task, "drain", "y", "y0", (line(n),), True)


def printed(arrays: Any, core: Any, *args: Any) -> Printed:
    """A core between x0 and y0 with these further arguments, and a sequence that moves one object each way."""

    def make(builder: Builder) -> None:
        x, y = ObjectFifo(X, name="x0"), ObjectFifo(X, name="y0")
        shim = Tile("shim", 0)
        x.prod(tile=Lane("x", 0, shim))
        y.cons(tile=Lane("y", 0, shim))
        made = [part() for part in args]
        Worker(core, [x.cons(), y.prod(), *made], tile=Tile("core", 0, 2), name="worker")

    made = print_design(Design(arrays.frozen(make), sequence(drain(0, 64), fill(1, line(64)))))
    require(made.text)
    return made


def plain(arrays: Any) -> Any:
    """x0 to y0 through a core that copies one object after the other."""

    def make(builder: Builder) -> None:
        x, y = ObjectFifo(X, name="x0"), ObjectFifo(X, name="y0")
        shim = Tile("shim", 0)
        x.prod(tile=Lane("x", 0, shim))
        y.cons(tile=Lane("y", 0, shim))
        kernel = arrays.copier()
        Worker(lambda a, b: pass_on(a, b, kernel), [x.cons(), y.prod()], tile=Tile("core", 0, 2), name="worker")

    return arrays.frozen(make)


def pass_on(x: Any, y: Any, work: Any) -> None:
    a, b = x.acquire(), y.acquire()
    work(a, b)
    x.release()
    y.release()


def test_a_small_design_byte_for_byte(arrays):
    text = print_design(arrays.calls()).text
    assert text == (HERE / "calls.mlir").read_text()
    require(text)


def test_per_call_words_as_scalars_of_the_sequence(arrays):
    text = print_design(arrays.calls("npu1")).text
    assert "(%x : memref<4096xi32>, %y : memref<1024xi32>, %count : i32, %rows : i32, %start : i32)" in text
    assert "aie.dma_bd(%x : memref<4096xi32> offset = %start len = %length sizes = [1, 1, %length_i64] strides = [0, 0, 1])" in text
    assert "aiex.npu.rtp_write(@words, 0, %count_kept) : i32" in text and "scratchpad" not in text
    assert check(text) == ()


def test_the_array_is_the_same_text_however_its_words_come(arrays):
    design = arrays.calls()
    ways = [print_design(design, words=way).text for way in ("scratchpad", "arguments")]
    cores = [re.search(r"aie\.device.*?aie\.runtime_sequence", text, re.S) for text in ways]
    assert cores[0] and cores[1] and cores[0][0] == cores[1][0]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (dict(words="registers"), "words='registers'; legal: scratchpad, arguments"),
        (dict(spelling="register"), "spelling='register'; legal: parameter, patch"),
    ],
)
def test_a_way_that_there_is_not_is_refused(arrays, asked, says):
    """With those that there are."""
    with pytest.raises(CallError, match=says):
        print_design(arrays.calls(), **asked)


def test_a_length_in_the_other_spelling(arrays):
    text = print_design(arrays.calls(), spelling="parameter").text
    assert "length_parameter = @rows_length, length_unit = 64 : i32" in text
    assert "bd_id" not in text and "column" not in text and check(text) == ()


def test_integers_branches_and_stores(arrays):
    def core(x: Any, y: Any, table: Any) -> None:
        a, b = x.acquire(), y.acquire()
        for i in range_(3, 60, 2):
            n = a[i * 2 % 64]
            with if_(n > maximum(i, 5)):
                b[i // 3] = n - 1
            with else_():
                table[0] = n + table[1]
        x.release()
        y.release()

    text = printed(arrays, core, lambda: Buffer(4, "int32", name="table", initial_value=(1, 2, 3, 4))).text
    for operation in ("muli", "remsi", "maxsi", "cmpi sgt", "divsi", "subi", "addi"):
        assert f"arith.{operation}" in text
    assert '{sym_name = "table"} : memref<4xi32> = dense<[1, 2, 3, 4]>' in text
    assert "} else {" in text and "memref.store" in text


def test_narrow_numbers_are_widened_as_their_sign_says(arrays):
    def core(x: Any, y: Any, small: Any, large: Any) -> None:
        def work(a: Any, b: Any) -> None:
            b[0] = small[0] + large[0]
            small[1] = b[0]

        pass_on(x, y, work)

    text = printed(
        arrays,
        core, lambda: Buffer(4, "int8", name="small"), lambda: Buffer(2, "uint8", name="large")
    ).text
    assert "arith.extsi" in text and "i8 to i32" in text and "arith.extui" in text and "arith.trunci" in text


def test_part_of_an_object_goes_through_an_adapter(arrays):
    kernel: list[Any] = []

    def core(x: Any, y: Any) -> None:
        def work(a: Any, b: Any) -> None:
            for i in range_(4):
                kernel[0](a.sub(i * 16, 16), b.sub(i * 16, 16))

        pass_on(x, y, work)

    kernel.append(arrays.copier("copy16", 16))
    made = printed(arrays, core)
    symbol = kernel[0].data.symbol
    assert f"func.func private @{symbol}_at_64_64(memref<64xi32>, i32, memref<64xi32>, i32)" in made.text
    (one,) = made.objects
    assert one.file == f"{symbol}.o"
    assert f"{symbol}_at_64_64(uint32_t * a0, int32_t o0, uint32_t * a1, int32_t o1) {{ {symbol}(a0 + o0, a1 + o1); }}" in one.source


def test_adapters_are_c_plus_plus(arrays, tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    kernel = arrays.copier("copy16", 16)

    def core(x: Any, y: Any) -> None:
        pass_on(x, y, lambda a, b: kernel(a.sub(16, 16), b.sub(0, 16)))

    (one,) = printed(arrays, core).objects
    source = tmp_path / "adapters.cc"
    source.write_text(one.source)
    subprocess.run([compiler, "-fsyntax-only", "-Wall", "-Werror", str(source)], check=True)


def test_a_whole_object_given_as_a_part_needs_no_adapter(arrays):
    kernel = arrays.copier()

    def core(x: Any, y: Any) -> None:
        pass_on(x, y, lambda a, b: kernel(a.sub(0, 64), b))

    made = printed(arrays, core)
    assert "_at_" not in made.text and made.objects[0].source == ""


def test_locks_and_rounding(arrays):
    def core(x: Any, y: Any) -> None:
        set_rounding("conv_even")
        pass_on(x, y, lambda a, b: (lock.acquire(2), lock.release(1)))

    lock: Any = None

    def make(builder: Builder) -> None:
        nonlocal lock
        tile = Tile("core", 0, 2)
        lock = Lock(init=3, name="turn", tile=tile)
        x, y = ObjectFifo(X, name="x0"), ObjectFifo(X, name="y0")
        shim = Tile("shim", 0)
        x.prod(tile=Lane("x", 0, shim))
        y.cons(tile=Lane("y", 0, shim))
        Worker(core, [x.cons(), y.prod()], tile=tile, name="worker", while_true=False)

    made = print_design(Design(arrays.frozen(make), sequence(drain(0, 64), fill(1, line(64)))))
    require(made.text)
    assert '%turn = aie.lock(%tile_0_2) {init = 3 : i32}' in made.text
    assert "aie.use_lock(%turn, AcquireGreaterEqual, %c2_i32)" in made.text
    assert "func.call @iron_set_rounding_conv_even() : () -> ()" in made.text and "scf.for" not in made.text
    assert [one.file for one in made.objects] == ["iron_set_rounding_conv_even.o"]
    assert "rounding_mode::conv_even" in made.objects[0].source


def links(kernel: Any) -> Any:
    """x split in two over a memory tile, in another order, copied by two cores and joined again."""
    return lambda builder: _links(kernel)


def _links(copy: Any) -> None:
    mem = Tile("mem", 0)
    whole = ObjectType.of(128, "int32")
    x, y = ObjectFifo(whole, name="x0"), ObjectFifo(whole, name="y0")
    shim = Tile("shim", 0)
    x.prod(tile=Lane("x", 0, shim))
    y.cons(tile=Lane("y", 0, shim))
    into = x.cons().split([0, 64], [X, X], tile=mem, names=["a0", "a1"], dims_to_stream=[(4, 1), (16, 4)], repeat_count=2)
    out = y.prod().join([0, 64], [X, X], tile=mem, names=["b0", "b1"])

    def core(a: Any, b: Any, kernel: Any) -> None:
        one, two = a.acquire(2)
        kernel(one, b.acquire())
        kernel(two, b.acquire())
        a.release(2)
        b.release()

    for i in range(2):
        Worker(core, [into[i].cons(depth=3), out[i].prod(), copy], tile=Tile("core", 0, 2 + i), name=f"core{i}")


def test_links_orders_depths_and_repeats(arrays):
    text = print_design(Design(arrays.frozen(links(arrays.copier())), sequence(drain(0, 128), fill(1, line(128))))).text
    require(text)
    assert "aie.objectfifo.link [@x0] -> [@a0, @a1]([] [0, 64])" in text
    assert "aie.objectfifo.link [@b0, @b1] -> [@y0]([0, 64] [])" in text
    assert (
        "aie.objectfifo @a0(%tile_0_1 dimensionsToStream [<size = 4, stride = 1>, <size = 16, stride = 4>], {%tile_0_2}, "
        "[2 : i32, 3 : i32]) {repeat_count = 2 : i32} : !aie.objectfifo<memref<64xi32>>"
    ) in text


def test_forward_pad_broadcast_and_first_objects(arrays):
    def make(builder: Builder) -> None:
        mem = Tile("mem", 0)
        x, y = ObjectFifo(ObjectType.of(60, "int32"), name="x0"), ObjectFifo(X, name="y0")
        shim = Tile("shim", 0)
        x.prod(tile=Lane("x", 0, shim))
        y.cons(tile=Lane("y", 0, shim))
        a = x.cons().forward(X, tile=mem, name="a", dims_to_stream=[(60, 1)], pad_dimensions=[(1, 3)], pad_value=7)
        t = ObjectFifo(X, name="t", via_DMA=True, depth=1, init_values=[(5,) * 64])
        Worker(
            lambda a, y, t: pass_on(a, y, lambda m, n: (t.acquire(), t.release())),
            [a.cons(), y.prod(), t.prod()],
            tile=Tile("core", 0, 2),
            name="one",
        )
        Worker(lambda a, t: (a.acquire(), t.acquire(), t.release(), a.release()), [a.cons(), t.cons()], tile=Tile("core", 0, 3), name="two")

    text = print_array(arrays.frozen(make))
    assert (
        "{%tile_0_2, %tile_0_3}, 2 : i32) {padDimensions = "
        "#aie<bd_pad_layout_array[<const_pad_before = 1, const_pad_after = 3>]>, padValue = 7 : i32}"
        in text
    )
    assert "aie.objectfifo.link [@x0] -> [@a]([] [])" in text
    assert "1 : i32) {via_DMA = true} : !aie.objectfifo<memref<64xi32>> = [dense<5> : memref<64xi32>]" in text


def test_free_tiles_are_left_to_the_tools(arrays):
    design = arrays.calls()
    loose = attrs.evolve(
        design.array, tiles=tuple(attrs.evolve(t, col=None, row=0 if t.kind == "shim" else None) for t in design.array.tiles)
    )
    text = print_design(Design(loose, design.sequence), words="arguments", placement={}).text
    assert "aie.logical_tile<ShimNOCTile>(?, 0)" in text and "aie.logical_tile<CoreTile>(?, ?)" in text and check(text) == ()
    with pytest.raises(UnsupportedError, match="place the array first"):
        print_design(Design(loose, design.sequence), placement={})
    require(print_design(Design(loose, design.sequence)).text)


def test_tiles_at_one_place_are_one_tile(arrays):
    design = arrays.calls()
    text = print_design(design, placement={"core0": (3, 4), "shim0": (1, 0), "shim1": (1, 0)}).text
    assert text.count("aie.tile(") == 2 and "column = 1 : i32" in text and check(text) == ()


def test_iterations_and_repeats_are_the_tasks(arrays):
    still = Descriptor(0, (3, 1, 1, 64), (0, 0, 0, 1))
    steps = Descriptor(0, (3, 2, 4, 8), (64, 32, 8, 1))
    text = print_design(Design(plain(arrays), sequence(fill(0, still), fill(1, steps, token=True), drain(2, 64)))).text
    assert "offset = 0 len = 64)\n        aie.end\n      } {repeat_count = 2 : i32}" in text
    assert (
        "len = 64 sizes = [3, 2, 4, 8] strides = [64, 32, 8, 1])\n        aie.end\n      } {issue_token = true, repeat_count = 2 : i32}"
        in text
    )
    assert check(text) == ()


def test_several_descriptors_are_a_chain_unless_one_iterates(arrays):
    parts = (line(64), line(64, 128))
    text = print_design(Design(plain(arrays), sequence(fill(0, *parts, token=True), drain(1, 64)))).text
    assert "aie.next_bd ^bd1\n      ^bd1:" in text and text.count("configure_task_for @x0") == 1
    steps = (Descriptor(0, (2, 1, 4, 8), (64, 0, 16, 1)), line(64, 1024))
    text = print_design(Design(plain(arrays), sequence(fill(0, *steps, token=True), drain(1, 64)))).text
    assert text.count("configure_task_for @x0") == 2 and text.count("issue_token") == 2
    assert "aiex.dma_await_task(%x0_task_1)\n      aiex.dma_free_task(%x0_task)" in text and check(text) == ()


def test_control_packets_have_a_channel_a_flow_and_tokens():
    from iron_ops_aie import Copy

    op = Copy(input_size=96, gather=True, table_rows=12, rows=5, X=np.float32)
    text = print_design(build(op, "npu2").design).text
    require(text)
    assert re.search(r"aie\.shim_dma_allocation @control0\(%tile_\d_0, MM2S, 0\)", text)
    assert re.search(r"aie\.packet_source<%tile_\d_0, DMA : 0>\n +aie\.packet_dest<%tile_\d_0, TileControl : 0>", text)
    assert "{prod_dma_channel = 1 : i32}" in text
    assert re.search(r"aie\.dma_bd\(%ids : .*\{packet = #aie\.packet_info<pkt_type = 0, pkt_id = 1>\}", text)
    assert "aiex.npu.sync(%c0_i32, %c0_i32, %c1_i32, %c1_i32, %c1_i32, %c1_i32) : i32, i32, i32, i32, i32, i32" in text


def test_what_cannot_be_printed_is_refused(arrays):
    def core(x: Any, y: Any, words: Any) -> None:
        words[0] = 1

    def make(builder: Builder) -> None:
        words = Buffer(1, "int32", name="words", use_write_rtp=True)
        Worker(core, [ObjectFifo(X, name="x0").cons(), ObjectFifo(X, name="y0").prod(), words], tile=Tile("core", 0, 2))
        builder.fifos[0].prod(tile=Lane("x", 0, Tile("shim", 0)))
        builder.fifos[1].cons(tile=Lane("y", 0, Tile("shim", 0)))
        builder.bind("count", "words", 0)

    with pytest.raises(DeclarationError, match="the sequence writes per call"):
        print_array(arrays.frozen(make))
    held = Design(plain(arrays), Sequence((SequenceArgument("x", "int32", 64),), (), (fill(0, line(64)),)))
    with pytest.raises(UnsupportedError, match="still held"):
        print_design(held, placement={})


def test_a_catalog_operator_on_both_devices():
    from iron_ops_aie import ElementwiseAdd

    for dev in ("npu1", "npu2"):
        for bound in ((), ("valid",)):
            design = build(ElementwiseAdd(size=8192), dev, bound).design
            text = print_design(design, words="arguments").text
            assert check(text) == (), dev


def test_words_that_are_always_equal_are_one():
    from iron_ops_aie import ElementwiseAdd

    design = build(ElementwiseAdd(size=8192), "npu2", ("valid",)).design
    assert len(design.sequence.words) == 4
    assert print_design(design).text.count("aiex.scratchpad_parameter") == 2
    text = print_design(design, words="arguments").text
    assert re.search(r"%y : memref<8192xbf16>, %count : i32, %valid_y : i32\) \{", text) and check(text) == ()


def test_kernels_made_by_one_call_are_one_object():
    from iron_ops_aie import MHA

    made = print_design(build(MHA(num_heads=2, seq_len=64, d=64), "npu2").design)
    (shared,) = [one for one in made.objects if one.file.startswith("mha_")]
    assert len(shared.kernels) > 2
    for kernel in shared.kernels:
        assert re.search(rf'@{kernel.symbol}\(.*link_with = "{shared.file}"', made.text)


def test_two_extents_are_one_array_byte_for_byte():
    from iron_ops_aie import ElementwiseAdd

    one, two = (ElementwiseAdd(size=n, tile_size=256, num_aie_columns=2).resolved(device("npu2")) for n in (4096, 65536))
    assert print_array(build_array(one, "npu2").array) == print_array(build_array(two, "npu2").array)
