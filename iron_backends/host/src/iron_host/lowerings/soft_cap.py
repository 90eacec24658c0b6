"""SoftCap on the host."""

from __future__ import annotations

from typing import Any

from iron_core.declare.field import Auto
from iron_host.lowerings.unary import Unary


class SoftCap(Unary):
    """An exponential costs several additions, so `grain` is small."""

    operator = "iron_ops_aie.SoftCap"
    function = "SoftCap"
    grain = Auto(4096)

    def number(self, op: Any) -> float:
        return float(op.cap)
