"""llama.cpp as a worker, through the C functions of llama-cpp-python: its defaults, no sampling but the largest logit."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

# This file has the package's name; its folder must not be where the package is looked for.
_HERE = str(Path(__file__).parent)
sys.path[:] = [place for place in sys.path if place != _HERE]
import llama_cpp as ll  # noqa: E402
import numpy as np  # noqa: E402

sys.path.append(_HERE)
import serve  # noqa: E402


class LlamaCpp:
    """settings: checkpoint, threads, context, sequences (side by side, each with such a context); the file is run as it is."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = ll.__version__
        quiet = ll.llama_log_callback(lambda level, text, data: None)
        self._quiet = quiet
        ll.llama_log_set(quiet, ctypes.c_void_p(0))
        ll.llama_backend_init()
        self.model = ll.llama_model_load_from_file(settings["checkpoint"].encode(), ll.llama_model_default_params())
        if not self.model:
            raise RuntimeError("the file does not load")
        params = ll.llama_context_default_params()
        self.sequences = settings.get("sequences", 1)
        params.n_ctx = settings["context"] * self.sequences
        params.n_seq_max = self.sequences
        params.n_batch = 2048
        params.n_threads = params.n_threads_batch = settings["threads"]
        self.context = ll.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("no context of this size")
        self.vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        self.held: list[int] = []

    def _run(self, ids: list[int]) -> int:
        """Take `ids` in after what is held; the token most likely next."""
        for start in range(0, len(ids), 2048):
            part = ids[start : start + 2048]
            tokens = (ll.llama_token * len(part))(*part)
            if ll.llama_decode(self.context, ll.llama_batch_get_one(tokens, len(part))):
                raise RuntimeError("llama_decode failed")
        self.held += ids
        logits = ll.llama_get_logits_ith(self.context, -1)
        return int(np.argmax(np.ctypeslib.as_array(logits, (self.vocab,))))

    def _keep(self, count: int) -> None:
        """Forget all but the first `count` tokens."""
        ll.llama_memory_seq_rm(ll.llama_get_memory(self.context), 0, count, -1)
        self.held = self.held[:count]

    def prompt(self, ids: list[int]) -> dict[str, Any]:
        self._keep(0)
        watch = serve.Stopwatch()
        watch.start()
        token = self._run(ids)
        return watch.stop() | {"tokens": len(ids), "ids": [token]}

    def decode(self, ids: list[int], count: int) -> dict[str, Any]:
        same = 0
        while same < min(len(self.held), len(ids)) and self.held[same] == ids[same]:
            same += 1
        self._keep(min(same, len(ids) - 1))
        seen = [self._run(ids[len(self.held) :])]
        watch = serve.Stopwatch()
        watch.start()
        for _ in range(count):
            seen.append(self._run(seen[-1:]))
        return watch.stop() | {"tokens": count, "ids": seen}

    def batch(self, prompts: list[list[int]], count: int) -> dict[str, Any]:
        """`count` greedy tokens of each sequence after its first one, a token of each in a call of llama_decode, as the server does it."""
        ll.llama_memory_clear(ll.llama_get_memory(self.context), True)
        self.held = []
        batch = ll.llama_batch_init(max(map(len, prompts)) + len(prompts), 0, 1)

        def run(rows: list[tuple[int, int, int, bool]]) -> list[int]:
            """Rows of (token, position, sequence, whether its logits count): the tokens most likely next."""
            batch.n_tokens = len(rows)
            for i, (token, at, sequence, counts) in enumerate(rows):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, at, 1, counts
                batch.seq_id[i][0] = sequence
            if ll.llama_decode(self.context, batch):
                raise RuntimeError("llama_decode failed")
            found = (ll.llama_get_logits_ith(self.context, i) for i, row in enumerate(rows) if row[3])
            return [int(np.argmax(np.ctypeslib.as_array(one, (self.vocab,)))) for one in found]

        try:
            seen = [run([(token, at, s, at == len(ids) - 1) for at, token in enumerate(ids)]) for s, ids in enumerate(prompts)]
            watch = serve.Stopwatch()
            watch.start()
            for step in range(count):
                found = run([(one[-1], len(ids) + step, s, True) for s, (one, ids) in enumerate(zip(seen, prompts, strict=True))])
                for one, token in zip(seen, found, strict=True):
                    one.append(token)
            return watch.stop() | {"tokens": count * len(prompts), "ids": seen}
        finally:
            ll.llama_batch_free(batch)

    def logits(self, ids: list[int], path: str) -> dict[str, Any]:
        """Write float32 (n, vocabulary): the logits after each of `ids`, a decode step a token."""
        self._keep(0)
        found = np.empty((len(ids), self.vocab), np.float32)
        for row, token in zip(found, ids, strict=True):
            self._run([token])
            row[:] = np.ctypeslib.as_array(ll.llama_get_logits_ith(self.context, -1), (self.vocab,))
        np.save(path, found)
        return {"positions": len(ids)}

    def memory(self) -> dict[str, Any]:
        return {"own": serve.own_bytes()}


if __name__ == "__main__":
    serve.serve(LlamaCpp)
