"""Control packets by hand: what they write is what a shim then reads, and what no shim would do is refused."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.array import Lane, ObjectFifo, Tile
from iron_core.array.control import ControlFlow
from iron_core.array.gather import TOKEN, TOKENS, Gather, packet
from iron_core.array.sequence import Await, AwaitToken, Free
from iron_core.devices import CONTROL_REGISTER, DESCRIPTOR_REGISTERS, DESCRIPTOR_STEP, NEXT_CHANNEL, QUEUE_REGISTER
from iron_core.errors import DeclarationError
from iron_sim.control import BASE, encode
from iron_sim.dma import HostRegion
from iron_sim.errors import PoisonError, SimulationError

X = np.arange(80, dtype=np.float32)
VALID, CHAINED = 1 << 25, 1 << 26
CHANNEL = NEXT_CHANNEL  # what is added to the registers of channel 0 for those of channel 1
IDENTITY = packet(CONTROL_REGISTER + CHANNEL, TOKENS)


@pytest.fixture
def array(lab):
    """Rows of 8 numbers leave the shim of column 0, as packets from that of column 1 say, and come back through memory."""

    def make():
        reads, writes = Tile("shim", col=0), Tile("shim", col=1)
        rows = ObjectFifo(lab.line(8, "float32"), name="rows")
        rows.prod(tile=reads)
        rows.cons().forward(tile=Tile("mem", col=0), name="y").cons(tile=Lane("y", 0, writes))
        ControlFlow(Lane("ids", 0, writes), reads, rows, name="control")

    return lab.frozen(make)


def row(number, at, words=8, last=VALID):
    """Packets that make descriptor `number` read `words` from element `at` of x on."""
    place = BASE + 4 * at
    first = packet(DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * number, words, place & 0xFFFFFFFF, place >> 32, 0)
    return first + packet(DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * number + 16, 0, 0, 0, last)


def start(number, token=TOKEN):
    return packet(QUEUE_REGISTER + CHANNEL, token | number)


@pytest.fixture
def sent(lab, array):
    """`sent(words, n)`: the first n numbers of y after these words were streamed in."""

    def sent(words, n=8, tokens=1, **options):
        words = np.array(words, np.uint32)
        steps = [lab.drain(1, "y", "y", n)] if n else []
        steps += [lab.fill(0, "ids", "control", words.size, token=True), *[AwaitToken("rows")] * tokens]
        steps += [Await(1), Free(0)] if n else [Await(0)]
        return lab.run(array, steps, x=X, ids=words, y=80, **options)["y"][:n]

    return sent


def test_a_descriptor_is_written_and_started(sent):
    assert (sent([*IDENTITY, *row(3, 16), *start(3)]) == X[16:24]).all()


def test_a_chain_goes_from_descriptor_to_descriptor(sent):
    words = [*IDENTITY, *row(0, 40, last=VALID | CHAINED | 5 << 27), *row(5, 8), *start(0)]
    assert (sent(words, 16) == [*X[40:48], *X[8:16]]).all()


def test_tasks_follow_one_another(sent):
    """One token each, where they ask for one."""
    words = [*IDENTITY, *row(0, 0), *start(0), *row(1, 72), *start(1, 0), *row(2, 8), *start(2)]
    assert (sent(words, 24, tokens=2) == [*X[:8], *X[72:], *X[8:16]]).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*row(0, 0), *start(0)], "a token is asked for before its id is set to 0xf00"),
        ([*IDENTITY, *start(2)], "descriptor 2 is started and word 0 was never written"),
        ([*IDENTITY, *row(0, 0, last=0), *start(0)], "descriptor 0 is started and is not valid"),
        (
            [*IDENTITY, *row(0, 0), *packet(QUEUE_REGISTER + CHANNEL, TOKEN | 1 << 16)],
            r"0x80010000 is pushed; legal: a first descriptor, 0 to 15",
        ),
        ([*IDENTITY, *packet(QUEUE_REGISTER, TOKEN)], "a packet writes 0x1d214, no register of a descriptor or of its channel"),
        ([*IDENTITY, *packet(0x1000, 1)], "a packet writes 0x1000, no register of a descriptor or of its channel"),
        (
            [*IDENTITY, *row(0, 0, last=VALID | CHAINED | 1 << 27), *row(1, 8, last=VALID | CHAINED), *start(0)],
            "the chain that starts at descriptor 0 comes back to 0",
        ),
        ([*IDENTITY, *row(0, 76), *start(0)], "32 bytes at 0x580000130 are in no tensor of the sequence"),
        ([*IDENTITY, *row(0, 0, last=VALID | 1), *start(0)], "descriptor 0 is more than one run"),
    ],
    ids=lambda v: v[:40] if isinstance(v, str) else "",
)
def test_what_no_shim_would_do(sent, words, message):
    with pytest.raises(SimulationError, match=rf"the control port that control reaches: {message}"):
        sent(words)


def test_a_packet_is_sent_whole(sent):
    with pytest.raises(SimulationError, match="the sequence ended in the middle of a packet at the control port"):
        sent([*IDENTITY, *row(0, 0)[:3]], n=0, tokens=0)


def test_a_word_that_nobody_wrote(sent):
    with pytest.raises(PoisonError, match="a word that nobody wrote arrives at the control port that control reaches"):
        sent([*IDENTITY, *row(0, 0), *start(0)], unwritten={"ids": [4]})


def test_an_id_that_nobody_wrote():
    gather = Gather("x", 10, 4, 32, 1)
    ids = HostRegion("ids", np.arange(4, dtype=np.int32), np.array([False, False, True, False]))
    with pytest.raises(PoisonError, match=r"ids\[2\] is an id nobody wrote"):
        encode(gather, ids, HostRegion("x", X))


# -- declaring a control flow ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target"),
    [(Tile("shim", 1), Tile("shim")), (None, Tile("shim", 0)), (Tile("shim"), Tile("shim", 0)), (Tile("shim", 1), Tile("mem", 0))],
)
def test_both_shims_have_a_column(lab, source, target):
    def make():
        rows = ObjectFifo(lab.line(8), name="rows")
        rows.prod(tile=target)
        ControlFlow(Lane("ids", 0, source), target, rows, name="control")

    with pytest.raises(DeclarationError, match=r"control flow control: from .* to .*; legal: shim tiles with col="):
        lab.frozen(make)


def test_packets_drive_a_fifo_of_their_target(lab):
    def make():
        rows = ObjectFifo(lab.line(8), name="rows")
        rows.prod(tile=Tile("shim", 2))
        ControlFlow(Lane("ids", 0, Tile("shim", 1)), Tile("shim", 0), rows, name="control")

    with pytest.raises(DeclarationError, match="control flow control: fifo rows is not produced on"):
        lab.frozen(make)
