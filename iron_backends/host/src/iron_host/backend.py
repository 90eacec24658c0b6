"""`HostBackend`: graphs on this machine's CPU."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from iron_core.aside import aside
from iron_core.backends.measuring import Measured, Platform, RunList, Timing
from iron_core.backends.protocol import Available, Backend, Unavailable
from iron_core.cache.keys import digest
from iron_core.declare.profile import Profile
from iron_core.devices import Device
from iron_core.errors import BackendUnavailable, CallError, UnsupportedError
from iron_core.graph.fold import Fold
from iron_core.graph.signature import Signature
from iron_core.image.plan import Plan, PlanStep
from iron_core.lowering import taken
from iron_core.lowering.answer import No, Yes
from iron_core.lowering.registry import Asked
from iron_core.plugins.registry import blamed, labelled
from iron_host import build, compiler
from iron_host import tuned as tuning
from iron_host.errors import KernelError
from iron_host.fused import fused
from iron_host.kernel_call import KernelCall
from iron_host.lowered import NONE, Lowered, untuned
from iron_host.memory import HostMemory
from iron_host.parts import Part, asked, parts
from iron_host.runlist import HostImage, ImageBuilder

if TYPE_CHECKING:
    from iron_host.profile import HostProfile

#: How `supports()` and `explain()` say that a step runs numpy.
CALLBACK = "reference call-back"

#: More threads than this are a typing mistake.
MOST_THREADS = 1024

_announced: set[str] = set()


def thread_count(given: int | None = None) -> int:
    """Threads to use: `given` (the `threads=` option), else `IRON_THREADS`, else the CPUs this process may run on.

    CallError for what is no number of threads.
    """
    if given is not None:
        return _counted("threads", given, operator.index)
    text = os.environ.get("IRON_THREADS")
    if text:
        return _counted("IRON_THREADS", text, int)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _counted(where: str, count: Any, read: Callable[[Any], int]) -> int:
    try:
        number = 0 if isinstance(count, bool) else read(count)
    except (TypeError, ValueError):
        number = 0
    if not 1 <= number <= MOST_THREADS:
        raise CallError(f"{where}={count!r}; legal: 1 to {MOST_THREADS} threads.")
    return number


def in_tiles(given: bool | None = None) -> bool:
    """Are block weights put in tiles: `given` (the `tiles=` option), else `IRON_TILES`, "0" or "1", else yes. CallError for another."""
    if given is not None:
        return given
    text = os.environ.get("IRON_TILES") or "1"
    if text not in ("0", "1"):
        raise CallError(f"IRON_TILES={text!r}; legal: 0 or 1.")
    return text == "1"


def _flag(backend: Any, field: Any, given: Any) -> None:
    if not isinstance(given, bool):
        raise CallError(f"{field.name}={given!r}; legal: True or False.")


@attrs.frozen
class HostBackend(Backend):
    """Runs a plan as one native run list over C++ kernels; see `iron_core.backends.protocol.Backend`.

    threads: the most that work on a call, 1 to 1024 (default `IRON_THREADS`, else every CPU of this process); a step that
    gains nothing by as many takes fewer. tiles: put weights in the order in which they are multiplied fastest, once, and keep that in
    the cache; else they are multiplied as they lie in their file, to the same bits (default `IRON_TILES`, else True). strict: refuse,
    with UnsupportedError, a step that has no kernel instead of running its reference. tuned: take up what was tuned on this machine.
    CallError for a value that is none of these.
    """

    threads: int | None = attrs.field(default=None, converter=attrs.converters.optional(thread_count), kw_only=True)
    tiles: bool | None = attrs.field(default=None, validator=attrs.validators.optional(_flag), kw_only=True)
    strict: bool = attrs.field(default=False, validator=_flag, kw_only=True)
    tuned: bool = attrs.field(default=True, validator=_flag, kw_only=True)
    name = "host"
    preference = 10
    image_class = HostImage

    def probe(self) -> Available | Unavailable:
        """Is there a C++ compiler; which vectors this CPU has, and how many threads work."""
        try:
            threads, _ = thread_count(self.threads), in_tiles(self.tiles)
        except CallError as error:
            return Unavailable(str(error), f"Correct or unset {str(error).partition('=')[0]}.")
        found = compiler.probe()
        if isinstance(found, Unavailable):
            return found
        return Available(f"{found.name}, {compiler.vector_width()}, {threads} thread{'s' if threads > 1 else ''}")

    def devices(self) -> tuple[str, ...]:
        return ("host",)

    def supports(self, op: Any, dev: str = "host") -> Yes | No:
        """Every operator runs: by a kernel, or as a call-back of its reference. `how` says which, what was tuned of it, and why no
        kernel."""
        one = taken("host", op, dev)
        if one is None:
            return Yes(f"{CALLBACK}: {NONE.rule}")
        answer = one.answer
        if isinstance(answer, No):
            return Yes(f"{CALLBACK}: {answer.rule}")
        given = self._given()(op, one)
        return Yes(f"{answer.how}, tuned: {tuning.said(given)}") if given else answer

    def compile(self, plan: Plan, signature: Signature) -> HostImage:
        """The run list of one version, its kernels built and in the cache. KernelError, or the PluginError of a pack, for a kernel
        that does not compile.

        A step by itself takes the tunables that the active profile gives its lowering, else those that were kept for this machine.
        """
        given = self._given()
        return self.compiled(plan, signature, lambda step, one: given(step.op, one))

    def compiled(
        self, plan: Plan, signature: Signature, given: Callable[[PlanStep, Asked], Mapping[str, Any]], apart: bool = False
    ) -> HostImage:
        """`compile()` with the tunables that `given` gives each step's lowering. apart: no step goes together with the next one."""
        version = plan.version(signature)
        weights = {i for i, resident in enumerate(plan.residents) if resident.kind == "weight"}
        builder = ImageBuilder(weights if in_tiles(self.tiles) else ())
        without: dict[str, tuple[str, list[str]]] = {}
        lowered = Lowered()
        for part in parts(version):
            # What is folded was judged, perhaps by an earlier process, as it is untuned.
            own = given if not part.behind else untuned
            whole = self._fused(part, [lowered.step(step, own) for step in part.steps])
            if not isinstance(whole, No):
                with labelled(lowered.by[part.step.name].lowering, f"to lower {part.step.name}: what its step() gave is no kernel call"):
                    builder.add_calls(part, whole)
            elif part.behind:
                behind = ", ".join(step.name for step in part.steps[1:])
                raise UnsupportedError(f"host: {behind} folded into {part.step.name}: {whole.rule}. Legal: each step by itself.")
            else:
                builder.add_callback(part.step)
                without.setdefault(type(part.step.op).__name__, (whole.rule, []))[1].append(part.step.name)
        if without and self.strict:
            raise UnsupportedError(
                "strict=True: no host kernel for "
                + "; ".join(f"{op} ({', '.join(names)}): {reason}" for op, (reason, names) in without.items())
                + ". Leave strict out to run their numpy references."
            )
        self._announce(without)
        image = builder.image(version, plan.name, apart, lowered.otherwise)
        try:
            build.load(image.units)
        except KernelError as error:
            of = next((run.plan for run in image.steps if run.unit is not None and run.unit.symbol == error.symbol), None)
            if of is None:
                raise
            used = f"{type(of.op).__name__} (step {of.name}): "
            ours = KernelError(error.symbol, error.said, used, error.words, error.kept)
            raise blamed(lowered.by[of.name].lowering, f"the kernel of {str(ours).removeprefix('host: ')}") or ours from error
        return image

    def follows(self) -> str | None:
        """What images follow from besides; see `iron_core.backends.protocol.Restoring`."""
        try:
            identity = compiler.find().identity
        except BackendUnavailable:
            return None
        threads = thread_count(self.threads)
        kept = tuning.kept(threads) if self.tuned else tuning.Kept()
        return digest(identity, threads, in_tiles(self.tiles), kept.fields)

    def keeps(self, image: HostImage) -> bool:
        """Not one with call-backs, which are announced."""
        return all(step.unit is not None for step in image.steps)

    def restore(self, image: HostImage) -> bool:
        """Have its kernels, or leave to `compile()` to say why there are none."""
        try:
            build.load(image.units)
        except KernelError:
            return False
        return True

    def accepts(self, fold: Fold, dev: str) -> bool | No:
        """Does what the fold makes become one kernel?"""
        if fold.kind == "prologue":
            return No("a CPU computes once what several steps read")
        part, lowered = asked(fold.joined[0]), Lowered()
        whole = self._fused(part, [lowered.step(step, untuned) for step in part.steps])
        return whole if isinstance(whole, No) else True

    def memory(self, plan: Plan) -> HostMemory:
        return HostMemory(plan)

    def load(self, image: HostImage, memory: HostMemory) -> Any:
        """Make an image callable: its kernels are loaded, its run list is laid out over `memory`."""
        from iron_host.executable import HostExecutable
        from iron_host.runtime import runtime

        return HostExecutable(image, memory, build.load(image.units), runtime(thread_count(self.threads)))

    def profiled(self, executables: Mapping[str, Any]) -> AbstractContextManager[HostProfile]:
        """What these executables, by name, run inside the block, step by step; see `iron_host.profile`."""
        from iron_host.profile import profiled

        return profiled(executables)

    def platform(self, dev: Device | str = "host") -> Platform:
        """The processor, its vectors and the threads; see `iron_core.backends.measuring.Measuring`."""
        return tuning.platform(thread_count(self.threads))

    def measure(self, lists: Sequence[RunList], dev: Device, timing: Timing) -> list[Measured]:
        """Time run lists in turns; see `Measuring`. A round that other processes disturbed is taken again."""
        from iron_host.measure import measure

        return measure(self, lists, timing)

    def keep(self, profile: Profile, dev: Device | str = "host") -> Path:
        """Keep tuned values for what this machine compiles from now on; see `iron_core.backends.measuring.Keeping`."""
        return tuning.keep(profile, thread_count(self.threads))

    def kept(self, dev: Device | str = "host") -> Profile:
        """What is kept for this machine."""
        return tuning.kept(thread_count(self.threads)).whole()

    def _given(self) -> tuning.Given:
        return tuning.Given(tuning.kept(thread_count(self.threads)) if self.tuned else tuning.Kept())

    @staticmethod
    def _fused(part: Part, calls: Sequence[list[KernelCall] | No]) -> list[KernelCall] | No:
        """The kernel calls of a part, given those of each of its steps; or why it has none."""
        for own in calls:
            if isinstance(own, No):
                return own
        return fused(part, calls) if part.behind else calls[0]  # type: ignore[arg-type]

    @staticmethod
    def _announce(without: dict[str, tuple[str, list[str]]]) -> None:
        for op, (reason, names) in without.items():
            if op not in _announced:
                _announced.add(op)
                shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
                aside(f"iron: host: {op} runs its numpy reference ({shown}): {reason}.")
