"""L2Norm on the host: kernel `l2_norm<T>` of rows.h."""

from __future__ import annotations

from iron_core.declare.field import Auto
from iron_host.kernels import L2_NORM
from iron_host.lowerings.rows import Rows


class L2Norm(Rows):
    """`grain`: numbers per thread."""

    operator = "iron_ops_aie.L2Norm"
    header, template, slots = "rows.h", "l2_norm", L2_NORM
    grain = Auto(8192)
