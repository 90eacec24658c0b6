"""How the tests call a block, and hold it against its twin and on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import bfloat16
from iron_lm.parts.part import Part
from iron_lm.testing import drawn


def called(part: Part, *given: np.ndarray, backend: str, dev: str | None = None, **values: int) -> Any:
    """What the block makes of arrays, compiled for their shapes."""
    shapes: dict[str, Any] = {name: (x.shape, x.dtype) for name, x in zip(part.parameters().inputs, given, strict=True)}
    return part.compile(backend=backend, dev=dev, **shapes)(*given, **values)


def off(part: Part, *given: np.ndarray, backend: str, dev: str | None = None) -> float:
    """The largest difference from its twin, with weights and arrays in bfloat16 on a device, of the largest number there is."""
    weights = {path: w.astype(bfloat16) if dev else w for path, w in drawn(part).items()}
    part.fill(weights)
    given = tuple(x.astype(bfloat16) if dev else x for x in given)
    got = np.asarray(called(part, *given, backend=backend, dev=dev)).astype(np.float32)
    want = part.twin(weights, *given)
    assert got.shape == want.shape and want.size
    return float(np.abs(got - want).max() / np.abs(want).max())
