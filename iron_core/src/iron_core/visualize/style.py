"""How pages look: one sheet, in colours for light and for dark."""

# ruff: noqa: E501

from __future__ import annotations

#: Colours that eight operands are told apart by (Okabe and Ito's, which colour-blind readers tell apart too), light and dark.
_LIGHT = ("#0072b2", "#d55e00", "#009e73", "#a8447f", "#b08900", "#3f9bd0", "#6a3d9a", "#7a5c3a")
_DARK = ("#5ab4f0", "#ff9a5c", "#3fd0a4", "#f08bc3", "#f0c948", "#9bd4f5", "#c4a1ee", "#d8b48a")

_VARIABLES = """
:root { color-scheme: light dark; --page: #fff; --ink: #1c2024; --soft: #5b636b; --line: #d5dade; --panel: #f5f7f8; --stripe: #fafbfb;
  --accent: #0b62b0; --bar: #8fbbe3; --tile: #e8eef4; --mem: #efe9dc; --shim: #e6efe6; --switch: #f2f4f5; --chip: 72%; --chipsat: 55%;
  --warn: #9a4b00; %s }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --ink: #e4e8eb; --soft: #a0a9b1; --line: #363d44; --panel: #1d2226;
  --stripe: #191d20; --accent: #7ab8f5; --bar: #38618a; --tile: #26313b; --mem: #353022; --shim: #233126; --switch: #1d2226;
  --chip: 46%%; --chipsat: 45%%; --warn: #ffb070; %s } }
"""


def _named(colours: tuple[str, ...]) -> str:
    return " ".join(f"--o{i}: {colour};" for i, colour in enumerate(colours))


PAGE = _VARIABLES.replace("%s", _named(_LIGHT), 1).replace("%s", _named(_DARK), 1).replace("%%", "%") + """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 14px/1.45 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 1320px; margin: 0 auto; padding: 20px 24px 60px; }
h1 { font-size: 24px; margin: 0 0 2px; overflow-wrap: anywhere; } h2 { font-size: 19px; margin: 36px 0 8px; }
h3 { font-size: 15px; margin: 22px 0 6px; } p { margin: 6px 0; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
code, .mono { font: 12.5px ui-monospace, "DejaVu Sans Mono", Menlo, monospace; }
.soft { color: var(--soft); } .warn { color: var(--warn); }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 10px 0 0; }
.facts { display: flex; flex-wrap: wrap; gap: 10px; margin: 14px 0 6px; padding: 0; list-style: none; }
.facts li { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 7px 13px; }
.facts b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; } .facts span { color: var(--soft); font-size: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; font-weight: 600; color: var(--soft); border-bottom: 1px solid var(--line); padding: 4px 8px; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: 4px 8px; vertical-align: top; overflow-wrap: break-word; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.k { white-space: nowrap; overflow-wrap: normal; }
pre { overflow-x: auto; margin: 10px 0; } td.e { min-width: 118px; } .wide { overflow-x: auto; } .wide > svg { min-width: 760px; }
.bar { display: inline-block; height: 9px; border-radius: 2px; background: var(--bar); vertical-align: middle; min-width: 1px; }
.chip { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; vertical-align: -1px;
  background: hsl(var(--h) var(--chipsat) var(--chip)); border: 1px solid hsl(var(--h) var(--chipsat) calc(var(--chip) - 18%)); }
.tag { display: inline-block; border: 1px solid var(--line); border-radius: 9px; padding: 0 7px; font-size: 12px; white-space: nowrap;
  max-width: 100%; overflow: hidden; text-overflow: ellipsis; vertical-align: bottom; }
.tag.moved { border-color: var(--warn); color: var(--warn); }
details { border: 1px solid var(--line); border-radius: 8px; margin: 8px 0; background: var(--page); }
details > summary { cursor: pointer; padding: 7px 12px; border-radius: 8px; background: var(--panel); }
details[open] > summary { border-bottom: 1px solid var(--line); border-radius: 8px 8px 0 0; }
details > :not(summary) { margin-left: 12px; margin-right: 12px; } details > table, details > .wide { width: calc(100% - 24px); }
details details { margin: 8px 12px; }
.filter { display: none; position: sticky; top: 0; z-index: 1; background: var(--page); padding: 8px 0; gap: 10px; align-items: center; }
.filter input { font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 5px 10px;
  width: min(420px, 100%); } .js .filter { display: flex; }
.gone { display: none !important; } tr:target td { background: hsl(210 80% 50% / 0.15); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 12.5px; margin-top: 6px; margin-bottom: 6px; padding: 0; list-style: none; }
.swatch { display: inline-block; width: 22px; height: 0; border-top: 3px solid var(--c); vertical-align: middle; margin-right: 6px; }
svg { display: block; width: 100%; height: auto; font-family: inherit; }
svg text { fill: var(--ink); }
@media print { details > *, details::details-content { content-visibility: visible; display: block; } .filter { display: none; } }
"""

ARRAY = """
svg.array text { font-size: 10.5px; } svg.array .name { font-weight: 600; } svg.array .long { font-size: 8.5px; } svg.array .small { font-size: 9px; fill: var(--soft); }
svg.array .axis { fill: var(--soft); }
svg.array .core { fill: var(--tile); stroke: var(--line); } svg.array .mem { fill: var(--mem); stroke: var(--line); }
svg.array .shim { fill: var(--shim); stroke: var(--line); } svg.array .free { fill: none; stroke: var(--line); stroke-dasharray: 3 3; }
svg.array .switch { fill: var(--switch); } svg.array .empty { fill: var(--line); } svg.array .full { fill: var(--soft); }
svg.array .stream path { fill: none; stroke: var(--c); stroke-width: 1.5; stroke-linecap: round; }
svg.array .stream .end { fill: var(--c); stroke: none; } svg.array .stream.near path { stroke-width: 3; stroke-dasharray: 1 4; }
svg.array .stream:hover path { stroke-width: 3.5; } svg.array:has(.stream:hover) .stream:not(:hover) { opacity: 0.15; }
""" + "".join(f".o{i} {{ --c: var(--o{i}); }} " for i in range(8)) + ".inner { --c: var(--soft); }\n"

OVERVIEW = """
svg.overview text { font-size: 11px; } svg.overview .soft { fill: var(--soft); }
svg.overview .bracket { fill: none; stroke: var(--soft); } svg.overview .odd { fill: var(--line); } svg.overview .even { fill: var(--soft); }
svg.overview .step, svg.overview .use { fill: hsl(var(--h) var(--chipsat) var(--chip)); }
svg.overview .use { stroke: hsl(var(--h) var(--chipsat) calc(var(--chip) - 18%)); stroke-width: 0.5; }
svg.overview .time { fill: var(--accent); } svg.overview .enter { fill: var(--bar); } svg.overview .bytes { fill: var(--panel); }
svg.overview a:hover rect, svg.overview rect:hover { filter: brightness(0.8); }
"""

CHART = """
svg.chart text { font-size: 11px; } svg.chart .soft { fill: var(--soft); } svg.chart .grid { stroke: var(--line); fill: none; }
svg.chart .line { fill: none; stroke: var(--c); stroke-width: 1.8; } svg.chart .point { fill: var(--c); stroke: var(--page); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(400px, 100%), 1fr)); gap: 14px; }
.charts figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: 8px 12px; }
.charts figcaption { font-size: 13px; overflow-wrap: anywhere; }
"""
