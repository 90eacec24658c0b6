"""`html()`: one page about a graph, with nothing loaded from outside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from iron_core.files import write_whole
from iron_core.graph.signature import describe_signature
from iron_core.image.plan import Plan, Port, Resident, VersionPlan
from iron_core.visualize.flow import as_plan, shape_text
from iron_core.visualize.svg import picture

_STYLE = """
body { font: 13px Helvetica, Arial, sans-serif; margin: 2em; color: #222; }
table { border-collapse: collapse; margin: 0.5em 0 1.5em; }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: left; vertical-align: top; }
code { font: 12px monospace; }
"""


def html(item: Any, path: str | Path | None = None) -> str:
    """The page of a traced graph, a compiled graph or a plan; written to `path` if given.

    Per version: the picture of its steps and arena, then every step with its operands. Then weights and states, the
    packaging and its reasons.
    """
    plan = as_plan(item)
    body = [f"<h1>{escape(plan.name)}</h1>", _packaging(plan)]
    for version in plan.versions:
        body.append(f"<h2>{escape(describe_signature(version.signature))}</h2>")
        body.append(picture(plan, version.signature))
        body.append(_steps(plan, version))
    body.append(_residents(plan))
    text = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(plan.name)}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )
    if path is not None:
        write_whole(path, text)
    return text


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines = ["<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows]
    return f"<table><tr>{cells}</tr>{''.join(lines)}</table>"


def _packaging(plan: Plan) -> str:
    packaging = plan.packaging
    rows = [["backend", plan.backend], ["device", plan.dev], ["image", f"{packaging.image}, {packaging.dispatch} dispatch"]]
    rows += [["why", reason] for reason in packaging.reasons]
    rows += [["value", f"{name}: {how}"] for name, how in packaging.lowered_values]
    return _table(["", ""], rows)


def _steps(plan: Plan, version: VersionPlan) -> str:
    named: dict[str, Sequence[Port | Resident]] = {"resident": plan.residents, "input": version.inputs, "output": version.outputs}
    rows = []
    for step in version.steps:
        operands = []
        for name, ref in step.operands.items():
            where = f"bank {ref.index}" if ref.space == "arena" else named[ref.space][ref.index].name
            operands.append(f"{name}: {shape_text(ref)} ({where} + {ref.offset})")
        follows = ", ".join(f"{b.member}={b.expression!r}" for b in step.bindings)
        rows.append([step.name, repr(step.op), "; ".join(operands), follows])
    return _table(["step", "operator", "operands", "per call"], rows)


def _residents(plan: Plan) -> str:
    if not plan.residents:
        return ""
    rows = [
        [
            r.kind,
            r.name,
            "x".join(map(str, r.shape)),
            str(r.format),
            str(r.nbytes),
            f"bank {r.spot.bank} + {r.spot.offset}" if r.spot else "",
        ]
        for r in plan.residents
    ]
    return "<h2>Weights and states</h2>" + _table(["kind", "name", "shape", "format", "bytes", "place"], rows)
