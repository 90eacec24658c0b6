"""Iron as a worker that makes vectors of a text, a clip and an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import serve
from iron_encoder import IronEncoder

from iron_core.backends.run_profile import profiled
from iron_embedding_gemma2 import embedder
from iron_host.backend import HostBackend


class IronMedia(IronEncoder):
    """settings: checkpoint, threads, dtype."""

    model: Any

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version, self.threads = "2", settings["threads"]
        folder = Path(settings["checkpoint"])
        self.backend = HostBackend(threads=self.threads)
        self.model = embedder.load(folder, max_seq_len=512, dtype=settings["dtype"], backend=self.backend)
        self.inputs = dict(np.load(folder / "inputs.npz"))
        self.counted: dict[str, float] = {}

    def run(self, what: str) -> Any:
        """One vector, in a row."""
        if what == "text":
            return self.model.vectors([[int(i) for i in self.inputs["ids"]]])
        return (self.model.embed_clip if what == "clip" else self.model.embed_image)(self.inputs[what])[None]

    def vectors(self, what: str, count: int) -> dict[str, Any]:  # type: ignore[override]  # of what is here
        if what not in self.counted:
            self.run(what)
            self.counted[what] = self.operations(what)
        return serve.vectors([[]], 1, count, lambda _: self.run(what)) | {"operations": self.counted[what]}

    def operations(self, what: str) -> float:
        """Multiplications and additions of a vector, as a profile has them."""
        versions = [version.load() for graph in self.model.graphs for version in graph.versions.values()]
        with profiled(self.backend, {str(i): version for i, version in enumerate(versions)}) as found:
            self.run(what)
        return sum(row.operations for phase in found.phases() for row in phase.rows)


if __name__ == "__main__":
    serve.serve(IronMedia)
