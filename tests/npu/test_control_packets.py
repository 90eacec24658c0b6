"""Control packets are read strictly and written again word for word."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from iron_core.array.gather import Gather, packet
from iron_npu.errors import ImageError
from iron_npu.formats.control_packets import OPERATIONS, ControlPacket, PacketHeader, read_packets, with_parity

WORD = some.integers(0, 0xFFFFFFFF)


@some.composite
def packets(draw):
    operation = draw(some.sampled_from(OPERATIONS))
    beats = draw(some.integers(1, 4)) if operation == "read" else 0
    data = () if beats else tuple(draw(some.lists(WORD, min_size=1, max_size=4)))
    return ControlPacket(4 * draw(some.integers(0, 0x3FFFF)), data, operation, beats, draw(some.integers(0, 31)))


@settings(max_examples=200, deadline=None)
@given(some.lists(packets(), max_size=5))
def test_what_is_written_is_read(given):
    words = [word for one in given for word in one.write()]
    assert list(read_packets(words)) == given


def test_a_gathers_packets_are_read_and_written_again():
    """Those that iron_core makes of a call's ids, one by one and all of a template."""
    assert ControlPacket(0x1D000, (1, 2, 3)).write() == packet(0x1D000, 1, 2, 3)
    words = [int(n) for n in Gather("t", 64, 20, 256, 1).template()]
    found = list(read_packets(words))
    assert [n for one in found for n in one.write()] == words and len(found) > 20
    assert {one.operation for one in found} == {"write"}


def test_bits_of_a_header():
    assert ControlPacket(0x1F000, operation="read", beats=3, stream=9).write() == [0x1F000 | 2 << 20 | 1 << 22 | 9 << 24]
    assert PacketHeader(7, 2, 3, 1).write() == with_parity(7 | 2 << 12 | 1 << 16 | 3 << 21)
    assert with_parity(0) == 1 << 31 and with_parity(1) == 1 and with_parity(1 << 31 | 3) == 1 << 31 | 3


@given(some.builds(PacketHeader, some.integers(0, 31), some.integers(0, 7), some.integers(0, 127), some.integers(0, 31)))
def test_a_routed_packets_header_is_read_as_it_was_written(header):
    assert PacketHeader.read(header.write()) == header


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([0x1D000], "byte 0x0: a control packet's header 0x0001d000 has 4 ones; legal: an odd number, by bit 31."),
        ([with_parity(0x1D000 | 1 << 29), 0], "byte 0x0: a control packet's header has 0x20000000 in bits that mean nothing; legal: 0."),
        ([with_parity(0x1D000 | 3 << 22), 0], "byte 0x0: operation 3; legal: 0 to 2, write, read, write-answered."),
        ([with_parity(0x1D002), 0], "byte 0x0: register 0x1d002; legal: a multiple of 4."),
        ([*packet(0x1D000, 5), with_parity(0x1D000 | 3 << 20), 1], "byte 0x8: a write of 4 words, and 1 are left."),
    ],
)
def test_each_fault_is_one_line(words, said):
    with pytest.raises(ImageError) as refused:
        list(read_packets(words))
    assert str(refused.value) == said


@pytest.mark.parametrize(
    "one",
    [
        ControlPacket(0, ()), ControlPacket(0, (1,) * 5), ControlPacket(2, (1,)), ControlPacket(1 << 20, (1,)),
        ControlPacket(0, (1 << 32,)), ControlPacket(0, (1,), "poke"), ControlPacket(0, (1,), "read", 1),
        ControlPacket(0, (), "read", 5), ControlPacket(0, (1,), stream=32),
    ],
)  # fmt: skip
def test_what_no_packet_holds_is_not_written(one):
    with pytest.raises(ImageError, match=r"legal|outside"):
        one.write()
