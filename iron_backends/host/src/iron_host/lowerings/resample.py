"""Resample on the host: kernel `resample<T>` of images.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No
from iron_host.kernel_call import KernelCall
from iron_host.kernels import RESAMPLE
from iron_host.lowerings.template import TemplateLowering

CHANNELS = 3


class Resample(TemplateLowering):
    """Rows of patches are shared among threads."""

    operator = "iron_ops_aie.Resample"
    header, template, slots = "images.h", "resample", RESAMPLE

    def numbers(self, op: Any) -> Mapping[str, Any]:
        return dict(width=CHANNELS * op.out_width)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall | No:
        call = super().step(op, operands, bindings, tunables)
        assert isinstance(call, KernelCall)
        line = CHANNELS * op.out_width  # numbers, a multiple of 48
        return attrs.evolve(call, scratch_bytes=op.reach * line + 4 * line)
