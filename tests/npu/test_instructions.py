"""Instruction streams are read strictly and written again bit for bit."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from iron_npu.errors import ImageError
from iron_npu.formats import operations
from iron_npu.formats.addresses import name, split
from iron_npu.formats.instructions import Header, Stream, is_stream
from iron_npu.formats.operations import (
    OPERATIONS,
    BlockSet,
    BlockWrite,
    ConfigureDescriptor,
    ConfigureSharedDescriptor,
    CreateScratchpad,
    LoadPdi,
    LoadPm,
    MaskPoll,
    MaskPollBusy,
    MaskWrite,
    MergeSync,
    Noop,
    Patch,
    Preempt,
    ReadRegisters,
    Timer,
    UpdateRegister,
    UpdateScratch,
    UpdateState,
    Wait,
    Write,
)
from tests.npu.binaries import streams

HEADER = Header(4, 8)
SHIM2 = 2 << 25


def one(operation, header=HEADER) -> bytes:
    return Stream(header, (operation,)).write()


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def test_every_opcode_of_the_firmware_is_read():
    assert sorted(OPERATIONS) == [*range(16), 128, 129, 130, 131, 132]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (Write(SHIM2 | 0x1D214, 5), (0, 0, 0x0401D214, 0, 5, 24)),
        (BlockWrite(0x1D000, (7, 8), 0, 0), (1, 0, 0x1D000, 24, 7, 8)),
        (BlockWrite(SHIM2 | 0x1D000, (7,), 2, 0), (1, 2, 0x0401D000, 20, 7)),
        (MaskWrite(0x1D210, 0xF00, 0x1F00), (3, 0, 0x1D210, 0, 0xF00, 0x1F00, 28)),
        (BlockSet(0x1D000, (7,)), (2, 0, 0x1D000, 20, 7)),
        (MaskPoll(0x1D210, 1, 3), (4, 0, 0x1D210, 0, 1, 3, 28)),
        (MaskPollBusy(0x1D210, 1, 3), (7, 0, 0x1D210, 0, 1, 3, 28)),
        (Noop(), (5,)),
        (LoadPm(0x10203, 4), (9 | 0x10203 << 8, 4)),
        (UpdateState(5, 2, 16), (11 | 5 << 8 | 2 << 16, 16)),
        (UpdateScratch(), (13,)),
        (ConfigureDescriptor((1, 2)), (14, 16, 1, 2)),
        (ConfigureSharedDescriptor(()), (15, 8)),
        (ReadRegisters((1, 0, 0x1D000, 0)), (130, 24, 1, 0, 0x1D000, 0)),
        (Timer(9), (131, 12, 9)),
        (MergeSync(3, 4), (132, 16, 4 | 3 << 8, 0)),
        (Preempt(2), (6 | 2 << 8,)),
        (LoadPdi(3, 64, 1 << 40), (8 | 3 << 16, 64, 0, 256)),
        (CreateScratchpad(128), (10, 128, 0, 0)),
        (UpdateRegister(5, 1, 16, 0x1D004), (12 | 5 << 8 | 1 << 16, 16, 0x1D004)),
        (Wait(3, 0, 1, 1), (128, 16, 1 | 3 << 16, 1 << 8 | 1 << 16 | 1 << 24)),
        (Patch(0x1D004, 6, 0x80000100), (129, 48, 0, 0, 0, 0, 0x1D004, 0, 6, 0, 0x80000100, 0)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, operations.Operation) else "",
)
def test_words_of_an_operation(operation, expected):
    """As mlir-aie's encoder lays them out."""
    data = one(operation)
    assert words(data) == (6 << 24 | 4 << 16 | 1 << 8, 1 << 8 | 8, 1, len(data), *expected)
    assert Stream.read(data).operations == (operation,)


@settings(max_examples=200, deadline=None)
@given(streams())
def test_what_is_written_is_read_and_written_again(stream):
    data = stream.write()
    assert Stream.read(data) == stream and Stream.read(data).write() == data
    assert len(list(stream.lines())) == 1 + len(stream.operations)
    assert is_stream(data)


@settings(max_examples=50, deadline=None)
@given(streams(), some.data())
def test_a_stream_that_is_cut_anywhere_is_refused_in_a_line(stream, data):
    whole = stream.write()
    with pytest.raises(ImageError, match=r"^byte 0x"):
        Stream.read(whole[: data.draw(some.integers(0, len(whole) - 1))])


@settings(max_examples=200, deadline=None)
@given(streams(), some.data())
def test_what_is_read_of_other_words_is_written_again(stream, data):
    """Whatever a word is changed to: refused, or kept bit for bit."""
    whole = bytearray(stream.write())
    at = 4 * data.draw(some.integers(0, len(whole) // 4 - 1))
    whole[at : at + 4] = struct.pack("<I", data.draw(some.integers(0, 0xFFFFFFFF)))
    try:
        again = Stream.read(bytes(whole))
    except ImageError as error:
        assert str(error).isprintable() and len(str(error)) <= 300
    else:
        assert again.write() == bytes(whole)


def header(**changed: int) -> bytes:
    """A stream of one no-op whose header is otherwise."""
    word = {"w0": 6 << 24 | 4 << 16 | 1 << 8, "w1": 1 << 8 | 8, "count": 1, "nbytes": 20} | changed
    return struct.pack("<5I", *word.values(), 5)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "byte 0x0: 0 bytes; legal: whole 4-byte words, at least the header's 4."),
        (b"x" * 17, "byte 0x0: 17 bytes; legal: whole 4-byte words"),
        (header(w0=6 << 24 | 4 << 16 | 1), "byte 0x0: version 1.0; legal: 0.1."),
        (header(w0=6 << 24 | 9 << 16 | 1 << 8), "byte 0x0: generation 9; legal: 3 (npu1), 4 (npu2)."),
        (header(w0=2 << 24 | 4 << 16 | 1 << 8), "byte 0x0: 2 rows, 1 of memory tiles; legal: 3 to 32."),
        (header(w1=1 << 8), "byte 0x0: 0 columns; legal: 1 to 128."),
        (header(w1=1 << 16 | 1 << 8 | 8), "byte 0x4: the header has 0x00010000 in bits that mean nothing; legal: 0."),
        (header(count=2), "byte 0x8: the header counts 2 operations; legal: 1, which there are."),
        (header(count=0), "byte 0x10: words behind operation 0, the last one of the header's count; legal: none."),
        (header(nbytes=24), "byte 0xc: the header says 24 bytes; legal: the file's 20."),
        (header()[:-4] + struct.pack("<I", 99), "byte 0x10: opcode 99; legal: 0, 1, 2, "),
        (header()[:-4] + struct.pack("<I", 5 | 1 << 20), "byte 0x10: noop has 0x00100000 in bits that mean nothing; legal: 0."),
        (header()[:-4] + struct.pack("<I", 0), "byte 0x10: write has 6 words, and 1 are left."),
        (one(Write(0x1D000, 1))[:-4] + struct.pack("<I", 28), "byte 0x24: write of 28 bytes; legal: 24."),
        (one(BlockWrite(4, (1,))).replace(b"\x14\0\0\0", b"\x12\0\0\0"), "byte 0x1c: blockwrite of 18 bytes; legal: a multiple of 4"),
    ],
)  # fmt: skip
def test_each_fault_is_one_line(data, said):
    """With the byte, the rule, the value and what would be legal."""
    with pytest.raises(ImageError) as refused:
        Stream.read(data)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (Write(0x1D002, 1), "register 0x1d002; legal: a multiple of 4"),
        (Write(0x1D000, 1 << 32), "value=4294967296: 32 bits hold it; legal: 0 to 4294967295"),
        (Wait(0, 0, 2, 0), "direction 2; legal: 0 to 1, S2MM, MM2S"),
        (BlockWrite(SHIM2, (1,), 1, 0), "tile 1,0 beside an address in 2,0; legal: the same, or 0,0"),
        (BlockWrite(0xFFFFC, (1, 2)), "2 words from byte 0xffffc of a tile; legal: to its end at 0x100000"),
        (UpdateRegister(0, 3, 0, 0), "function 3; legal: 0 to 2, mul, incr, decr"),
        (BlockWrite(0, (-1,)), "data with a number outside"),
    ],
)
def test_values_that_no_stream_holds_are_refused_when_it_is_written(operation, said):
    with pytest.raises(ImageError, match=r"legal|outside") as refused:
        one(operation)
    assert said in str(refused.value)


def test_an_operation_outside_the_headers_array_is_refused():
    data = one(Write(8 << 25 | 0x1D000, 1))
    with pytest.raises(ImageError, match=r"byte 0x10: write to tile 8,0; legal: 0,0 to 7,5, the header's array"):
        Stream.read(data)


def test_a_line_names_tile_and_register():
    stream = Stream(HEADER, (Write(SHIM2 | 0x1D214, 5), Patch(0x1D024, 3, 64), Wait(1, 0, 0, 1, 2, 1)))
    assert list(stream.lines()) == [
        "npu2, 8 columns, 6 rows (1 of memory tiles), 3 operations",
        "0x00010 write 2,0 DMA_MM2S_0_Task_Queue = 0x5",
        "0x00028 patch 0,0 DMA_BD1_1 = argument 3 + 0x40",
        "0x00058 wait 1,0 S2MM 1 and 2 x 1 tiles from there on",
    ]


@pytest.mark.parametrize(
    ("kind", "offset", "expected"),
    [
        ("shim", 0x1D000, "DMA_BD0_0"), ("shim", 0x1D1FC, "DMA_BD15_7"), ("shim", 0x1D200, "DMA_S2MM_0_Ctrl"),
        ("shim", 0x1D20C, "DMA_S2MM_1_Task_Queue"), ("shim", 0x14010, "Lock1_value"), ("mem", 0xA0020, "DMA_BD1_0"),
        ("mem", 0xA0604, "DMA_S2MM_0_Start_Queue"), ("mem", 0xA0658, "DMA_MM2S_5_Ctrl"), ("mem", 0xC0000, "Lock0_value"),
        ("mem", 0x7FFFC, "Memory+0x7fffc"), ("core", 0x1DE14, "DMA_MM2S_0_Start_Queue"), ("core", 0x1F0F0, "Lock15_value"),
        ("core", 0x400, "Memory+0x400"), ("core", 0x20010, "Program+0x10"), ("core", 0x32000, "Core_Control"),
        ("core", 0x3F004, "Stream_Switch+0x4"), ("core", 0x40000, "0x40000"),
    ],
)  # fmt: skip
def test_registers_are_named(kind, offset, expected):
    assert name(kind, offset) == expected
    assert split(3 << 25 | 2 << 20 | offset) == (3, 2, offset)
