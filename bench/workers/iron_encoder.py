"""Iron as a worker that makes vectors of texts."""

from __future__ import annotations

from typing import Any

import serve

import iron_core
from iron_host import limits
from iron_host.backend import HostBackend
from iron_lm import families, loading
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.encoding import EncoderModel


class IronEncoder:
    """settings: checkpoint, threads, dtype."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = iron_core.__version__ if hasattr(iron_core, "__version__") else "2"
        self.threads = settings["threads"]
        checkpoint = Checkpoint.open(settings["checkpoint"])
        loaded = loading.load(families.of(checkpoint), checkpoint, dtype=settings["dtype"])
        self.model = EncoderModel(loaded, backend=HostBackend(threads=self.threads))

    def vectors(self, ids: list[list[int]], batch: int, count: int) -> dict[str, Any]:
        return serve.vectors(ids, batch, count, self.model.vectors)

    def limits(self) -> dict[str, Any]:
        """What the machine can do now, as the host backend measures it."""
        best = limits.measure(self.threads)
        return {
            "weights_read": best.read_bytes,
            "read_bytes": best.read_bytes,
            "float_operations": best.float_operations,
            "int8_operations": best.int8_operations,
        }


if __name__ == "__main__":
    serve.serve(IronEncoder)
