"""`Lowered`: the kernel calls of a plan's steps, each by the first lowering that has some for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from iron_core.errors import PluginError
from iron_core.image.plan import PlanStep
from iron_core.lowering.answer import No
from iron_core.lowering.registry import Asked, asked
from iron_core.plugins.registry import labelled
from iron_host.kernel_call import HostLowering, KernelCall

#: What is said where nobody lowers an operator.
NONE = No("no host lowering is installed")


def untuned(step: PlanStep, one: Asked) -> Mapping[str, Any]:
    """No tunable."""
    return {}


class Lowered:
    """What is asked of lowerings for one image: each of one operator once, whatever steps share it."""

    def __init__(self) -> None:
        #: By a step's name, whose lowering computes it.
        self.by: dict[str, Asked] = {}
        #: By a step's name, how it is executed where a lowering that takes its operator has no kernel for this step.
        self.otherwise: dict[str, str] = {}
        self._asked: dict[int, list[Asked]] = {}  # steps of the same contract share one operator
        self._tuned: dict[Any, dict[str, Any]] = {}

    def step(self, step: PlanStep, given: Callable[[PlanStep, Asked], Mapping[str, Any]]) -> list[KernelCall] | No:
        """The step's kernel calls, or why there are none. given: what a lowering's tunables are given. PluginError where one that was
        chosen fails."""
        found = self._asked.setdefault(id(step.op), [])
        if not found:
            found += asked("host", step.op, "host")
        passed: list[str] = []
        last = NONE
        for one in found:
            if isinstance(one.answer, No):
                last = one.answer
                continue
            calls = self._calls(step, one, given(step, one))
            if not isinstance(calls, No):
                self.by[step.name] = one
                if passed:
                    self.otherwise[step.name] = f"{one.answer.how} of {one.record.owner}; {'; '.join(passed)}"
                return calls
            last = calls
            passed.append(f"{one.record.owner} has none: {last.rule}")
        return last

    def _calls(self, step: PlanStep, one: Asked, given: Mapping[str, Any]) -> list[KernelCall] | No:
        op, lowering = step.op, cast(HostLowering, one.lowering)
        bindings = {binding.member: binding for binding in step.bindings}
        try:
            with labelled(lowering, f"to lower {step.name}"):
                key = (id(op), id(lowering), *sorted(given.items()))
                if key not in self._tuned:
                    self._tuned[key] = lowering.tunables(op, "host", given)
                calls = lowering.step(op, step.operands, bindings, dict(self._tuned[key]))
        except PluginError as error:
            if not one.default:
                raise
            return No(str(error).rstrip("."))
        if isinstance(calls, No):
            return calls
        with labelled(lowering, f"to lower {step.name}: what its step() gave is no kernel call"):
            return [calls] if isinstance(calls, KernelCall) else list(calls)
