"""When objects arrive: a shim's channels that share the fabric, streams between tiles, and cores, each pulled as far as asked.

Times are cycles of the array, float64; object 1 is a flow's first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from iron_sim.timing.track import GIVE, WAIT, Track


class Starved(Exception):
    """What is asked for is not under way."""


class Series:
    """Numbers that grow at their end."""

    def __init__(self) -> None:
        self._room = np.empty(16)
        self.size = 0

    def extend(self, more: np.ndarray) -> None:
        stop = self.size + more.size
        if stop > self._room.size:
            grown = np.empty(max(stop, 2 * self._room.size))
            grown[: self.size] = self._room[: self.size]
            self._room = grown
        self._room[self.size : stop] = more
        self.size = stop

    @property
    def all(self) -> np.ndarray:
        return self._room[: self.size]


class Objects(Protocol):
    """Where objects come from."""

    def times(self, n: int) -> np.ndarray:
        """When the first `n` of them are there, or more. Starved where they never are."""


class Bytes(Protocol):
    """Where a stream's bytes come from."""

    def when(self, counts: np.ndarray) -> np.ndarray:
        """When so many bytes in all have gone, for counts that rise. Starved where they never have."""


#: Of a byte: what is this near has come to the same place.
_WITHIN = 0.25


# -- a shim -------------------------------------------------------------------------------------------


class Channel:
    """A shim's channel that reads: tasks in turn, and how far it has come at which time. again: cycles from the end of a task to the next
    one's first word."""

    def __init__(self, fabric: Fabric, width: float, again: float) -> None:
        self.fabric = fabric
        self.again = again
        self.width = width  # bytes per cycle by itself
        self.pushed: list[float] = []  # of each task, when
        self.ends: list[float] = []  # bytes in all after each task
        self.done: list[float] = []  # of each task that has ended, when
        self.at = [0.0]
        self.gone = [0.0]

    def push(self, time: float, nbytes: float) -> None:
        """Another task."""
        self.fabric.rewind(time)
        self.pushed.append(time)
        self.ends.append((self.ends[-1] if self.ends else 0.0) + nbytes)

    def when(self, counts: np.ndarray) -> np.ndarray:
        """When so many bytes in all have left it, for counts that rise."""
        self.fabric.reach(self, float(counts[-1]))
        return np.interp(counts - _WITHIN, self.gone, self.at)

    def begins(self) -> float:
        """When the first word of its next task is there."""
        number = len(self.done)
        pushed = self.pushed[number]
        if number and pushed < self.done[-1]:
            return self.done[-1] + self.again
        return pushed + self.fabric.start

    def move(self, begin: float, end: float, rate: float) -> None:
        """Be at work from `begin` to `end`."""
        stop = self.ends[len(self.done)]
        if self.at[-1] < begin:
            self.at.append(begin)
            self.gone.append(self.gone[-1])
        gone = self.gone[-1] + rate * (end - begin)
        whole = gone > stop - 1e-3
        self.at.append(end)
        self.gone.append(stop if whole else gone)
        if whole:
            self.done.append(end)

    def rewind(self, time: float) -> None:
        while self.done and self.done[-1] > time:
            self.done.pop()
        while self.at[-1] > time:
            last, gone = self.at.pop(), self.gone.pop()
            first, before = self.at[-1], self.gone[-1]
            if first < time and gone > before:
                self.at.append(time)
                self.gone.append(before + (time - first) / (last - first) * (gone - before))


class Fabric:
    """Channels that read host memory together: each at most as wide as it is, and all together as the fabric, bytes per cycle.

    shared: of what they could have together, the part that they have. start: cycles from a push to the first word, of a channel at rest;
    again: see `Channel`, of one that says nothing else.
    """

    def __init__(self, shared: Callable[[float], float], start: float, again: float) -> None:
        self.shared = shared
        self.start = start
        self.again = again
        self.channels: list[Channel] = []
        self.now = 0.0

    def channel(self, width: float, again: float | None = None) -> Channel:
        self.channels.append(Channel(self, width, self.again if again is None else again))
        return self.channels[-1]

    def rewind(self, time: float) -> None:
        """Forget what was computed of later than `time`: a task is pushed then."""
        if time < self.now:
            for channel in self.channels:
                channel.rewind(time)
            self.now = time

    def reach(self, asked: Channel, count: float) -> None:
        """Go on until a channel has moved so many bytes."""
        if not asked.ends or count > asked.ends[-1] + _WITHIN:
            raise Starved
        while asked.gone[-1] < count - _WITHIN:
            self._step()

    def _step(self) -> None:
        """To the next time at which a channel begins or ends a task."""
        now, until = self.now, np.inf
        moving = []
        for channel in self.channels:
            if len(channel.done) == len(channel.ends):
                continue
            begin = channel.begins()
            if begin > now:
                until = min(until, begin)
            else:
                moving.append(channel)
        demand = sum(channel.width for channel in moving)
        part = self.shared(demand) if moving else 1.0
        for channel in moving:
            until = min(until, now + (channel.ends[len(channel.done)] - channel.gone[-1]) / (channel.width * part))
        for channel in moving:
            channel.move(now, until, channel.width * part)
        self.now = until


# -- between tiles --------------------------------------------------------------------------------------


class Stream:
    """A DMA that sends the objects of a tile's memory in turn: each when it is there and the one before has left.

    parts: where it takes them from, in turn, and the bytes that leave of each. repeat: how often each object is sent. rate: bytes per
    cycle; each: cycles a piece takes besides. One into a shim goes as far as there are tasks; again: cycles between two of them.
    """

    def __init__(self, parts: Sequence[tuple[Objects, float]], repeat: int, rate: float, each: float, again: float | None = None) -> None:
        self.parts = parts
        self.repeat = repeat
        self.rate = rate
        self.each = each
        self.again = again
        self.tasks: list[tuple[float, float]] = []  # from which byte on, and when it may begin
        self.limit = np.inf if again is None else 0.0
        self.upto, self.ends = Series(), Series()  # bytes in all after each piece, and when
        self._sizes = np.repeat([nbytes for _, nbytes in parts], repeat)
        self._inside = np.cumsum(self._sizes)

    def push(self, time: float, nbytes: float) -> None:
        """A shim's task for that many bytes, which may begin then."""
        self.tasks.append((self.limit, time))
        self.limit += nbytes

    def when(self, counts: np.ndarray) -> np.ndarray:
        """When so many bytes in all have left, for counts that rise."""
        if not self.upto.size or counts[-1] > self.upto.all[-1] + _WITHIN:
            self._go_on(float(counts[-1]))
        place = np.searchsorted(self.upto.all, counts - _WITHIN)
        return self.ends.all[place] - (self.upto.all[place] - counts) / self.rate

    def _go_on(self, count: float) -> None:
        """Until that many bytes have left: pieces end with objects and with tasks."""
        if count > self.limit + _WITHIN:
            raise Starved
        turn, gone = float(self._inside[-1]), self.upto.all[-1] if self.upto.size else 0.0
        first, stop = int((gone + _WITHIN) // turn), int(np.ceil((count - _WITHIN) / turn))
        objects = (np.arange(first, stop)[:, None] * turn + self._inside).reshape(-1)
        there = np.array([source.times(stop)[first:stop] for source, _ in self.parts])
        there = np.repeat(there.T, self.repeat, axis=1).reshape(-1) if self.repeat > 1 else there.T.reshape(-1)
        upto = objects
        if self.tasks:
            starts, times = np.array(self.tasks).T
            cuts = np.append(starts[1:], self.limit)
            upto = np.union1d(objects, cuts[cuts.searchsorted(gone) :])
            upto = upto[: upto.searchsorted(min(objects[-1], self.limit) + _WITHIN)]
        upto = upto[upto.searchsorted(gone + _WITHIN) :]
        there = there[objects.searchsorted(upto - _WITHIN)]
        takes = upto / self.rate + self.each
        takes[1:] -= upto[:-1] / self.rate
        takes[0] -= gone / self.rate
        if self.tasks:
            task = cuts.searchsorted(upto - _WITHIN)
            there = np.maximum(there, times[task])
            before = cuts.searchsorted(gone - _WITHIN) if self.upto.size else 0
            takes += (self.again or 0.0) * (np.diff(task, prepend=before) > 0)
        self.ends.extend(chained(there, takes, self.ends.all[-1] if self.ends.size else 0.0))
        self.upto.extend(upto)


class Room:
    """Room for what a core produces for a shim: as much as there is, then more as a stream that begins with the shim's first task
    takes the objects away, which takes `each` cycles for one."""

    def __init__(self, stream: Stream, depth: int, each: float) -> None:
        self.stream = stream
        self.depth = depth
        self.each = each

    def times(self, n: int) -> np.ndarray:
        if n > self.depth and not self.stream.tasks:
            raise Starved
        begin = self.stream.tasks[0][1] if self.stream.tasks else 0.0
        taken = np.arange(1, n + 1) - self.depth
        return np.where(taken > 0, begin + taken * self.each, 0.0)


def chained(there: np.ndarray, takes: np.ndarray, free: float) -> np.ndarray:
    """When things end that are done one after the other: each begins once it is there, and takes its time."""
    ends = np.cumsum(takes)
    begun = np.maximum(np.maximum.accumulate(there - (ends - takes)), free)
    return begun + ends


class Arriving:
    """Objects that a stream fills in a tile's memory: `first` to `stop` of every `each` bytes are the object."""

    def __init__(self, source: Bytes, stop: float, each: float, latency: float, initial: int = 0) -> None:
        self.source = source
        self.stop = stop
        self.each = each
        self.latency = latency
        self.initial = initial
        self._times = Series()
        self._times.extend(np.zeros(initial))

    def times(self, n: int) -> np.ndarray:
        if n > self._times.size:
            turns = np.arange(self._times.size - self.initial, n - self.initial)
            self._times.extend(self.source.when(turns * self.each + self.stop) + self.latency)
        return self._times.all


# -- cores ----------------------------------------------------------------------------------------------


class Core:
    """A core: runs of its program, one after the other, each from when it may begin.

    sources: by the number of its end, where what it consumes comes from. stalls: see `Track.stalled`. endless: gives a run where it
    needs no start.
    """

    def __init__(self, name: str, ends: int, endless: Callable[[], Track] | None) -> None:
        self.name = name
        self.stalls: dict[int, float] = {}
        self.sources: dict[int, Objects] = {}
        self.given = [Series() for _ in range(ends)]
        self.busy = 0.0
        self._endless = endless
        self._next: list[tuple[float, Track]] = []
        self._base = np.zeros(ends, np.int64)
        self._track: Track | None = None
        self._place = 0
        self._begun = 0.0  # time less work, of where it is
        self._free = 0.0

    def begin(self, time: float, run: Track) -> None:
        """A run of its program that may begin then."""
        self._next.append((time, run))

    def times(self, end: int, n: int) -> np.ndarray:
        """When it has given the first `n` objects of an end."""
        given = self.given[end]
        while given.size < n:
            if self._track is None:
                self._take(end, n - given.size)
            run = self._track
            assert run is not None
            want = n - self._base[end]
            places = run.places(GIVE, end)
            found = np.searchsorted(run.counts[places], want)
            self._go_on(int(places[found]) + 1 if found < places.size else run.size)
        return given.all

    def _take(self, end: int, short: int) -> None:
        """The next run."""
        if self._next:
            time, run = self._next.pop(0)
        elif self._endless is not None:
            time, run = 0.0, self._endless()
            if not run.passed[end]:
                raise Starved
            run = run.times(-(-short // int(run.passed[end])))
        else:
            raise Starved
        self._track, self._place = run.stalled(self.stalls), 0
        self._begun = max(self._free, time)
        self.busy += run.cycles

    def _go_on(self, stop: int) -> None:
        """To the event `stop` of this run."""
        run = self._track
        assert run is not None
        start = self._place
        there = np.full(stop - start, -np.inf)
        for end, source in self.sources.items():
            places = _between(run.places(WAIT, end), start, stop)
            if places.size:
                which = run.counts[places] + self._base[end]
                there[places - start] = source.times(int(which[-1]))[which - 1] - run.work[places]
        begun = np.maximum(np.maximum.accumulate(there), self._begun)
        for end, given in enumerate(self.given):
            places = _between(run.places(GIVE, end), start, stop)
            if places.size:
                counts = run.counts[places] + self._base[end]
                times = begun[places - start] + run.work[places]
                if counts[-1] - given.size != places.size:  # some release several at once
                    times = np.repeat(times, np.diff(counts, prepend=given.size))
                given.extend(times)
        if begun.size:
            self._begun = float(begun[-1])
        self._place = stop
        if stop == run.size:
            self._free = self._begun + run.cycles
            self._base = self._base + run.passed
            self._track = None


def _between(places: np.ndarray, start: int, stop: int) -> np.ndarray:
    low, high = places.searchsorted((start, stop))
    return places[low:high]


class Given:
    """What a core gives by one of its ends, as objects of a tile's memory."""

    def __init__(self, core: Core, end: int, initial: int = 0) -> None:
        self.core = core
        self.end = end
        self.initial = initial

    def times(self, n: int) -> np.ndarray:
        found = self.core.times(self.end, max(0, n - self.initial))
        return np.concatenate([np.zeros(self.initial), found]) if self.initial else found
