"""The arena: buffers that live at the same time never share bytes, whatever the run looks like."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import UnsupportedError
from iron_core.image.arena import ALIGNMENT, BANK_BYTES, align, guard_bytes, place
from iron_core.image.liveness import Lifetime, lifetimes

STEPS = 12


@st.composite
def runs(draw):
    """Random buffers over a run of STEPS steps."""
    count = draw(st.integers(0, 24))
    buffers = []
    for index in range(count):
        first = draw(st.integers(0, STEPS - 1))
        last = draw(st.integers(first, STEPS - 1))
        buffers.append(Lifetime(index, draw(st.integers(0, 5000)), first, last))
    return buffers


def assert_sound(buffers, arena, bank_bytes):
    for buffer in buffers:
        spot = arena.spots[buffer.name]
        assert spot.offset % ALIGNMENT == 0
        assert spot.offset + buffer.nbytes <= arena.banks[spot.bank] <= bank_bytes
    for i, a in enumerate(buffers):
        for b in buffers[i + 1 :]:
            at_a, at_b = arena.spots[a.name], arena.spots[b.name]
            if a.meets(b) and at_a.bank == at_b.bank and a.nbytes and b.nbytes:
                assert at_a.offset + a.nbytes <= at_b.offset or at_b.offset + b.nbytes <= at_a.offset


@settings(max_examples=300, deadline=None)
@given(runs())
def test_no_two_live_buffers_overlap(buffers):
    """Every buffer is aligned, inside its bank, and apart from all that are live with it."""
    assert_sound(buffers, place(buffers), BANK_BYTES)


@settings(max_examples=200, deadline=None)
@given(runs(), st.integers(5000, 9000))
def test_small_banks_are_never_exceeded(buffers, bank_bytes):
    """With banks hardly larger than a buffer the same holds, in as many banks as it takes."""
    assert_sound(buffers, place(buffers, bank_bytes=bank_bytes), bank_bytes)


@settings(max_examples=200, deadline=None)
@given(runs())
def test_the_arena_is_at_least_the_peak_and_at_most_the_sum(buffers):
    """Bytes are shared where they can be: never more than one place per buffer, never less than the peak."""
    arena = place(buffers)
    peak = max((sum(b.nbytes for b in buffers if b.first <= s <= b.last) for s in range(STEPS)), default=0)
    assert peak <= sum(arena.banks) <= sum(align(b.nbytes) for b in buffers)


@settings(max_examples=200, deadline=None)
@given(runs(), st.integers(6000, 20000))
def test_a_guard_keeps_all_buffers_apart(buffers, bank_bytes):
    """Before, between and behind them, live together or not, there are that many bytes; banks hold what they may."""
    arena = place(buffers, bank_bytes=bank_bytes, guard=128)
    assert set(arena.spots) == {buffer.name for buffer in buffers}
    ends = [0] * len(arena.banks)
    for spot, buffer in sorted(((arena.spots[b.name], b) for b in buffers), key=lambda e: (e[0].bank, e[0].offset)):
        assert spot.offset % ALIGNMENT == 0 and spot.offset >= ends[spot.bank] + 128
        ends[spot.bank] = spot.offset + buffer.nbytes
    assert all(end + 128 <= size <= bank_bytes for end, size in zip(ends, arena.banks, strict=True))


def test_a_bank_holds_a_buffer_with_its_gaps():
    """What fills a bank has no room for a gap before it and one behind it."""
    life = Lifetime("x", 640, 0, 0)
    assert place([life], bank_bytes=640 + 2 * 64, guard=64).banks == (640 + 2 * 64,)
    with pytest.raises(UnsupportedError, match="640 bytes and a bank of the arena holds 639"):
        place([life], bank_bytes=639 + 2 * 64, guard=64)


def test_the_guard_is_asked_for_in_the_environment(monkeypatch):
    """`IRON_GUARD`, rounded up to the alignment; anything that is no number of bytes is none."""
    for text, want in (("100", 128), ("64", 64), ("", 0), ("yes", 0), ("-64", 0)):
        monkeypatch.setenv("IRON_GUARD", text)
        assert guard_bytes() == want


def test_a_chain_of_equal_buffers_needs_two():
    """x -> y -> z -> ...: each step's output takes the bytes of the input before last."""
    chain = [Lifetime(f"t{i}", 1000, i, i + 1) for i in range(10)]
    assert place(chain).banks == (2 * align(1000),)


def test_the_tightest_gap_is_taken():
    """Of two gaps that hold a buffer the smaller one is used, so the larger stays for a larger buffer."""
    buffers = [
        Lifetime("wide", 640, 0, 0),
        Lifetime("wall", 639, 0, 1),
        Lifetime("narrow", 320, 0, 0),
        Lifetime("roof", 319, 0, 1),
        Lifetime("new", 192, 1, 1),
    ]
    arena = place(buffers)
    assert arena.spots["new"].offset == arena.spots["narrow"].offset


def test_a_buffer_larger_than_a_bank_is_refused():
    """No bank holds it, and the message says both sizes."""
    with pytest.raises(UnsupportedError, match=f"'x' has {BANK_BYTES + 1} bytes.*{BANK_BYTES}"):
        place([Lifetime("x", BANK_BYTES + 1, 0, 0)])


def test_two_buffers_of_most_of_a_bank_take_two_banks():
    """A second bank is opened when the first has no room; both stay below 3.5 GiB."""
    arena = place([Lifetime("a", 3 << 30, 0, 0), Lifetime("b", 3 << 30, 0, 0)])
    assert arena.banks == (3 << 30, 3 << 30)


def test_a_bank_is_used_to_its_last_byte():
    """Two buffers that fill it together lie in it, as does one that fills it alone."""
    assert place([Lifetime(name, 320, 0, 0) for name in "ab"], bank_bytes=640).banks == (640,)
    assert place([Lifetime("a", 640, 0, 0)], bank_bytes=640).banks == (640,)


def test_a_buffer_lives_from_its_first_touch_to_its_last():
    """Steps in between keep it; what is kept stays to the end; what nothing touches is live throughout."""
    sizes = dict(a=1, b=2, c=3, d=4)
    found = {life.name: (life.first, life.last) for life in lifetimes(sizes, ["a", "ab", "b", "c", ""], kept=["b"])}
    assert found == {"a": (0, 1), "b": (1, 4), "c": (3, 3), "d": (0, 4)}


@pytest.mark.parametrize("guard", [0, 128])
def test_the_front_of_the_first_bank_may_be_kept(guard):
    """Nobody is given it, whoever is live; further banks have none, and a bank of nothing else is as large as it."""
    buffers = [Lifetime(f"b{n}", 200, n, n + 1) for n in range(6)]
    arena = place(buffers, bank_bytes=1 << 10, guard=guard, front=64)
    assert all(spot.offset >= 64 + guard for spot in arena.spots.values() if spot.bank == 0)
    assert guard or min(spot.offset for spot in arena.spots.values()) == 64
    assert place([], front=64).banks == (64,) and place([]).banks == ()
