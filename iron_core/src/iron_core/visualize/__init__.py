"""Pictures of a graph: `picture()` (SVG), `dot()` (Graphviz text) and `html()` (one page, nothing from outside).

Each takes a traced graph, a compiled graph or a plan.
"""

from __future__ import annotations

from iron_core.visualize.graphviz import dot
from iron_core.visualize.page import html
from iron_core.visualize.svg import picture

__all__ = ["dot", "html", "picture"]
