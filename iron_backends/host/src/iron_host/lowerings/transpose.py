"""Transpose on the host: kernel `transpose<T>` of move.h."""

from __future__ import annotations

from iron_host.kernels import TRANSPOSE
from iron_host.lowerings.moving import Moving


class Transpose(Moving):
    """Rows of y are shared among threads."""

    operator = "iron_ops_aie.Transpose"
    template, slots = "transpose", TRANSPOSE
