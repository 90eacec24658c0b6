"""Dequant on the host: kernel `dequantize<F, T>` of blocks.h."""

from __future__ import annotations

from typing import Any

from iron_core.lowering.answer import No, Yes
from iron_host.kernels import DEQUANTIZE
from iron_host.lowerings.products import BLOCKS
from iron_host.lowerings.template import TemplateLowering


class Dequant(TemplateLowering):
    """Rows are shared among threads; `grain`: numbers per thread."""

    operator = "iron_ops_aie.Dequant"
    header, template, slots = "blocks.h", "dequantize", DEQUANTIZE

    def supports(self, op: Any, dev: str) -> Yes | No:
        if op.F not in BLOCKS:
            known = ", ".join(format.name for format in BLOCKS)
            return No(f"F={op.F.name}: its kernels read {known}", known)
        return super().supports(op, dev)

    def arguments(self, op: Any) -> tuple[str, ...]:
        return (BLOCKS[op.F], *super().arguments(op))
