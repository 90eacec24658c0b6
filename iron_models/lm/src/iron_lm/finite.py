"""What is said of results that are no finite numbers."""

from __future__ import annotations

from iron_core.errors import CheckpointError


def not_finite(what: str) -> CheckpointError:
    """what: the results, and "is" or "are"."""
    return CheckpointError(f"{what} not finite: the weights hold NaN or infinity, or overflow the dtype they run in.")
