"""Repeat on the host: kernel `repeat<T>` of move.h."""

from __future__ import annotations

from iron_host.kernels import REPEAT
from iron_host.lowerings.moving import Moving


class Repeat(Moving):
    """Rows of y are shared among threads."""

    operator = "iron_ops_aie.Repeat"
    template, slots = "repeat", REPEAT
