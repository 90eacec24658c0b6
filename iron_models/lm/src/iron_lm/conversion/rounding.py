"""Numbers rounded to blocks of 4 bits, as a conversion writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import PackedArray
from iron_core.errors import CheckpointError
from iron_lm.checkpoints.scale_check import ScaleCheck


def rounded(format: Any, where: str, rows: Any) -> PackedArray:
    """Rows of a matrix in blocks of a format. CheckpointError, which begins with `where`, for numbers that are not finite, or too large
    for a scale."""
    wide = np.asarray(rows).astype(np.float32)
    if not np.isfinite(wide).all():
        raise CheckpointError(f"{where} has numbers that are NaN or infinite.")
    with np.errstate(over="ignore"):
        found: PackedArray = format.quantize(wide)
    if not ScaleCheck(found.nbytes)(found):
        raise CheckpointError(f"{where} has numbers too large for scales of float16.")
    return found
