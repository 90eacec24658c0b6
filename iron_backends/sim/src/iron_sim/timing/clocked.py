"""Actors on one time line, tokens that carry the time from which they hold, and the heap that runs actors in its order.

An actor that is resumed may run ahead of the others until it has to wait: what it gives bears the time at which it gives it, and every
token has one taker, so nobody sees the difference. Only what is shared without tokens, the fabric, is asked for in the order of time.
"""

from __future__ import annotations

import abc
import heapq
import itertools
from collections import deque
from collections.abc import Iterator

from iron_sim.timing.hardware import Hardware

#: (what, start, duration) in microseconds.
Event = tuple[str, float, float]


class Line:
    """The time line: who goes on when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Clocked]] = []
        self._order = itertools.count()

    def at(self, time: float, actor: Clocked) -> None:
        """Resume an actor then."""
        heapq.heappush(self._heap, (time, next(self._order), actor))

    def run(self) -> None:
        """Until nobody can go on."""
        heap = self._heap
        while heap:
            self.now, _, actor = heapq.heappop(heap)
            if next(actor.body, False) is False:
                actor.ended = True


class Clocked(abc.ABC):
    """Something that takes time. `run` yields where it waits: after `Tokens.wait`, or after asking the line to resume it."""

    def __init__(self, name: str, line: Line, traced: bool) -> None:
        self.name = name
        self.line = line
        self.time = 0.0
        self.busy = 0.0
        self.waiting = ""
        self.ended = False
        self.events: list[Event] | None = [] if traced else None
        self.body: Iterator[None] = self.run()

    @abc.abstractmethod
    def run(self) -> Iterator[None]:
        """What it does; yields where it waits."""

    def spend(self, what: str, us: float) -> None:
        """Be busy for some time."""
        if self.events is not None:
            self.events.append((what, self.time, us))
        self.time += us
        self.busy += us


class Tokens:
    """A counting semaphore whose tokens bear the time at which they were given. One actor takes them."""

    __slots__ = ("line", "name", "times", "waiter")

    def __init__(self, line: Line, count: int, name: str) -> None:
        self.line = line
        self.name = name
        self.times: deque[float] = deque([0.0] * count)
        self.waiter: Clocked | None = None

    def give(self, count: int, time: float) -> None:
        if count == 1:
            self.times.append(time)
        else:
            self.times.extend([time] * count)
        if self.waiter is not None:
            self.line.at(time, self.waiter)
            self.waiter = None

    def take(self, count: int) -> float:
        """The time from which so many were there; they must be."""
        times = self.times
        if count == 1:
            return times.popleft()
        return max([times.popleft() for _ in range(count)])

    def wait(self, actor: Clocked) -> None:
        """Resume the actor when one more is given; it yields next."""
        actor.waiting = self.name
        self.waiter = actor


class Barrier:
    """A lock that a sequence sets and a core waits for to have one value."""

    __slots__ = ("count", "line", "name", "time", "waiters")

    def __init__(self, line: Line, count: int, name: str) -> None:
        self.line = line
        self.count = count
        self.name = name
        self.time = 0.0
        self.waiters: list[Clocked] = []

    def set(self, value: int, time: float) -> None:
        self.count = value
        self.time = max(self.time, time)
        for waiter in self.waiters:
            self.line.at(time, waiter)
        self.waiters.clear()

    def wait(self, actor: Clocked) -> None:
        actor.waiting = self.name
        self.waiters.append(actor)


class Fabric:
    """The way to host memory that all shim channels share: so many GB/s of reading, of writing, and of both together.

    Those that read at a time slow each other down; beyond that pieces are served, and addresses translated, in the order in which they
    are asked for.
    """

    def __init__(self, hw: Hardware) -> None:
        self._hw = hw
        self._rates = {True: 1e-3 / hw.fabric_read.value, False: 1e-3 / hw.fabric_write.value}
        self._total = 1e-3 / hw.fabric_total.value
        self._free = {True: 0.0, False: 0.0}
        self._both = 0.0
        self._translated = 0.0
        #: Of each channel that reads, GB/s that it could have, and until when it does.
        self._reading: dict[Clocked, tuple[float, float]] = {}
        #: A channel that goes on with its next piece has not stopped.
        self._pause = 2 * hw.us(hw.descriptor_chain.value)

    def translated(self, time: float) -> float:
        """When an address that is asked for at `time` is known; what one by itself takes is in a channel's latency."""
        begin = max(time, self._translated)
        self._translated = begin + self._hw.translation.value * 1e-3
        return begin

    def joins(self, channel: Clocked, gbs: float, time: float) -> bool:
        """Does a channel that will read from `time` on begin then? Others that begin at that time are to be told before it asks how far
        it comes. gbs: what it could have by itself."""
        if channel in self._reading and self._reading[channel][1] + self._pause >= time:
            return False
        self._reading[channel] = (gbs, time)
        return True

    def read(self, channel: Clocked, nbytes: float, gbs: float, time: float) -> float:
        """When a piece that a channel reads from `time` on has crossed."""
        demand = gbs + sum(could for other, (could, end) in self._reading.items() if end + self._pause >= time and other is not channel)
        end = max(time + nbytes * 1e-3 / (gbs * self._hw.shared(demand)), self._end(nbytes, time, True))
        self._reading[channel] = (gbs, end)
        return end

    def written(self, nbytes: float, time: float) -> float:
        """When a piece that is written from `time` on has crossed."""
        return self._end(nbytes, time, False)

    def _end(self, nbytes: float, time: float, reads: bool) -> float:
        one = self._free[reads] = max(self._free[reads], time) + nbytes * self._rates[reads]
        self._both = max(self._both, time) + nbytes * self._total
        return max(one, self._both)
