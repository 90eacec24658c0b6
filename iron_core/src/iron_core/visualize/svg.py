"""`picture()`: a version's steps from top to bottom, and the arena's bytes over them, as SVG."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from html import escape
from typing import Any

from iron_core.graph.signature import Signature
from iron_core.image.plan import Plan, VersionPlan
from iron_core.visualize.flow import arena_uses, as_plan, shape_text

ROW = 22
STEPS = 460
ARENA = 420


def picture(item: Any, signature: Signature | None = None, *, table: Mapping[str, Any] | None = None) -> str:
    """SVG of one version (the first unless `signature` names another).

    Left: the run list with what each step follows per call. Right: the arena, one column of bytes per bank; a bar
    spans the steps during which its bytes are in use. table: step name -> a time in microseconds, or any text, shown beside.
    """
    plan = as_plan(item)
    version = plan.versions[0] if signature is None else plan.version(signature)
    return _svg(plan, version, table or {})


def colour(name: str) -> str:
    """A pale colour that is always the same for one name."""
    hue = int(hashlib.sha256(name.encode()).hexdigest()[:4], 16) % 360
    return f"hsl({hue},55%,78%)"


def _svg(plan: Plan, version: VersionPlan, table: Mapping[str, Any]) -> str:
    height = ROW * (len(version.steps) + 2)
    width = STEPS + (ARENA + 20 if plan.banks else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica,Arial,sans-serif" font-size="11">'
    ]
    parts.append(_text(4, 15, "step", bold=True))
    for i, step in enumerate(version.steps):
        y = ROW * (i + 1)
        kind = type(step.op).__name__
        follows = " ".join(f"{b.member}={b.expression!r}" for b in step.bindings)
        time = table.get(step.name)
        shown = f"{time:.1f} us" if isinstance(time, (int, float)) else str(time) if time is not None else ""
        parts.append(f'<rect x="0" y="{y}" width="{STEPS - 8}" height="{ROW - 3}" rx="3" fill="{colour(kind)}">'
                     f"<title>{escape(repr(step.op))}</title></rect>")
        parts.append(_text(6, y + 14, step.name, bold=True))
        parts.append(_text(150, y + 14, f"{kind}  {follows}".strip()))
        parts.append(_text(STEPS - 14, y + 14, shown, anchor="end"))
    total = sum(plan.banks)
    if total:
        parts.append(_text(STEPS + 4, 15, f"arena: {total} bytes in {len(plan.banks)} bank{'s' * (len(plan.banks) > 1)}", bold=True))
        starts = [sum(plan.banks[:n]) for n in range(len(plan.banks))]
        for use in arena_uses(version):
            x = STEPS + 4 + ARENA * (starts[use.ref.index] + use.ref.offset) / total
            wide = max(ARENA * use.ref.nbytes / total, 1)
            y, tall = ROW * (use.first + 1), ROW * (use.last - use.first + 1) - 3
            title = f"{use.name}: {shape_text(use.ref)}, bank {use.ref.index}, bytes {use.ref.offset} to {use.ref.offset + use.ref.nbytes}"
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{tall}" fill="{colour(use.name)}" '
                         f'stroke="#555" stroke-width="0.5"><title>{escape(title)}</title></rect>')
    return "\n".join([*parts, "</svg>"])


def _text(x: float, y: float, text: str, *, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
