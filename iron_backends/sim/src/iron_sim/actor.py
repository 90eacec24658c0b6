"""Actors and what they wait on: semaphores with waiters, run in a fixed order so that a run is the same every time."""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Iterator

from iron_sim.errors import Deadlock


class Semaphore:
    """A counter that actors wait on. `provider` names who raises it, for reports."""

    __slots__ = ("count", "name", "provider", "scheduler", "waiters")

    def __init__(self, scheduler: Scheduler, count: int, name: str, provider: str = "") -> None:
        self.scheduler = scheduler
        self.count = count
        self.name = name
        self.provider = provider
        self.waiters: list[Actor] = []

    def give(self, count: int) -> None:
        """Raise it and wake who waits."""
        self.count += count
        self.wake()

    def set(self, value: int) -> None:
        self.count = value
        self.wake()

    def wake(self) -> None:
        if self.waiters:
            for actor in self.waiters:
                self.scheduler.ready(actor)
            self.waiters.clear()


class Actor(abc.ABC):
    """Something that runs until it has to wait. `run` yields where it is blocked, after noting itself as a waiter.

    urgent: it goes on before all others as soon as it can.
    """

    urgent = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting = ""
        self.provider = ""
        self.queued = False
        self.ended = False
        self._body: Iterator[None] | None = None

    @abc.abstractmethod
    def run(self) -> Iterator[None]:
        """What it does; yields where it is blocked."""

    def step(self) -> bool:
        """Go on until blocked; False once it has ended."""
        if self._body is None:
            self._body = self.run()
        return next(self._body, False) is not False

    def block(self, on: Semaphore, what: str) -> None:
        """Note what is waited for; the caller yields next."""
        self.waiting = what
        self.provider = on.provider
        on.waiters.append(self)


class Scheduler:
    """Runs actors in the order they became ready."""

    def __init__(self) -> None:
        self._ready: deque[Actor] = deque()

    def ready(self, actor: Actor) -> None:
        if not actor.queued:
            actor.queued = True
            if actor.urgent:
                self._ready.appendleft(actor)
            else:
                self._ready.append(actor)

    def settle(self) -> None:
        """Run until nobody can go on."""
        ready = self._ready
        while ready:
            actor = ready.popleft()
            actor.queued = False
            if not actor.step():
                actor.ended = True


def deadlock(title: str, actors: list[Actor]) -> Deadlock:
    """The report: each blocked actor, what it waits for and who should provide it (or that it has ended)."""
    lines = [title]
    for actor in actors:
        if actor.ended:
            lines.append(f"  {actor.name} has ended")
            continue
        by = f", which {actor.provider} gives" if actor.provider else ""
        lines.append(f"  {actor.name} waits for {actor.waiting}{by}")
    return Deadlock("\n".join(lines))
