"""Limbs on the host: kernel `limbs<T, bf16>` of rows.h."""

from __future__ import annotations

from typing import Any

from iron_core.declare.field import Auto
from iron_host.kernels import LIMBS
from iron_host.lowerings.rows import Rows


class Limbs(Rows):
    """`grain`: numbers per thread."""

    operator = "iron_ops_aie.Limbs"
    header, template, slots = "rows.h", "limbs", LIMBS
    grain = Auto(16384)

    def arguments(self, op: Any) -> tuple[str, ...]:
        return (*super().arguments(op), "bf16")
