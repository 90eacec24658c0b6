"""What hardware takes for what it does: one table per device, every quantity with its unit and its source.

Nothing here knows of an operator. A quantity that published timings chose names those in `rows` (see `iron_sim.timing.rows`); all others
come from manuals, drivers, compilers' tables or measurements of single parts.
"""

from __future__ import annotations

import attrs

from iron_core.devices import Device, device
from iron_core.errors import UnsupportedError

AM020 = "AM020 (AIE-ML), core and memory chapters"
AM027 = "AM027 (AIE-ML v2)"
DPM = "amdxdna driver, DPM tables"
EMU = "xdna-emu, measurements on Phoenix"
PEANO = "Peano (llvm-aie) scheduling tables"
TUNER = "IRON cost files, calibrations on Strix Halo"
XRT = "XRT and amdxdna driver"


@attrs.frozen
class Quantity:
    """A number of the hardware. rows: the published rows that chose it; none where something else says it."""

    value: float
    unit: str
    source: str
    rows: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Hardware:
    """Of one device family. Cycles are the array's."""

    family: str
    # -- clock and streams
    #: Of cores, streams and DMAs.
    clock: Quantity
    #: Of a stream port and a DMA channel.
    stream_width: Quantity
    #: One hop between switches; a stream takes one per tile and one at each end.
    stream_hop: Quantity
    # -- a tile's DMA
    #: From a queue to the first memory access of a task.
    channel_start: Quantity
    #: From one descriptor to the next of a chain.
    descriptor_chain: Quantity
    #: From the first access to the first word on the stream.
    tile_memory_latency: Quantity
    # -- a shim's DMA, and host memory behind it
    #: From a task's start to the first word read, when the channel was at rest, and when it comes from another task.
    read_latency: Quantity
    read_task: Quantity
    #: The same of a channel that writes, until the task has ended.
    write_latency: Quantity
    write_task: Quantity
    #: Of a stream's width, what a channel that reads host memory fills.
    read_fill: Quantity
    #: What all channels together read, write, and do both.
    fabric_read: Quantity
    fabric_write: Quantity
    fabric_total: Quantity
    #: How sharply reading comes to its limit: channels that could read d together have d / (1 + (d / fabric_read)^knee)^(1 / knee); 0: all
    #: of d up to the limit.
    fabric_knee: Quantity
    #: What streams read together of one bank of host memory, which comes again after a period; 0: they do not wait for it.
    bank_rate: Quantity
    bank_period: Quantity
    #: From the address of one gathered row to the next's, over all channels.
    translation: Quantity
    # -- the controller that runs sequences
    #: A write of one register, one under a mask, a block's first word and each further one.
    write32: Quantity
    mask_write: Quantity
    block_write: Quantity
    block_word: Quantity
    #: The patch of a descriptor's address, and a wait for a token that is there.
    address_patch: Quantity
    token_wait: Quantity
    # -- dispatch
    #: A full ELF's: once a call, once an entry, an empty entry for parity.
    dispatch: Quantity
    entry_base: Quantity
    reset: Quantity
    #: An xclbin's: of one step of a chain; what a step of another array adds, and that of each column with cores; of one kernel by itself.
    chain_run: Quantity
    chain_switch: Quantity
    chain_column: Quantity
    standalone: Quantity
    #: What a host program in Python adds to each dispatch it makes by itself.
    host_run: Quantity
    # -- configuration: program memory, and registers of DMAs, locks and switches
    program_rate: Quantity
    register_rate: Quantity
    #: Bytes of a core's own loop, and of all that its program memory holds.
    core_program: Quantity
    program_memory: Quantity
    # -- a core
    #: Bytes per cycle of each of two loads and of the store.
    load_width: Quantity
    loads: Quantity
    store_width: Quantity
    #: bfloat16 or float32 numbers that one elementwise instruction takes.
    lanes: Quantity
    #: Multiply-accumulates of one matrix instruction per cycle.
    mac_int8: Quantity
    mac_int16: Quantity
    mac_bfloat16: Quantity
    mac_bfp16: Quantity
    #: Cycles until a result can be used.
    load_latency: Quantity
    scalar_load_latency: Quantity
    store_latency: Quantity
    mac_latency: Quantity
    #: Until the next accumulation into the same register.
    accumulate: Quantity
    convert_latency: Quantity
    shuffle_latency: Quantity
    transcendental_latency: Quantity
    scalar_latency: Quantity
    #: A branch taken, a call or a return.
    branch: Quantity
    #: A lock, free or held.
    lock: Quantity

    def us(self, cycles: float) -> float:
        """Microseconds of some cycles."""
        return cycles / self.clock.value

    def cycles(self, us: float) -> float:
        """Cycles of some microseconds."""
        return us * self.clock.value

    @property
    def stream_gbs(self) -> float:
        """GB/s of one stream."""
        return self.stream_width.value * self.clock.value / 1e3

    def shared(self, demand: float) -> float:
        """Of channels that could read so many GB/s together, the part that they have."""
        knee, most = self.fabric_knee.value, self.fabric_read.value
        return min(1.0, most / demand) if not knee else (1 + (demand / most) ** knee) ** (-1 / knee)

    @property
    def shim_read_gbs(self) -> float:
        """GB/s that one reading shim channel has by itself."""
        return self.stream_gbs * self.read_fill.value

    def quantities(self) -> dict[str, Quantity]:
        """All of them, by name."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(Hardware) if field.name != "family"}


def _q(value: float, unit: str, source: str, *rows: str) -> Quantity:
    return Quantity(value, unit, source, rows)


#: What both families share, in cycles: cores have one scheduling table, and the controller's instructions were timed on Phoenix alone.
_SHARED = dict(
    stream_hop=_q(2, "cycles", "AM020, stream switch: one hop"),
    channel_start=_q(4 + 2, "cycles", "xdna-emu, model constants: set-up 4, channel start 2"),
    descriptor_chain=_q(2, "cycles", "xdna-emu, model constants: chain 2"),
    tile_memory_latency=_q(5, "cycles", "xdna-emu, model constants: memory latency 5"),
    write32=_q(100, "cycles", f"{EMU}: write32"),
    mask_write=_q(210, "cycles", f"{EMU}: maskwrite"),
    block_write=_q(100, "cycles", f"{EMU}: blockwrite, its first part"),
    block_word=_q(13, "cycles", f"{EMU}: blockwrite, each word"),
    address_patch=_q(112, "cycles", f"{EMU}: an instruction on the average of whole sequences"),
    token_wait=_q(112, "cycles", f"{EMU}: an instruction on the average of whole sequences"),
    core_program=_q(1100, "bytes", "IRON calibrations: one elementwise core loads in 7 us, half of it its kernel"),
    program_memory=_q(16384, "bytes", AM020),
    loads=_q(2, "ports", AM020),
    load_latency=_q(7, "cycles", f"{PEANO}: vector load"),
    scalar_load_latency=_q(6, "cycles", f"{PEANO}: scalar load"),
    store_latency=_q(2, "cycles", f"{PEANO}: vector store"),
    mac_latency=_q(6, "cycles", f"{PEANO}: vmac.f"),
    convert_latency=_q(4, "cycles", f"{PEANO}: accumulator to vector with rounding"),
    shuffle_latency=_q(2, "cycles", f"{PEANO}: shuffle"),
    scalar_latency=_q(1, "cycles", f"{PEANO}: add, mov, padd"),
    branch=_q(6, "cycles", f"{PEANO}: branch and return, 5 delay slots"),
    lock=_q(1, "cycles", f"{EMU}: an uncontended acquire, at the least"),
)

NPU1 = Hardware(
    family="npu1",
    clock=_q(1028, "MHz", f"{DPM}; firmware 1.5.5.391 reports 1028 for every high request"),
    stream_width=_q(4, "bytes/cycle", AM020),
    read_latency=_q(747 / 1.028, "ns", f"{EMU}: MM2S of a task, 747 cycles + 1.05 a word", "npu1-mm2s-1024", "npu1-mm2s-16384"),
    read_task=_q(325 / 1.028, "ns", f"{EMU}: a further task's MM2S, 325 cycles", "npu1-mm2s-1024"),
    write_latency=_q(171 / 1.028, "ns", f"{EMU}: S2MM of a task, 171 cycles + 1.00 a word", "npu1-s2mm-1024", "npu1-s2mm-16384"),
    write_task=_q(179 / 1.028, "ns", f"{EMU}: a further task's S2MM, 179 cycles"),
    read_fill=_q(1 / 1.05, "of width", f"{EMU}: 1.05 cycles a word", "npu1-mm2s-16384"),
    fabric_read=_q(4 * 4.112, "GB/s", "never reached by four streams; no higher figure is published"),
    fabric_write=_q(4 * 4.112, "GB/s", "as fabric_read"),
    fabric_total=_q(8 * 4.112, "GB/s", "as fabric_read, both ways"),
    fabric_knee=_q(0, "exponent", "as fabric_read, whose limit is not known"),
    bank_rate=_q(
        10.0, "GB/s", "IRON cost files, Phoenix: 33.6 MB in 3.33 ms by lanes 8 MiB apart; 512 bytes each 48 ns, DDR5's row cycle, is 10.7",
        "gemv-8192x2048-npu1",
    ),
    bank_period=_q(
        1 << 19, "bytes", "two channels of DDR5: 4 halves of 32 banks of 4 KB; the output head's lanes, 501 x 256 KiB apart, do not wait",
        "gemv-lm-head-npu1",
    ),
    translation=_q(0, "ns", "not published"),
    dispatch=_q(0, "us", "no full ELF on npu1"),
    entry_base=_q(0, "us", "no full ELF on npu1"),
    reset=_q(0, "us", "no full ELF on npu1"),
    chain_run=_q(245, "us", "IRON cost files, Phoenix: the smallest operators of a chain", "npu1-tiny-chain"),
    chain_switch=_q(47, "us", "IRON cost files, Phoenix: a design's load, the least of 47 to 525"),
    chain_column=_q(70, "us", "IRON calibrations, Phoenix: one column's switch, 117 to 130, less the least and its load of 7"),
    standalone=_q(245, "us", "as chain_run", "npu1-tiny-chain"),
    host_run=_q(143, "us", "IRON, host part of a dispatch in Python: 70 set_arg and lock, 73 interpreter"),
    program_rate=_q(0.32 * 1.028, "GB/s", f"{AM027}: 32-bit writes to program memory, 0.32 GB/s at 1 GHz"),
    register_rate=_q(1.7 * 1.028, "GB/s", f"{AM027}: 32-bit writes to switch and descriptor registers, 1.7 GB/s at 1 GHz"),
    load_width=_q(32, "bytes/cycle", AM020),
    store_width=_q(32, "bytes/cycle", AM020),
    lanes=_q(16, "numbers", f"{AM020}: 16 float32 accumulators"),
    mac_int8=_q(256, "per cycle", AM020),
    mac_int16=_q(64, "per cycle", AM020),
    mac_bfloat16=_q(128, "per cycle", AM020),
    mac_bfp16=_q(0, "per cycle", f"{AM020}: none"),
    accumulate=_q(3, "cycles", f"{PEANO}: the accumulator is read in cycle 3 of 6"),
    transcendental_latency=_q(7 + 4, "cycles", "mlir-aie kernels: a table look-up, two loads in turn"),
    **_SHARED,  # type: ignore[arg-type]
)

NPU2 = Hardware(
    family="npu2",
    clock=_q(1800, "MHz", f"{DPM}, the highest level"),
    stream_width=_q(8, "bytes/cycle", f"{AM027}: two words"),
    read_latency=_q(747 / 1.028, "ns", f"{EMU}; host memory is as far on npu2"),
    read_task=_q(325 / 1.028, "ns", f"{EMU}; as read_latency"),
    write_latency=_q(171 / 1.028, "ns", f"{EMU}; as read_latency"),
    write_task=_q(179 / 1.028, "ns", f"{EMU}; as read_latency"),
    read_fill=_q(0.976, "of width", "IRON cost files: the narrowest LM head reads 14.05 GB/s", "gemv-lm-head-1"),
    fabric_read=_q(57.6, "GB/s", "IRON cost files: the LM head on 8 columns, 9238 us", "gemv-lm-head"),
    fabric_write=_q(57.0, "GB/s", "as fabric_read; pure writes are not published"),
    fabric_total=_q(69.5, "GB/s", "mlir-air: add of 8M less add of 4M", "add-4m", "add-8m"),
    fabric_knee=_q(
        4.6, "exponent", "IRON cost files: the LM head's 9238 to 10731 us are of 8 and 4 columns, 2 and 1 being apart", "gemv-lm-head-4"
    ),
    bank_rate=_q(0, "GB/s", "IRON cost files, Strix Halo: lanes 4 MiB apart read as fast as others"),
    bank_period=_q(1 << 19, "bytes", "as npu1's"),
    translation=_q(
        159, "ns", "IRON: 5120 rows by 4 feeds in 903 us less 88 of the ELF's, whose rows lie in pages that nobody read", "gather-4"
    ),
    dispatch=_q(47, "us", f"{TUNER}, turbo: D0 43.7 to 50.1"),
    entry_base=_q(32, "us", f"{TUNER}, turbo: base 31.7 to 32.4"),
    reset=_q(36, "us", f"{TUNER}, turbo: 33.5 to 38.7"),
    chain_run=_q(124, "us", f"{TUNER}: chain, the smallest operators 118 to 146 less their steps of 3 to 14"),
    chain_switch=_q(74, "us", f"{TUNER}: chain, the narrowest of the switches"),
    chain_column=_q(53, "us", f"{TUNER}: chain, wide switches 390 to 720 less the narrowest and their load of 56, over 8 columns"),
    standalone=_q(77, "us", "mlir-air, small kernels 80 to 84 less what they move", "rope-small"),
    host_run=_q(143, "us", "IRON, host part of a dispatch in Python: 70 set_arg and lock, 73 interpreter"),
    program_rate=_q(0.32, "GB/s", f"{AM027}: 32-bit writes to program memory, 0.32 GB/s at 1 GHz"),
    register_rate=_q(1.7, "GB/s", f"{AM027}: 32-bit writes to switch and descriptor registers, 1.7 GB/s at 1 GHz"),
    load_width=_q(64, "bytes/cycle", AM027),
    store_width=_q(64, "bytes/cycle", AM027),
    lanes=_q(16, "numbers", f"{AM027}: 512-bit accumulators of float32"),
    mac_int8=_q(512, "per cycle", AM027),
    mac_int16=_q(128, "per cycle", "twice AIE-ML's, as int8 is; not stated"),
    mac_bfloat16=_q(128, "per cycle", "xdna-engine: the native bfloat16 path"),
    mac_bfp16=_q(512, "per cycle", AM027),
    accumulate=_q(4, "cycles", f"{PEANO}: the accumulator is read in cycle 4 of 6"),
    transcendental_latency=_q(8, "cycles", f"{PEANO}: tanh and exp2 in hardware, a float unit's pass and its conversion"),
    **_SHARED,  # type: ignore[arg-type]
)

#: By family. A variant with fewer columns has its family's.
TABLES = {table.family: table for table in (NPU1, NPU2)}


def hardware(dev: str | Device) -> Hardware:
    """The table of a device. UnsupportedError for one that has none."""
    found = TABLES.get(device(dev).family)
    if found is None:
        known = ", ".join(TABLES)
        raise UnsupportedError(f"dev={device(dev).name}: its hardware's timing is not known. Legal: devices of the families {known}.")
    return found
