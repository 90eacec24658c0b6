"""ResampleTaps on the host: kernel `resample_taps` of images.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No
from iron_host.kernel_call import KernelCall
from iron_host.kernels import RESAMPLE_TAPS
from iron_host.lowerings.template import TemplateLowering


class ResampleTaps(TemplateLowering):
    """One thread: the largest weight is known to all only when each has been made."""

    operator = "iron_ops_aie.ResampleTaps"
    header, template, slots, dtypes = "images.h", "resample_taps", RESAMPLE_TAPS, ()

    def numbers(self, op: Any) -> Mapping[str, Any]:
        return dict(slots=op.slots or 0)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall | No:
        call = super().step(op, operands, bindings, tunables)
        assert isinstance(call, KernelCall)
        # A call may make one output of all inputs.
        taps = 2 * 2 * op.in_size + 1
        return attrs.evolve(call, scratch_bytes=8 * taps, threads=1)
