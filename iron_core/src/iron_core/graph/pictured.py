"""`Pictured`: the pictures that a traced and a compiled graph, and a version of one, have of themselves."""

from __future__ import annotations

from typing import Any

from iron_core.graph.signature import Signature


class Pictured:
    """`html()`, `dot()` and `picture()`; see `iron_core.visualize`. table: times beside the steps: step name -> microseconds or any
    text, or what has `step_us(name)`."""

    __slots__ = ()

    def html(self, path: Any = None, *, table: Any = None) -> str:
        """A page of every version's steps, arena and arrays; written to `path` if given."""
        return _visualize().html(self, path, table=table)

    def dot(self, *, table: Any = None) -> str:
        """Graphviz text of every version."""
        return _visualize().dot(self, table=table)

    def picture(self, signature: Signature | None = None, *, table: Any = None) -> str:
        """SVG of one version's steps and arena, the first unless `signature` names another."""
        return _visualize().picture(self, signature, table=table)


def _visualize() -> Any:
    """Pictures are drawn above: this import goes up the list of folders, as `.html()` does."""
    from iron_core import visualize

    return visualize
