"""Iron as a worker."""

from __future__ import annotations

from typing import Any

import serve

import iron_core
from iron_core.compiled.graph import CompiledGraph
from iron_host import limits
from iron_host.backend import HostBackend
from iron_lm import families, loading
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.generation.paged import PagedModel, Span
from iron_lm.generation.session import Session


class Iron:
    """settings: checkpoint, threads, context (tokens its caches hold), quantize, chunk; tuned: take up what was tuned here; sequences:
    how many `batch` takes side by side."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = iron_core.__version__ if hasattr(iron_core, "__version__") else "2"
        self.threads = settings["threads"]
        checkpoint = Checkpoint.open(settings["checkpoint"])
        sizes = dict(max_seq_len=settings["context"], prefill_chunk=settings["chunk"])
        loaded = loading.load(families.of(checkpoint), checkpoint, quantize=settings["quantize"], **sizes)
        backend = HostBackend(threads=self.threads, tuned=settings.get("tuned", True))
        self.options = dict(backend=backend, cache_key=loaded.cache_key)
        self.session = Session(loaded.model(), **self.options)
        self.context, self.sequences, self.paged = settings["context"], settings.get("sequences", 1), None
        compiled: CompiledGraph = self.session.compiled
        compiled.load()

    def prompt(self, ids: list[int]) -> dict[str, Any]:
        """From empty caches to the first token."""
        self.session.reset()
        watch = serve.Stopwatch()
        watch.start()
        token = self.session.generate(ids, 1)
        return watch.stop() | {"tokens": len(ids), "ids": token}

    def decode(self, ids: list[int], count: int) -> dict[str, Any]:
        """`count` greedy tokens after the first one that follows `ids`; what the caches hold of `ids` is kept."""
        watch, found = serve.Stopwatch(), []
        seen: list[int] = []

        def note(token: int) -> bool:
            seen.append(token)
            if len(seen) == 1:
                watch.start()
            elif len(seen) == count + 1:
                found.append(watch.stop())
            return False

        self.session.generate(ids, count + 1, on_token=note)
        return found[0] | {"tokens": count, "ids": seen}

    def batch(self, prompts: list[list[int]], count: int) -> dict[str, Any]:
        """`count` greedy tokens of each sequence after its first one, a token of each in a pass."""
        each = -(-self.context // PagedModel.page)
        if self.paged is None:
            self.paged = PagedModel(self.session.model, pages=each * self.sequences, sequences=self.sequences, **self.options)
            self.paged.load()
        pages = [range(s * each, (s + 1) * each) for s in range(len(prompts))]
        seen = [[int(self.paged.read([Span(ids, 0, own)])[0].argmax())] for ids, own in zip(prompts, pages, strict=True)]
        watch = serve.Stopwatch()
        watch.start()
        for step in range(count):
            spans = [Span(one[-1:], len(ids) + step, own) for one, ids, own in zip(seen, prompts, pages, strict=True)]
            for one, token in zip(seen, self.paged.read(spans).argmax(-1), strict=True):
                one.append(int(token))
        return watch.stop() | {"tokens": count * len(prompts), "ids": seen}

    def limits(self) -> dict[str, Any]:
        """What the machine can do now, as the host backend measures it, and how fast the weights are read where they lie."""
        best = limits.measure(self.threads)
        one = next(iter(self.session.compiled.versions.values())).load()
        lie = limits.read_rate(one.runtime, one.memory.weights())
        return {
            "weights_read": lie,
            "read_bytes": best.read_bytes,
            "float_operations": best.float_operations,
            "int8_operations": best.int8_operations,
        }

    def memory(self) -> dict[str, Any]:
        return {"own": serve.own_bytes()}


if __name__ == "__main__":
    serve.serve(Iron)
