"""RMSNorm on the host: kernel `rms_norm<T, W>` of rows.h, which rounds once, behind the weight."""

from __future__ import annotations

from iron_core.declare.field import Auto
from iron_host.kernels import RMS_NORM
from iron_host.lowerings.rows import Rows


class RMSNorm(Rows):
    """`grain`: numbers per thread."""

    operator = "iron_ops_aie.RMSNorm"
    header, template, slots = "rows.h", "rms_norm", RMS_NORM
    dtypes = ("T", "W")
    grain = Auto(8192)
