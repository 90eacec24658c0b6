"""What a simulated array can do wrong. Each message names the part, and what was expected of whom."""

from __future__ import annotations

from iron_core.errors import IronError


class SimulationError(IronError, RuntimeError):
    """A design did something the hardware would do wrong or never finish.

    Raises:  a core releases an object it does not hold
    Fix:     acquire it first
    """


class Deadlock(SimulationError):
    """Nothing can go on and the sequence has not ended; lists every blocked actor."""


class Race(SimulationError):
    """Two writers of one address are in flight."""


class QueueOverrun(SimulationError):
    """More tasks in a DMA channel's queue than it holds."""


class PoisonError(SimulationError):
    """Data that nobody wrote reached a valid output element, a per-call word or a branch."""
