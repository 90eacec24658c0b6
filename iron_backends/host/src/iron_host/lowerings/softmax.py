"""Softmax on the host: kernel `softmax<T>` of rows.h."""

from __future__ import annotations

from iron_core.declare.field import Auto
from iron_host.kernels import SOFTMAX
from iron_host.lowerings.rows import Rows


class Softmax(Rows):
    """`grain`: numbers per thread."""

    operator = "iron_ops_aie.Softmax"
    header, template, slots = "rows.h", "softmax", SOFTMAX
    grain = Auto(4096)
