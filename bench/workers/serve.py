"""What every worker does: load a model, then run the orders that come on standard input, one JSON object a line.

Workers run in their engine's own environment, so this file and its neighbours use the standard library and the engine.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any


class Stopwatch:
    """Wall and CPU seconds (of every thread) between `start()` and `stop()`."""

    def start(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> dict[str, float]:
        return {"wall": time.perf_counter() - self._wall, "cpu": time.process_time() - self._cpu}


def own_bytes() -> int:
    """Memory of the process's own now: RssAnon, RssShmem and VmSwap; 0 where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")))
    except OSError:
        return 0


def padded(texts: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Ids of texts as rows of one length, zeros behind the shorter ones; and where ids are, as ones."""
    most = max(map(len, texts))
    return [ids + [0] * (most - len(ids)) for ids in texts], [[1] * len(ids) + [0] * (most - len(ids)) for ids in texts]


def vectors(ids: list[list[int]], batch: int, count: int, run: Any) -> dict[str, Any]:
    """The seconds of `count` texts, which are `ids` over and over, `batch` at a time; run: of a list of ids, vectors. With the first
    numbers of the first vector, by which one sees that engines made the same."""
    watch = Stopwatch()
    watch.start()
    for start in range(0, count, batch):
        found = run([ids[i % len(ids)] for i in range(start, min(start + batch, count))])
    return watch.stop() | {"texts": count, "first": [float(x) for x in found[0][:4]]}


def serve(make: Any) -> None:
    """Answer orders with a method of `make(settings)`: {"do": name, ...keywords} -> what it returns, as one JSON line.

    Standard output is the answers' alone: what libraries print there goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(facts: dict[str, Any]) -> None:
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    try:
        engine = make(json.loads(sys.argv[1]))
        answer({"ready": True, "version": engine.version})
    except Exception as error:
        traceback.print_exc()
        answer({"failed": f"{type(error).__name__}: {error}"})
        return
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer(getattr(engine, order.pop("do"))(**order) | {"process_cpu": time.process_time()})
        except Exception as error:
            traceback.print_exc()
            answer({"failed": f"{type(error).__name__}: {error}"})
