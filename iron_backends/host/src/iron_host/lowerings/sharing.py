"""`Sharing`: a lowering whose kernel's work is shared among threads, with the tunables that say how."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from iron_core.declare.domain import Choices
from iron_core.declare.field import Auto
from iron_host.kernel_call import HostLowering
from iron_host.lowerings.units import GRAIN, threads


def _counts(op: Any) -> tuple[int, ...]:
    """None given, and counts of threads up to the machine's."""
    most = os.cpu_count() or 1
    return tuple(sorted({0, most, *(1 << k for k in range(most.bit_length()))}))


class Sharing(HostLowering):
    """grain: the amount of work that is worth a thread. threads: how many at most, 0 for as many as `grain` says. parts: into how
    many parts each one's share is cut: of few, a thread that lost its CPU holds up the others; each costs a little."""

    grain = Auto(GRAIN)
    threads = Auto(0, domain=Choices(_counts))
    parts = Auto(8, domain=Choices((1, 2, 4, 8, 16)))

    @staticmethod
    def shared_by(tunables: Mapping[str, Any], work: int) -> dict[str, Any]:
        """What a `KernelCall` is given for so much work."""
        return {"threads": tunables["threads"] or threads(work, tunables["grain"]), "parts": tunables["parts"]}
