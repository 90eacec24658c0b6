"""Dequant on the host: kernel `dequantize` of blocks.h, or `packed_dequantize` of packed.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.field import Auto
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.kernels import DEQUANTIZE, PACKED_DEQUANTIZE
from iron_host.lowerings.units import FLOATS, GRAIN, cpp, takes, threads
from iron_host.view import no_view, view_of


class Dequant(HostLowering):
    """Rows are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.Dequant"
    grain = Auto(GRAIN)

    def supports(self, op: Any, dev: str) -> Yes | No:
        return no_view("F", op.F) if view_of(op.F) is None else takes(op, "dequantize", T=FLOATS)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        view = view_of(op.F)
        assert view is not None  # supports() has seen it
        given = dict(x="x", y="y", valid=self.count(op, bindings, "valid"), cols=op.cols)
        many = threads(op.rows * op.cols, tunables["grain"])
        if view.blocks:
            return KernelCall(view.unit("dequantize", cpp(op.T)), DEQUANTIZE(**given), threads=many)
        slots = PACKED_DEQUANTIZE(**given, rows=op.rows)
        return KernelCall(view.unit("packed_dequantize", cpp(op.T)), slots, scratch_bytes=4 * op.cols, threads=many)
