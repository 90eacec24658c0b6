"""What this machine can do at most: bytes read and operations made in a second, measured with loops built like kernels."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from iron_core.backends.run_profile import Limits
from iron_host import build
from iron_host.anonymous import address
from iron_host.build import Unit
from iron_host.kernels import LIMITS
from iron_host.runlist import STEP, StepArrays
from iron_host.runtime import Runtime, runtime

#: Bytes read, several times the caches of a processor; and rounds of arithmetic, a few milliseconds.
BYTES, ROUNDS = 1 << 28, 1 << 17
REPEATS = 5
_PARTS = 1 << 16
_LOOPS = {name: Unit("limits.h", name, f"iron_{name}") for name in ("read_memory", "float_rate", "int8_rate")}


def measure(threads: int, *, nbytes: int = BYTES, rounds: int = ROUNDS, repeats: int = REPEATS) -> Limits:
    """Measure now, on the pool kernels run on. Takes about a quarter of a second and `nbytes` of memory, given back."""
    # Zeros would be one page of the kernel's, read from the cache.
    block = np.ones(nbytes // 8, np.uint64)
    engine = runtime(threads)
    return Limits(engine.threads, *(_best(engine, name, [block], rounds, repeats) for name in _LOOPS))


def read_rate(engine: Runtime, arrays: Sequence[np.ndarray], repeats: int = REPEATS) -> float:
    """Bytes a second at which these arrays are read where they lie, one after the other; the best of a few tries."""
    return _best(engine, "read_memory", arrays, 0, repeats)


def _best(engine: Runtime, loop: str, arrays: Sequence[np.ndarray], rounds: int, repeats: int) -> float:
    """Units a second of the fastest of `repeats` runs of a loop, after one that is not counted."""
    kernels = build.load(_LOOPS.values())
    table = np.array([(address(a), a.nbytes) for a in arrays], np.int64).reshape(-1, 2)
    step, made = np.zeros(1, STEP), np.zeros(_PARTS)
    step["kernel"] = kernels[_LOOPS[loop]]
    counts = {"entries": len(table), "rounds": rounds, "bytes": int(table[:, 1].sum())}
    LIMITS.write(step[0], table=address(table), made=address(made), **counts)
    steps = StepArrays(step)
    run = engine.prepare(steps, 1, 0, 0)
    rates = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        engine.run(run, None)
        rates.append(float(made.sum()) / (time.perf_counter() - start))
    return max(rates[1:])
