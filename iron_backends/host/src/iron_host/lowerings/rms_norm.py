"""RMSNorm on the host: kernel `rms_norm<T, W>` of rows.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.units import FLOATS, cpp, takes, threads, unit


class RMSNorm(HostLowering):
    """Rows are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.RMSNorm"
    grain = Auto(8192)

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, "rms_norm", T=FLOATS, W=FLOATS)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        return KernelCall(
            unit("rows.h", "rms_norm", cpp(op.T), cpp(op.W)),
            ("x", "weight" if op.weighted else None, "y"),
            (self.count(op, bindings, "valid"), op.cols),
            (op.epsilon,),
            threads=1 if op.rows == 1 else threads(op.rows * op.cols, tunables["grain"]),
        )
