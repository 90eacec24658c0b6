"""`Sample`: the next token, drawn from logits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from iron_core import Case, DType, In, InOut, Operator, Out, Param, Scratchpad, Testing, Tolerance, bfloat16, widen
from iron_core.errors import ParamError
from iron_ops_aie.rules import floats_only

#: int32 words of one draw: temperature (float32 bits), top-k, the uniform's low 32 bits, its high 21 bits.
ROW_WORDS = 4


def draw_words(temperature: float, top_k: int, uniform: int) -> np.ndarray:
    """One row of `draws`. uniform: an integer in [0, 2^53), the numerator of a number in [0, 1)."""
    row = np.zeros(ROW_WORDS, np.int32)
    row[0] = np.float32(temperature).view(np.int32)
    row[1] = top_k
    row[2:] = np.array([uniform & 0xFFFFFFFF, uniform >> 32], np.uint32).view(np.int32)
    return row


class Sample(Operator):
    """Draw a token from `logits` as row `row` of `draws` says; note it at `tokens[at]`.

    logits: (vocab,). draws: (steps, 4) int32, see `draw_words`; an all-zero row is greedy. tokens: (steps,) int32, a record
    written at one place. token: (1,) int32. `row` is an element offset into draws (4 times the step), `at` the step.

    Greedy takes the largest logit, the lowest id among equals. Otherwise the candidates are the top-k logits (1 <= k <=
    k_max, ties by lowest id), ordered from the largest; their probabilities are exp((l - max) / temperature) in float64,
    and the token is the first whose cumulative sum exceeds uniform / 2^53 of the total.

    Where any logit is NaN or infinite there is no token: it is -1, in both places, and a loop that carries it ends there with
    NotFinite. What shall never be drawn has a logit far below the others, not -inf.

    Errors: ParamError for draws that are not whole rows, a k_max below 1, integer logits.
    """

    vocab: int = Param(array=True)
    steps: int = Param(default=1)
    words: int = Param(default=lambda op: op.steps * ROW_WORDS)
    k_max: int = Param(default=64, array=True)
    T: Any = DType(default=bfloat16)
    logits = In(vocab, dtype=T)
    draws = In(words, dtype=np.int32)
    tokens = InOut(steps, dtype=np.int32)
    token = Out(1, dtype=np.int32)
    row = Scratchpad(np.int32, within=draws, count=ROW_WORDS)
    at = Scratchpad(np.int32, within=tokens)
    reports: ClassVar[Mapping[str, str]] = {"token": "the logits are not finite"}

    test = Testing(
        Case(vocab=1000, T=np.float32),
        Case(vocab=512, steps=3),
        Case(vocab=49152, T=np.float32, bench=True),
        draw=lambda op: dict(normal=("logits",), draws=_draws),
    )

    def validate(self) -> None:
        if self.words != self.steps * ROW_WORDS:
            raise ParamError(f"Sample: draws has {self.words} words, not {ROW_WORDS} for each of steps={self.steps}.")
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


def draw(logits: np.ndarray, words: np.ndarray, k_max: int) -> int:
    """The token a row of draws picks from float64 logits (vocab,); -1 where one of them is not finite."""
    if not np.isfinite(logits).all():
        return -1
    temperature = float(words[:1].view(np.float32)[0])
    if not temperature > 0:
        return int(np.argmax(logits))
    k = min(max(1, int(words[1])), k_max, logits.size)
    order = np.lexsort((np.arange(logits.size), -logits))[:k]
    top = logits[order]
    weights = [math.exp((logit - top[0]) / temperature) for logit in top.tolist()]  # the C library's exp, as kernels use
    low, high = (int(w) for w in words[2:].view(np.uint32))
    target = (high << 32 | low) * 2.0**-53 * _total(weights)
    running = 0.0
    for token, weight in zip(order, weights, strict=True):
        running += weight
        if running > target:
            return int(token)
    return int(order[-1])


def _total(weights: list[float]) -> float:
    total = 0.0
    for weight in weights:  # in order: np.sum adds pairwise, which another program would have to copy
        total += weight
    return total


def _draws(op: Any, rng: np.random.Generator) -> np.ndarray:
    """One step draws; of several the first is greedy."""
    rows = np.stack([draw_words(0.8, 40, int(rng.integers(0, 1 << 53))) for _ in range(op.steps)])
    rows[: op.steps > 1] = 0
    return rows.reshape(-1)
