"""CausalConv1d on the host: kernel `causal_conv1d<T, W>` of conv.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.field import Auto
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_host.kernel_call import KernelCall
from iron_host.kernels import CAUSAL_CONV1D
from iron_host.lowerings.template import TemplateLowering
from iron_host.lowerings.units import unit


class CausalConv1d(TemplateLowering):
    """Channels are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.CausalConv1d"
    header, template, slots = "conv.h", "causal_conv1d", CAUSAL_CONV1D
    dtypes = ("T", "W")
    grain = Auto(8192)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall:
        numbers = dict(valid=self.count(op, bindings, "valid"), past=self.count(op, bindings, "past"), channels=op.channels, taps=op.taps)
        kernel = unit(self.header, self.template, *self.arguments(op))
        slots = self.slots(x="x", weight="weight", state="state", y="y", **numbers)
        return KernelCall(kernel, slots, **self.shared_by(tunables, self.work(op)))
