"""Files of a device's configuration, written by their published layout: no real one is kept here."""

from __future__ import annotations

import struct

METADATA, PARTITION = 2, 32
XML = b'<?xml version="1.0"?><project><core><kernel name="MLIR_AIE" type="dpu"><arg name="opcode"/></kernel></core></project>'


def xclbin(metadata: bytes = XML, kinds: tuple[int, ...] = (6, PARTITION, METADATA, 8)) -> bytes:
    """An xclbin of these sections; those that nobody looks into hold 32 zeros."""
    header = bytearray(0x1C8)
    header[:8] = b"xclbin2\0"
    header[8:0x128] = b"\xff" * 0x120
    struct.pack_into("<I", header, 0x1C0, len(kinds))
    table, body, at = b"", b"", 0x1C8 + 40 * len(kinds)
    for kind in kinds:
        data = metadata if kind == METADATA else bytes(32)
        table += struct.pack("<I16s4xQQ", kind, b"", at + len(body), len(data))
        body += data.ljust(-(-len(data) // 8) * 8, b"\0")
    whole = bytes(header) + table + body
    return whole[:0x130] + struct.pack("<Q", len(whole)) + whole[0x138:]
