"""RowwiseAdd on the host: kernel `rowwise_add<T>` of elementwise.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.backends.protocol import No, Yes
from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads, unit


class RowwiseAdd(HostLowering):
    """Rows are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.RowwiseAdd"
    grain = Auto(GRAIN)

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, "rowwise_add", T=FLOATS)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        return KernelCall(
            unit("elementwise.h", "rowwise_add", cpp(op.T)),
            ("x", "vector", "y"),
            (self.count(op, bindings, "valid"), op.cols),
            threads=threads(op.rows * op.cols, tunables["grain"]),
        )
