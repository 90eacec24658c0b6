"""Sample on the host: kernel `sample<T>` of sample.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No, Yes
from iron_host.kernel_call import HostLowering, KernelCall, Pointer
from iron_host.kernels import SAMPLE
from iron_host.lowerings.units import FLOATS, cpp, takes, unit

WORD = 4  # bytes of an int32


class Sample(HostLowering):
    """One thread: a pass over the logits is shorter than waking another."""

    operator = "iron_ops_aie.Sample"

    def supports(self, op: Any, dev: str) -> Yes | No:
        return takes(op, "sample", T=FLOATS)

    def moved(self, op: Any, sizes: Mapping[str, int]) -> int:
        return sizes["logits"]

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        def moved(operand: str, member: str) -> Pointer:
            if member not in bindings:
                return Pointer(operand)
            return Pointer(operand, 0, bindings[member].expression, WORD)

        return KernelCall(
            unit("sample.h", "sample", cpp(op.T)),
            SAMPLE(
                logits="logits",
                draws=moved("draws", "row"),
                tokens=moved("tokens", "at"),
                token="token",
                vocab=op.vocab,
                k_max=op.k_max,
            ),
            scratch_bytes=op.k_max * (8 + WORD),
            threads=1,
        )
