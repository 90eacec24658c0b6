"""`Part`: a step of a plan with the steps that its folds put behind it."""

from __future__ import annotations

import attrs

from iron_core.errors import UnsupportedError
from iron_core.graph.fold import Joined
from iron_core.graph.traced import Region, TracedStep
from iron_core.image.plan import BufferRef, PlanStep, VersionPlan


@attrs.frozen(eq=False)
class Behind:
    """A step that is folded into the one before it, whose result is its input `at`."""

    step: PlanStep
    at: str


@attrs.frozen(eq=False)
class Part:
    """A step of a plan, and the steps that are folded into it, in order."""

    step: PlanStep
    behind: tuple[Behind, ...] = ()

    @property
    def steps(self) -> tuple[PlanStep, ...]:
        return (self.step, *(part.step for part in self.behind))

    @property
    def operands(self) -> dict[str, BufferRef]:
        """Where everything is: the step's operands by their names, those of a step behind it as `named` says."""
        further = {named(part.step, name): ref for part in self.behind for name, ref in part.step.operands.items()}
        return self.step.operands | further


def named(step: PlanStep, operand: str) -> str:
    """What a kernel call calls an operand of a step behind another."""
    return f"{step.name}.{operand}"


def written(step: PlanStep) -> str:
    """The operand that a step writes, if it writes one."""
    (name,) = (name for name in step.operands if step.op.operands[name].written)
    return name


def absorbed(part: Part) -> Part:
    """A part whose first step takes up those behind it in fields of its own, as many as it can."""
    step, behind = part.step, part.behind
    while behind:
        op = step.op.absorbed(behind[0].step.op)
        if op is None:
            break
        result = behind[0].step.operands[written(behind[0].step)]
        made = attrs.evolve(result, shape=step.operands[written(step)].shape, bounds=step.operands[written(step)].bounds)
        step = attrs.evolve(step, op=op, operands={**step.operands, written(step): made})
        behind = behind[1:]
    return Part(step, behind)


def parts(version: VersionPlan) -> list[Part]:
    """The steps as they run: each with what is folded into it, at the place that its folds name. UnsupportedError for a
    prologue, of a backend that takes what the host does not."""
    place = {step.name: i for i, step in enumerate(version.steps)}
    order = dict(place)
    found = {step.name: Part(step) for step in version.steps}
    inside: dict[str, str] = {}
    for fold in version.folds:
        if fold.kind == "prologue":
            raise UnsupportedError(f"host: {fold}. Legal: each step by itself.")
        gone = found.pop(fold.gone)
        into = inside[fold.gone] = inside.get(fold.producer, fold.producer)
        found[into] = Part(found[into].step, (*found[into].behind, Behind(gone.step, fold.at[0]), *gone.behind))
        place[into] = order[fold.runs_at]
    return sorted(map(absorbed, found.values()), key=lambda part: place[part.step.name])


def asked(joined: Joined) -> Part:
    """The part that a fold would make, as far as a trace knows it: each tensor is a space of its own."""
    chain = (*joined.finish, *([joined.placed] if joined.placed is not None else []))
    return absorbed(Part(_planned(joined.step), tuple(Behind(_planned(folded.step), folded.at) for folded in chain)))


def _planned(step: TracedStep) -> PlanStep:
    return PlanStep(step.name, step.op, {name: _ref(region) for name, region in step.operands.items()}, step.bindings)


def _ref(region: Region) -> BufferRef:
    tensor = region.tensor
    offset = region.format.offset(region.start, tensor.shape)
    return BufferRef(tensor.role, id(tensor), offset, region.shape, region.format, region.bounds)
