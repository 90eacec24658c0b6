"""Repeat on the host: kernel `repeat<T>` of move.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.units import GRAIN, by_width, threads, unit


class Repeat(HostLowering):
    """Rows of y are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.Repeat"
    grain = Auto(GRAIN)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        return KernelCall(
            unit("move.h", "repeat", by_width(op.T)),
            ("x", "y"),
            (self.count(op, bindings, "valid"), op.cols, op.repeat),
            threads=threads(op.out_rows * op.cols, tunables["grain"]),
        )
