"""`Rotary`: the angles by which queries and keys turn, and how they are scaled for long contexts."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError, printable
from iron_lm.fields import counted, flag, is_positive, optional, positive
from iron_lm.parts.part import Part, Weights, bounded, is_prompt, of_rows
from iron_lm.parts.standing import Standing
from iron_lm.run import Run
from iron_ops_aie import Copy


@attrs.frozen
class RotaryConfig:
    """How the pairs of a head turn with their position.

    scaling: None, or (name, numbers) of one of `SCALINGS`. factors: divide each frequency, where a checkpoint carries the
    factors themselves. dims: numbers of a head that turn, its first; the others stand (all turn by default). neighbours: are
    rotated pairs neighbours (2i, 2i + 1), or of the halves of what turns (i, i + dims / 2)?
    """

    head_dim: int = attrs.field(validator=counted)
    base: float = attrs.field(default=10000.0, validator=positive)
    scaling: tuple[str, tuple[float, ...]] | None = None
    factors: tuple[float, ...] | None = None
    neighbours: bool = attrs.field(default=False, validator=flag)
    dims: int | None = attrs.field(default=None, validator=optional(counted))

    def __attrs_post_init__(self) -> None:
        if self.head_dim % 2:
            raise ParamError(f"RotaryConfig: head_dim={self.head_dim}; legal: an even number, for pairs turn.")
        if not 2 <= self.turning <= self.head_dim or self.turning % 2:
            raise ParamError(f"RotaryConfig: dims={self.dims}; legal: an even number up to head_dim={self.head_dim}, for pairs turn.")
        if self.factors is not None:
            given = len(self.factors) if isinstance(self.factors, tuple) else repr(self.factors)
            if given != self.turning // 2 or not all(map(is_positive, self.factors)):
                raise ParamError(f"RotaryConfig: {given} factors; legal: one for each of {self.turning // 2} pairs, positive numbers.")
        if self.scaling is not None:
            self._check_scaling()

    def _check_scaling(self) -> None:
        match self.scaling:
            case (str(name), tuple(numbers)) if name in SCALINGS:
                takes = list(inspect.signature(SCALINGS[name]).parameters.values())[3:]
            case _:
                given, legal = printable(repr(self.scaling), 60), ", ".join(SCALINGS)
                raise ParamError(f"RotaryConfig: scaling={given}; legal: {legal}, with the numbers each takes in a tuple; or None.")
        named = [p.name for p in takes if p.kind is not p.VAR_POSITIONAL]
        more = len(takes) > len(named)
        if len(numbers) < len(named) or (len(numbers) > len(named) and not more):
            rule = f"{len(named)} number{'s' * (len(named) > 1)}: {', '.join(named)}{f'; then {takes[-1].name}' if more else ''}"
            raise ParamError(f"RotaryConfig: scaling {name!r} with {len(numbers)} numbers; legal: {rule}.")
        for number in numbers:
            if not isinstance(number, Real) or not math.isfinite(number):
                raise ParamError(f"RotaryConfig: scaling {name!r} with {printable(repr(number), 60)}; legal: finite numbers.")
        each = numbers[len(named) :]
        if name == "longrope" and (len(each) != self.turning or not all(map(is_positive, each))):
            rule = f"a short and a long one for each of {self.turning // 2} pairs, positive numbers"
            raise ParamError(f"RotaryConfig: longrope has {len(each)} factors; legal: {rule}.")

    @property
    def turning(self) -> int:
        """Numbers of a head that turn."""
        return self.head_dim if self.dims is None else self.dims

    @property
    def order(self) -> np.ndarray | None:
        """Which number of a head stands at each place where the pairs that turn are (i, i + head_dim / 2), as the operator takes
        them, though a part of the head stands; None: they are so already."""
        if self.neighbours or self.turning == self.head_dim:
            return None
        first, second = np.split(np.arange(self.turning), 2)
        standing = np.split(np.arange(self.turning, self.head_dim), 2)
        return np.concatenate([first, standing[0], second, standing[1]])


def linear(inverse: np.ndarray, config: RotaryConfig, context: int, factor: float) -> tuple[np.ndarray, float]:
    """Every frequency divided by the factor."""
    return (inverse / np.float32(factor)).astype(np.float32), 1.0


def llama3(
    inverse: np.ndarray, config: RotaryConfig, context: int, factor: float, low: float, high: float, original: float
) -> tuple[np.ndarray, float]:
    """Long wavelengths divided by the factor, short ones left, those between interpolated."""
    wavelength = 2 * math.pi / inverse.astype(np.float64)
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * inverse / factor + smooth * inverse
    scaled = np.where(wavelength > original / low, inverse / factor, inverse)
    medium = (wavelength <= original / low) & (wavelength >= original / high)
    return np.where(medium, between, scaled).astype(np.float32), 1.0


def yarn(
    inverse: np.ndarray,
    config: RotaryConfig,
    context: int,
    factor: float,
    original: float,
    fast: float,
    slow: float,
    attention: float,
    cut: float,
) -> tuple[np.ndarray, float]:
    """Pairs that turn more than `fast` times in the original context are left, those that turn fewer than `slow` times are
    divided by the factor, those between are mixed by their number. Cosine and sine are scaled by `attention`. cut: are the
    numbers of the pairs where that begins and ends made whole (1), or not (0)?"""
    half = config.turning // 2

    def pair(turns: float) -> float:
        return half * math.log(original / (turns * 2 * math.pi)) / math.log(config.base)

    first, last = pair(fast), pair(slow)
    if cut:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, config.turning - 1)
    ramp = np.clip((np.arange(half, dtype=np.float32) - first) / max(last - first, 0.001), 0, 1)
    return (inverse / np.float32(factor) * ramp + inverse * (1 - ramp)).astype(np.float32), attention


def longrope(
    inverse: np.ndarray, config: RotaryConfig, context: int, original: float, attention: float, *factors: float
) -> tuple[np.ndarray, float]:
    """Each frequency divided by a factor of its own: the first half of `factors`, or the second in a context longer than the
    original one. Cosine and sine are scaled by `attention`."""
    short, long = np.split(np.array(factors, np.float32), 2)
    return (inverse / (long if context > original else short)).astype(np.float32), attention


def longrope_of(
    original: float, attention: float, short: tuple[float, ...], long: tuple[float, ...]
) -> tuple[str, tuple[float, ...]]:
    """The `scaling` of these factors; ParamError where there are not as many short ones as long ones."""
    if len(short) != len(long):
        raise ParamError(f"longrope: {len(short)} short factors and {len(long)} long ones; legal: as many of one as of the other.")
    return "longrope", (original, attention, *short, *long)


def proportional(
    inverse: np.ndarray, config: RotaryConfig, context: int, proportion: float, factor: float
) -> tuple[np.ndarray, float]:
    """The first pairs, this proportion of them, turn as they would if all did, divided by the factor; the others stand."""
    pairs = np.arange(len(inverse))
    return np.where(pairs < int(proportion * config.turning // 2), inverse / np.float32(factor), 0).astype(np.float32), 1.0


#: By name: (inverse frequencies, config, tokens of the context, *numbers) -> those scaled, and what cosine and sine are
#: multiplied by.
SCALINGS: dict[str, Callable[..., tuple[np.ndarray, float]]] = {
    "linear": linear, "llama3": llama3, "yarn": yarn, "longrope": longrope, "proportional": proportional,
}  # fmt: skip


def inverse_frequencies(config: RotaryConfig, context: int = 0) -> tuple[np.ndarray, float]:
    """float32 (turning / 2,): radians each pair turns per position, after scaling; and the factor of cosine and sine.

    context: tokens that the caches hold, by which longrope chooses its factors.
    """
    exponents = np.arange(0, config.turning, 2, dtype=np.float32) / np.float32(config.turning)
    inverse = (1.0 / np.float64(config.base) ** exponents.astype(np.float64)).astype(np.float32)
    if config.factors is not None:
        inverse = (inverse / np.array(config.factors, np.float32)).astype(np.float32)
    if config.scaling is None:
        return inverse, 1.0
    name, numbers = config.scaling
    return SCALINGS[name](inverse, config, context, *numbers)


def angles(config: RotaryConfig, positions: Any, context: int = 0) -> np.ndarray:
    """float32 (positions, head_dim): cosine and sine of each pair, interleaved (c0, s0, c1, s1, ...); 1, 0 of those that stand."""
    inverse, scale = inverse_frequencies(config, context)
    turn = np.outer(np.asarray(positions, np.float32), inverse).astype(np.float32).astype(np.float64)
    turning = (np.stack([np.cos(turn), np.sin(turn)], -1) * scale).reshape(len(turn), config.turning).astype(np.float32)
    return np.concatenate([turning, np.tile(np.array([1, 0], np.float32), (len(turn), (config.head_dim - config.turning) // 2))], -1)


class Rotary(Part):
    """The angles of a call's rows, (rows, head_dim), from a table of every position. Layers that share one share its angles."""

    category = "rotary"

    table: Any = None

    def __init__(self, config: RotaryConfig, run: Run) -> None:
        self.config, self.run = config, run

    def complete(self) -> None:
        if self.table is None:
            table = self.angles(np.arange(self.run.max_seq_len))
            self.table = iron.weight(table if as_dtype(self.run.dtype) == np.float32 else table.astype(iron.bfloat16))

    def angles(self, positions: Any) -> np.ndarray:
        """float32 (positions, head_dim): `angles` in the context of this run."""
        return angles(self.config, positions, self.run.max_seq_len)

    def body(
        self,
        x: Any,
        *,
        chunk: iron.Scratchpad[np.int32],
        rows: iron.Scratchpad[np.int32],
        position: iron.Scratchpad[np.int32],
    ) -> Any:
        """x: the rows themselves, looked at for how many there are."""
        if isinstance(position, Standing):
            return self.first(rows, position.at)
        if is_prompt(bounded(x, rows), self.run):
            return Copy(of_rows(self.table, x.shape[0], self.run, chunk)[:rows])
        return Copy(self.table[position]).reshape(1, self.config.head_dim)

    def first(self, rows: Any, places: Any = None) -> Any:
        """The angles of the first `rows` positions, for a text that is taken whole; or of those that `places` names."""
        return Copy(self.table[:rows]) if places is None else bounded(Copy(self.table[places]), rows)

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        """x (n, heads, head_dim), each pair turned by its position's angle."""
        dims = self.config.turning
        table = self.angles(positions)[:, None, :dims]
        c, s = table[..., 0::2], table[..., 1::2]
        pairs = (slice(0, dims, 2), slice(1, dims, 2)) if self.config.neighbours else (slice(dims // 2), slice(dims // 2, dims))
        out = x.copy()
        a, b = x[..., pairs[0]], x[..., pairs[1]]
        out[..., pairs[0]], out[..., pairs[1]] = a * c - b * s, a * s + b * c
        return out
