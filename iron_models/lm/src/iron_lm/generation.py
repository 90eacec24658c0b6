"""Choosing tokens: greedy, or drawn at a temperature from the most likely, reproducibly from a seed."""

from __future__ import annotations

import attrs
import numpy as np

from iron_core.errors import UsageError
from iron_ops_aie.sample import ROW_WORDS, draw_words

#: Candidates the sampling operator keeps.
K_MAX = 64
DEFAULT_TOP_K = 50
#: From here on every candidate is as likely as any other.
MOST_TEMPERATURE = 1e6


@attrs.frozen
class Sampler:
    """temperature 0 is greedy. Otherwise the next token is drawn from the `top_k` most likely; `seed` fixes every draw.

    The draw at a position depends on the seed and the position alone, so a run repeated, or resumed, draws the same.
    """

    temperature: float = 0.0
    top_k: int = DEFAULT_TOP_K
    seed: int = 0

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.temperature <= MOST_TEMPERATURE:
            raise UsageError(f"temperature={self.temperature}; legal: 0 (greedy) to {MOST_TEMPERATURE:g}.")
        if not 1 <= self.top_k <= K_MAX:
            raise UsageError(f"top_k={self.top_k}; legal: 1 to {K_MAX}.")
        if self.seed < 0:
            raise UsageError(f"seed={self.seed}; legal: 0 or more.")

    def rows(self, positions: int) -> np.ndarray:
        """int32 (positions, 4): the draw words of every position, as the operator Sample reads them."""
        rows = np.zeros((positions, ROW_WORDS), np.int32)
        if self.temperature > 0:
            uniforms = np.random.default_rng(self.seed).integers(0, 1 << 53, positions)
            rows[:] = draw_words(self.temperature, self.top_k, 0)
            rows[:, 2] = (uniforms & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
            rows[:, 3] = (uniforms >> 32).astype(np.int32)
        return rows


def kl_divergence(reference: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """float64 (n,): KL(softmax(reference) || softmax(logits)) of each row, in nats."""

    def log_softmax(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    with np.errstate(invalid="ignore"):  # infinite logits diverge by NaN, which no gate lets through
        p, q = log_softmax(reference), log_softmax(logits)
        return np.asarray((np.exp(p) * (p - q)).sum(-1))
