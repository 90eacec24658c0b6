"""`dot()`: a graph as Graphviz text."""

from __future__ import annotations

import json
from typing import Any

from iron_core.graph.signature import describe_signature
from iron_core.image.plan import VersionPlan
from iron_core.visualize.flow import as_plan, edges, shape_text


def dot(item: Any) -> str:
    """Graphviz text of every version: steps as boxes, inputs and outputs as ellipses, weights and states as cylinders."""
    plan = as_plan(item)
    lines = [
        f"digraph {_quoted(plan.name)} {{",
        "  rankdir=TB; node [fontname=Helvetica, fontsize=10]; edge [fontname=Helvetica, fontsize=8];",
    ]
    for number, version in enumerate(plan.versions):
        lines.append(f"  subgraph cluster_{number} {{")
        lines.append(f"    label={_quoted(describe_signature(version.signature))};")
        lines += [f"    {line}" for line in _version(number, version, [r.name for r in plan.residents])]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _version(number: int, version: VersionPlan, residents: list[str]) -> list[str]:
    def node(end: Any) -> str:
        return f"v{number}s{end}" if isinstance(end, int) else f"v{number}{end[0]}{end[1]}"

    lines = []
    flows = edges(version)
    for space, ports in (("input", version.inputs), ("output", version.outputs)):
        lines += [f"{node((space, i))} [label={_quoted(port.name)}, shape=ellipse];" for i, port in enumerate(ports)]
    used = {end for flow in flows for end in (flow.source, flow.target) if isinstance(end, tuple) and end[0] == "resident"}
    lines += [f"{node(end)} [label={_quoted(residents[end[1]])}, shape=cylinder];" for end in sorted(used)]
    for i, step in enumerate(version.steps):
        follows = "".join(f"\n{b.member}={b.expression!r}" for b in step.bindings)
        text = f"{step.name}\n{type(step.op).__name__}{follows}"
        lines.append(f"{node(i)} [label={_quoted(text)}, shape=box];")
    lines += [f"{node(f.source)} -> {node(f.target)} [label={_quoted(shape_text(f.ref))}];" for f in flows]
    return lines
