"""openvino-genai as a worker; it opens the GGUF file itself and re-encodes its weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# This file has the package's name; its folder must not be where the package is looked for.
_HERE = str(Path(__file__).parent)
sys.path[:] = [place for place in sys.path if place != _HERE]
import numpy as np  # noqa: E402
import openvino as ov  # noqa: E402
import openvino_genai as og  # noqa: E402

sys.path.append(_HERE)
import serve  # noqa: E402


class OpenVINOGenAI:
    """settings: checkpoint, threads, context (not used: the cache grows)."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = og.__version__
        threads = settings["threads"]
        self.turn = 0
        self.pipe = og.LLMPipeline(settings["checkpoint"], "CPU", INFERENCE_NUM_THREADS=threads)

    def _generate(self, ids: list[int], count: int, note: Any) -> None:
        config = og.GenerationConfig()
        config.max_new_tokens = count
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = False
        tokens = ov.Tensor(np.array([ids], np.int64))
        mask = ov.Tensor(np.ones((1, len(ids)), np.int64))
        self.pipe.generate(og.TokenizedInputs(tokens, mask), config, Streamer(note))

    def prompt(self, ids: list[int]) -> dict[str, Any]:
        self.turn += 1
        ids = [ids[0] + self.turn, *ids[1:]]  # it keeps prompts by their beginning, and would answer from the last one
        watch, found = serve.Stopwatch(), []
        watch.start()
        self._generate(ids, 1, lambda token: found.append(watch.stop()))
        return found[0] | {"tokens": len(ids)}

    def decode(self, ids: list[int], count: int) -> dict[str, Any]:
        watch, found, seen = serve.Stopwatch(), [], []

        def note(token: int) -> None:
            seen.append(token)
            if len(seen) == 1:
                watch.start()
            elif len(seen) == count + 1:
                found.append(watch.stop())

        self._generate(ids, count + 1, note)
        return found[0] | {"tokens": count, "ids": seen}

    def memory(self) -> dict[str, Any]:
        return {"own": serve.own_bytes()}


class Streamer(og.StreamerBase):
    """Calls `note` with every token as it comes."""

    def __init__(self, note: Any) -> None:
        super().__init__()
        self.note = note

    def write(self, token: Any) -> Any:
        for one in token if isinstance(token, list) else [token]:
            self.note(int(one))
        return og.StreamingStatus.RUNNING

    def end(self) -> None:
        pass


if __name__ == "__main__":
    serve.serve(OpenVINOGenAI)
