"""`dot()`: a graph as Graphviz text."""

from __future__ import annotations

import json
from typing import Any

from iron_core.graph.signature import describe_signature
from iron_core.visualize.flow import edges, shape_text
from iron_core.visualize.run_list import Row, RunList
from iron_core.visualize.subject import subject
from iron_core.visualize.times import Table, Times, own, times


def dot(item: Any, *, table: Table = None) -> str:
    """Graphviz text of every version: what runs as boxes, with what is folded in, and where it runs; inputs and outputs as ellipses,
    weights and states as cylinders. table: as for `html()`."""
    shown = subject(item)
    plan = shown.plan
    lines = [
        f"digraph {_quoted(plan.name)} {{",
        "  rankdir=TB; node [fontname=Helvetica, fontsize=10]; edge [fontname=Helvetica, fontsize=8];",
    ]
    for number, version in enumerate(plan.versions):
        run = shown.run_list(version)
        lines.append(f"  subgraph cluster_{number} {{")
        lines.append(f"    label={_quoted(describe_signature(version.signature))};")
        lines += [f"    {line}" for line in _version(number, run, [r.name for r in plan.residents], times(own(table, run), run))]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _label(row: Row, run: RunList, priced: Times) -> str:
    lines = [row.name, row.operator]
    lines += [f"{part.how}: {part.operator} ({part.name})" for part in row.inside]
    lines += [row.follows.replace(", ", "\n")] if row.follows else []
    if row.array is not None:
        used = run.arrays[row.array]
        lines.append(f"array {used.number}: {used.columns} columns, {len(used.array.cores)} cores")
    return "\n".join([*lines, *map(str, row.moved), *filter(None, [priced.at(row)])])


def _version(number: int, run: RunList, residents: list[str], priced: Times) -> list[str]:
    def node(end: Any) -> str:
        return f"v{number}s{end}" if isinstance(end, int) else f"v{number}{end[0]}{end[1]}"

    version, places = run.version, run.places
    at = [places.get(step.name, ()) for step in version.steps]
    flows: dict[tuple[Any, Any], str] = {}
    for flow in edges(version):
        for source in at[flow.source] if isinstance(flow.source, int) else (flow.source,):
            for target in at[flow.target] if isinstance(flow.target, int) else (flow.target,):
                if source != target:  # what is folded together hands on nothing
                    flows.setdefault((source, target), shape_text(flow.ref))
    lines = []
    for space, ports in (("input", version.inputs), ("output", version.outputs)):
        lines += [f"{node((space, i))} [label={_quoted(port.name)}, shape=ellipse];" for i, port in enumerate(ports)]
    used = {end for pair in flows for end in pair if isinstance(end, tuple) and end[0] == "resident"}
    lines += [f"{node(end)} [label={_quoted(residents[end[1]])}, shape=cylinder];" for end in sorted(used)]
    lines += [f"{node(row.number)} [label={_quoted(_label(row, run, priced))}, shape=box];" for row in run.rows]
    lines += [f"{node(a)} -> {node(b)} [label={_quoted(text)}];" for (a, b), text in flows.items()]
    return lines
