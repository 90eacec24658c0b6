"""What a simulated array can do wrong. Each message names the part, and what was expected of whom."""

from __future__ import annotations

from iron_core.errors import IronError


class SimulationError(IronError, RuntimeError):
    """A design did something the hardware would do wrong or never finish.

    Raises:  a core releases an object it does not hold
    Fix:     acquire it first
    """


class Deadlock(SimulationError):
    """Nothing can go on and the sequence has not ended; lists every blocked actor.

    Raises:  a core acquires an object that no transfer fills
    Fix:     fill it, or acquire as many objects as are filled
    """


class Race(SimulationError):
    """Two writers of one address are in flight.

    Raises:  two drains into the same rows, both started before one is awaited
    Fix:     await the first, or give them rows of their own
    """


class QueueOverrun(SimulationError):
    """More tasks in a DMA channel's queue than it holds.

    Raises:  a fifth fill of one fifo while four are under way
    Fix:     await or free earlier ones first, or say managed=False, which waits where it must
    """


class PoisonError(SimulationError):
    """Data that nobody wrote reached a valid output element, a per-call word or a branch.

    Raises:  a core reads a buffer before anything was stored in it
    Fix:     write it first, or give the buffer initial values
    """
