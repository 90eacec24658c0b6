"""Magnitude on the host: kernel `magnitude<T>` of rows.h."""

from __future__ import annotations

from iron_core.declare.field import Auto
from iron_host.kernels import MAGNITUDE
from iron_host.lowerings.rows import Rows


class Magnitude(Rows):
    """`grain`: numbers per thread."""

    operator = "iron_ops_aie.Magnitude"
    header, template, slots = "rows.h", "magnitude", MAGNITUDE
    grain = Auto(16384)
