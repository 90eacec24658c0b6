"""GEMV on the host: the product kernels with one row of activations per batch."""

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


class GEMV(ProductLowering):
    """A is the weights; its rows are shared among threads."""

    operator = "iron_ops_aie.GEMV"
    ahead = Auto(0, domain=Choices(lambda op: (0, 512, 1024, 2048, 4096, 6144, 8192) if in_blocks(op) else (0,)))

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> list[KernelCall] | No:
        if op.experts:
            size = (op.M, op.K, op.num_matrices)
            return PICKED.product(op, "B", "A", op.num_batches, self.count(op, bindings, "valid"), size, (op.M, 1), tunables)
        product = Product(
            *("B", "A", "C"),
            M=1,
            N=self.count(op, bindings, "valid"),
            K=op.K,
            x_stride=op.K,
            w_stride=op.K,
            by_rows=True,
            c_strides=(op.M, 1),
            batches=op.num_batches,
            batch_strides=(op.K, op.M * op.K, op.M),
            repeat=op.repeat,
            matrix_rows=op.M,
        )
        work = op.num_batches * op.M * op.K
        return self.calls(op, product, op.num_batches, work, tunables)
