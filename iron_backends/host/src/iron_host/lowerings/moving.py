"""`Moving`: operators that leave numbers as they are, so that only how wide they are matters."""

from __future__ import annotations

from typing import Any

from iron_core.lowering.answer import No, Yes
from iron_host.lowerings.template import TemplateLowering
from iron_host.lowerings.units import by_width


class Moving(TemplateLowering):
    """A template of move.h over a storage type as wide as T, whatever T is."""

    header = "move.h"

    def supports(self, op: Any, dev: str) -> Yes | No:
        return Yes("kernel")

    def arguments(self, op: Any) -> tuple[str, ...]:
        return (by_width(op.T),)
