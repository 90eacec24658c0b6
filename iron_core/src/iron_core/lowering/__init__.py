"""How a backend takes an operator: the `Lowering` base, its registry, and the choice where several offer one."""

from __future__ import annotations

from iron_core.lowering.protocol import Lowering
from iron_core.lowering.registry import lowering_for, lowering_name, taken

__all__ = ["Lowering", "lowering_for", "lowering_name", "taken"]
