"""`--bench`: prompt and decode rates over a grid of lengths, as llama-bench prints them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_lm.figures import Figures
from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.model import Model
from iron_lm.tasks.task import Task

PROMPTS = (16, 64, 256, 512)
DEPTHS = (0, 128, 512, 2048)
DECODE = 32
ROUNDS = 3
HEADERS = ("test", "tok/s", "+-", "least", "most")


@attrs.frozen
class Rate:
    """Tokens per second of one test: `pp` a prompt of `tokens` after `depth` held, `tg` that many tokens one by one."""

    test: str
    tokens: int
    depth: int
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.test}{self.tokens}" + (f" @ {self.depth}" if self.depth else "")

    def cells(self) -> list[str]:
        spread = statistics.stdev(self.rates) if len(self.rates) > 1 else 0.0
        return [self.name, f"{statistics.median(self.rates):.1f}", f"{spread:.1f}", f"{min(self.rates):.1f}", f"{max(self.rates):.1f}"]

    def as_dict(self) -> dict[str, Any]:
        return attrs.asdict(self) | {"name": self.name, "median_tok_s": statistics.median(self.rates)}


def grid(context: int) -> list[tuple[str, int, int]]:
    """(test, tokens, depth) of every test that fits a context."""
    tests = [("pp", n, 0) for n in PROMPTS if n <= context]
    return tests + [("tg", DECODE, depth) for depth in DEPTHS if depth + DECODE + 1 <= context]


def measure(session: Session, rounds: int = ROUNDS, seed: int = 0) -> Iterator[Rate]:
    """Every test of the grid, `rounds` times after one that does not count."""
    context = session.model.run.max_seq_len
    ids = [int(i) for i in np.random.default_rng(seed).integers(0, session.model.vocab_size, context)]
    for test, tokens, depth in grid(context):
        once = _prompt if test == "pp" else _decode
        rates = [once(session, ids, tokens, depth) for _ in range(rounds + 1)][1:]
        yield Rate(test, tokens, depth, tuple(rates))


def _prompt(session: Session, ids: Sequence[int], tokens: int, depth: int) -> float:
    session.reset()
    start = time.perf_counter()
    session.logits(ids[:tokens])
    return tokens / (time.perf_counter() - start)


def _decode(session: Session, ids: Sequence[int], tokens: int, depth: int) -> float:
    """What is held is the same every round, so the prompt costs one step, which is not counted."""
    stamps: list[float] = []

    def note(_: int) -> bool:
        stamps.append(time.perf_counter())
        return False

    session.generate(ids[: depth + 1], tokens + 1, Sampler(), note)
    return tokens / (stamps[-1] - stamps[0])


class BenchTask(Task):
    """A table of the rates, or one JSON object."""

    def run(self, model: Model, figures: Figures) -> int:
        with working("measuring"):
            rates = list(measure(model.session))
        if self.options["json"]:
            print_json({"rates": [rate.as_dict() for rate in rates]} | model.facts(), indent=None)
        else:
            print_table(HEADERS, [rate.cells() for rate in rates])
        return 0
