"""`Pictured`: the pictures that a traced and a compiled graph have of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.graph.signature import Signature


class Pictured:
    """`html()`, `dot()` and `picture()`; see `iron_core.visualize`."""

    __slots__ = ()

    def html(self, path: Any = None) -> str:
        """A page of every version's steps and arena; written to `path` if given."""
        return _visualize().html(self, path)

    def dot(self) -> str:
        """Graphviz text of every version."""
        return _visualize().dot(self)

    def picture(self, signature: Signature | None = None, *, table: Mapping[str, Any] | None = None) -> str:
        """SVG of one version's steps and arena; `table` annotates steps, by name, with times or text."""
        return _visualize().picture(self, signature, table=table)


def _visualize() -> Any:
    """Pictures are drawn above: this import goes up the list of folders, as `.html()` does."""
    from iron_core import visualize

    return visualize
