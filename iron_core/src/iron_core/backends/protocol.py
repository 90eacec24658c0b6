"""What a backend is. Third parties implement `Backend` and register it under `iron.backends.v1`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs
import numpy as np

from iron_core.image.plan import Plan, Signature
from iron_core.lowering.answer import No, Yes


@attrs.frozen
class Available:
    """A probe's yes. `summary` is one line for tables, e.g. "g++ 12.2, AVX2, 2 threads"."""

    summary: str


@attrs.frozen
class Unavailable:
    """A probe's no: `reason` names everything that was looked for, `fix` what to do about it."""

    reason: str
    fix: str = ""


@runtime_checkable
class Memory(Protocol):
    """Residents and arena of one compiled graph, shared by its versions. Names are the residents' names.

    It needs no lock: one thread at a time uses it and what runs on it, and nothing is grown or written inside a step. Between
    two steps of a loop, in `on_step`, both may happen, and other versions, or the loop's own, may run.
    """

    def grow(self, plan: Plan) -> None:
        """Make room for what a newly planned version adds; what is placed keeps its place and content."""

    def read(self, name: str) -> Any:
        """A copy of a resident as a numpy array (PackedArray for a block format)."""

    def write(self, name: str, array: Any) -> None:
        """Replace a resident's content; shape and dtype as declared."""


@runtime_checkable
class Executable(Protocol):
    """One loaded version, ready to be called."""

    def call(
        self, inputs: Sequence[np.ndarray], values: Mapping[str, int]
    ) -> tuple[list[np.ndarray], dict[str, int]]:
        """Run once. Inputs in port order, cut to their bounds or at their compiled shape; outputs come back cut to
        their bounds. The dict is the carried values' next numbers."""

    def loop(
        self, steps: int, values: Mapping[str, int], on_step: Callable[[int, dict[str, int]], bool] | None = None
    ) -> dict[str, int]:
        """Run a version that takes no tensor `steps` times, each on the values the last one carried. After every step
        `on_step(index, carried)` is called on the calling thread; True stops, and what it raises ends the loop and arrives
        here. So does what the handler of a signal raises, soon, on the main thread. CallError before a step on a carried value
        that its dtype cannot hold (see `iron_core.backends.loop`). Returns the last carried values."""


@runtime_checkable
class Backend(Protocol):
    """Who executes a plan. `name` is what `backend=` and `IRON_BACKEND` take, and means one with its defaults.

    Its options are its own: keywords of its class, checked where it is made. Whoever derives from this class compares by
    value, so that equal options are one backend to a graph: an object holds its options, under hashable values, and no more.
    """

    name: str
    #: Position in the default order (npu 0, host 10); None: chosen only by name.
    preference: int | None = None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def probe(self) -> Available | Unavailable:
        """Can it run here? Cheap, never raises."""

    def devices(self) -> tuple[str, ...]:
        """Device names it takes for `dev=`, the default first."""

    def supports(self, op: Any, dev: str) -> Yes | No:
        """Can it take this operator instance?"""

    def accepts(self, fold: Any, dev: str) -> bool:
        """Does it turn this Fold into a fused kernel or link on this device? None, unless a backend says otherwise."""
        return False

    def compile(self, plan: Plan, signature: Signature) -> Any:
        """The Image of one version (what the cache keeps); needs no device. It names the keywords of a compile that it takes,
        `feeds` and `coresident`: one that it does not name is refused."""

    def memory(self, plan: Plan) -> Memory:
        """Fresh memory for a compiled graph."""

    def load(self, image: Any, memory: Any) -> Executable:
        """Make an image callable on what `memory()` gave."""
