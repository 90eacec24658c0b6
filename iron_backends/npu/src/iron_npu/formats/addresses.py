"""Register addresses of an array: their tile, and the register's name (AM025)."""

from __future__ import annotations

from iron_core.devices import (
    COLUMN_SHIFT,
    DESCRIPTOR_STEP,
    KIB,
    LOCK_STEP,
    MEMORY_ROW,
    NEXT_CHANNEL,
    ROW_SHIFT,
    SHIM_ROW,
    TILE_REGISTERS,
    WORD,
    TileKind,
    device,
)

#: Bytes of a tile's own part of the address space.
TILE = 1 << ROW_SHIFT
#: Bits of a row's number and of a column's.
ROW_BITS, COLUMN_BITS = COLUMN_SHIFT - ROW_SHIFT, 7
#: What a queue takes: the descriptor's number from bit 0 on, executions less 1, and whether a token tells of the end.
REPEAT_LOW, REPEAT_BITS, TOKEN_BIT = 16, 8, 31
_NPU = device("npu2")


def split(address: int) -> tuple[int, int, int]:
    """(column, row, byte in the tile) of a register."""
    return address >> COLUMN_SHIFT, address >> ROW_SHIFT & (1 << ROW_BITS) - 1, address & TILE - 1


def address(column: int, row: int, offset: int) -> int:
    return column << COLUMN_SHIFT | row << ROW_SHIFT | offset


def kind_of(row: int, memory_rows: int = 1) -> str:
    """"shim", "mem" or "core". memory_rows: rows of memory tiles."""
    return "shim" if row == SHIM_ROW else "mem" if row < MEMORY_ROW + memory_rows else "core"


def tile_of(kind: str) -> TileKind:
    """What a kind of tile has; npu1's and npu2's are the same."""
    found = {"shim": _NPU.shim, "mem": _NPU.memtile, "core": _NPU.core}[kind]
    assert found is not None
    return found


def descriptor_at(kind: str, offset: int) -> tuple[int, int] | None:
    """(number, word) of the descriptor's register at a byte of a tile; None for another register."""
    number, byte = divmod(offset - TILE_REGISTERS[kind].descriptors, DESCRIPTOR_STEP)
    return (number, byte // WORD) if 0 <= number < tile_of(kind).descriptors and byte % WORD == 0 else None


def channel_at(kind: str, offset: int) -> tuple[str, int, bool] | None:
    """("S2MM" or "MM2S", channel, whether it is the queue) of a channel's register; None for another register."""
    registers = TILE_REGISTERS[kind]
    for direction, first in (("S2MM", registers.writing), ("MM2S", registers.reading)):
        channel, byte = divmod(offset - first, NEXT_CHANNEL)
        if 0 <= channel < tile_of(kind).channels and byte in (0, WORD):
            return direction, channel, byte == WORD
    return None


def queue_address(column: int, row: int, kind: str, direction: str, channel: int) -> int:
    """The queue of a channel, from where its control register is one word before."""
    registers = TILE_REGISTERS[kind]
    first = registers.writing if direction == "S2MM" else registers.reading
    return address(column, row, first + NEXT_CHANNEL * channel + WORD)


def part(kind: str, offset: int) -> str:
    """Of which part of a tile a byte is: "program", "memory" or "registers"."""
    registers = TILE_REGISTERS[kind]
    if registers.data is not None and registers.data <= offset < registers.data + tile_of(kind).memory:
        return "memory"
    if registers.program is not None and registers.program <= offset < registers.program + _NPU.program_memory:
        return "program"
    return "registers"


def name(kind: str, offset: int) -> str:
    """A register's name where it is known, a place in a memory, else the number."""
    registers, tile = TILE_REGISTERS[kind], tile_of(kind)
    found = descriptor_at(kind, offset)
    if found is not None:
        return f"DMA_BD{found[0]}_{found[1]}"
    channel = channel_at(kind, offset)
    if channel is not None:
        direction, number, queue = channel
        ending = ("Task_Queue" if kind == "shim" else "Start_Queue") if queue else "Ctrl"
        return f"DMA_{direction}_{number}_{ending}"
    lock, byte = divmod(offset - registers.locks, LOCK_STEP)
    if 0 <= lock < tile.locks and byte == 0:
        return f"Lock{lock}_value"
    where = part(kind, offset)
    if where != "registers":
        return f"{where.capitalize()}+{offset - ((registers.program if where == 'program' else registers.data) or 0):#x}"
    if registers.core is not None and offset in (registers.core, registers.core + WORD):
        return "Core_Control" if offset == registers.core else "Core_Status"
    if registers.switch <= offset < registers.switch + KIB:
        return f"Stream_Switch+{offset - registers.switch:#x}"
    return f"{offset:#07x}"


def spoken(where: int, memory_rows: int = 1) -> str:
    """`column,row NAME` of a register's address."""
    column, row, offset = split(where)
    return f"{column},{row} {name(kind_of(row, memory_rows), offset)}"
