"""Scale on the host."""

from __future__ import annotations

from typing import Any

from iron_host.lowerings.unary import Unary


class Scale(Unary):
    """See `Unary`."""

    operator = "iron_ops_aie.Scale"
    function = "Scale"

    def number(self, op: Any) -> float:
        return float(op.factor)
