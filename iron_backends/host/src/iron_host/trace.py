"""Recorded passes as a file for Perfetto: the trace-event JSON that ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from iron_core.files import write_whole
from iron_host.recording import Pass

#: Track of passes and steps; threads have the ones after it.
_RUN = 0


def write(path: str | Path, passes: Sequence[tuple[str, Pass]]) -> None:
    """Write the passes, each with its name. Times count from the first one's beginning."""
    lines = ",\n".join(json.dumps(event) for event in events(passes))
    write_whole(path, f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n')


def events(passes: Sequence[tuple[str, Pass]]) -> Iterator[dict[str, Any]]:
    """Names of the tracks, then a slice per pass, per step and per thread's share of a step."""
    threads = max((len(p.lanes) for _, p in passes), default=0)
    tracks = {_RUN: "run list", **{1 + t: f"thread {t}" for t in range(threads)}}
    for track, title in tracks.items():
        yield {"ph": "M", "name": "thread_name", "pid": 1, "tid": track, "args": {"name": title}}
    start = passes[0][1].begin if passes else 0.0

    def span(name: str, track: int, begin: float, end: float, **args: Any) -> dict[str, Any]:
        ts, dur = round((begin - start) * 1e6, 3), round((end - begin) * 1e6, 3)
        return {"ph": "X", "name": name, "pid": 1, "tid": track, "ts": ts, "dur": dur, "args": args}

    for title, one in passes:
        yield span(title, _RUN, one.begin, one.end, **one.values)
        steps = [one.executable.image.steps[int(i)] for i in one.steps[:, 0]]
        for step, (_, begin, end, busy) in zip(steps, one.steps.tolist(), strict=True):
            kernel = step.unit.template if step.unit is not None else "numpy reference"
            yield span(step.name, _RUN, begin, end, kernel=kernel, busy_us=round(busy * 1e6, 3))
        for thread, lane in enumerate(one.lanes):
            for row, begin, end, busy in lane.tolist():
                yield span(steps[int(row)].name, 1 + thread, begin, end, busy_us=round(busy * 1e6, 3))
