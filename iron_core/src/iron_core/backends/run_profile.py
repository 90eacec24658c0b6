"""`RunProfile`: where the time of recorded runs went, by kind of step; what a backend that keeps times may give.

    with profiled(compiled.backend, {"decode": version.load()}) as found:
        ...
    for phase in found.phases(): ...
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs
import numpy as np

from iron_core.errors import UnsupportedError
from iron_core.image.plan import BufferRef
from iron_core.plugins.hooks import announce


@attrs.frozen
class Limits:
    """What a machine can do at most with `threads` threads: bytes a second read from memory, float32 and int8 operations a
    second (a multiplication and an addition are two)."""

    threads: int
    read_bytes: float
    float_operations: float
    int8_operations: float


@attrs.frozen
class StepTimes:
    """The steps of one kind, a pass on average: how many, wall seconds, seconds threads were busy (all together), bytes
    moved, multiplications and additions (0: not counted), and whether these are of int8."""

    kind: str
    steps: float
    seconds: float
    busy: float
    nbytes: float
    operations: float = 0.0
    integer: bool = False


@attrs.frozen
class Phase:
    """The passes of one version. `fastest`, `median` and `mean` are seconds of a pass; `between_steps` and
    `between_passes` what passed, a pass on average, outside its steps and before the next pass.

    resident: bytes of weights and caches a pass reads. rows: the slowest first. kernels: seconds a pass by kernel, likewise;
    categories: the rows' steps once more, added up by the part of the model that made them (`Graph.category`), likewise.
    """

    name: str
    passes: int
    fastest: float
    median: float
    mean: float
    between_steps: float
    between_passes: float
    resident: float
    rows: tuple[StepTimes, ...]
    kernels: tuple[tuple[str, float], ...] = ()
    categories: tuple[StepTimes, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        spans: Sequence[tuple[float, float]],
        rows: Iterable[StepTimes],
        resident: float,
        kernels: Iterable[tuple[str, float]] = (),
        categories: Iterable[StepTimes] = (),
    ) -> Phase:
        """Passes that began and ended at these seconds of one clock, in order."""
        times = [end - begin for begin, end in spans]
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
        rows, categories = (tuple(sorted(some, key=lambda row: -row.seconds)) for some in (rows, categories))
        mean = math.fsum(times) / len(times)
        return cls(
            name,
            len(times),
            min(times),
            float(np.median(times)),
            mean,
            mean - math.fsum(row.seconds for row in rows),
            float(np.median(gaps)) if gaps else 0.0,
            resident,
            rows,
            tuple(sorted(kernels, key=lambda pair: -pair[1])),
            categories,
        )


@runtime_checkable
class RunProfile(Protocol):
    """Runs of some executables, by name.

    limits: the machine's, measured before the runs; None where a backend knows none. note: what the seconds are of, where
    they are not those of a call.
    """

    limits: Limits | None
    note: str

    def phases(self) -> list[Phase]:
        """One for every executable that ran, in the order given."""

    def step_times(self) -> Iterable[tuple[Any, float]]:
        """Every step that ran, with its `name` and `operands`, and its seconds, a pass on average."""

    def write_trace(self, path: str | Path) -> None:
        """Every pass and step as JSON that Perfetto and chrome://tracing open."""

    def as_dict(self) -> dict[str, Any]:
        """Limits, phases and what else there is, as plain data."""


@runtime_checkable
class Profiling(Protocol):
    """A backend that keeps times of its steps."""

    def profiled(self, executables: Mapping[str, Any]) -> AbstractContextManager[RunProfile]:
        """What these executables of its own, by name, run inside the block."""


@contextlib.contextmanager
def profiled(backend: Any, executables: Mapping[str, Any]) -> Iterator[RunProfile]:
    """Record what these loaded versions of a backend, by name, run inside the block; then `iron_step_timed` is announced for
    every step. UnsupportedError where the backend keeps no times."""
    if not isinstance(backend, Profiling):
        raise UnsupportedError(f"backend {backend.name} keeps no times of its steps.")
    with backend.profiled(executables) as found:
        yield found
    for step, seconds in found.step_times():
        announce("iron_step_timed", step=step, seconds=seconds)


#: Steps of graphs that say nothing.
UNNAMED = "other"


def kind(operator: str, operands: Mapping[str, BufferRef]) -> str:
    """What a row's steps have in common: the operator, and the format of the largest weight or cache it reads: "GEMV q4_1"."""
    held = [ref for ref in operands.values() if ref.space == "resident"]
    largest = max(held, key=lambda ref: ref.nbytes, default=None)
    return operator + (f" {largest.format.name}" if largest is not None else "")
