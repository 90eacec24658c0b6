"""Measuring run lists: what a tuner asks of a backend, and what it is told.

Every figure a tuner needs is the time of some run list: a step's is that of many less that of one, a configuration's that of two
designs in turn less that of each by itself, a pack's that of its designs on one configuration.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs
import numpy as np

from iron_core.declare.formats import PackedArray
from iron_core.declare.identity import contract_key
from iron_core.declare.profile import Profile
from iron_core.devices import Device
from iron_core.errors import UnsupportedError
from iron_core.graph.members import verify


@attrs.frozen(eq=False)
class Run:
    """An operator of a run list.

    members: the numbers of its per-call members (extents, offsets) in every call. tunables: those of the backend's own lowering,
    where it has some; the operator's own stand in `op`. CallError for a member that it does not have, BoundsError for a number that
    reaches beyond its operand: no backend need look again.
    """

    op: Any
    members: Mapping[str, int] = attrs.field(factory=dict)
    tunables: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        verify(self.op, self.members)


@attrs.frozen(eq=False)
class RunList:
    """Operators run one after the other, each on buffers of its own, so that no input lies in a cache that another one filled.

    packs: indices of runs whose arrays share one configuration; others are configured wherever the array changes. dispatch: "fused"
    or "separate", as `iron_core.image.packaging` has it. Inputs are drawn from `seed`, but for those given by (run, operand).
    compared: is what it writes wanted? Of a list that is only timed it need not be kept.
    """

    name: str
    runs: tuple[Run, ...]
    packs: tuple[tuple[int, ...], ...] = ()
    dispatch: str = "fused"
    seed: int = 0
    inputs: Mapping[tuple[int, str], np.ndarray] = attrs.field(factory=dict)
    compared: bool = True


def drawn(runs: RunList, index: int) -> dict[str, Any]:
    """By operand, the inputs of a run of a list, cut to its bounds: those that are given; the others its operator's test draws from the
    list's seed and the index. Runs of one index have equal inputs in every list of a seed, whatever their tunables."""
    run = runs.runs[index]
    op = run.op.bounded(**run.op.limits(run.members)) if run.members else run.op
    return {name: runs.inputs.get((index, name), tensor) for name, tensor in _inputs(op, runs.seed, index).items()}


#: What was drawn since the last new first run of a list: settings of one operator are compared on equal inputs, one after the other.
_drawn: dict[Any, dict[str, Any]] = {}
#: Bytes of it that are kept at most, besides a first run's.
KEPT = 1 << 30


def _inputs(op: Any, seed: int, index: int) -> dict[str, Any]:
    key = (type(op.base), contract_key(op), seed, index)
    found = _drawn.get(key)
    if found is None:
        found = {name: _fixed(tensor) for name, tensor in op.test.draw(op, np.random.default_rng((seed, index))).items()}
        if index == 0:
            _drawn.clear()
        if index == 0 or _bytes(found, *_drawn.values()) <= KEPT:
            _drawn[key] = found
    written = {operand.name for operand in op.outputs}  # what a run reads and writes is its own
    return {name: copy.copy(tensor) if name in written else tensor for name, tensor in found.items()}


def _bytes(*inputs: Mapping[str, Any]) -> int:
    return sum(tensor.nbytes for one in inputs for tensor in one.values())


def _fixed(tensor: Any) -> Any:
    if isinstance(tensor, PackedArray):
        return tensor
    seen = np.asarray(tensor).view()
    seen.flags.writeable = False
    return seen


@attrs.frozen
class Timing:
    """How run lists are timed: `rounds` in which each has its turn with `calls` calls. After `settle` rounds one that takes more than
    `cutoff` times the fastest of as many runs is timed no further. retries: how often a round is taken again that something else
    disturbed."""

    rounds: int = 8
    calls: int = 50
    settle: int = 2
    cutoff: float = 1.5
    retries: int = 5


@attrs.frozen(eq=False)
class Measured:
    """What a run list took.

    round_us: the median call of each round, in microseconds. outputs: everything written, by (run, operand), as far as bounds go.
    disturbed: why no round of it can be trusted; empty where they can.
    """

    round_us: tuple[float, ...]
    outputs: Mapping[tuple[int, str], np.ndarray] = attrs.field(factory=dict, repr=False)
    disturbed: str = ""

    @property
    def us(self) -> float:
        """The median of the rounds."""
        from statistics import median  # here: most processes measure nothing

        return median(self.round_us)

    @property
    def noise_us(self) -> float | None:
        """The standard error of that median; None for one round."""
        if len(self.round_us) < 2:
            return None
        from statistics import stdev  # here, as above

        return math.sqrt(math.pi / 2) * stdev(self.round_us) / math.sqrt(len(self.round_us))

    def digest(self) -> str:
        """SHA-256 of everything written: equal digests are equal bits."""
        found = hashlib.sha256()
        for (run, operand), array in sorted(self.outputs.items(), key=lambda item: item[0]):
            found.update(f"{run} {operand} {array.dtype} {array.shape};".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()


@attrs.frozen
class Platform:
    """What figures hold for. name: the machine, as its vendor or its processor says it. mode: how it is powered or, where time is not
    real, "simulated". Figures of two platforms are never put together."""

    name: str
    mode: str


@runtime_checkable
class Measuring(Protocol):
    """A backend that times run lists."""

    def platform(self, dev: Device) -> Platform:
        """What its figures hold for now."""

    def measure(self, lists: Sequence[RunList], dev: Device, timing: Timing) -> list[Measured]:
        """Time them, in turns within every round. UnsupportedError for one that it cannot run, which names the run and the rule."""


@runtime_checkable
class Estimating(Protocol):
    """A backend that also knows, without a run, about what a step takes: a tuner of a whole model asks it before it measures."""

    def estimate(self, run: Run, dev: Device) -> float:
        """Microseconds of a run by itself, within a tenth of what `measure` says. UnsupportedError for what it cannot run."""


@runtime_checkable
class Keeping(Protocol):
    """A backend that keeps tuned values by itself, for this machine, and gives them to whatever it compiles from then on."""

    def keep(self, profile: Profile, dev: Device) -> Path:
        """Keep a profile's entries for this machine, over those there are; where they are kept. Only what holds on `platform(dev)`
        is ever used. CacheError where nothing can be kept; CallError for an entry of which this backend knows nothing."""

    def kept(self, dev: Device) -> Profile:
        """What is kept for this machine now; empty where there is nothing."""


def measuring(backend: Any) -> Measuring:
    """The backend, which can measure. UnsupportedError for one that cannot."""
    if not isinstance(backend, Measuring):
        raise UnsupportedError(f"backend {backend.name} measures nothing. Legal: one that does, as host or sim.")
    return backend
