"""onnxruntime-genai as a worker, on a folder that its model builder made."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# This file has the package's name; its folder must not be where the package is looked for.
_HERE = str(Path(__file__).parent)
sys.path[:] = [place for place in sys.path if place != _HERE]
import onnxruntime_genai as og  # noqa: E402

sys.path.append(_HERE)
import serve  # noqa: E402


class OnnxRuntimeGenAI:
    """settings: checkpoint (the folder), threads, context."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = og.__version__
        config = og.Config(settings["checkpoint"])
        options = {"intra_op_num_threads": settings["threads"], "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self.model = og.Model(config)
        self.context = settings["context"]
        self.generator: Any = None
        self.held: list[int] = []

    def _start(self, ids: list[int]) -> int:
        """A generator that holds `ids` and drew the first token."""
        if self.generator is not None and self.held == ids:
            self.generator.rewind_to(len(ids) - 1)
            self.generator.append_tokens(ids[-1:])
        else:
            params = og.GeneratorParams(self.model)
            params.set_search_options(max_length=self.context, min_length=self.context, do_sample=False)
            self.generator = og.Generator(self.model, params)
            self.generator.append_tokens(ids)
        self.held = list(ids)
        return self._next()

    def _next(self) -> int:
        self.generator.generate_next_token()
        return int(self.generator.get_next_tokens()[0])

    def prompt(self, ids: list[int]) -> dict[str, Any]:
        self.held = []
        watch = serve.Stopwatch()
        watch.start()
        token = self._start(ids)
        return watch.stop() | {"tokens": len(ids), "ids": [token]}

    def decode(self, ids: list[int], count: int) -> dict[str, Any]:
        seen = [self._start(ids)]
        watch = serve.Stopwatch()
        watch.start()
        for _ in range(count):
            seen.append(self._next())
        return watch.stop() | {"tokens": count, "ids": seen}

    def memory(self) -> dict[str, Any]:
        return {"own": serve.own_bytes()}


if __name__ == "__main__":
    serve.serve(OnnxRuntimeGenAI)
