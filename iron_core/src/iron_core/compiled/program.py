"""A plan with its backend, its memory and its loaded versions: what compiled graphs and operator images call.

A version is compiled when it is added and loaded at its first call, so adding one needs no device and moves no memory.

Memory is one thread's at a time (`Program.turn`): calls, loops, reads, writes and loads wait for one another, whatever the
version. Versions are added one at a time too (`Program.planning`), beside calls: what one adds to memory is placed when
it is loaded. Inside a call the same thread may do less; see `Program.refuse_inside`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import attrs
import numpy as np

from iron_core.backends.choose import Choice
from iron_core.backends.loop import loop_by_calls, step_count
from iron_core.backends.memory import flat
from iron_core.backends.ports import InputPort, OutputPort
from iron_core.backends.protocol import Executable, Looping
from iron_core.backends.traffic import Traffic
from iron_core.compiled.kept_images import KeptImages
from iron_core.compiled.narrowing import Narrowed
from iron_core.declare.affine import Affine, evaluate
from iron_core.declare.authored import authored
from iron_core.declare.identity import contract_key
from iron_core.declare.profile import active_profile, under
from iron_core.declare.tensor import plain
from iron_core.devices import device
from iron_core.errors import CallError, NotFinite, UnknownName, UnsupportedError
from iron_core.graph.pictured import Pictured
from iron_core.graph.signature import KEPT, Signature, numbers_of
from iron_core.graph.traced import numbers
from iron_core.image.artifacts import artifacts
from iron_core.image.plan import BufferRef, Packaging, Plan, VersionPlan
from iron_core.image.planner import Draft, adopt
from iron_core.lowering.answer import No, Yes
from iron_core.lowering.picks import Picks, picking
from iron_core.plugins.hooks import announce
from iron_core.plugins.registry import labelled, wrong_answer
from iron_core.turn import Turn


class Version(Pictured):
    """One compiled signature: its image, and its executable once it was called or loaded."""

    def __init__(self, program: Program, plan: VersionPlan, image: Any, decided: Narrowed | None = None) -> None:
        self.program = program
        self.plan = plan
        self.image = image
        #: What `coresident=` decided of it, where that decides.
        self.decided = decided
        #: The profile that it was compiled under.
        self.profile = active_profile()
        self.executable: Executable | None = None
        self._values = {value.name: value for value in plan.values}
        self._checks = plan.checks
        self._ids = [
            (i, check) for check in plan.id_checks for i, port in enumerate(plan.inputs) if port.name == check.name
        ]
        self._reports = _reports(plan)
        self._carried = frozenset(term.name for term in plan.carry)
        self._inputs = [InputPort(port) for port in plan.inputs]
        self._outputs = [OutputPort(port) for port in plan.outputs]
        self._unfinished = [(i, port) for i, port in enumerate(self._outputs) if not port.as_it_is]

    @property
    def tuning(self) -> Any:
        """What was decided of it by measured costs; None where nothing was."""
        return None if self.decided is None else self.decided.tuning

    @property
    def artifacts(self) -> dict[str, Any]:
        """The record of its steps and buffers, as plain data; see `iron_core.image.artifacts`. "image": that of what the backend made of
        it, where the image has a `record()`."""
        recorded = getattr(self.image, "record", None)
        return artifacts(self.program.plan, self.plan) | ({"image": recorded()} if callable(recorded) else {})

    def load(self) -> Executable:
        """Make it callable on the program's memory."""
        if self.executable is None:
            with self.program.turn:
                if self.executable is None:
                    self.executable = self._loaded(self.program.backend, self.program.memory())
        return self.executable

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Inside the block the backend is asked as when it was compiled: under its profile, with the lowerings that were chosen."""
        with under(self.profile), picking(self.program.picks):
            yield

    def _loaded(self, backend: Any, memory: Any) -> Executable:
        with self.asking(), authored(backend, "load()"), labelled(backend, "to load"):
            made: Executable = backend.load(self.image, memory)
        if not callable(getattr(made, "run", None)):
            raise wrong_answer(backend, "load()", made, "an Executable, with run()")
        return made

    def call(self, inputs: Sequence[Any], values: Mapping[str, int]) -> tuple[list[Any], dict[str, int]]:
        """Check the per-call values, then run once. Inputs in port order, each whole or cut to its bounds; outputs come back cut
        to theirs. The dict is the carried values' next numbers. CallError, ShapeError, BoundsError."""
        values = numbers(self.program.plan.name, self._values, values)
        for check in self._checks:
            check.verify(values)
        if self._ids:  # what is checked is what is used
            inputs = [plain(tensor, port.name) for tensor, port in zip(inputs, self.plan.inputs, strict=False)]
        for port, ids in self._ids:
            ids.verify(inputs[port], values)
        turn = self.program.turn
        with turn:
            if turn.busy:
                self.program.refuse_inside("a call")
            executable = self.executable or self.load()
            turn.busy = True
            try:
                return self._run(executable, inputs, values)
            finally:
                turn.busy = False

    def _run(
        self, executable: Executable, inputs: Sequence[Any], values: Mapping[str, int]
    ) -> tuple[list[Any], dict[str, int]]:
        """Hand the backend checked arrays, and collect what it leaves."""
        ports = self._inputs
        if len(inputs) != len(ports):
            raise CallError(f"{self.program.plan.name} takes {len(ports)} tensors; got {len(inputs)}.")
        taken = [port.take(tensor, values) for port, tensor in zip(ports, inputs, strict=True)]
        made: list[Any] = [np.zeros(port.shape, port.dtype) for port in self._outputs]
        carried = executable.run(taken, made, values)
        if carried is None:
            carried = {term.name: self._next(term.source, made, values) for term in self.plan.carry}
        else:
            self._check_carried("run()", carried)
        for i, port in self._unfinished:
            made[i] = port.finish(made[i], values)
        return made, carried

    def _check_carried(self, part: str, answer: Any) -> None:
        if not isinstance(answer, dict) or answer.keys() != self._carried:
            legal = f"a dict of the next numbers of what is carried ({', '.join(sorted(self._carried)) or 'nothing'})"
            raise wrong_answer(self.executable, part, answer, legal if part == "loop()" else f"None, or {legal}")

    def _next(self, source: Affine | int | BufferRef, outputs: Sequence[np.ndarray], values: Mapping[str, int]) -> int:
        """A carried value's next number: of an expression, or element 0 of an output or of memory."""
        if not isinstance(source, BufferRef):
            return evaluate(source, values)
        if source.space == "output":
            raw = flat(outputs[source.index])[source.offset : source.offset + source.nbytes]
        else:
            raw = self.program._memory.at(source)
        return int(source.format.tensor(raw, source.shape).reshape(-1)[0])

    def loop(
        self, steps: int, values: Mapping[str, int], on_step: Callable[[int, dict[str, int]], bool] | None = None
    ) -> dict[str, int]:
        """Run `steps` times on carried values; see `Looping.loop`. Each step's indices are checked before it runs.

        CallError for a count of steps that is none. NotFinite, before `on_step`, where a step could not make a value it carries
        (see `Operator.reports`).
        """
        if self.plan.inputs:
            names = ", ".join(port.name for port in self.plan.inputs)
            raise CallError(f"loop() runs a version that takes no tensor; this one takes {names}.")
        steps = step_count(steps)
        values = numbers(self.program.plan.name, self._values, values)
        left = self._used() - {term.name for term in self.plan.carry}
        if left and steps > 1:
            fixed = ", ".join(sorted(left))
            raise CallError(f"loop() needs every value carried; {fixed} would stay the same for all {steps} steps.")
        if steps < 1:
            return values
        for check in self._checks:
            check.verify(values)
        turn = self.program.turn

        def checked(index: int, carried: dict[str, int]) -> bool:
            for name, why in self._reports:
                if carried[name] < 0:
                    raise NotFinite(f"{self.program.plan.name}: {why}; step {index + 1} of the loop has no {name}.")
            if on_step is not None:
                turn.busy = False  # between two steps memory is at rest
                try:
                    if on_step(index, carried):
                        return True
                finally:
                    turn.busy = True
            if index + 1 < steps:
                for check in self._checks:
                    check.verify({**values, **carried})
            return False

        with turn:
            if turn.busy:
                self.program.refuse_inside("a loop")
            executable = self.executable or self.load()
            turn.busy = True
            try:
                after = checked if self._checks or self._reports or on_step is not None else None
                checked.quiet = on_step is None and not self._reports  # type: ignore[attr-defined]  # see `Looping.loop`
                if isinstance(executable, Looping):
                    outputs = [np.zeros(port.shape, port.dtype) for port in self._outputs]
                    last = executable.loop(steps, outputs, values, after)
                    self._check_carried("loop()", last)
                    return last
                return loop_by_calls(lambda now: self._run(executable, [], now)[1], self.plan, steps, values, after)
            finally:
                turn.busy = False

    def _used(self) -> set[str]:
        """Per-call values that some step, check or carried value of this version follows."""
        steps = (b.expression for step in self.plan.steps for b in step.bindings)
        carry = (term.source for term in self.plan.carry)
        checks = (check.expression for check in self._checks)
        return {e.value for e in (*steps, *carry, *checks) if isinstance(e, Affine)}


def _reports(plan: VersionPlan) -> list[tuple[str, str]]:
    """The carried values that some step reports by (see `Operator.reports`), and what a negative one says."""
    found = []
    for term in plan.carry:
        for step in plan.steps:
            for name, why in step.op.reports.items():
                if isinstance(term.source, BufferRef) and step.operands.get(name) == term.source:
                    found.append((term.name, f"{step.name}: {why}"))
    return found


class Program:
    """All versions of one graph (or one operator) on one backend and device, over one memory."""

    def __init__(self, name: str, choice: Choice, packaging: Packaging, picks: Picks | None = None) -> None:
        self.choice = choice
        #: The lowerings that were chosen.
        self.picks = Picks() if picks is None else picks
        self.backend = choice.backend
        self.plan = Plan(name, choice.backend.name, choice.dev, packaging, (), (), ())
        self.versions: dict[Signature, Version] = {}
        #: Held while memory is looked at, written, placed or run on; `busy` while a step may be running.
        self.turn = Turn(name)
        #: Held while a version is added; `busy` from planning it on.
        self.planning = Turn(f"compiling {name}")
        self._memory: Any = None
        self._placed: Plan | None = None
        self._owners: list[Any] = []

    def add(self, draft: Draft, *, decided: Narrowed | None = None, images: KeptImages | None = None, **options: Any) -> Version:
        """Plan and compile one more version, others waiting. decided: what its draft follows. images: where its image may be kept.
        UnsupportedError names the first step that the backend cannot take."""
        with self.planning:
            if self.planning.busy:
                raise CallError(f"{self.plan.name}: a version is added while one is being compiled, by what its compiling calls.")
            self.planning.busy = True
            try:
                with picking(self.picks):
                    return self._add(draft, decided, images, options)
            finally:
                self.planning.busy = False

    def _add(self, draft: Draft, decided: Narrowed | None, images: KeptImages | None, options: dict[str, Any]) -> Version:
        signature = draft.version.signature
        versions, plan = dict(self.versions), self.plan  # a new one: others go through the old one
        numbered = [known for known in versions if numbers_of(known)]
        if numbers_of(signature) and signature not in versions and len(numbered) >= KEPT:  # what it needs may be what the oldest has
            versions.pop(numbered[0])
            plan = attrs.evolve(plan, versions=tuple(v for v in plan.versions if v.signature in versions))
        image, adopted = None, None
        if images is not None and images.start.warm:  # an earlier process has seen that all of it is supported
            adopted = adopt(plan, draft)
            image = images.read(adopted, signature)
        if image is None:
            self._supported(draft.version)
        plan = adopted or adopt(plan, draft)
        announce("iron_plan_built", plan=plan)
        if image is None:
            with authored(self.backend, "compile()"), labelled(self.backend, "to compile"):
                image = self.backend.compile(plan, signature, **options)
            if image is None or isinstance(image, bool):
                raise wrong_answer(self.backend, "compile()", image, "an image, which its load() takes")
            if images is not None:
                images.keep(plan, signature, image)
        announce("iron_image_built", image=image, plan=plan)
        version = Version(self, plan.version(signature), image, decided)
        self._owners.extend(draft.owners)  # residents are known by identity, so these must stay alive
        self.plan = plan  # before the version is there for others: its memory is placed by this plan
        self.versions = {**versions, signature: version}
        return version

    def _supported(self, version: VersionPlan) -> None:
        asked: set[Any] = set()
        for step in version.steps:
            if id(step.op) in asked or contract_key(step.op) in asked:
                continue
            asked |= {id(step.op), contract_key(step.op)}
            self._check_binary(step.op)
            with authored(self.backend, "supports()"), labelled(self.backend, "to say what it takes"):
                answer = self.backend.supports(step.op, self.plan.dev)
            if not isinstance(answer, Yes | No):
                raise wrong_answer(self.backend, "supports()", answer, "Yes() or No(rule)")
            if isinstance(answer, No):
                nearest = f" {answer.nearest}" if answer.nearest else ""
                raise UnsupportedError(
                    f"{type(step.op).__name__} (step {step.name}) on {self.plan.dev}: {answer.rule}{nearest}"
                )

    def _check_binary(self, op: Any) -> None:
        """UnsupportedError for an operator whose array is a binary, where there is no NPU, or nothing that loads one."""
        if op.binary is None or (device(self.plan.dev).is_npu and getattr(self.backend, "loads_binaries", False)):
            return
        where = "loads no binaries" if device(self.plan.dev).is_npu else f"runs on {self.plan.dev}"
        raise UnsupportedError(
            f"{type(op).__name__}: {op.binary} is a binary for an NPU, and backend {self.backend.name} {where}. Legal: an NPU's backend; "
            "backend='null' with dev='npu2' plans it and runs nothing."
        )

    def memory(self) -> Any:
        """The memory, with room for every version there is. Take the turn before using it."""
        with self.turn:
            plan = self.plan
            if self._memory is None:
                with authored(self.backend, "memory()"), labelled(self.backend, "to make its memory"):
                    made = self.backend.memory(plan)
                if not all(callable(getattr(made, part, None)) for part in ("grow", "read", "write")):
                    raise wrong_answer(self.backend, "memory()", made, "a Memory, with grow(), read() and write()")
                self._memory = made
            elif self._placed is not plan:
                if self.turn.busy:
                    self.refuse_inside("loading a version")
                self._memory.grow(plan)
            self._placed = plan
            return self._memory

    def traffic(self) -> Traffic:
        """A copy of what its memory counts; nothing, before anything was loaded. UnsupportedError where the backend's does not."""
        with self.turn:
            if self._memory is None:
                return Traffic()
            counted = getattr(self._memory, "traffic", None)
            if not isinstance(counted, Traffic):
                raise UnsupportedError(f"backend {self.backend.name} does not count what it copies.")
            return attrs.evolve(counted)

    def read(self, name: str, rows: int | None = None) -> Any:
        """A copy of a weight's or state's content, or of its first `rows`. UnknownName lists what there is."""
        self._known(name)
        part = () if rows is None else (rows,)
        with self.turn:
            if not self.turn.busy:
                return self.memory().read(name, *part)
            assert self._memory is not None and self._placed is not None
            if not any(resident.name == name for resident in self._placed.residents):
                self.refuse_inside(f"reading {name}, which a version added meanwhile brings,")
            return self._memory.read(name, *part)

    def write(self, name: str, array: Any, rows: int | None = None) -> None:
        """Replace a weight's or state's content, or its first `rows`; shape and dtype as declared."""
        self._known(name)
        with self.turn:
            if self.turn.busy:
                self.refuse_inside("write()")
            self.memory().write(name, array, *(() if rows is None else (rows,)))

    def refuse_inside(self, what: str) -> NoReturn:
        """Refuse what a running step would be hurt by: inside one, its memory may only be read.

        Between two steps of a loop, in `on_step`, memory is at rest: everything is as between two calls.
        """
        raise CallError(
            f"{self.plan.name}: {what} inside one of its own steps, which is still running; there only read() and add() work. "
            "Do it after the call, or between the steps of a loop (on_step)."
        )

    def _known(self, name: str) -> None:
        names = [resident.name for resident in self.plan.residents]
        if name not in names:
            raise UnknownName(f"{self.plan.name} has no weight or state `{name}`. It has: {', '.join(names) or 'none'}.")
