"""Replayed onto the registers, a stream gives back the transfers that it starts and the tokens that it waits for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from iron_npu.errors import ImageError
from iron_npu.formats.descriptors import FIELDS, Descriptor, Update, fields_of, merged, words_of_fields
from iron_npu.formats.instructions import Header, Stream
from iron_npu.formats.operations import (
    BlockSet,
    BlockWrite,
    ConfigureDescriptor,
    LoadPdi,
    MaskWrite,
    Patch,
    UpdateRegister,
    Wait,
    Write,
)
from iron_npu.formats.registers import RegisterModel, Transfer, interpret
from tests.npu.binaries import streams

HEADER = Header(4, 8)
SHIM3, MEM3, CORE3 = 3 << 25, 3 << 25 | 1 << 20, 3 << 25 | 2 << 20
BD = 0x1D000
QUEUE = 0x1D214


def steps(*operations, **options):
    return interpret(Stream(HEADER, operations), **options)


def shim(**fields: int) -> tuple[int, ...]:
    return tuple(words_of_fields("shim", valid=1, **fields))


@pytest.mark.parametrize("kind", FIELDS)
def test_a_descriptors_fields_are_bits_of_their_own(kind):
    """No two share a bit; every field's largest number comes back, and no other with it."""
    for field in FIELDS[kind]:
        most = (1 << field.bits) - 1
        found = fields_of(kind, words_of_fields(kind, **{field.name: most}))
        assert {name: value for name, value in found.items() if value} == {field.name: most}
    assert sum(field.bits for field in FIELDS[kind]) <= 256


@pytest.mark.parametrize(
    ("kind", "words", "field", "expected"),
    [
        ("shim", (0, 0, 0, 5 << 20, 0, 0, 0, 0), "wrap0", 5), ("shim", (0, 0, 0, 0, 0, 0, 3 << 20, 0), "iteration_wrap", 3),
        ("shim", (0, 0, 0, 0, 0, 0, 0, 9 << 27), "next", 9), ("core", (3 << 14, 0, 0, 0, 0, 0, 0, 0), "base", 3),
        ("core", (0, 0, 0, 7 << 21, 0, 0, 0, 0), "wrap1", 7), ("core", (0, 0, 0, 0, 0, 3 << 5, 0, 0), "acquire", 3),
        ("mem", (0, 40 << 20, 0, 0, 0, 0, 0, 0), "next", 40), ("mem", (0, 0, 0, 0, 0, 63 << 17, 0, 0), "after0", 63),
        ("mem", (0, 0, 0, 0, 0, 0, 0, 5 << 16), "release_lock", 5),
    ],
)  # fmt: skip
def test_where_a_field_stands(kind, words, field, expected):
    assert fields_of(kind, words)[field] == expected


def test_a_push_gives_back_a_shims_transfer():
    """Its walk in words, its argument and offset, executions and token."""
    words = shim(length=64, wrap0=8, step0=0, wrap1=4, step1=99, step2=999, iteration_wrap=2, iteration_step=4095)
    push = 5 | 2 << 16 | 1 << 31
    (moved,) = steps(
        BlockWrite(SHIM3 | BD + 5 * 32, words), Patch(SHIM3 | BD + 5 * 32 + 4, 2, 0x40), Write(SHIM3 | QUEUE, push)
    )
    (one,) = moved.descriptors
    assert (moved.column, moved.row, moved.direction, moved.channel) == (3, 0, "MM2S", 0)
    assert (moved.first, moved.executions, moved.token, moved.loops) == (5, 3, True, False)
    assert (one.sizes, one.strides, one.iteration) == ((2, 4, 8), (1000, 100, 1), (3, 4096))
    assert (one.argument, one.offset, one.length) == (2, 0x40, 64)
    assert one.walk(3) == ((3, 4096), (2, 1000), (4, 100), (8, 1))
    assert one.walk(6) == ((2, 0), (3, 4096), (2, 1000), (4, 100), (8, 1))
    assert moved.spoken() == (
        "3,0 MM2S 0 descriptor 5, 3:4096 x 2:1000 x 4:100 x 8:1 words at argument 2 + 0x40, with a token"
    )


@pytest.mark.parametrize(("offset", "direction", "channel"), [(0x1D204, "S2MM", 0), (0x1D20C, "S2MM", 1), (0x1D21C, "MM2S", 1)])
def test_each_queue_is_a_channels(offset, direction, channel):
    (moved,) = steps(Write(SHIM3 | offset, 0))
    assert (moved.direction, moved.channel, moved.descriptors) == (direction, channel, ())


def test_descriptors_of_memory_tiles_and_cores_are_read_by_their_own_bits():
    mem = tuple(words_of_fields("mem", length=32, base=16, wrap0=2, step0=0, wrap1=4, step1=9, wrap2=2, step2=99, step3=999))
    core = tuple(words_of_fields("core", length=6, base=4, wrap0=3, step0=1, packet=1, packet_id=7, packet_type=2))
    found = steps(
        BlockWrite(MEM3 | 0xA0000 + 40 * 32, mem), Write(MEM3 | 0xA0634, 40),
        BlockWrite(CORE3 | BD, core), Write(CORE3 | 0x1DE04, 0),
    )  # fmt: skip
    assert [(one.row, one.direction, one.channel, one.first) for one in found] == [(1, "MM2S", 0, 40), (2, "S2MM", 0, 0)]
    (there,), (here,) = (one.descriptors for one in found)
    assert (there.address, there.dims) == (64, ((2, 1000), (2, 100), (4, 10), (2, 1)))
    assert (here.address, here.dims, here.packet, here.argument) == (16, ((1, 0), (2, 1), (3, 2)), (7, 2), None)


def test_a_chain_is_followed_and_one_that_goes_round_ends():
    def link(number: int, following: int | None):
        use = {} if following is None else {"use_next": 1, "next": following}
        return BlockWrite(SHIM3 | BD + 32 * number, shim(length=8 + number, **use))

    (straight,) = steps(link(0, 3), link(3, 1), link(1, None), Write(SHIM3 | QUEUE, 0))
    assert [one.number for one in straight.descriptors] == [0, 3, 1] and not straight.loops
    (ring,) = steps(link(0, 3), link(3, 0), Write(SHIM3 | QUEUE, 0))
    assert [one.length for one in ring.descriptors] == [8, 11] and ring.loops


def test_a_descriptor_is_what_was_written_last():
    """Word by word and by masks too; a block over it takes a patch away, and configuring the array all of it."""
    place = SHIM3 | BD
    first = (BlockWrite(place, shim(length=8)), Patch(place + 4, 1, 64))
    push = Write(SHIM3 | QUEUE, 0)
    (one,) = steps(*first, Write(place, 16), MaskWrite(place + 8, 1 << 30 | 9 << 19, 1 << 30 | 31 << 19), push)
    assert (one.descriptors[0].length, one.descriptors[0].packet, one.descriptors[0].argument) == (16, (9, 0), 1)
    (over,) = steps(*first, BlockWrite(place, shim(length=4, low=256, high=2)), push)
    assert (over.descriptors[0].argument, over.descriptors[0].address) == (None, 2 << 32 | 256)
    (gone,) = steps(*first, LoadPdi(1), push)
    assert gone.descriptors == () and "not written here" in gone.spoken()


def test_what_a_configuration_wrote_is_known():
    before = RegisterModel()
    for k, word in enumerate(words_of_fields("core", length=6)):
        before.write(CORE3 | BD + 4 * k, word)
    (moved,) = steps(Write(CORE3 | 0x1DE14, 0), registers=before)
    assert moved.descriptors[0].length == 6


def test_words_of_the_scratchpad_are_told():
    place = SHIM3 | BD
    (moved,) = steps(
        BlockWrite(place, shim(length=8)), Patch(place + 4, 1), UpdateRegister(3, 0, 4, place + 4),
        Write(place, 0), UpdateRegister(1, 0, 16, place), Write(SHIM3 | QUEUE, 0),
    )  # fmt: skip
    (one,) = moved.descriptors
    assert (one.length, one.length_by, one.offset_by) == (0, Update(1, 0, 16), Update(3, 0, 4))
    assert "length by word 1, offset by word 3" in moved.spoken()


@pytest.mark.parametrize(("argument", "expected"), [(4, 0x80000040), (5, 0x40)])
def test_the_hosts_memory_is_taken_off_the_arguments_that_firmware_leaves(argument, expected):
    place = SHIM3 | BD
    operations = (BlockWrite(place, shim(length=8)), Patch(place + 4, argument, 0x80000040), Write(SHIM3 | QUEUE, 0))
    (folded,), (plain,) = steps(*operations, folded=True), steps(*operations)
    assert (folded.descriptors[0].offset, plain.descriptors[0].offset) == (expected, 0x80000040)


def test_waits_come_in_order():
    wait = Wait(3, 0, 0, 1)
    found = steps(Write(SHIM3 | QUEUE, 0), wait, Write(SHIM3 | 0x1D204, 1))
    assert [type(one) for one in found] == [Transfer, Wait, Transfer] and found[1] == wait


@pytest.mark.parametrize("operation", [BlockSet(0x1D000, (0,)), ConfigureDescriptor((1,))])
def test_an_operation_whose_effect_is_not_known_is_refused(operation):
    with pytest.raises(ImageError, match=f"operation 0, {operation.name}: what it writes is not known; legal: "):
        steps(operation)


@settings(max_examples=100, deadline=None)
@given(streams())
def test_any_stream_is_interpreted_or_refused(stream):
    try:
        found = interpret(stream)
    except ImageError as error:
        assert "is not known" in str(error)
    else:
        assert sum(isinstance(one, Wait) for one in found) == sum(isinstance(one, Wait) for one in stream.operations)


def addresses(dims):
    return [sum(map(int.__mul__, at, (s for _, s in dims))) for at in itertools.product(*(range(n) for n, _ in dims))]


@settings(max_examples=200, deadline=None)
@given(some.lists(some.tuples(some.integers(1, 4), some.integers(0, 12)), max_size=4), some.data())
def test_walks_are_equal_where_they_are_merged_to_the_same(dims, data):
    """Merging keeps every address; two walks of the same addresses merge to the same dimensions."""
    assert addresses(merged(dims)) == addresses(dims)
    other = data.draw(some.lists(some.tuples(some.integers(1, 4), some.integers(0, 12)), max_size=4))
    assert (merged(dims) == merged(other)) is (addresses(dims) == addresses(other))


def test_a_length_below_a_wrap_cuts_it():
    cut = Descriptor(0, 6, (0, 4, 8), (64, 16, 1))
    assert (cut.sizes, cut.strides) == ((1, 1, 6), (0, 0, 1))
