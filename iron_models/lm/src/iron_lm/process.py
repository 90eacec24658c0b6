"""What this process has used, and could have: time since it started, memory of its own and memory that is free."""

from __future__ import annotations

import os
import time
from typing import Any

from iron_core.errors import CheckpointError


def since_start() -> float:
    """Wall seconds since this process was started (since the import of this module where the system does not tell)."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime", encoding="utf-8", errors="replace") as file:
            return float(file.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _IMPORTED


#: Of /proc/self/status: all that would be free again if the process ended. RssFile, pages of mapped files, is not.
_OWN = ("RssAnon:", "RssShmem:", "VmSwap:")


def own_bytes() -> int:
    """Memory that is this process's own now, in bytes: anonymous, shared or swapped out; 0 where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(_OWN))
    except (OSError, ValueError):
        return 0


def available_bytes() -> int | None:
    """Memory that could be had without swapping (MemAvailable); None where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="utf-8", errors="replace") as file:
            line = next(text for text in file if text.startswith("MemAvailable"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return None


def fits(where: Any, what: str, nbytes: int, less: str = "") -> None:
    """CheckpointError, which says of `where` that `what` takes them, and what takes less, where so many bytes of memory are not free."""
    free = available_bytes()
    if free is not None and nbytes > free:
        raise CheckpointError(f"{where}: {what} {in_words(nbytes)} of memory as they run; {in_words(free)} are free{less}.")


def in_words(n: int) -> str:
    """So many bytes, for people."""
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"


_IMPORTED = time.monotonic()
