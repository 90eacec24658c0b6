"""Rules of scores that attention of every kind shares."""

from __future__ import annotations

import math
from typing import Any

from iron_core.errors import ParamError

#: What scores may be bent to within.
CAPS = (2.0**-100, 2.0**100)


def check_scores(op: Any) -> None:
    """ParamError for KV heads that do not divide, and for a window, a scale or a cap that means nothing."""
    name = type(op).__name__
    if op.num_KV_heads <= 0 or op.num_heads % op.num_KV_heads:
        raise ParamError(f"{name}: num_KV_heads={op.num_KV_heads} does not divide num_heads={op.num_heads}.")
    if op.window is not None and not (isinstance(op.window, int) and op.window > 0):
        raise ParamError(f"{name}: window={op.window!r}; legal: None or a positive number of keys.")
    if not (math.isfinite(op.scale) and op.scale >= 0):
        raise ParamError(f"{name}: scale={op.scale}; legal: a finite number that is not negative.")
    if op.soft_cap is not None and not CAPS[0] <= op.soft_cap <= CAPS[1]:
        raise ParamError(f"{name}: soft_cap={op.soft_cap}; legal: None or a positive number, from 2^-100 to 2^100.")
