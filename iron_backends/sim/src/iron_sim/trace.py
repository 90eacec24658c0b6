"""A Perfetto trace of a simulated run: one track per core, stream and the sequence, in microseconds of simulated time.

What comes before a step, its call's dispatch and its array's configuration, stands on a track of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from iron_core.array.design import Design
from iron_core.array.kernel import Kernel
from iron_core.array.pools import TilePlacement
from iron_core.errors import IronError
from iron_core.files import write_whole
from iron_core.image.array_image import ArrayImage
from iron_sim.timing.events import timed
from iron_sim.timing.hardware import hardware
from iron_sim.timing.price import entries

HOST = "dispatch and configuration"


class Trace:
    """Events of one executable, gathered step by step."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.events: list[dict[str, Any]] = []
        self._tracks: dict[str, int] = {}
        self._now = 0.0

    def enter(self, image: ArrayImage, entry: int) -> None:
        """An entry of an image begins; the first one of a call with the call's dispatch."""
        hw = hardware(image.dev)
        if image.elf and entry == 0:
            self._spend("dispatch", hw.dispatch.value)
        elif not image.elf:
            self._spend("dispatch", hw.chain_run.value)
        bases, loads = entries(image)
        self._spend("configure", bases[entry] + loads[entry])

    def leave(self, image: ArrayImage) -> None:
        """A call ends, with the empty configurations that its image needs."""
        self._spend("reset", image.resets * hardware(image.dev).reset.value)

    def add(
        self,
        step: str,
        design: Design,
        kernels: Mapping[str, Kernel],
        numbers: Mapping[str, int],
        placement: TilePlacement,
        followed: Mapping[str, Sequence[int]],
    ) -> None:
        """A step that has run, or come as far as it could."""
        try:
            run = timed(design, kernels, numbers, placement=placement, followed=followed, trace=True, partial=True)
        except IronError:  # what stopped the call stops its clock too, and is told there
            return
        for name, events in run.events.items():
            for what, start, duration in events:
                self._event(name, what, self._now + start, duration, step)
        self._now += run.us

    def _spend(self, what: str, us: float) -> None:
        if us:
            self._event(HOST, what, self._now, us, HOST)
            self._now += us

    def _event(self, track: str, what: str, start: float, us: float, step: str) -> None:
        if track not in self._tracks:
            self._tracks[track] = len(self._tracks) + 1
            self.events.append(dict(ph="M", pid=1, tid=self._tracks[track], name="thread_name", args={"name": track}))
        self.events.append(dict(ph="X", pid=1, tid=self._tracks[track], name=what, ts=start, dur=us, cat=step))

    def write(self) -> None:
        """Write what there is as Chrome trace JSON, which Perfetto opens."""
        write_whole(self.path, json.dumps({"traceEvents": self.events, "displayTimeUnit": "ns"}))
