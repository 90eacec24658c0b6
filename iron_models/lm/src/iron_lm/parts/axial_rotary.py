"""`AxialRotary`: the angles by which queries and keys of patches turn, that stand in the columns and rows of an image."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError
from iron_lm.fields import counted, positive
from iron_lm.parts.part import Part, Weights
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run
from iron_ops_aie import Copy


@attrs.frozen
class AxialRotaryConfig:
    """How the pairs of a head turn with a position (x, y): those of its first half with x, those of its second with y, each half as
    a head of its own. places: the columns and rows there may be. base: as `RotaryConfig` has it."""

    #: Pairs are of a half's halves.
    neighbours: ClassVar[bool] = False

    head_dim: int = attrs.field(validator=counted)
    places: int = attrs.field(validator=counted)
    base: float = attrs.field(validator=positive)

    def __attrs_post_init__(self) -> None:
        if self.head_dim % 4:
            raise ParamError(f"AxialRotaryConfig: head_dim={self.head_dim}; legal: a multiple of 4, for pairs of either half turn.")

    @property
    def half(self) -> RotaryConfig:
        """How one half turns with its own position."""
        return RotaryConfig(self.head_dim // 2, self.base)

    @property
    def order(self) -> np.ndarray:
        """Which number of a head stands at each place where the pairs are (i, i + head_dim / 2), as the operator takes them."""
        return np.arange(self.head_dim).reshape(2, 2, -1).swapaxes(0, 1).ravel()


class AxialRotary(Part):
    """The angles of patches at `positions`, (patches, 2) whole numbers from 0: columns and rows -> (patches, head_dim)."""

    category = "rotary"

    table: Any = None

    def __init__(self, config: AxialRotaryConfig, run: Run) -> None:
        self.config, self.run = config, run
        self._axis = Rotary(config.half, run)

    def complete(self) -> None:
        if self.table is None:
            table = self._axis.angles(np.arange(self.config.places))
            self.table = iron.weight(table if as_dtype(self.run.dtype) == np.float32 else table.astype(iron.bfloat16))

    def body(self, positions: Any) -> Any:
        self.complete()
        n = positions.shape[0]
        return Copy(self.table[positions.reshape(2 * n)]).reshape(n, self.config.head_dim)

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        """x (n, heads, head_dim), each pair turned by its position's angle; positions (n, 2)."""
        halves = enumerate(np.split(x, 2, -1))
        return np.concatenate([self._axis.twin({}, half, positions[:, axis]) for axis, half in halves], -1)
