"""ReLU on the host."""

from __future__ import annotations

from iron_host.lowerings.unary import Unary


class ReLU(Unary):
    operator = "iron_ops_aie.ReLU"
    function = "ReLU"
