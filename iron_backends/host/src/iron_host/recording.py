"""Recording what runs take: the native loop notes every pass, step and thread's share while a recording is open."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from iron_host.executable import HostExecutable
from iron_host.timing import Timing

_PASS, _STEP, _LANE = 4, 4, 4  # words of a row; see timing.h


@attrs.frozen(eq=False)
class Pass:
    """One run of a run list. Times are seconds of time.perf_counter's clock; rows of `steps` and `lanes` are in order.

    values: the per-call numbers it ran with. steps: float64 (n, 4): index in the run list, begin, end, seconds threads
    were busy with it, all together. lanes: per thread, float64 (m, 4): row of `steps`, begin, end, seconds busy.
    """

    executable: HostExecutable
    values: dict[str, int]
    begin: float
    end: float
    steps: np.ndarray
    lanes: tuple[np.ndarray, ...]


class Recording:
    """What happened between the start and the end of a `record()` block: `passes`, in the order they began."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []

    def of(self, executable: Any) -> list[Pass]:
        """The passes of one executable."""
        return [p for p in self.passes if p.executable is executable]


@contextlib.contextmanager
def record(executables: Sequence[HostExecutable]) -> Iterator[Recording]:
    """Record every run of these executables while the block is open. Others on the same pool run slower by a little."""
    found = Recording()
    with contextlib.ExitStack() as stack:
        taken = [(r, stack.enter_context(r.timed())) for r in dict.fromkeys(e.runtime for e in executables)]
        yield found
        for runtime, tables in taken:
            mine = [e for e in executables if e.runtime is runtime]
            for timing in tables.ended():
                found.passes += _passes(timing, runtime.threads, mine)
    found.passes.sort(key=lambda p: p.begin)


def _table(timing: Timing, number: int, words: int) -> np.ndarray:
    """A copy of one of the native tables, int64 (rows, words)."""
    data = ctypes.POINTER(ctypes.c_int64)()
    count = int(timing.native.iron_timing_read(timing.handle, number, ctypes.byref(data)))
    if not count:
        return np.zeros((0, words), np.int64)
    return np.ctypeslib.as_array(data, (count,)).reshape(-1, words).copy()


def _passes(timing: Timing, threads: int, executables: Sequence[HostExecutable]) -> list[Pass]:
    owners = {e.run_address: e for e in executables}
    passes, steps = _table(timing, 0, _PASS), _table(timing, 1, _STEP)
    values = _table(timing, 2, 1).ravel()
    lanes = [_table(timing, 3 + t, _LANE) for t in range(threads)]
    busy = np.zeros(len(steps))
    for lane in lanes:
        np.add.at(busy, lane[:, 0], lane[:, 3] * 1e-9)
    cuts = np.searchsorted(steps[:, 0], np.arange(len(passes) + 1))
    found = []
    for number, (run, first, begin, end) in enumerate(passes.tolist()):
        owner, rows = owners.get(run), np.arange(cuts[number], cuts[number + 1])
        if owner is None or not len(rows):
            continue
        mine = steps[rows]
        table = np.column_stack([mine[:, 1], mine[:, 2:] * 1e-9, busy[rows]])
        shares = []
        for lane in lanes:
            part = lane[slice(*np.searchsorted(lane[:, 0], (rows[0], rows[-1] + 1)))]
            part = part[np.isin(part[:, 0], rows)]
            shares.append(np.column_stack([np.searchsorted(rows, part[:, 0]), part[:, 1:] * 1e-9]))
        names = owner.value_names
        found.append(
            Pass(
                owner,
                dict(zip(names, values[first : first + len(names)].tolist(), strict=True)),
                begin * 1e-9,
                end * 1e-9,
                table,
                tuple(shares),
            )
        )
    return found
