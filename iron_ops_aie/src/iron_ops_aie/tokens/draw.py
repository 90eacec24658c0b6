"""How a token is drawn: the rows of `draws`, and what one of them picks. What `Sample` means on every backend, to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iron_ops_aie.tokens.exp64 import exp64

#: int32 words of one draw: temperature (float32 bits), top-k, the uniform's low 32 bits, its high 21 bits.
ROW_WORDS = 4
#: What is drawn where a logit is not finite.
NO_TOKEN = -1


def draw_words(temperature: float, top_k: int, uniform: int) -> np.ndarray:
    """One row of `draws`. uniform: an integer in [0, 2^53), the numerator of a number in [0, 1)."""
    row = np.zeros(ROW_WORDS, np.int32)
    row[0] = np.float32(temperature).view(np.int32)
    row[1] = top_k
    row[2:] = np.array([uniform & 0xFFFFFFFF, uniform >> 32], np.uint32).view(np.int32)
    return row


def candidates(words: np.ndarray, k_max: int) -> int:
    """How many of the largest logits a row chooses from: 1 where it is greedy."""
    return min(max(1, int(words[1])), k_max) if _temperature(words) > 0 else 1


def draw(logits: np.ndarray, words: np.ndarray, k_max: int) -> int:
    """The token a row of draws picks from float64 logits (vocab,); NO_TOKEN where one of them is not finite."""
    if not np.isfinite(logits).all():
        return NO_TOKEN
    count = min(candidates(words, k_max), logits.size)
    if count == 1:
        return int(np.argmax(logits))
    best = np.flatnonzero(logits >= np.partition(logits, -count)[-count])  # more where equal ones are left over
    order = best[np.lexsort((best, -logits[best]))[:count]]
    return int(order[pick(logits[order].tolist(), words)])


def pick(logits: Sequence[float], words: np.ndarray) -> int:
    """Which of the candidates' logits, the largest first, a row picks."""
    temperature = _temperature(words)
    if not temperature > 0:
        return 0
    weights = [exp64((logit - logits[0]) / temperature) for logit in logits]
    total = 0.0
    for weight in weights:  # in order: np.sum adds pairwise, which another program would have to copy
        total += weight
    low, high = (int(w) for w in words[2:].view(np.uint32))
    target = (high << 32 | low) * 2.0**-53 * total
    running = 0.0
    for at, weight in enumerate(weights):
        running += weight
        if running > target:
            return at
    return len(weights) - 1


def _temperature(words: np.ndarray) -> float:
    return float(words[:1].view(np.float32)[0])
