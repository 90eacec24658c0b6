"""RoPE on the host: kernel `rope<T, A>` of rows.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iron_core.declare.field import Auto
from iron_core.graph.traced import Binding
from iron_core.image.plan import BufferRef
from iron_core.lowering.answer import No
from iron_host.kernel_call import KernelCall, Lines
from iron_host.kernels import ROPE
from iron_host.lowerings.template import TemplateLowering


class RoPE(TemplateLowering):
    """Rows are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.RoPE"
    header, template, slots = "rows.h", "rope", ROPE
    dtypes = ("T", "A")
    grain = Auto(8192)

    def lines(self, op: Any) -> Lines:
        """The rows that one row of angles turns."""
        turned = op.rows_per_angle * op.cols
        return Lines({"x": turned, "angles": op.cols, "y": turned}, of_count=op.rows_per_angle)

    def step(
        self, op: Any, operands: Mapping[str, BufferRef], bindings: Mapping[str, Binding], tunables: Mapping[str, Any]
    ) -> KernelCall | No:
        per = op.rows_per_angle
        if "angles_valid" in bindings:
            angle_rows = bindings["angles_valid"].expression * per
            rows = bindings["valid"].expression if "valid" in bindings else op.rows
            if getattr(angle_rows, "key", None) != getattr(rows, "key", None):
                return No(f"the bound of its angle rows, times {per}, is not that of its rows")
        return super().step(op, operands, bindings, tunables)
