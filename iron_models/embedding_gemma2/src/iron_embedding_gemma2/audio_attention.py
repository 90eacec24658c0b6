"""`AudioAttention`: each moment's queries over those just before it, by what they are and by how far back they lie."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError
from iron_embedding_gemma2.clipped_linear import ClippedLinear, ClippedLinearConfig
from iron_embedding_gemma2.config import AudioConfig
from iron_lm.parts.part import Part, Weights, bounded, widen
from iron_lm.parts.projection import project
from iron_lm.run import Run
from iron_ops_aie import MHA, Copy, RowwiseMul

#: What queries and keys are multiplied by: softplus(0) is log 2, which makes the scale of queries that of their size alone.
LOG2 = math.log(2)
KEYS = math.log1p(math.e) / LOG2
#: The slowest of the sinusoids that say how far back a key lies.
SLOWEST = 10000.0
#: A transfer whose length a call gives counts so many numbers.
WHOLE = 8


class Band(Part):
    """Where scores by distance become those by key: (num_heads, tokens, tokens) numbers, of which a query's lie a place further on
    in each row. Layers share it.

    A transfer of an array begins at a whole word, of two numbers. So every query's numbers begin with a key of an even place: those
    of even queries and of odd ones lie in columns of their own, and are moved apart.
    """

    def __init__(self, config: AudioConfig, tokens: int, run: Run) -> None:
        self.heads, self.tokens, self.reach = config.num_heads, tokens, config.reach
        #: Numbers that a query has of a head: up to its own key, or one further.
        self.columns = -(-(config.reach + 2) // WHOLE) * WHOLE
        if tokens % 2 or tokens < self.columns:
            raise ParamError(f"Band: tokens={tokens}; legal: an even number, at least {self.columns} with reach={config.reach}.")
        # A row more in front: what a query has of keys before the first lies there, or behind all that the query before it sees.
        self.scores = iron.state((self.heads * tokens + 1, tokens), as_dtype(run.dtype))

    def furthest(self, odd: int) -> int:
        """How far back the first of a query's columns lies, for even queries and for odd ones."""
        return self.columns - 2 + odd

    def by_column(self, keys: np.ndarray) -> np.ndarray:
        """(num_heads, 2, columns, head_dim) of keys by distance (reach + 1, num_heads, head_dim), the furthest first."""
        rows = np.zeros((self.heads, 2, self.columns, keys.shape[-1]), keys.dtype)
        for odd in (0, 1):
            own = self.furthest(odd) + 1
            rows[:, odd, own - len(keys) : own] = keys.swapaxes(0, 1)
        return rows

    def body(self, x: Any, *, rows: iron.Scratchpad[np.int32]) -> Any:
        """x: (rows, num_heads, 2, columns) -> (num_heads, tokens, tokens)."""
        n, x = self.tokens, bounded(x, rows)
        # Even queries first: what the first of a head lays before its row, the last of the head before, an odd one, writes over.
        for odd in (0, 1):
            first = n + odd * (n + 1) - self.furthest(odd)
            askew = self.scores.as_strided((self.heads, n // 2, self.columns), (n * n, 2 * (n + 1), 1), first)
            Copy(x[odd::2][:, :, odd].transpose(1, 0, 2), askew)
        return self.scores[1:].reshape(self.heads, n, n)


class AudioAttention(Part):
    """Attention of heads over the `reach` tokens before each and itself. x: (rows, hidden_size), and the same shape comes out.

    A score is q k + q r, r made of sinusoids of the distance, bent to within a cap. q is multiplied by factors that were learned,
    one for each number of a head, and by 1 / (sqrt(head_dim) log 2); k by log(1 + e) / log 2.
    """

    relative: Any
    factors: Any

    def __init__(self, config: AudioConfig, run: Run, band: Band) -> None:
        c = self.config = config
        self.run, self.band = run, band
        square = ClippedLinearConfig(c.hidden_size, c.hidden_size, clipped=c.clipped)
        self.q, self.k, self.v, self.post = (ClippedLinear(square, run) for _ in range(4))
        self.needs(factors=(c.head_dim,), relative=(c.hidden_size, c.hidden_size))

    def arranged(self, name: str, array: Any) -> Any:
        """The factors of all heads' queries; what a row of them is multiplied by to give each head's scores by distance."""
        c, wide = self.config, widen(array)
        if name == "factors":
            return np.tile(_query_factors(c, wide), c.num_heads)
        keys = self.band.by_column(_relative_keys(c, wide))
        blocks = np.zeros((*keys.shape[:3], c.num_heads, c.head_dim), np.float32)
        for head in range(c.num_heads):
            blocks[head, :, :, head] = keys[head]
        return blocks.reshape(-1, c.hidden_size)

    def held(self, name: str, array: Any) -> Any:
        """In the dtype that rows have: both are computed."""
        return iron.weight(self.arranged(name, array).astype(as_dtype(self.run.dtype)))

    def body(self, x: Any, *, rows: iron.Scratchpad[np.int32]) -> Any:
        c, n = self.config, x.shape[0]
        x = bounded(x, rows)
        q, k, v = RowwiseMul(self.q(x), self.factors), self.k(x), self.v(x)
        terms = project(q, self.relative).reshape(n, c.num_heads, 2, -1)
        q, k, v = (y.reshape(n, c.num_heads, c.head_dim) for y in (q, k, v))
        o = MHA(
            q, k, v, bias=self.band(terms, rows=rows), heads_interleaved=True, kv_interleaved=True, window=c.reach, scale=KEYS,
            soft_cap=c.cap,
        )  # fmt: skip
        return self.post(o.reshape(n, c.hidden_size))

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        c, n = self.config, len(x)
        q, k, v = (getattr(self, name).twin(self.inside(weights, name), x).reshape(n, c.num_heads, c.head_dim) for name in ("q", "k", "v"))
        q, k = q * _query_factors(c, widen(weights["factors"])), k * np.float32(KEYS)
        relative = _relative_keys(c, widen(weights["relative"]))
        out = np.zeros_like(q)
        for i in range(n):
            seen = slice(max(0, i - c.reach), i + 1)
            by_distance = relative[-(seen.stop - seen.start) :]
            scores = np.einsum("hd,khd->hk", q[i], k[seen]) + np.einsum("hd,khd->hk", q[i], by_distance)
            scores = np.float32(c.cap) * np.tanh(scores / np.float32(c.cap))
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            out[i] = np.einsum("hk,khd->hd", scores / scores.sum(-1, keepdims=True), v[seen])
        return np.asarray(self.post.twin(self.inside(weights, "post"), out.reshape(n, -1)))


def _query_factors(config: AudioConfig, learned: np.ndarray) -> np.ndarray:
    """float32 (head_dim,): by what a head's query is multiplied."""
    softplus = np.logaddexp(learned.astype(np.float64), 0)
    return (softplus * config.head_dim**-0.5 / LOG2).astype(np.float32)


def _relative_keys(config: AudioConfig, matrix: np.ndarray) -> np.ndarray:
    """float32 (reach + 1, num_heads, head_dim): what a query is compared with for each distance, the furthest first."""
    half = config.hidden_size // 2
    turns = np.exp(-math.log(SLOWEST) / max(half - 1, 1) * np.arange(half, dtype=np.float64))
    angles = np.arange(config.reach, -1, -1)[:, None] * turns
    sinusoids = np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)
    return np.asarray(sinusoids @ matrix.T).reshape(-1, config.num_heads, config.head_dim)
