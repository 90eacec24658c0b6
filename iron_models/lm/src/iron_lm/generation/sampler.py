"""Choosing tokens: greedy, or drawn at a temperature from the most likely, reproducibly from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real

import attrs
import numpy as np

from iron_core.errors import UsageError
from iron_lm.parts.decoder import K_MAX
from iron_ops_aie.tokens.draw import ROW_WORDS, draw, draw_words

DEFAULT_TOP_K = 50
#: From here on every candidate is as likely as any other.
MOST_TEMPERATURE = 1e6
#: No logit outlives more of a penalty.
MOST_PENALTY = 1e6
#: (logits (vocab,), position, history, allowed) -> the next token, as `Sampler.choose` has it.
Chooser = Callable[..., int]


def _pairs(biases: Mapping[int, float] | Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    try:
        return tuple((token, bias) for token, bias in (biases.items() if isinstance(biases, Mapping) else biases))
    except (TypeError, ValueError):
        raise UsageError(f"logit_bias={biases!r}; legal: a number by token id, or pairs of both.") from None


@attrs.frozen
class Sampler:
    """How the next token is chosen from the logits, in this order, as transformers does it:

    logit_bias: added to its logit, by id (or in pairs). repetition_penalty: tokens among the last `repeat_last_n` have a positive logit
    divided by it, a negative one multiplied; frequency_penalty is taken off for each time that one is among them, presence_penalty
    once (negative ones are added). temperature: 0 is greedy; else logits are divided by it. top_k: only the k most
    likely are left; top_p: only the fewest that together have at least that probability; min_p: only those at least that fraction
    as likely as the most likely; typical_p: of these, only those whose information is nearest to the mean (Meister et al., 2022), the
    fewest that together have at least that probability. One of those left is drawn; `seed` fixes every draw.

    The draw at a position depends on the seed and the position alone, so a run repeated, or resumed, draws the same.
    """

    temperature: float = 0.0
    top_k: int = DEFAULT_TOP_K
    seed: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int = 64
    logit_bias: tuple[tuple[int, float], ...] = attrs.field(default=(), converter=_pairs)

    def __attrs_post_init__(self) -> None:
        rules = {
            "temperature": (Real, lambda t: 0 <= t <= MOST_TEMPERATURE, f"0 (greedy) to {MOST_TEMPERATURE:g}"),
            "top_k": (Integral, lambda k: k >= 1, "a whole number, 1 or more"),
            "seed": (Integral, lambda s: s >= 0, "a whole number, 0 or more"),
            "top_p": (Real, lambda p: 0 < p <= 1, "over 0, up to 1"),
            "min_p": (Real, lambda p: 0 <= p <= 1, "0 to 1"),
            "typical_p": (Real, lambda p: 0 < p <= 1, "over 0, up to 1"),
            "repetition_penalty": (Real, lambda r: 0 < r <= MOST_TEMPERATURE, f"over 0, up to {MOST_TEMPERATURE:g}"),
            "presence_penalty": (Real, lambda r: abs(r) <= MOST_PENALTY, f"{-MOST_PENALTY:g} to {MOST_PENALTY:g}"),
            "frequency_penalty": (Real, lambda r: abs(r) <= MOST_PENALTY, f"{-MOST_PENALTY:g} to {MOST_PENALTY:g}"),
            "repeat_last_n": (Integral, lambda n: n >= 0, "a whole number, 0 or more"),
        }
        for name, (kind, holds, legal) in rules.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or not holds(value):
                raise UsageError(f"{name}={value!r}; legal: {legal}.")
        for token, bias in self.logit_bias:
            if not isinstance(token, Integral) or not isinstance(bias, Real) or token < 0 or bias != bias:
                raise UsageError(f"logit_bias {token!r}={bias!r}; legal: a token id and a number (-inf forbids the token).")

    def check(self, vocab_size: int) -> None:
        """UsageError for a bias of a token that a vocabulary of this size does not have."""
        for token, _ in self.logit_bias:
            if token >= vocab_size:
                raise UsageError(f"logit_bias of token {token}; legal: 0 to {vocab_size - 1}.")

    @property
    def on_device(self) -> bool:
        """Can the graph's own Sample step choose? It knows temperature and up to K_MAX candidates."""
        plain = self.top_p == self.typical_p == 1 and self.min_p == 0 and not self._penalises and not self.logit_bias
        return plain and (self.temperature == 0 or self.top_k <= K_MAX)

    @property
    def greedy(self) -> bool:
        """Is the next token the most likely one, whatever came before?"""
        return self.temperature == 0 and not self._penalises and not self.logit_bias

    @property
    def _penalises(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    def choose(self, logits: np.ndarray, position: int, history: Sequence[int], allowed: np.ndarray | None = None) -> int:
        """The next token after `position`. logits: float32 (vocab,). history: the tokens so far, this one's last. allowed: bool
        (vocab,), the tokens that it may be. UsageError where logit_bias forbids all of them."""
        if allowed is not None and self.greedy:
            left = np.flatnonzero(allowed)  # often a few
            if left.size:
                return int(left[np.argmax(logits[left])])
        scores = logits.astype(np.float64)
        self.check(scores.size)
        for token, bias in self.logit_bias:
            scores[token] += bias
        if allowed is not None:
            np.copyto(scores, -np.inf, where=~allowed)
        if self._penalises and self.repeat_last_n:
            seen, times = np.unique(np.asarray(history[-self.repeat_last_n :], np.int64), return_counts=True)
            scores[seen] = np.where(scores[seen] > 0, scores[seen] / self.repetition_penalty, scores[seen] * self.repetition_penalty)
            scores[seen] -= times * self.frequency_penalty + self.presence_penalty
        most = int(np.argmax(scores))
        if scores[most] == -np.inf:
            raise UsageError("logit_bias forbids every token that may come next; legal: one that leaves some.")
        if self.temperature == 0:
            return most
        best = _largest(scores, self.top_k, allowed)
        best = best[scores[best] > -np.inf]
        best = best[np.lexsort((best, -scores[best]))]  # equal logits in the order of their ids
        weights = np.exp((scores[best] - scores[best[0]]) / self.temperature)
        weights /= weights.sum()
        kept = np.searchsorted(np.cumsum(weights), self.top_p - 1e-12) + 1 if self.top_p < 1 else weights.size
        kept = min(int(kept), int(np.count_nonzero(weights >= self.min_p * weights[0])))
        weights = weights[: max(1, kept)]
        if self.typical_p < 1:
            left = _typical(weights / weights.sum(), self.typical_p)
            best, weights = best[left], weights[left]
        weights = np.cumsum(weights)
        at = np.searchsorted(weights, self._uniform(position) * weights[-1], side="right")
        return int(best[min(int(at), weights.size - 1)])

    def chooser(self, positions: int) -> Chooser:
        """What chooses as the graph does where it can (`on_device`), and else as `choose`: a function of the same. positions: how many
        there are."""
        if not self.on_device:
            return self.choose
        rows = self.rows(positions)

        def drawn(logits: np.ndarray, position: int, history: Sequence[int], allowed: np.ndarray | None = None) -> int:
            if allowed is not None:
                return self.choose(logits, position, history, allowed)
            if self.temperature == 0:
                return int(np.argmax(logits))
            return draw(logits.astype(np.float64), rows[position], K_MAX)

        return drawn

    def _uniform(self, position: int) -> float:
        """The draw of a position, in [0, 1)."""
        return float(np.random.default_rng((self.seed, position)).random())

    def rows(self, positions: int) -> np.ndarray:
        """int32 (positions, 4): the draw words of every position, as the operator Sample reads them; of K_MAX candidates at most."""
        rows = np.zeros((positions, ROW_WORDS), np.int32)
        if self.temperature > 0:
            uniforms = np.random.default_rng(self.seed).integers(0, 1 << 53, positions)
            rows[:] = draw_words(self.temperature, min(self.top_k, K_MAX), 0)
            rows[:, 2] = (uniforms & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
            rows[:, 3] = (uniforms >> 32).astype(np.int32)
        return rows


def _largest(scores: np.ndarray, count: int, allowed: np.ndarray | None = None) -> np.ndarray:
    """Ids of the largest scores, so many of those that are allowed, or all of these where they are fewer; in no order."""
    if allowed is not None:
        left = np.flatnonzero(allowed)
        return left[_largest(scores[left], count)]
    return np.argpartition(-scores, count - 1)[:count] if count < scores.size else np.arange(scores.size)


def _typical(weights: np.ndarray, share: float) -> np.ndarray:
    """Which of these probabilities are nearest to the entropy of all in what they tell, the fewest with `share` together; rising."""
    with np.errstate(divide="ignore", invalid="ignore"):
        told = -np.log(weights)
        far = np.where(weights > 0, np.abs(told - np.nansum(weights * told)), np.inf)
    order = np.argsort(far, kind="stable")
    return np.sort(order[: int(np.searchsorted(np.cumsum(weights[order]), share - 1e-12)) + 1])


def kl_divergence(reference: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """float64 (n,): KL(softmax(reference) || softmax(logits)) of each row, in nats."""

    def log_softmax(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    with np.errstate(invalid="ignore"):  # infinite logits diverge by NaN, which no gate lets through
        p, q = log_softmax(reference), log_softmax(logits)
        return np.asarray((np.exp(p) * (p - q)).sum(-1))
