"""What the tuner refuses."""

from __future__ import annotations

from iron_core.errors import IronError


class CostError(IronError, ValueError):
    """Costs that cannot be used together, or not here: of two platforms or power modes, of another device or packaging, or too few to
    tell what was asked of them.

    Raises:  iron tune GEMV M=2048 K=2048  # and the power mode changes meanwhile
    Fix:     set it back and start again; what was measured is kept
    """
