"""GELU on the host."""

from __future__ import annotations

from iron_core.declare.field import Auto
from iron_host.lowerings.unary import Unary


class GELU(Unary):
    """An exponential costs several additions, so `grain` is small."""

    operator = "iron_ops_aie.GELU"
    function = "GELU"
    grain = Auto(4096)
