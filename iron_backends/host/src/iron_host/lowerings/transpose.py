"""Transpose on the host: kernel `transpose<T>` of move.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.units import GRAIN, by_width, threads, unit


class Transpose(HostLowering):
    """Rows of y are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.Transpose"
    grain = Auto(GRAIN)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        return KernelCall(
            unit("move.h", "transpose", by_width(op.T)),
            ("x", "y"),
            (op.num_batches, op.M, op.N),
            threads=threads(op.num_batches * op.M * op.N, tunables["grain"]),
        )
