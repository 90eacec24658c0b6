"""SiLU on the host: kernel `unary<SiLU, T>` of elementwise.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.backends.protocol import No, Yes
from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.units import FLOATS, cpp, takes, threads, unit


class SiLU(HostLowering):
    """`grain`: numbers per thread; an exponential costs several additions, so it is small."""

    operator = "iron_ops_aie.SiLU"
    grain = Auto(4096)

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, "SiLU", T=FLOATS)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        return KernelCall(
            unit("elementwise.h", "unary", "SiLU", cpp(op.T)),
            ("x", "y"),
            (self.count(op, bindings, "valid"),),
            threads=threads(op.size, tunables["grain"]),
        )
