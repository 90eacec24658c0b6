"""`iron tune MODEL` on a device without arrays: each operator at its lowering's settings, the fastest kept for this machine."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from iron_core.aside import aside
from iron_core.backends.measuring import Keeping
from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_core.declare.identity import contract_key
from iron_core.declare.profile import Profile
from iron_core.image.plan import PlanStep
from iron_tuner import profiles, report
from iron_tuner.designs import short
from iron_tuner.model_designs import scales
from iron_tuner.points import points
from iron_tuner.probe import Probe
from iron_tuner.search import EXHAUSTIVE, Search
from iron_tuner.settings import Settings
from iron_tuner.tune_operator import Progress


def tune_lowerings(family: Any, line: list[str], probe: Probe, options: Mapping[str, Any], progress: Progress) -> int:
    """Measure, keep, say what. The exit status: 1 where an operator was left at its default for want of a figure."""
    graph = family.compiled(line)
    steps: dict[Any, tuple[PlanStep, frozenset[str], int]] = {}
    for version in graph.versions.values():
        chunk = max((port.shape[0] for port in version.plan.inputs if port.shape), default=1)
        for step in version.plan.steps:
            members = frozenset(binding.member for binding in step.bindings)
            steps.setdefault((contract_key(step.op), members), (step, members, chunk))
    profile, rows, left = Profile(), [], {}
    with working(progress.words):
        for number, (step, members, chunk) in enumerate(steps.values()):
            op = step.op
            progress.name = f"{short(op)}, {number + 1} of {len(steps)}"
            at = points(op, sorted(members), chunk, options["context"], scales(step))
            settings = Settings(op, probe.dev, probe.backend, members=at[len(at) // 2].members)
            if not settings.axes:
                continue
            found = Search(settings, probe, exhaustive=options["exhaustive"] or EXHAUSTIVE, seen=progress.seen).run()
            if found.default.measured is None:
                left[short(op)] = found.said
                continue
            best = found.best.measured or found.default.measured
            beside = statistics.median(best.default_us or (best.t_step_us,))  # the default, in the rounds that the best had its turns in
            label = found.best.variant.label if found.best is not found.default else ""
            rows.append([short(op), len(found.tried), report.figure(beside), report.figure(best.t_step_us), label])
            if found.best is not found.default:
                profiles.add(profile, found.best.variant, probe.backend.name)  # type: ignore[attr-defined]
    if options["as_json"]:
        print_json({"operators": [dict(zip(("operator", "settings", "us", "best_us", "best"), row, strict=True)) for row in rows],
            "left": left, "entries": profile.lines()})  # fmt: skip
    else:
        print_table(("operator", "settings", "us", "best us", ""), rows)
        for what, why in left.items():
            print(f"left at its default: {what}: {why}")
    if len(profile) and isinstance(probe.backend, Keeping):
        aside(f"kept in {probe.backend.keep(profile, probe.dev)}")
    return 1 if left else 0
