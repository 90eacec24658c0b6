"""flm.DequantBFP on the host: kernel `packed_to_bfp16` of packed.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.field import Auto
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.kernels import PACKED_TO_BFP16
from iron_host.lowerings.units import GRAIN, threads
from iron_host.view import no_view, row_view_of


class DequantBFP(HostLowering):
    """Rows of x are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_flm.DequantBFP"
    grain = Auto(GRAIN)

    def supports(self, op: Any, dev: str) -> Yes | No:
        return no_view("F", op.F) if row_view_of(op.F) is None else Yes("kernel packed_to_bfp16")

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        view, packing = row_view_of(op.F), op.y.format.packing
        assert view is not None  # supports() has seen it
        slots = PACKED_TO_BFP16(x="x", y="y", N=op.N, K=op.K, tile_n=packing.tile_n, ct_k=packing.ct_k)
        many = threads(op.N * op.K, tunables["grain"])
        return KernelCall(view.unit("packed_to_bfp16"), slots, scratch_bytes=4 * op.K, threads=many)
