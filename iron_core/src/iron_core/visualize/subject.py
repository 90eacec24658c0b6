"""What is pictured: a plan and, where it was compiled, what a backend made of its versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from iron_core.compiled.planned import Planned
from iron_core.compiled.program import Version
from iron_core.graph.signature import Signature
from iron_core.graph.traced import TracedGraph
from iron_core.image.plan import Plan, VersionPlan
from iron_core.image.planner import plan_graphs
from iron_core.visualize.run_list import RunList, run_list


@attrs.frozen(eq=False)
class Subject:
    """images: by signature, those that are known. supports: the backend's; None where no backend compiled it.
    decided: by signature, in lines what measured costs decided."""

    plan: Plan
    images: Mapping[Signature, Any] = attrs.field(factory=dict)
    supports: Callable[..., Any] | None = None
    decided: Mapping[Signature, tuple[str, ...]] = attrs.field(factory=dict)

    def run_list(self, version: VersionPlan) -> RunList:
        """The version as it runs."""
        return run_list(self.plan, version, self.images.get(version.signature), self.supports)

    def version(self, signature: Signature | None) -> VersionPlan:
        """That of a signature, the first for None. KeyError for one that is not planned."""
        return self.plan.versions[0] if signature is None else self.plan.version(signature)


def subject(item: Any) -> Subject:
    """Of a traced graph (planned for the host), a compiled graph or operator image, one version of one, or a plan."""
    if isinstance(item, TracedGraph):
        return Subject(plan_graphs([item]))
    if isinstance(item, Plan):
        return Subject(item)
    if isinstance(item, Version):
        program, signature = item.program, item.plan.signature
        plan = attrs.evolve(program.plan, versions=(item.plan,))
        return Subject(plan, {signature: item.image}, program.backend.supports, {signature: _report(item)})
    assert isinstance(item, Planned)
    program = item._program
    images = {signature: version.image for signature, version in program.versions.items()}
    decided = {signature: _report(version) for signature, version in program.versions.items()}
    return Subject(program.plan, images, program.backend.supports, decided)


def _report(version: Version) -> tuple[str, ...]:
    return () if version.decided is None else version.decided.report
