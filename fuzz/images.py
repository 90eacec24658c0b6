"""Files of an NPU's image in memory: xclbins, instruction streams, tables of parameters, control packets; a million take minutes."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from pathlib import Path

import attrs

from fuzz import seeds
from fuzz.mutation import Mutator
from fuzz.rule import Fault, told
from iron_npu.errors import ImageError
from iron_npu.files.comparison import VERDICTS, compare, worst
from iron_npu.files.description import described
from iron_npu.files.opened import Opened, of
from iron_npu.formats.control_packets import ControlPacket, read_packets
from iron_npu.formats.fields import ONES, bytes_of, words_of
from iron_npu.formats.instructions import Header, Stream
from iron_npu.formats.operations import (
    BlockWrite,
    CreateScratchpad,
    LoadPdi,
    MaskWrite,
    Operation,
    Patch,
    Preempt,
    UpdateRegister,
    Wait,
    Write,
)
from iron_npu.formats.parameters import ParameterTable
from iron_npu.formats.partition import CdoGroup, Partition, PdiEntry
from iron_npu.formats.pdi import DMA_WRITE, MASK_WRITE, NOP, WRITE, Cdo, Command, Pdi
from iron_npu.formats.sections import KINDS, Bank, Connection, Connectivity, IpLayout, MemoryTopology, Place
from iron_npu.formats.xclbin import Section, XclbinFile, XclbinHeader

_LENGTH_AT, _STREAM_LENGTH_AT = 0x130, 12


# -- whole files -----------------------------------------------------------------------------------------


@functools.cache
def _pdi() -> bytes:
    core = 2 << 20
    commands = (
        Command(DMA_WRITE, (0, core | 0x20000, *range(10))),
        Command(DMA_WRITE, (0, core | 0x400, *range(20)), long=True),
        Command(WRITE, (core | 0x3F000, 5)),
        Command(MASK_WRITE, (core | 0x32000, 1, 1)),
        Command(NOP),
    )
    return Pdi("aie_image", (Cdo(commands), Cdo(commands[2:]))).write()


@functools.cache
def _xclbin() -> XclbinFile:
    banks = MemoryTopology((Bank("HOST", 0x10000), Bank("SRAM", 0xC000))).write()
    links = Connectivity((Connection(1, 0, 1), Connection(3, 0, 0))).write()
    bodies = {
        "MEM_TOPOLOGY": banks, "AIE_PARTITION": _partition(_pdi()), "EMBEDDED_METADATA": seeds.XML,
        "IP_LAYOUT": IpLayout((Place("MLIR_AIE:MLIRAIE", 7, 0x9010001),)).write(), "CONNECTIVITY": links, "GROUP_CONNECTIVITY": links,
        "GROUP_TOPOLOGY": banks,
    }  # fmt: skip
    sections = (Section(KINDS[name], data, name.lower()[:15]) for name, data in bodies.items())
    return XclbinFile(XclbinHeader(1, 2, uuid=bytes(16)), tuple(sections)).mirrored()


def _partition(image: bytes) -> bytes:
    group = CdoGroup("DPU", kernels=(0x901,), before=(0xC1,))
    return Partition("QoS", 8, (0,), (PdiEntry(bytes(16), image, (group,)), PdiEntry(bytes(16), image[:64]))).write()


@functools.cache
def _streams() -> tuple[bytes, ...]:
    shim, queue = 1 << 25 | 0x1D000, 1 << 25 | 0x1D214
    one: tuple[Operation, ...] = (
        CreateScratchpad(128), LoadPdi(1), BlockWrite(shim, (64, 0, 0, 8 << 20, 1 << 30, 0, 0, 1 << 25)), Patch(shim + 4, 6, 0x80000040),
        UpdateRegister(1, 0, 4, shim + 4), MaskWrite(1 << 25 | 0x1D210, 0xF00, 0x1F00), Write(queue, 1 << 31), Wait(1, 0, 1, 0), Preempt(1),
    )  # fmt: skip
    ring: tuple[Operation, ...] = (
        BlockWrite(shim, (8, 0, 0, 0, 0, 0, 0, 3 << 25 | 1 << 27)),
        BlockWrite(shim + 32, (8, 0, 0, 0, 0, 0, 0, 3 << 25)),
        Write(queue, 255 << 16),
    )
    return tuple(Stream(Header(4, 8), operations).write() for operations in (one, ring))


@functools.cache
def _table() -> bytes:
    return b"3\ncount_core 0 i32 core\nrows_length 5 i16 core\nstart_offset 31 i32 addr\n"


@functools.cache
def _packets() -> bytes:
    packets = (ControlPacket(0x1D000, (1, 2, 3, 4)), ControlPacket(0x1D004, (), "read", 2, 3), ControlPacket(0x1D21C, (1 << 31,)))
    return bytes_of([word for one in packets for word in one.write()])


@functools.cache
def _whole(data: bytes) -> Opened:
    return of("whole", data)


# -- the targets -----------------------------------------------------------------------------------------


def npu_xclbin(mutator: Mutator, folder: Path) -> str:
    """An xclbin, damaged anywhere or in one part of it with the rest made to fit, and beside the whole one."""
    rng, whole = mutator.rng, _xclbin()
    draw = rng.random()
    if draw < 0.35:
        data = mutator.raw(whole.write())
        if rng.random() < 0.7 and len(data) >= _LENGTH_AT + 8:
            data = data[:_LENGTH_AT] + struct.pack("<Q", len(data)) + data[_LENGTH_AT + 8 :]
    elif draw < 0.45:
        data = attrs.evolve(whole, mirror=mutator.raw(whole.mirror or b"")).write()
    else:
        sections = list(whole.sections)
        at = rng.choice((1, 1, 1, *range(len(sections))))
        body = _partition(mutator.raw(_pdi())) if at == 1 and rng.random() < 0.6 else mutator.raw(sections[at].data)
        sections[at] = attrs.evolve(sections[at], data=body)
        made = attrs.evolve(whole, sections=tuple(sections))
        data = made.write()
    return _read("a.xclbin", data, lambda file: _compared(file, whole.write()))


def npu_instructions(mutator: Mutator, folder: Path) -> str:
    """An instruction stream, its length mended more often than not; what is taken is written again bit for bit."""
    rng = mutator.rng
    whole = rng.choice(_streams())
    data = _mended(mutator, whole)

    def used(file: Opened) -> None:
        assert isinstance(file.content, Stream)
        if file.content.write() != data or not list(file.content.lines()):
            raise Fault("a stream is not written as it was read")
        _compared(file, whole)

    return _read("insts.bin", data, used)


def npu_parameters(mutator: Mutator, folder: Path) -> str:
    """A table of parameters; what is taken packs a scratchpad."""
    data = mutator.raw(_table())

    def used(file: Opened) -> None:
        assert isinstance(file.content, ParameterTable)
        packed = file.content.scratchpad({entry.name: entry.most for entry in file.content.entries})
        if len(packed) != 128 or ParameterTable.read(file.content.write()) != file.content:
            raise Fault("a table is not written as it was read")
        _compared(file, _table())

    return _read("params.txt", data, used)


def control_packets(mutator: Mutator, folder: Path) -> str:
    """Control packets; what is taken is written again word for word."""
    words = words_of(mutator.raw(_packets()))
    try:
        found = list(read_packets(words))
    except ImageError as error:
        return told(error, ["byte 0x"], (ImageError,))
    if [word for one in found for word in one.write()] != list(words):
        raise Fault("packets are not written as they were read")
    return "taken"


def _mended(mutator: Mutator, whole: bytes) -> bytes:
    """Words or bytes of a stream changed, and in most cases the length and the count of operations made right."""
    rng = mutator.rng
    if rng.random() < 0.5:
        words = [n & ONES if type(n) is int else 0 for n in mutator.tree(list(words_of(whole)))]
        data = bytes_of(words)
    else:
        data = mutator.raw(whole)
        data = data[: len(data) // 4 * 4] if rng.random() < 0.8 else data
    if len(data) > 16 and rng.random() < 0.8:
        data = data[:_STREAM_LENGTH_AT] + struct.pack("<I", len(data)) + data[_STREAM_LENGTH_AT + 4 :]
    return data


def _compared(file: Opened, whole: bytes) -> None:
    """A verdict, from either side."""
    pair = (file, _whole(whole)) if len(whole) % 2 == file.nbytes % 2 else (_whole(whole), file)
    if worst(compare(*pair)) not in VERDICTS:
        raise Fault("no verdict")


def _read(name: str, data: bytes, used: Callable[[Opened], None]) -> str:
    """Everything that the commands do with a file."""
    try:
        file = of(name, data)
    except ImageError as error:
        return told(error, [name], (ImageError,))
    for problem in described(file)["problems"]:
        told(ImageError(f"{name}: {problem}"), [name], (ImageError,))
    used(file)
    return "taken"
