"""What GELU, ReLU, Scale, SiLU and SoftCap on the host share: kernel `unary<Op, T>` of elementwise.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.units import FLOATS, cpp, takes, threads, unit


class Unary(HostLowering):
    """`grain`: numbers per thread. `function` is the C++ operation."""

    function: ClassVar[str] = ""
    grain = Auto(32768)

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, self.function, T=FLOATS)

    def number(self, op: Any) -> float:
        """What the C++ operation is given besides x, if it takes a number."""
        return 0.0

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        return KernelCall(
            unit("elementwise.h", "unary", self.function, cpp(op.T)),
            ("x", "y"),
            (self.count(op, bindings, "valid"),),
            (self.number(op),),
            threads=threads(op.size, tunables["grain"]),
        )
