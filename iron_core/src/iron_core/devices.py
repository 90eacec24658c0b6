"""The devices Iron knows, as numbers: npu1 and npu2 with their column variants, and the host.

A device says how big an array is and what its tiles hold; what runs on it is a backend's affair. Counts
are per tile, memory is in bytes, rates in bytes per cycle, clocks in MHz. More devices come through the
`iron.devices.v1` entry points.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs

from iron_core.errors import CallError, PluginError, UnknownName

KIB = 1024

# -- what both families share (AM020, AM027; aie-rt) ---------------------------------------------------

#: Rows of an array: the shims', the memory tiles', and the first of the cores.
SHIM_ROW, MEMORY_ROW, CORE_ROW = 0, 1, 2
#: Bytes of the words that a DMA moves: its offsets, strides and lengths are whole ones.
WORD = 4
#: Indices of a shim descriptor's iteration (a 6-bit field), and executions one queue entry may ask for (an 8-bit one).
ITERATIONS, REPEATS = 64, 256
#: Bytes that a length set per call is counted in.
LENGTH_UNIT = 16
#: What the padding fields of a memory tile's descriptor hold, outermost of three dimensions first; words innermost.
PADDING = (15, 31, 63)
#: Tasks that a DMA channel's queue holds, the running one among them.
QUEUE = 4
#: Shim channels (both directions) that share a tile's descriptors.
SHARING = 4
#: The largest number a lock counts to.
LOCK_VALUE = 63
#: Buffers of a core start at multiples of so many bytes.
BUFFER_ALIGNMENT = 32
#: Ports of a stream switch towards its neighbours. What one sends is what the other receives.
PORTS = {"north": 6, "south": 4, "east": 4, "west": 4}
#: Ids of packet flows.
PACKET_IDS = 32
#: Registers of a shim tile's DMA, as byte addresses in the tile: descriptor n has the eight from DESCRIPTOR_REGISTERS +
#: DESCRIPTOR_STEP * n on, the first of which is its length; a channel's control and queue, of channel 0 to begin with and each
#: further channel's NEXT_CHANNEL on: of those that read memory, and the queue of those that write it.
DESCRIPTOR_REGISTERS, DESCRIPTOR_STEP = 0x1D000, 0x20
CONTROL_REGISTER, QUEUE_REGISTER, WRITING_QUEUE_REGISTER, NEXT_CHANNEL = 0x1D210, 0x1D214, 0x1D204, 8
#: Where a register's address in the array has its tile's column and row; the bits below are the byte in the tile.
COLUMN_SHIFT, ROW_SHIFT = 25, 20
#: Bytes from one lock's register to the next.
LOCK_STEP = 0x10
#: Where an array sees the host's memory. Firmware adds it to the first few arguments of an xclbin's run; in those behind
#: them it stands in the instruction stream.
HOST_MEMORY, TRANSLATED_ARGUMENTS = 0x8000_0000, 5
#: A per-call word of the control scratchpad reaches a core shifted left by this: the firmware that adds it clears these bits.
WORD_SHIFT = 2


@attrs.frozen
class Registers:
    """Where a kind of tile has registers, as byte addresses in the tile (AM025; aie-rt).

    descriptors: the first one's; each next one is DESCRIPTOR_STEP on. writing, reading: the control register of channel 0 that
    writes memory and of the one that reads it, its queue in the register behind it; each next channel's both are NEXT_CHANNEL
    on. number_bits: of a descriptor's number in a queue. locks: the first one's. data, program, core, switch: its memories,
    its core's control register, its stream switch, None where there is none.
    """

    descriptors: int
    writing: int
    reading: int
    number_bits: int
    locks: int
    switch: int
    data: int | None = None
    program: int | None = None
    core: int | None = None


#: By the kind of tile.
TILE_REGISTERS = {
    "shim": Registers(DESCRIPTOR_REGISTERS, WRITING_QUEUE_REGISTER - WORD, CONTROL_REGISTER, 4, locks=0x14000, switch=0x3F000),
    "mem": Registers(0xA0000, 0xA0600, 0xA0630, 6, locks=0xC0000, switch=0xB0000, data=0),
    "core": Registers(DESCRIPTOR_REGISTERS, 0x1DE00, 0x1DE10, 4, locks=0x1F000, switch=0x3F000, data=0, program=0x20000, core=0x32000),
}

# -- what devices have ---------------------------------------------------------------------------------


@attrs.frozen
class TileKind:
    """One kind of tile: bytes of its data memory (a shim has none), and what its DMA offers.

    channels: of each direction. descriptors: of all of them together. dims: those that one descriptor walks. wrap_bits, step_bits:
    widths of a descriptor's fields for a dimension's size and step.
    """

    memory: int
    channels: int
    descriptors: int
    locks: int
    dims: int
    wrap_bits: int
    step_bits: int


@attrs.frozen
class Device:
    """What a plan may count on. The host has no array: `columns` is 0 and the tiles are None.

    `stream_bytes` is one stream's width per cycle, `read_gbs` what the whole array reads from memory in
    GB/s, `clock_mhz` the array's clock, `macs` the multiply-accumulates per core and cycle by dtype name.
    """

    name: str
    family: str
    arch: str
    columns: int
    core_rows: int = 0
    program_memory: int = 0
    core: TileKind | None = None
    memtile: TileKind | None = None
    shim: TileKind | None = None
    stream_bytes: int = 0
    clock_mhz: int = 0
    read_gbs: float = 0.0
    macs: tuple[tuple[str, int], ...] = ()
    #: A full ELF's control scratchpad in 32-bit words; 0 where there is none, so no full ELF either.
    scratchpad_words: int = 0
    #: Hardware contexts, each with an xclbin, that may be alive at once. All processes of a machine share them.
    contexts: int = 1

    @property
    def is_npu(self) -> bool:
        return self.columns > 0

    @property
    def full_elf(self) -> bool:
        """Can one ELF hold a whole graph, with per-call words patched into it?"""
        return self.scratchpad_words > 0

    @property
    def cores(self) -> int:
        return self.columns * self.core_rows

    def __str__(self) -> str:
        return self.name


# Geometry and descriptor fields are the same on AIE2 and AIE2P (AM020, AM027; aie-rt).
_CORE = TileKind(memory=64 * KIB, channels=2, descriptors=16, locks=16, dims=3, wrap_bits=8, step_bits=13)
_MEMTILE = TileKind(memory=512 * KIB, channels=6, descriptors=48, locks=64, dims=4, wrap_bits=10, step_bits=17)
_SHIM = TileKind(memory=0, channels=2, descriptors=16, locks=16, dims=3, wrap_bits=10, step_bits=20)

#: Columns npu1 and npu2 have; a variant takes the first few of them.
NPU1_COLUMNS = 4
NPU2_COLUMNS = 8


def _npu1(columns: int) -> Device:
    """Phoenix and Hawk Point (XDNA1, AIE2). Reads are bound by one 4-byte stream per column and channel."""
    return Device(
        name="npu1" if columns == NPU1_COLUMNS else f"npu1_{columns}col",
        family="npu1",
        arch="AIE2",
        columns=columns,
        core_rows=4,
        program_memory=16 * KIB,
        core=_CORE,
        memtile=_MEMTILE,
        shim=_SHIM,
        stream_bytes=4,
        clock_mhz=1028,
        read_gbs={1: 4.05, 2: 8.0, 4: 15.4}.get(columns, 4.05 * columns),
        macs=(("int8", 256), ("int16", 64), ("bfloat16", 128)),
        contexts=6,  # what the amdxdna driver allows
    )


def _npu2(columns: int) -> Device:
    """Strix, Strix Halo and Krackan (XDNA2, AIE2P). Whole-array reads saturate at the fabric port."""
    return Device(
        name="npu2" if columns == NPU2_COLUMNS else f"npu2_{columns}col",
        family="npu2",
        arch="AIE2P",
        columns=columns,
        core_rows=4,
        program_memory=16 * KIB,
        core=_CORE,
        memtile=_MEMTILE,
        shim=_SHIM,
        stream_bytes=8,
        clock_mhz=1800,
        read_gbs=min(56.0, 14.05 * columns),
        macs=(("int8", 512), ("int16", 128), ("bfloat16", 128), ("bfp16ebs8", 512)),
        scratchpad_words=32,
        contexts=8,  # seen alive at once with firmware 1.1.2.65; the amdxdna driver would allow 16
    )


HOST = Device(name="host", family="host", arch="cpu", columns=0)

#: Every built-in device by name.
DEVICES: dict[str, Device] = {
    dev.name: dev
    for dev in (
        HOST,
        *(_npu1(n) for n in range(NPU1_COLUMNS, 0, -1)),
        *(_npu2(n) for n in range(NPU2_COLUMNS, 0, -1)),
    )
}


def device_name(spec: Any) -> str:
    """The name of a Device, or the name itself. CallError for what is neither."""
    if not isinstance(spec, (str, Device)):
        raise CallError(f"dev={spec!r}; legal: a device's name, as 'npu2', or a Device.")
    return spec.name if isinstance(spec, Device) else spec


def device(spec: Any) -> Device:
    """The Device of a name or of a Device. UnknownName lists what there is; CallError for what is neither."""
    if isinstance(spec, Device):
        return spec
    name = device_name(spec)
    if name in DEVICES:
        return DEVICES[name]
    from iron_core.plugins.registry import registry

    record = registry().loaded("iron.devices.v1", name)
    if record is not None:
        if record not in _brought:
            found = _checked(record)
            # Whatever is built, kept and measured for a device goes by its name, which has to be nobody else's.
            alone = registry().owners("devices", record.name) == [record]
            _brought[record] = found if alone else attrs.evolve(found, name=f"{record.distribution}:{record.name}")
        return _brought[record]
    known = [*DEVICES, *registry().names("devices")]
    near = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UnknownName(f"dev={name!r}: no such device.{hint} Known: {', '.join(known)}; `iron devices list`.")


#: Devices that packs brought, by the record of each.
_brought: dict[Any, Device] = {}
#: What a device with an array says of it.
_NEEDED = ("core_rows", "program_memory", "core", "memtile", "shim", "stream_bytes", "clock_mhz")


def _checked(record: Any) -> Device:
    """The device that an entry point names; PluginError for what is none, calls itself otherwise, or has half an array."""
    from iron_core.plugins import foreign

    where = f"dev={record.name!r}: the device of {record.origin}"
    try:
        with foreign.guarded():
            found = record.object() if callable(record.object) else record.object
    except foreign.Raised as raised:
        raise PluginError(f"{where} cannot be had: {raised}.") from raised.error
    if not isinstance(found, Device):
        raise PluginError(f"{where} is {foreign.kind_of(found)}, which is no iron_core.devices.Device.")
    if found.name != record.name:
        raise PluginError(f"{where} calls itself {found.name!r}; both names have to be one.")
    lacking = [name for name in _NEEDED if found.is_npu and not getattr(found, name)]
    if lacking:
        raise PluginError(f"{where} has columns and no {', '.join(lacking)}. Legal: all of these, or no columns.")
    return found


# -- the current device ------------------------------------------------------------------------------

#: What was set for the whole process, and what `using_device` says inside its block.
_process: list[Device | None] = [None]
_inside: ContextVar[Device | None] = ContextVar("iron_device", default=None)


def set_current_device(dev: Device | str | None) -> None:
    """The device that is meant wherever `dev=` is left out, in every thread; None: nobody's. UnknownName lists what there is."""
    _process[0] = None if dev is None else device(dev)


def current_device() -> Device | None:
    """The device of the innermost `using_device` block, else that of `set_current_device`, or None."""
    return _inside.get() or _process[0]


def meant(dev: Device | str | None, what: str) -> Device:
    """The device given, else the current one. CallError where there is neither."""
    found = current_device() if dev is None else device(dev)
    if found is None:
        raise CallError(f"{what} is of one device. Legal: dev='npu1', dev='npu2', or set_current_device() before.")
    return found


@contextmanager
def using_device(dev: Device | str) -> Iterator[Device]:
    """Inside the block, in this thread or task, the device that is meant wherever `dev=` is left out."""
    token = _inside.set(device(dev))
    try:
        yield device(dev)
    finally:
        _inside.reset(token)
