"""Binary elementwise operators on the host: kernel `binary<Op, T>` of elementwise.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads, unit


class Binary(HostLowering):
    """y[i] = function(a[i], b[i]); `grain`: numbers per thread."""

    function: ClassVar[str] = ""
    grain = Auto(GRAIN)

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, self.function, T=FLOATS)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        return KernelCall(
            unit("elementwise.h", "binary", self.function, cpp(op.T)),
            ("a", "b", "y"),
            (self.count(op, bindings, "valid"),),
            threads=threads(op.size, tunables["grain"]),
        )
