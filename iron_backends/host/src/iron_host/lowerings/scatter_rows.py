"""ScatterRows on the host: kernel `scatter_rows<S, D>` of move.h."""

from __future__ import annotations

from typing import Any

from iron_core.lowering.answer import No, Yes
from iron_host.kernels import SCATTER
from iron_host.lowerings.template import TemplateLowering
from iron_host.lowerings.units import FLOATS, by_width, cpp, name_of, takes


class ScatterRows(TemplateLowering):
    """Columns are shared among threads: of a place that is named twice the last row stays. `grain`: numbers per thread."""

    operator = "iron_ops_aie.ScatterRows"
    header, template, slots = "move.h", "scatter_rows", SCATTER
    dtypes = ("T", "C")

    def supports(self, op: Any, dev: str) -> Yes | No:
        return Yes("kernel scatter_rows") if name_of(op.T) == name_of(op.C) else takes(op, "scatter_rows", T=FLOATS, C=FLOATS)

    def arguments(self, op: Any) -> tuple[str, ...]:
        return (by_width(op.T),) * 2 if op.T == op.C else (cpp(op.T), cpp(op.C))

    def work(self, op: Any) -> int:
        return int(op.rows * op.width)
