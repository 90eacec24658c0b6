"""When objects arrive: by sums and running maxima as one by one, and by tasks that share the way to host memory."""

from __future__ import annotations

import numpy as np
import pytest

from iron_sim.timing.arrivals import Arriving, Core, Fabric, Given, Room, Starved, Stream, chained
from iron_sim.timing.track import GIVE, WAIT, Track


class At:
    """Objects that are there at given times."""

    def __init__(self, times):
        self.given = np.asarray(times, float)

    def times(self, n):
        if n > self.given.size:
            raise Starved
        return self.given


def counts(*numbers):
    return np.array(numbers, float)


def test_one_after_the_other_is_as_counted_by_hand():
    rng = np.random.default_rng(0)
    there, takes = np.sort(rng.uniform(0, 50, 40)), rng.uniform(0, 3, 40)
    now, ends = 4.0, []
    for begin, take in zip(there, takes, strict=True):
        now = max(now, begin) + take
        ends.append(now)
    np.testing.assert_allclose(chained(there, takes, 4.0), ends)


# -- a shim's channels -----------------------------------------------------------------------------------


def upto(total):
    """Channels share so much, each as wide as it is up to that."""
    return lambda demand: min(1.0, total / demand)


def test_a_channel_by_itself_is_as_wide_as_it_is():
    fabric = Fabric(upto(100.0), start=10.0, again=3.0)
    channel = fabric.channel(4.0)
    channel.push(5.0, 400)
    channel.push(6.0, 40)
    np.testing.assert_allclose(channel.when(counts(4, 400, 440)), [16, 115, 128], atol=0.1)


def test_channels_share_evenly_and_what_one_leaves_another_has():
    fabric = Fabric(upto(6.0), start=0.0, again=0.0)
    one, other = fabric.channel(4.0), fabric.channel(4.0)
    one.push(0.0, 300)
    other.push(0.0, 600)
    # 3 each until one ends at 100; then 4 for the 300 that are left.
    assert one.when(counts(300))[0] == pytest.approx(100, abs=0.1)
    assert other.when(counts(600))[0] == pytest.approx(175, abs=0.1)


def test_what_is_pushed_later_counts_from_then_on():
    """A time that was asked for before stands as far as it was past by then."""
    fabric = Fabric(upto(4.0), start=0.0, again=0.0)
    one, other = fabric.channel(4.0), fabric.channel(4.0)
    one.push(0.0, 400)
    assert one.when(counts(400))[0] == pytest.approx(100, abs=0.1)
    other.push(50.0, 100)
    np.testing.assert_allclose(one.when(counts(200, 300, 400)), [50, 100, 125], atol=0.2)
    assert other.when(counts(100))[0] == pytest.approx(100, abs=0.2)


def test_a_task_ends_when_its_last_byte_has_gone_though_the_channel_rests_then():
    fabric = Fabric(upto(4.0), start=7.0, again=2.0)
    channel = fabric.channel(4.0)
    channel.push(0.0, 40)
    channel.push(1000.0, 40)
    np.testing.assert_allclose(channel.when(counts(40, 80)), [17, 1017], atol=0.1)


def test_what_nobody_pushed_never_comes():
    channel = Fabric(upto(4.0), start=0.0, again=0.0).channel(4.0)
    with pytest.raises(Starved):
        channel.when(counts(1))
    channel.push(0.0, 8)
    with pytest.raises(Starved):
        channel.when(counts(9))


def test_channels_have_the_part_that_is_told_of_what_they_could_have_together():
    """One by itself is slowed too where the limit begins early."""
    fabric = Fabric(lambda demand: 1 / (1 + demand / 8), start=0.0, again=0.0)
    one, other = fabric.channel(4.0), fabric.channel(4.0)
    one.push(0.0, 100)
    other.push(0.0, 300)
    # 2 each until one ends at 50; then 4 / 1.5 for the 200 that are left.
    assert one.when(counts(100))[0] == pytest.approx(50, abs=0.2)
    assert other.when(counts(300))[0] == pytest.approx(125, abs=0.2)


def test_a_channel_may_rest_longer_between_tasks_than_others():
    channel = Fabric(upto(4.0), start=7.0, again=2.0).channel(4.0, again=30.0)
    channel.push(0.0, 40)
    channel.push(1.0, 40)
    np.testing.assert_allclose(channel.when(counts(40, 80)), [17, 57], atol=0.1)


# -- streams ---------------------------------------------------------------------------------------------


def test_objects_leave_when_they_are_there_and_the_one_before_has_left():
    stream = Stream([(At([0, 0, 100]), 40.0)], 1, 4.0, 2.0)
    np.testing.assert_allclose(stream.when(counts(20, 40, 80, 120)), [7, 12, 24, 112])
    assert Arriving(stream, 40.0, 40.0, latency=5.0).times(3)[2] == 117


def test_parts_leave_in_turn_and_each_as_often_as_it_is_sent():
    stream = Stream([(At([0, 1000]), 4.0), (At([50, 1000]), 8.0)], 2, 4.0, 0.0)
    np.testing.assert_allclose(stream.when(counts(4, 8, 16, 24, 28)), [1, 2, 52, 54, 1001])


def test_a_shim_takes_what_there_is_a_task_for():
    stream = Stream([(At([0, 0, 0]), 40.0)], 1, 4.0, 0.0, again=30.0)
    with pytest.raises(Starved):
        stream.when(counts(40))
    stream.push(500.0, 60)
    np.testing.assert_allclose(stream.when(counts(40, 60)), [510, 515])
    stream.push(500.0, 60)  # the second object is cut where the first task ends
    np.testing.assert_allclose(stream.when(counts(80, 120)), [550, 560])


def test_room_comes_as_a_shim_takes_objects_away():
    stream = Stream([(At([0, 0, 0]), 40.0)], 1, 4.0, 0.0, again=0.0)
    room = Room(stream, 2, 10.0)
    assert list(room.times(2)) == [0, 0]
    with pytest.raises(Starved):
        room.times(3)
    stream.push(70.0, 120)
    assert list(room.times(4)) == [0, 0, 80, 90]


# -- cores -----------------------------------------------------------------------------------------------


def run(work, cycles):
    """Waits for an object of end 0, gives one of end 1 after `work`; `cycles` in all."""
    return Track(*(np.array(x) for x in ((WAIT, GIVE), (0, 1), (1, 1), (0.0, work), (1, 1))), cycles)


def test_a_core_goes_on_when_what_it_waits_for_is_there():
    core = Core("c", 2, lambda: run(10.0, 12.0))
    core.sources = {0: At([5, 6, 100, 101])}
    given = Given(core, 1)
    np.testing.assert_allclose(given.times(2)[:2], [15, 27])
    np.testing.assert_allclose(given.times(4)[:4], [15, 27, 110, 122])
    with pytest.raises(Starved):
        given.times(5)


def test_runs_begin_when_they_may():
    core = Core("c", 2, None)
    core.sources = {0: At([0, 0])}
    core.begin(40.0, run(10.0, 12.0))
    core.begin(41.0, run(10.0, 12.0))
    np.testing.assert_allclose(Given(core, 1).times(2), [50, 62])
    assert core.busy == 24
    with pytest.raises(Starved):
        Given(core, 1).times(3)


def test_how_much_is_asked_for_at_once_changes_nothing():
    whole, parts = (Core("c", 2, lambda: run(10.0, 12.0)) for _ in range(2))
    there = np.cumsum(np.random.default_rng(1).uniform(0, 24, 50))
    whole.sources = parts.sources = {0: At(there)}
    for n in (1, 2, 7, 8, 30):
        parts.times(1, n)
    np.testing.assert_allclose(parts.times(1, 50), whole.times(1, 50))
