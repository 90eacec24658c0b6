"""Merge on the host: kernel `merge<int32_t>` of move.h."""

from __future__ import annotations

from typing import Any

from iron_core.lowering.answer import No, Yes
from iron_host.kernels import MERGE
from iron_host.lowerings.template import TemplateLowering


class Merge(TemplateLowering):
    """One thread: what a row is follows from all before it."""

    operator = "iron_ops_aie.Merge"
    header, template, slots = "move.h", "merge", MERGE

    def supports(self, op: Any, dev: str) -> Yes | No:
        return Yes("kernel merge")

    def arguments(self, op: Any) -> tuple[str, ...]:
        return ("int32_t",)

    def work(self, op: Any) -> int:
        return 1
