"""GEMM on the host: the product kernels over rows of activations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.domain import Choices
from iron_core.declare.field import Auto
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No
from iron_host.kernel_call import KernelCall
from iron_host.lowerings.picked import PickedLowering
from iron_host.lowerings.products import Product, ProductLowering, in_blocks

#: Of matrices that ids pick.
PICKED = PickedLowering()


class GEMM(ProductLowering):
    """B is the weights; its columns of the result are shared among threads."""

    operator = "iron_ops_aie.GEMM"
    rows = Auto(0, domain=Choices(lambda op: tuple(n for n in (0, 2, 3, 4, 6) if n <= op.M) if in_blocks(op) else (0,)))
    x_rows = Auto(0, domain=Choices(lambda op: tuple(n for n in (0, 32, 64, 128, 256) if n < op.M) if in_blocks(op) else (0,)))

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> list[KernelCall] | No:
        if op.experts:
            if "valid_k" in bindings:
                return No("a bound on K of matrices that ids pick has no kernel")
            size, strides = (op.N, op.K, op.num_matrices), (1, op.M) if op.c_col_maj else (op.N, 1)
            return PICKED.product(op, "A", "B", self.count(op, bindings, "valid"), op.N, size, strides, tunables)
        product = Product(
            *("A", "B", "C"),
            M=self.count(op, bindings, "valid"),
            N=op.N,
            K=self.count(op, bindings, "valid_k"),
            x_stride=op.K,
            w_stride=op.K if op.b_col_maj else op.N,
            by_rows=op.b_col_maj,
            c_strides=(1, op.M) if op.c_col_maj else (op.N, 1),
            matrix_rows=op.N,
        )
        return self.calls(op, product, op.M, op.M * op.K * op.N, tunables)
