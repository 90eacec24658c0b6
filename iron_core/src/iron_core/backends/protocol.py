"""What a backend is. Third parties implement `Backend` and register it under `iron.backends.v1`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, Protocol, Self, runtime_checkable

import attrs
import numpy as np

from iron_core.backends.memory import Memory
from iron_core.devices import Device
from iron_core.errors import CallError
from iron_core.graph.signature import Signature
from iron_core.image.plan import Plan
from iron_core.lowering.answer import No, Yes


@attrs.frozen
class Available:
    """A probe's yes. `summary` is one line for tables, e.g. "g++ 12.2, AVX2, 2 threads"."""

    summary: str


@attrs.frozen
class Unavailable:
    """A probe's no: `reason` names everything that was looked for, `fix` what to do about it.

    compiles: it cannot run here, and makes images here that run elsewhere. Who asks for such a backend by name gets it; its `memory` or
    `load` says at the first call what is missing.
    """

    reason: str
    fix: str = ""
    compiles: bool = False


#: What a finding may say of what was looked at.
FINDINGS = ("ok", "note", "problem")


@attrs.frozen
class Finding:
    """One thing that a backend looked at on this machine. what: in a word or two, "firmware"; says: what is there, on one line.

    state: "ok", "note" for what works and could be better, "problem" for what keeps it from running. fix: what to do about the latter two.
    """

    what: str
    says: str
    state: str = attrs.field(default="ok", validator=attrs.validators.in_(FINDINGS))
    fix: str = ""


@runtime_checkable
class Examining(Protocol):
    """A Backend that looks at a machine more closely than its probe does, for `iron doctor`."""

    def examine(self) -> Sequence[Finding]:
        """Everything that it needs, found or not; it may start programs, and never raises."""


@runtime_checkable
class TakesDevices(Protocol):
    """A Backend for more devices than it lists: those that packs bring in `iron.devices.v1`."""

    def takes(self, dev: Device) -> bool:
        """Does it take a device that `devices()` does not name? What does not fit it is refused operator by operator, by `supports`."""


@runtime_checkable
class Printing(Protocol):
    """A Backend that writes what it makes of an operator, for `iron operators show --mlir`."""

    def printed(self, op: Any, dev: str) -> str:
        """The text for one operator alone on a device that it takes, in the language that it hands to its tools. An error of
        `iron_core.errors` where no array takes the operator."""


@runtime_checkable
class Restoring(Protocol):
    """A Backend whose images are data of `image_class` that another process may load: the cache keeps them beside versions, and a warm
    start neither asks what is supported nor compiles."""

    image_class: type

    def follows(self) -> str | None:
        """What its images follow from beside the plan, its options and the sources of the packages that are in a version: settings of
        the environment, what the machine has. None where that is not known."""

    def keeps(self, image: Any) -> bool:
        """May this image be kept? Not where compiling it says something that each start shall say."""

    def restore(self, image: Any) -> bool:
        """Make an image that was kept ready to be loaded; False where it has to be compiled."""


@runtime_checkable
class Executable(Protocol):
    """One loaded version over a memory. What is given to it is checked, and what it leaves is collected, by core."""

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], values: Mapping[str, int]
    ) -> dict[str, int] | None:
        """Run once, with these per-call values.

        inputs: in port order, contiguous arrays of the dtype that stores them (uint8 where packed), at the port's compiled
        shape or cut to this call's bounds: as far as an array's shape goes, its numbers are there; `iron_core.backends.ports.whole`
        gives the compiled shape. Not to be written to. outputs: arrays of zeros at their compiled shape, to be filled as far
        as this call's bounds go. Returns the carried values' next numbers where the backend made them; None where core shall
        evaluate them, or read them from outputs and memory.
        """


@runtime_checkable
class Looping(Protocol):
    """An Executable with a loop of its own. Any other is run once a step; see `iron_core.backends.loop.loop_by_calls`."""

    def loop(
        self,
        steps: int,
        outputs: Sequence[np.ndarray],
        values: Mapping[str, int],
        on_step: Callable[[int, dict[str, int]], bool] | None = None,
    ) -> dict[str, int]:
        """Run a version that takes no tensor `steps` times, each on the values the last one carried. After every step
        `on_step(index, carried)` is called on the calling thread; True stops, and what it raises ends the loop and arrives
        here. So does what the handler of a signal raises, soon, on the main thread. CallError before a step on a carried value
        that its dtype cannot hold (see `iron_core.backends.loop`). outputs: to be used by every step. Returns the last carried
        values.

        An `on_step` whose attribute `quiet` is True is core's own: it verifies the version's checks on the values and does no more. A
        loop may verify them by itself before each step, and go on while earlier steps are under way."""


@runtime_checkable
class Backend(Protocol):
    """Who executes a plan. `name` is what `backend=` and `IRON_BACKEND` take, and means one with its defaults.

    Its options are its own: keywords of its class, checked where it is made; CallError for one that it does not have. Whoever
    derives from this class compares by value, so that equal options are one backend to a graph: an object holds its options,
    under hashable values, and no more.
    """

    name: str
    #: Position in the default order (npu 0, host 10); None: chosen only by name.
    preference: int | None = None
    #: Does it load binaries that somebody else built for an NPU (`Operator.binary`)?
    loads_binaries: bool = False
    #: Does it compute arrays by their kernels' tile references, so that an answer is `composed()`'s in every bit?
    follows_tiles: bool = False

    def __new__(cls, *given: Any, **options: Any) -> Self:
        name = getattr(cls, "name", None)
        check_options(name if isinstance(name, str) else cls.__name__, cls, options, given)
        return super().__new__(cls)

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

    def accepts(self, fold: Any, dev: str) -> bool | No:
        """Does it turn this Fold into a fused kernel or link on this device? No, unless a backend says otherwise.

        `fold.joined` is what it would become: per step that it folds into, that step (of a chain the first) with everything
        in front of it and behind it, this fold's step and those accepted before. What is accepted is taken, and stands in
        the plan. A `No` says why not, which `explain()` shows.
        """
        return False

    def compile(self, plan: Plan, signature: Signature) -> Any:
        """The Image of one version (what the cache keeps); needs no device. It names the keywords of a compile that it takes,
        `feeds` and `coresident`: one that it does not name is refused."""

    def memory(self, plan: Plan) -> Any:
        """Fresh memory for a compiled graph: bytes on this machine, unless a backend says otherwise; see `Memory`."""
        return Memory(plan)

    def load(self, image: Any, memory: Any) -> Executable:
        """Make an image callable on what `memory()` gave."""


def check_options(backend: str, made: Any, options: Mapping[str, Any], given: Sequence[Any] = ()) -> None:
    """CallError for an option that a backend's class does not take: one that its `__init__` does not have by that name, or for
    one `given` without a name. made: the class, or an object, which takes none any more."""
    init = made.__init__
    takes = isinstance(made, type) and init not in (Backend.__init__, object.__init__)
    parameters = list(inspect.signature(init).parameters.values())[1:] if takes else []
    kinds = [p.kind for p in parameters]
    legal = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = [] if Parameter.VAR_KEYWORD in kinds else [option for option in options if option not in legal]
    if Parameter.VAR_POSITIONAL not in kinds:
        unknown += map(repr, given[kinds.count(Parameter.POSITIONAL_ONLY) + kinds.count(Parameter.POSITIONAL_OR_KEYWORD) :])
    if unknown:
        raise CallError(f"backend {backend} has no option {unknown[0]}. Its options: {', '.join(legal) or 'none'}.")
