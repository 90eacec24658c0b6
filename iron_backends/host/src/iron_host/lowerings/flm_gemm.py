"""flm.GEMM on the host: a product with its activation and clamp in one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.field import Auto
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_host.kernel_call import HostLowering, KernelCall
from iron_host.kernels import FLM_GEMM
from iron_host.lowerings.units import threads, unit


class GEMM(HostLowering):
    """The columns of the result are shared among threads. `grain`: multiplications per thread."""

    operator = "iron_ops_flm.GEMM"
    grain = Auto(32768)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        finish = op.finish_of_sums
        if op.b_col_maj:
            kernel = unit("flm.h", "flm_gemm")
        else:
            kernel = unit("flm.h", "flm_gemm_packed", "flm::Blocks" if op.packed_blocks else "flm::Dense")
        slots = FLM_GEMM(
            x="A",
            w="B",
            c="C",
            M=self.count(op, bindings, "valid"),
            N=op.N,
            K=op.K,
            tile_n=op.tile_n,
            ct_k=op.packing.ct_k,
            mode=int(finish.epilogue),
            steps=int(finish.gelu == "bf16_steps"),
            down=int(finish.rounding == "floor"),
            low=finish.low,
            high=finish.high,
        )
        work = op.M * op.N * op.K
        scratch = 4 * 4 * op.M if op.b_col_maj else 0
        return KernelCall(kernel, slots, scratch_bytes=scratch, threads=threads(work, tunables["grain"]), work=work)

    def operations(self, op: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        rows, columns = shapes["C"]
        return 2 * rows * columns * op.K
