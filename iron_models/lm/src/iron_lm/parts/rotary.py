"""`Rotary`: the angles by which queries and keys turn, and how they are scaled for long contexts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError
from iron_lm.parts.part import Part, Weights, bounded, is_prompt
from iron_lm.run import Run
from iron_ops_aie import Copy


@attrs.frozen
class RotaryConfig:
    """How the pairs of a head turn with their position.

    scaling: None, or (name, numbers) of one of `SCALINGS`. factors: divide each frequency, where a checkpoint carries the
    factors themselves. neighbours: are rotated pairs neighbours (2i, 2i + 1), or of a head's halves (i, i + head_dim / 2)?
    """

    head_dim: int
    base: float = 10000.0
    scaling: tuple[str, tuple[float, ...]] | None = None
    factors: tuple[float, ...] | None = None
    neighbours: bool = False

    def __attrs_post_init__(self) -> None:
        if self.head_dim < 2 or self.head_dim % 2:
            raise ParamError(f"RotaryConfig: head_dim={self.head_dim}; legal: an even number, for pairs turn.")
        if not 0 < self.base < math.inf:
            raise ParamError(f"RotaryConfig: base={self.base}; legal: a positive number.")
        if self.scaling is not None and self.scaling[0] not in SCALINGS:
            raise ParamError(f"RotaryConfig: scaling {self.scaling[0]!r}; legal: {', '.join(SCALINGS)}, or None.")
        factors = self.factors
        if factors is not None and not (len(factors) == self.head_dim // 2 and all(0 < f < math.inf for f in factors)):
            raise ParamError(f"RotaryConfig: {len(factors)} factors; legal: head_dim / 2 = {self.head_dim // 2} positive numbers.")


def linear(inverse: np.ndarray, config: RotaryConfig, factor: float) -> tuple[np.ndarray, float]:
    """Every frequency divided by the factor."""
    return (inverse / np.float32(factor)).astype(np.float32), 1.0


def llama3(
    inverse: np.ndarray, config: RotaryConfig, factor: float, low: float, high: float, original: float
) -> tuple[np.ndarray, float]:
    """Long wavelengths divided by the factor, short ones left, those between interpolated."""
    wavelength = 2 * math.pi / inverse.astype(np.float64)
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * inverse / factor + smooth * inverse
    scaled = np.where(wavelength > original / low, inverse / factor, inverse)
    medium = (wavelength <= original / low) & (wavelength >= original / high)
    return np.where(medium, between, scaled).astype(np.float32), 1.0


def yarn(
    inverse: np.ndarray, config: RotaryConfig, factor: float, original: float, fast: float, slow: float, attention: float, cut: float
) -> tuple[np.ndarray, float]:
    """Pairs that turn more than `fast` times in the original context are left, those that turn fewer than `slow` times are
    divided by the factor, those between are mixed by their number. Cosine and sine are scaled by `attention`. cut: are the
    numbers of the pairs where that begins and ends made whole (1), or not (0)?"""
    half = config.head_dim // 2

    def pair(turns: float) -> float:
        return half * math.log(original / (turns * 2 * math.pi)) / math.log(config.base)

    first, last = pair(fast), pair(slow)
    if cut:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, config.head_dim - 1)
    ramp = np.clip((np.arange(half, dtype=np.float32) - first) / max(last - first, 0.001), 0, 1)
    return (inverse / np.float32(factor) * ramp + inverse * (1 - ramp)).astype(np.float32), attention


#: By name: (inverse frequencies, config, *numbers) -> those scaled, and what cosine and sine are multiplied by.
SCALINGS: dict[str, Callable[..., tuple[np.ndarray, float]]] = {"linear": linear, "llama3": llama3, "yarn": yarn}


def inverse_frequencies(config: RotaryConfig) -> tuple[np.ndarray, float]:
    """float32 (head_dim / 2,): radians each pair turns per position, after scaling; and the factor of cosine and sine."""
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    inverse = (1.0 / np.float64(config.base) ** exponents.astype(np.float64)).astype(np.float32)
    if config.factors is not None:
        inverse = (inverse / np.array(config.factors, np.float32)).astype(np.float32)
    if config.scaling is None:
        return inverse, 1.0
    name, numbers = config.scaling
    return SCALINGS[name](inverse, config, *numbers)


def angles(config: RotaryConfig, positions: Any) -> np.ndarray:
    """float32 (positions, head_dim): cosine and sine of each pair, interleaved (c0, s0, c1, s1, ...)."""
    inverse, scale = inverse_frequencies(config)
    turn = np.outer(np.asarray(positions, np.float32), inverse).astype(np.float32).astype(np.float64)
    return (np.stack([np.cos(turn), np.sin(turn)], -1) * scale).reshape(len(turn), config.head_dim).astype(np.float32)


class Rotary(Part):
    """The angles of a call's rows, (rows, head_dim), from a table of every position. Layers that share one share its angles."""

    def __init__(self, config: RotaryConfig, run: Run) -> None:
        self.config, self.run = config, run
        table = angles(config, np.arange(run.max_seq_len))
        self.table = iron.weight(table if as_dtype(run.dtype) == np.float32 else table.astype(iron.bfloat16))

    def body(
        self,
        x: Any,
        *,
        chunk: iron.Scratchpad[np.int32],
        rows: iron.Scratchpad[np.int32],
        position: iron.Scratchpad[np.int32],
    ) -> Any:
        """x: the rows themselves, looked at for how many there are."""
        C, D = self.run.prefill_chunk, self.config.head_dim
        if is_prompt(bounded(x, rows), self.run):
            return Copy(self.table.reshape(self.run.max_seq_len // C, C, D)[chunk, :rows])
        return Copy(self.table[position]).reshape(1, D)

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        """x (n, heads, head_dim), each pair turned by its position's angle."""
        table = angles(self.config, positions)
        c, s = table[:, None, 0::2], table[:, None, 1::2]
        half = x.shape[-1] // 2
        pairs = (slice(0, None, 2), slice(1, None, 2)) if self.config.neighbours else (slice(half), slice(half, None))
        out = np.empty_like(x)
        a, b = x[..., pairs[0]], x[..., pairs[1]]
        out[..., pairs[0]], out[..., pairs[1]] = a * c - b * s, a * s + b * c
        return out
