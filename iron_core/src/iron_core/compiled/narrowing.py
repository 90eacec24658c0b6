"""`Narrowing`: what decides of a version before it is planned, and may be `coresident=` of a compile: each design's setting, which steps
are folded, which arrays share a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import attrs

from iron_core.backends.protocol import Backend
from iron_core.devices import Device
from iron_core.graph.fold import Fold
from iron_core.graph.traced import TracedGraph
from iron_core.image.packs import Pack
from iron_core.image.plan import Packaging


@attrs.frozen(eq=False)
class Asked:
    """A version to decide about. accepts: does the backend take this fold? fold: was every one asked for that it takes?"""

    traced: TracedGraph
    backend: Backend
    dev: Device
    packaging: Packaging
    accepts: Callable[[Fold], bool]
    fold: bool


@attrs.frozen(eq=False)
class Narrowed:
    """The version with its operators' settings, the folds that it takes, and its packs. report: in lines, what was decided and why, for
    `explain()`. tuning: the decision itself, which the version keeps."""

    traced: TracedGraph
    folds: tuple[Fold, ...] = ()
    packs: tuple[Pack, ...] = ()
    report: tuple[str, ...] = ()
    tuning: Any = None


@runtime_checkable
class Narrowing(Protocol):
    def narrowed(self, asked: Asked) -> Narrowed:
        """Decide. The operators may have other tunables than before, and must make the same bits or be within their gates."""
