"""Timing run lists on this machine: in turns within every round, each by the native loop's own clock.

Whatever else the CPUs that this process may run on do meanwhile shows in what they spent beside it: such a round is taken again.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from iron_core.backends.listed_runs import ListedRuns
from iron_core.backends.listed_runs import written as written_by
from iron_core.backends.measuring import Measured, RunList, Timing
from iron_core.image.packaging import decide
from iron_core.image.plan import Plan
from iron_host.recording import record

#: Of a CPU, what others may use during a round, and the seconds by which the system's count of it may be out.
OTHERS, TICKS = 0.1, 0.02
#: Bytes of weights and caches that no processor keeps from one call to the next, and copies of a list at most.
COLD, MOST = 96 << 20, 512
#: Seconds of a turn at most, as long as it has three calls.
TURN = 0.1
#: Fields of /proc/stat that are not rest: user, nice, system, irq, softirq, steal.
_BUSY = (0, 1, 2, 5, 6, 7)


def measure(backend: Any, lists: Sequence[RunList], timing: Timing) -> list[Measured]:
    """Time run lists on a `HostBackend`; see `iron_core.backends.measuring.Measuring`."""
    groups = _groups(backend, lists)
    loaded = [one.loaded for one in groups]
    outputs: dict[int, Mapping[tuple[int, str], np.ndarray]] = {}
    for one in groups:
        compared = [index for index in one.lists if lists[index].compared]
        outputs |= dict.fromkeys(compared, one.loaded.outputs() if compared else {})
    rounds: list[list[float]] = [[] for _ in groups]
    said = ""
    going = list(range(len(groups)))
    for number in range(timing.rounds):
        first = number % max(len(going), 1)
        found, others = _round(loaded, going[first:] + going[:first], timing)
        for index, us in found.items():
            rounds[index].append(us)
        if others:
            # What one round says against a figure none of the others mends.
            said = f"others used {others:.1f} CPUs in round {number + 1} of {timing.rounds}, which was taken {timing.retries + 1} times"
            break
        if number + 1 >= timing.settle:
            going = _contenders(going, rounds, [one.runs for one in groups], timing.cutoff)
    measured = {}
    for figures, one in zip(rounds, groups, strict=True):
        for index in one.lists:
            part = len(lists[index].runs) / one.runs if one.runs else 1
            own = {key: array for key, array in outputs.get(index, {}).items() if key[0] < max(len(lists[index].runs), 1)}
            measured[index] = Measured(tuple(part * us for us in figures), own, said)
    return [measured[index] for index in range(len(lists))]


@attrs.frozen(eq=False)
class _Group:
    """Lists that are timed as one, by their indices. runs: of the longest, which is loaded."""

    loaded: Loaded
    lists: tuple[int, ...]
    runs: int


def _groups(backend: Any, lists: Sequence[RunList]) -> list[_Group]:
    """Lists of one run, over and over, that reads weights or caches are timed together: in calls from memory, of many copies one after
    the other, a run takes the same in a list of one as in a list of nine."""
    found: dict[Any, list[int]] = {}
    for index, runs in enumerate(lists):
        same = {(id(run.op), *_sorted(run.members), *_sorted(run.tunables)) for run in runs.runs}
        shared = len(same) == 1 and kept_bytes(runs.runs[0].op) > 0
        found.setdefault((*same, runs.seed) if shared and not runs.inputs else index, []).append(index)
    groups = []
    for indices in found.values():
        longest = max(indices, key=lambda index: len(lists[index].runs))
        groups.append(_Group(Loaded(backend, lists[longest]), tuple(indices), len(lists[longest].runs)))
    return groups


def _sorted(items: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(sorted(items.items()))


def _contenders(going: list[int], rounds: list[list[float]], runs: Sequence[int], cutoff: float) -> list[int]:
    """Those that are not far behind the fastest of as many runs."""
    best: dict[int, float] = {}
    for i in going:
        best[runs[i]] = min(best.get(runs[i], math.inf), statistics.median(rounds[i]))
    return [i for i in going if statistics.median(rounds[i]) <= cutoff * best[runs[i]]]


def _round(loaded: Sequence[Loaded], order: Sequence[int], timing: Timing) -> tuple[dict[int, float], float]:
    """A round of those in `order`: the median call of each in microseconds, and the CPUs that others used where they were too many."""
    others = 0.0
    for _ in range(timing.retries + 1):
        found, others = _tried(loaded, order, timing.calls)
        if not others:
            break
    return found, others


def _tried(loaded: Sequence[Loaded], order: Sequence[int], calls: int) -> tuple[dict[int, float], float]:
    loaded[order[0]].wake()
    before, own, start = busy_seconds(), time.process_time(), time.perf_counter()
    found = {index: loaded[index].median_us(calls) for index in order}
    wall = time.perf_counter() - start
    others = busy_seconds() - before - (time.process_time() - own)
    return found, others / wall if others > OTHERS * wall + TICKS else 0.0


def busy_seconds() -> float:
    """Seconds that the CPUs of this process have spent on anything since the machine started, what its host took included; 0 where
    unknown."""
    try:
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        with open("/proc/stat", encoding="utf-8", errors="replace") as file:
            rows = [line.split() for line in file if line.split()[0] in names]
        return sum(int(row[1 + field]) for row in rows for field in _BUSY) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


class Loaded:
    """A run list, compiled and loaded over buffers of its own: packed inputs are weights, whatever else is read or written a state.

    A model reads its weights and caches once a pass, from memory. So there are copies of the list, each with buffers of its own,
    until what its runs read of such things is more than the processor's caches keep; a call is one copy's share of all.
    """

    def __init__(self, backend: Any, runs: RunList) -> None:
        held = sum(kept_bytes(run.op) for run in runs.runs)
        self.copies = min(MOST, -(-COLD // held)) if held else 1
        listed = ListedRuns(runs, self.copies)
        self._starts, self._values, self._steps = listed.starts, listed.values, listed.steps
        version = listed.version()
        plan = Plan(runs.name, backend.name, "host", decide("host", version.values), (version,), tuple(listed.residents), ())
        given = {step.name: run.tunables for step, run in zip(self._steps, runs.runs * self.copies, strict=True)}
        self._memory = backend.memory(plan)
        self._executable = backend.load(backend.compiled(plan, (), lambda step, _: given[step.name], apart=True), self._memory)
        self._one = self._steps[: len(runs.runs)]
        self._took = 0.0  # seconds of all copies, as they were timed last
        self._write(self._starts)

    def outputs(self) -> dict[tuple[int, str], np.ndarray]:
        """What one call writes, as far as its bounds go."""
        self._executable.run([], [], self._values)
        return written_by(self._one, self._values, self._memory.read)

    def wake(self) -> None:
        """One call that is not timed: CPUs that were idle leave their sleep and come up to their clock."""
        self._executable.run([], [], self._values)

    def median_us(self, calls: int) -> float:
        """The median of so many calls one after another, in microseconds: of `copies` at a time, of three times as many at least, and of
        no more than fit into a turn."""
        if not self._took:
            self._timed(1)
        written = (f"{step.name}.{name}" for step in self._steps for name in step.operands if step.op.operands[name].written)
        self._write({name: self._starts[name] for name in written if name in self._starts})
        fit = min(calls // self.copies, int(TURN / max(self._took, 1e-9)))
        return self._timed(max(min(3, calls), fit)) * 1e6 / self.copies

    def _timed(self, times: int) -> float:
        """The median of so many passes over all copies, in seconds."""
        with record([self._executable]) as recording:
            self._executable.loop(times, [], self._values)
        self._took = statistics.median(one.end - one.begin for one in recording.passes)
        return self._took

    def _write(self, arrays: Mapping[str, Any]) -> None:
        for name, array in arrays.items():
            self._memory.write(name, array)


def kept_bytes(op: Any) -> int:
    """Bytes of what an operator reads that a model keeps, weights and caches: inputs larger than all that it writes."""
    sizes = {name: op.format(name).nbytes(op.shape(name)) for name in op.present}
    made = sum(n for name, n in sizes.items() if op.operands[name].written)
    return sum(n for name, n in sizes.items() if not op.operands[name].written and n > made)
