"""Prices for pictures: asked of the backend that compiled a graph."""

from __future__ import annotations

from typing import Any

from iron_core.backends.pricing import Prices, Pricing
from iron_core.compiled.graph import CompiledGraph
from iron_core.compiled.operator_image import OperatorImage
from iron_core.graph.signature import Signature


def prices(compiled: CompiledGraph) -> dict[Signature, Prices]:
    """By version's signature, what the backend says its image takes; nothing of one that prices nothing."""
    backend = compiled.backend
    if not isinstance(backend, Pricing):
        return {}
    return {signature: backend.price(version.image) for signature, version in compiled.versions.items()}


def operator_us(op: Any, backend: Any, dev: str) -> float | None:
    """What a backend says a call of one operator takes, in microseconds; None of one that prices nothing."""
    pricing = backend if isinstance(backend, Pricing) else None
    return None if pricing is None else pricing.price(OperatorImage(op, backend=backend, dev=dev).image).total_us
