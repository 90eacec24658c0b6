"""Measuring: rows of the same weights share workers; in every round each engine has one turn, alone."""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import attrs

from bench.engines import ENCODERS, ENGINES, MEDIA, UNTUNED, Engine, Unavailable, python_of
from bench.processes import Ran, Worker, iron_run
from bench.results import Result, Samples
from bench.rows import Media, Rate, Row, Vectors, Watched
from bench.weights import Missing, Weights, cache_bytes, encoder_operations, tensor_bytes

#: Of workers that are watched.
CONTEXT: dict[str, object] = {"context": 2048, "quantize": None}
#: "The capital of France is", as SmolLM2 reads it.
PROMPT = [504, 3575, 282, 4649, 314]


@attrs.define
class Bench:
    """One run of the program. `without`: engines left out; `scale`: tokens decoded, over those of the rows; `untuned`: Iron too
    without what was tuned on this machine."""

    weights: Weights
    peers: Path
    threads: int
    rounds: int
    log: TextIO
    install: bool = True
    without: tuple[str, ...] = ()
    scale: float = 1.0
    untuned: bool = False
    versions: dict[str, str] = attrs.Factory(dict)
    limits: dict[str, list[float]] = attrs.Factory(dict)
    _pythons: dict[str, str | Unavailable] = attrs.Factory(dict)

    def run(self, rows: list[Row]) -> list[Result]:
        """Every row's result, in the order given."""
        results = {row.key: Result(row) for row in rows}
        groups: dict[tuple[str, str], list[Rate | Vectors | Media]] = {}
        for row in rows:
            if not isinstance(row, Watched):
                groups.setdefault((row.weights, repr(row.settings)), []).append(row)
        for members in groups.values():
            self._group([results[row.key] for row in members])
        for row in rows:
            if isinstance(row, Watched):
                say(row.title)
                self._watched(results[row.key])
        return list(results.values())

    def python(self, engine: Engine) -> str:
        """The engine's python; Unavailable says why there is none, again at every call."""
        if engine.name not in self._pythons:
            try:
                if engine.name in self.without:
                    raise Unavailable("left out by --without")
                self._pythons[engine.name] = python_of(engine, self.peers, install=self.install)
            except Unavailable as error:
                self._pythons[engine.name] = error
        found = self._pythons[engine.name]
        if isinstance(found, Unavailable):
            raise found
        return found

    # -- rates ------------------------------------------------------------------------------------

    def _group(self, results: list[Result]) -> None:
        """Rows of the same weights and settings."""
        first = results[0].row
        assert not isinstance(first, Watched)
        engines = (*ENGINES, UNTUNED) if self.untuned else ENGINES
        if isinstance(first, Vectors | Media):
            engines = ENCODERS if isinstance(first, Vectors) else MEDIA
        with contextlib.ExitStack() as stack:
            workers: dict[str, Worker] = {}
            for engine in engines:
                rows = [r for r in results if _runs(engine, r.row)]
                try:
                    if rows:
                        workers[engine.name] = stack.enter_context(self.worker(engine, first.weights, first.settings))
                except (Unavailable, Missing) as error:
                    for result in rows:
                        result.engines[engine.name] = Samples(skipped=str(error))
            for result in results:
                say(result.row.title)
                self._rate(result, {n: w for n, w in workers.items() if _runs(w.engine, result.row)})

    @contextlib.contextmanager
    def worker(self, engine: Engine, weights: str, settings: dict[str, object]) -> Iterator[Worker]:
        """A worker with these weights, which it may have to make first. Unavailable or Missing says why there is none."""
        python = self.python(engine)
        settings = {"threads": self.threads} | settings | dict(engine.settings)
        path = self.weights.path(engine.file(weights), self.python(engine.made_by) if engine.made_by else python)
        worker = Worker(engine, python, path, settings, self.log)
        self.versions[engine.name] = worker.version
        try:
            yield worker
        finally:
            worker.close()

    def _rate(self, result: Result, workers: dict[str, Worker]) -> None:
        row = result.row
        assert not isinstance(row, Watched)
        if isinstance(row, Vectors):
            texts = max(row.batch, round(row.count * self.scale))
            order: dict[str, object] = {"do": "vectors", "ids": drawn_ids(row.lengths), "batch": row.batch, "count": texts}
            result.text_operations = encoder_operations(self.weights.path(row.weights), row.lengths) / len(row.lengths)
        elif isinstance(row, Media):
            order = {"do": "vectors", "what": row.what, "count": max(1, round(row.count * self.scale))}
        elif row.do == "batch":
            text = self.ids(row.prompt * row.sequences)
            order = {"do": "batch", "prompts": [text[i :: row.sequences] for i in range(row.sequences)]}
        else:
            order = {"do": row.do, "ids": self.ids(row.prompt)}
        if isinstance(row, Rate) and row.do != "prompt":
            order["count"] = count = max(4, round(row.count * self.scale))
            file = self.weights.path(row.weights)
            weights = tensor_bytes(file, row.quantize is not None) / row.sequences  # one pass for all of them
            result.token_bytes = weights + cache_bytes(file) * row.mean_context(count)
        turns = list(workers)
        result.engines = {name: Samples() for name in turns} | result.engines
        for number in range(self.rounds + 1):  # the first is not counted
            if "iron" in workers:
                self._limits(workers["iron"], result, number > 0)
            for name in turns:
                samples = result.engines[name]
                if samples.skipped:
                    continue
                try:
                    found = workers[name].order(**order)
                except Unavailable as error:
                    result.engines[name] = Samples(skipped=str(error))
                    continue
                result.text_operations = found.get("operations", result.text_operations)
                rate = found["tokens" if isinstance(row, Rate) else "texts"] / found["wall"]
                if number:
                    samples.add(rate, found["wall"], found["cpu"], found["others"])
                say(f"  {'round ' + str(number) if number else 'warm-up'} {name} {rate:.1f}")
            turns = turns[1:] + turns[:1]  # nobody always follows the same one

    def _limits(self, iron: Worker, result: Result, counted: bool) -> None:
        try:
            found = iron.order(do="limits")
        except Unavailable:
            return  # its own turn will say so
        if counted:
            result.read_limits.append(found["read_bytes"])
            result.weights_read.append(found["weights_read"])
            result.float_limits.append(found["float_operations"])
            for key in ("read_bytes", "float_operations", "int8_operations"):
                self.limits.setdefault(key, []).append(found[key])

    def ids(self, count: int) -> list[int]:
        """The prompt's tokens, so many of them; a longer one is of the passage that the gates use."""
        if count <= len(PROMPT):
            return PROMPT[:count]
        from iron_lm.checkpoints.checkpoint import Checkpoint
        from iron_lm.tasks.gates import passage
        from iron_lm.text.opening import open_tokenizer

        tokenizer = open_tokenizer(None, Checkpoint.open(self.weights.path("q4_1")))
        assert tokenizer is not None, "a row with a long prompt needs weights with a vocabulary"
        text = tokenizer.encode(passage())
        return (text * (count // len(text) + 1))[:count]

    # -- whole runs -------------------------------------------------------------------------------

    def _watched(self, result: Result) -> None:
        measure = {"start": self._start, "kernels": self._kernels, "memory": self._memory}[result.row.key]
        engines = [e for e in ENGINES if e.name in result.row.engines]  # type: ignore[operator]
        result.engines = {e.name: Samples() for e in engines}
        # Compiling has nothing to warm, and takes long.
        rounds = [1] if result.row.key == "kernels" else range(self.rounds + 1)
        for number in rounds:
            for engine in engines:
                samples = result.engines[engine.name]
                if samples.skipped:
                    continue
                try:
                    self.python(engine)
                    measure(engine, samples if number else Samples())
                except (Unavailable, Missing) as error:
                    samples.skipped = str(error)

    def _checkpoint(self) -> str:
        return str(self.weights.path("q4_1"))

    def _line(self, *more: str) -> list[str]:
        return iron_run("--checkpoint", self._checkpoint(), "--threads", str(self.threads), "--json", *more)

    def _start(self, engine: Engine, samples: Samples) -> None:
        """CPU seconds from a process's start to its first token."""
        if engine.name == "iron":
            found = json.loads(Ran(self._line("--prompt", "The capital of France is", "--num-tokens", "1")).out)
            samples.add(found["first_token_cpu_s"], found["first_token_s"], found["first_token_cpu_s"])
            return
        start = time.perf_counter()
        with self.worker(engine, "q4_1", CONTEXT) as worker:
            found = worker.order(do="prompt", ids=PROMPT)
            samples.add(found["process_cpu"], time.perf_counter() - start, found["process_cpu"])

    def _kernels(self, engine: Engine, samples: Samples) -> None:
        """Wall seconds of compiling into an empty cache; what another context and prompt compile after that, as a note."""
        with tempfile.TemporaryDirectory() as folder:
            env = {"NPU_CACHE_HOME": folder}
            ran = Ran(self._line("--prompt-len", "5", "--num-tokens", "2", "--max-seq-len", "2048"), env)
            before = _built(folder)
            samples.add(json.loads(ran.out)["compile_s"], ran.wall, ran.cpu)
            Ran(self._line("--num-tokens", "2", "--max-seq-len", "640", "--prompt-len", "100"), env)
            samples.notes = {"kernels": before, "compiled for another context": _built(folder) - before}

    def _memory(self, engine: Engine, samples: Samples) -> None:
        """MB of the process's own at most, less the caches, with caches of 2048 tokens full of a prompt and what follows it."""
        count = 64
        caches = 2048 * cache_bytes(self.weights.path("q4_1"))
        samples.notes = {"caches_mb": caches / 1e6}
        if engine.name == "iron":
            ran = Ran(self._line("--max-seq-len", "2048", "--prompt-len", str(2048 - count), "--num-tokens", str(count)))
            samples.add((ran.memory - caches) / 1e6, ran.wall, ran.cpu)
            return
        with self.worker(engine, "q4_1", CONTEXT) as worker:
            found = worker.order(do="decode", ids=self.ids(2048 - count), count=count - 1)
            samples.add((worker.order(do="memory")["own"] - caches) / 1e6, found["wall"], found["cpu"])


def drawn_ids(lengths: tuple[int, ...]) -> list[list[int]]:
    """Ids of texts of so many tokens, drawn at a fixed seed among BERT's whole words."""
    draws = random.Random(0)
    return [[101, *(draws.randrange(1996, 29000) for _ in range(n - 2)), 102] for n in lengths]


def _runs(engine: Engine, row: Row) -> bool:
    assert not isinstance(row, Watched)
    return row.weights in engine.takes and (row.engines is None or engine.name in row.engines)


def _built(folder: str) -> int:
    return len(list(Path(folder).rglob("kernel.so")))


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)
