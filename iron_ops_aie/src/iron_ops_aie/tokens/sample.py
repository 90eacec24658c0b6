"""`Sample`: the next token, drawn from logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from iron_core import Auto, Case, DType, In, InOut, Operator, Out, Param, Scratchpad, Testing, Tolerance, bfloat16, widen
from iron_core.errors import ParamError
from iron_ops_aie.rules import floats_only
from iron_ops_aie.tokens.draw import ROW_WORDS, draw, draw_words
from iron_ops_aie.tokens.sample_array import SampleArray


class Sample(SampleArray, Operator):
    """Draw a token from `logits` as row `row` of `draws` says; note it at `tokens[at]`.

    logits: (vocab,). draws: (steps, 4) int32, see `draw_words`; an all-zero row is greedy. tokens: (steps,) int32, a record
    written at one place. token: (1,) int32. `row` is an element offset into draws (4 times the step), `at` the step.

    Greedy takes the largest logit, the lowest id among equals. Otherwise the candidates are the top-k logits (1 <= k <=
    k_max, ties by lowest id), ordered from the largest; their probabilities are exp((l - max) / temperature) in float64, as
    `exp64` has it on every device, and the token is the first whose cumulative sum exceeds uniform / 2^53 of the total.

    Where any logit is NaN or infinite there is no token: it is -1, in both places, and a loop that carries it ends there with
    NotFinite. What shall never be drawn has a logit far below the others, not -inf.

    On an array `cores` select from a slice of the logits each, `chunk` logits at a time.

    Errors: ParamError for draws that are not whole rows, a k_max below 1, integer logits.
    """

    vocab: int = Param(array=True)
    steps: int = Param(default=1)
    words: int = Param(default=lambda op: op.steps * ROW_WORDS)
    k_max: int = Param(default=64, array=True)
    T: Any = DType(default=bfloat16)
    cores: int = Auto()
    chunk: int = Auto()
    logits = In(vocab, dtype=T, tile=chunk, per=cores)
    draws = In(words, dtype=np.int32, tile=ROW_WORDS)
    tokens = InOut(steps, dtype=np.int32, tile=1)
    token = Out(1, dtype=np.int32, tile=1)
    row = Scratchpad(np.int32, within=draws, count=ROW_WORDS)
    at = Scratchpad(np.int32, within=tokens)
    reports: ClassVar[Mapping[str, str]] = {"token": "the logits are not finite"}

    test = Testing(
        Case(vocab=1000, T=np.float32, lower=True),
        Case(vocab=512, steps=3, lower=True),
        Case(vocab=957, T=np.float32, k_max=7, cores=3, chunk=29, lower=True),
        Case(vocab=49152, T=np.float32, bench=True, lower=True),
        draw=lambda op: dict(normal=("logits",), draws=_draws),
    )

    def validate(self) -> None:
        legal = self.steps * ROW_WORDS
        if self.words != legal:
            raise ParamError(f"Sample: draws has {self.words} words, not {ROW_WORDS} for each of steps={self.steps}. Legal: {legal}.")
        floats_only(self, "T")
        if self.k_max < 1:
            raise ParamError(f"Sample: k_max={self.k_max}; legal: 1 or more.")

    def reference(self, logits: Any, draws: Any, tokens: Any, *, row: int = 0, at: int = 0) -> Any:
        words = np.asarray(draws).reshape(-1)[row : row + ROW_WORDS]
        chosen = draw(widen(logits).reshape(-1), words, self.k_max)
        tokens = np.array(tokens)
        tokens.reshape(-1)[at] = chosen
        return tokens, np.array([chosen], np.int32)

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)


def _draws(op: Any, rng: np.random.Generator) -> np.ndarray:
    """One step draws; of several the first is greedy."""
    rows = np.stack([draw_words(0.8, 40, int(rng.integers(0, 1 << 53))) for _ in range(op.steps)])
    rows[: op.steps > 1] = 0
    return rows.reshape(-1)
