"""Route on the host: kernel `route<T>` of route.h."""

from __future__ import annotations

from iron_core.declare.field import Auto
from iron_host.kernels import ROUTE
from iron_host.lowerings.rows import Rows


class Route(Rows):
    """`grain`: logits per thread."""

    operator = "iron_ops_aie.Route"
    header, template, slots = "route.h", "route", ROUTE
    grain = Auto(4096)
