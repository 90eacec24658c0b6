"""A Perfetto trace of a simulated run: one track per actor, time in units (one per kernel call, object or step)."""

from __future__ import annotations

import json
from typing import Any

from iron_core.files import write_whole
from iron_sim.machine import Machine


class Trace:
    """Events of one executable, gathered step by step."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.events: list[dict[str, Any]] = []
        self._tracks: dict[str, int] = {}
        self._offset = 0

    def add(self, step: str, machine: Machine) -> None:
        """Take the events of a machine since the last time, shifted behind those of the steps before."""
        end = 0
        named = [(actor.name, actor.events) for actor in machine.actors]
        for name, events in (("the sequence", machine.controller_events), *named):
            for what, start, duration in events or ():
                end = max(end, start + duration)
                self.events.append(
                    dict(ph="X", pid=1, tid=self._track(name), name=what, ts=self._offset + start, dur=duration, cat=step)
                )
            if events is not None:
                events.clear()
        self._offset += end
        machine.restart()

    def _track(self, name: str) -> int:
        if name not in self._tracks:
            self._tracks[name] = len(self._tracks) + 1
            self.events.append(
                dict(ph="M", pid=1, tid=self._tracks[name], name="thread_name", args={"name": name})
            )
        return self._tracks[name]

    def write(self) -> None:
        """Write what there is as Chrome trace JSON, which Perfetto opens."""
        write_whole(self.path, json.dumps({"traceEvents": self.events, "displayTimeUnit": "ns"}))
