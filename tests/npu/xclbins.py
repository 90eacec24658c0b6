"""A small xclbin made of code: the seven sections that an NPU's has, one PDI of a few commands, and the mirror."""

from __future__ import annotations

from iron_npu.formats.partition import CdoGroup, Partition, PdiEntry
from iron_npu.formats.pdi import DMA_WRITE, MASK_WRITE, NOP, WRITE, Cdo, Command, Pdi
from iron_npu.formats.sections import KINDS, Bank, Connection, Connectivity, IpLayout, MemoryTopology, Place
from iron_npu.formats.xclbin import Section, XclbinFile, XclbinHeader

CORE, SWITCH = 0x00200000, 0x0023F000
XML = (
    '<?xml version="1.0"?><project><platform/><core><kernel name="MLIR_AIE" type="dpu">'
    '<extended-data subtype="1" functional="0" dpu_kernel_id="0x901"/>'
    '<arg name="opcode" addressQualifier="0" id="0" size="0x8" offset="0x00" type="uint64_t"/>'
    '<arg name="instr" addressQualifier="1" id="1" size="0x8" offset="0x08" type="char *"/>'
    '<arg name="ninstr" addressQualifier="0" id="2" size="0x4" offset="0x10" type="uint32_t"/>'
    '<arg name="bo0" addressQualifier="1" id="3" size="0x8" offset="0x14" type="void*"/>'
    '<instance name="MLIRAIE"/></kernel></core></project>'
)


def commands() -> tuple[Command, ...]:
    """A program of four words, a switch's connection, a core that is started."""
    return (
        Command(DMA_WRITE, (0, CORE | 0x20000, 1, 2, 3, 4)),
        Command(WRITE, (SWITCH, 0x80000001)),
        Command(MASK_WRITE, (CORE | 0x32000, 1, 1)),
        Command(NOP),
    )


def pdi(made: tuple[Command, ...] | None = None, name: str = "aie_image") -> Pdi:
    return Pdi(name, (Cdo(commands() if made is None else made),))


def partition(image: bytes | None = None, columns: int = 8, uuid: bytes = bytes(range(16))) -> Partition:
    group = CdoGroup("DPU", kernels=(0x901,), before=(0xC1,))
    return Partition("QoS", columns, (0,), (PdiEntry(uuid, pdi().write() if image is None else image, (group,)),), 2048, 0x5B7F, 0x3039)


def sections(part: Partition | None = None, xml: str = XML) -> list[Section]:
    banks = MemoryTopology((Bank("HOST", 0x10000, 0x4000000), Bank("SRAM", 0xC000, 0x4000000)))
    kernels = IpLayout((Place("MLIR_AIE:MLIRAIE", 7, 0x901 << 16 | 1),))
    links = Connectivity((Connection(1, 0, 1), Connection(3, 0, 0)))
    found = [
        ("MEM_TOPOLOGY", banks.write(), "mem_topology"), ("AIE_PARTITION", (part or partition()).write(), "aie_partition"),
        ("EMBEDDED_METADATA", xml.encode(), ""), ("IP_LAYOUT", kernels.write(), ""), ("CONNECTIVITY", links.write(), ""),
        ("GROUP_CONNECTIVITY", links.write(), ""), ("GROUP_TOPOLOGY", banks.write(), ""),
    ]  # fmt: skip
    return [Section(KINDS[kind], data, name) for kind, data, name in found]


def xclbin(part: Partition | None = None, header: XclbinHeader | None = None, xml: str = XML) -> XclbinFile:
    """With its mirror."""
    made = header or XclbinHeader(0x1234, 0x1234, uuid=bytes(range(16)))
    return XclbinFile(made, tuple(sections(part, xml))).mirrored()
