"""Pictures of a graph: `picture()` (SVG), `dot()` (Graphviz text) and `html()` (one page, nothing from outside); of one operator's
array: `operator_html()`.

The first three take a traced graph, a compiled graph, one of its versions, or a plan.
"""

from __future__ import annotations

from iron_core.visualize.graphviz import dot
from iron_core.visualize.operator_page import operator_html
from iron_core.visualize.page import html
from iron_core.visualize.svg import picture

__all__ = ["dot", "html", "operator_html", "picture"]
