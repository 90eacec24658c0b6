"""LayerNorm on the host: kernel `layer_norm<T, W>` of rows.h."""

from __future__ import annotations

from iron_core.declare.field import Auto
from iron_host.kernels import LAYER_NORM
from iron_host.lowerings.rows import Rows


class LayerNorm(Rows):
    """`grain`: numbers per thread."""

    operator = "iron_ops_aie.LayerNorm"
    header, template, slots = "rows.h", "layer_norm", LAYER_NORM
    dtypes = ("T", "W")
    grain = Auto(8192)
