"""Dequant on the host: kernel `dequantize<F, T>` of blocks.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.field import Auto
from iron_core.image.plan import Binding, BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.lowerings.products import BLOCKS
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads, unit


class Dequant(HostLowering):
    """Rows are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.Dequant"
    grain = Auto(GRAIN)

    def supports(self, op: Any, dev: str) -> Yes | No:
        if op.F not in BLOCKS:
            known = ", ".join(format.name for format in BLOCKS)
            return No(f"F={op.F.name}: its kernels read {known}", known)
        return takes(op, "dequantize", T=FLOATS)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        return KernelCall(
            unit("blocks.h", "dequantize", BLOCKS[op.F], cpp(op.T)),
            ("x", "y"),
            (self.count(op, bindings, "valid"), op.cols),
            threads=threads(op.rows * op.cols, tunables["grain"]),
        )
