"""Does a design fit its device: well formed, placed, within every limit, routed."""

from __future__ import annotations

from functools import lru_cache

from iron_core.array import limits, spec
from iron_core.array.design import ArrayDesign, Design
from iron_core.array.pools import Placement
from iron_core.array.router import place_and_route
from iron_core.array.spec_sequence import check_sequence
from iron_core.devices import device


def fit(design: Design) -> Placement:
    """Where the design's tiles go. DeclarationError for a design that is not well formed, UnsupportedError where it does not
    fit: with the number used, the number there is, and what to change."""
    return _fitted(design)


@lru_cache(maxsize=1024)
def _fitted(design: Design) -> Placement:
    """Once for every design: a graph, its tuner and its backend ask for the same ones."""
    placement = _array(design.array)
    check_sequence(design)
    limits.check(design, device(design.array.dev), placement)
    return placement


@lru_cache(maxsize=256)
def _array(array: ArrayDesign) -> Placement:
    """Placed and routed; designs of one array share this."""
    spec.check(array)
    placement, _ = place_and_route(array, device(array.dev))
    return placement
