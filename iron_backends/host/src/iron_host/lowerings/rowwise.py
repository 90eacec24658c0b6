"""What RowwiseAdd and RowwiseMul on the host share: kernel `rowwise<Op, T>` of elementwise.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads, unit


class Rowwise(HostLowering):
    """Each row meets one vector; rows are shared among threads. `grain`: numbers per thread."""

    function: ClassVar[str] = ""
    grain = Auto(GRAIN)

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, f"rowwise {self.function}", T=FLOATS)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        return KernelCall(
            unit("elementwise.h", "rowwise", self.function, cpp(op.T)),
            ("x", "vector", "y"),
            (self.count(op, bindings, "valid"), op.cols),
            threads=threads(op.rows * op.cols, tunables["grain"]),
        )
