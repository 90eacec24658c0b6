"""`Conv1d`: every point in time of several channels, from those around it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError, ShapeError
from iron_lm.blocks.conv2d import Conv2dConfig, multiplied
from iron_lm.fields import counted, flag
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.run import Run
from iron_ops_aie import Copy


@attrs.frozen(kw_only=True)
class Conv1dConfig:
    """rows: points in time that go in. padding: zeros before the first and behind the last. bias: is a vector added?"""

    rows: int = attrs.field(validator=counted)
    in_channels: int = attrs.field(validator=counted)
    out_channels: int = attrs.field(validator=counted)
    taps: int = attrs.field(default=3, validator=counted)
    stride: int = attrs.field(default=1, validator=counted)
    padding: int = 0
    bias: bool = attrs.field(default=False, validator=flag)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.padding, int) or self.padding < 0:
            raise ParamError(f"Conv1dConfig: padding={self.padding!r}; legal: a whole number, 0 or more.")
        if self.out_rows < 1:
            size = f"rows={self.rows} with padding={self.padding}"
            raise ParamError(f"Conv1dConfig: {size} have no room for taps={self.taps}; legal: as many rows at least.")

    @property
    def out_rows(self) -> int:
        return (self.rows + 2 * self.padding - self.taps) // self.stride + 1

    @property
    def taken(self) -> int:
        """The taps with as many more, of weight zero, as make what a product takes."""
        column = Conv2dConfig(height=self.taps, width=1, in_channels=self.in_channels, out_channels=1, kernel=(self.taps, 1))
        down, across = column.taken
        return down * across


class Conv1d(Part):
    """x: (rows, in_channels) -> (out_rows, out_channels). kernel: (out, in, taps), as torch stores it."""

    kernel: Any
    bias: Any

    def __init__(self, config: Conv1dConfig, run: Run) -> None:
        c = self.config = config
        self.run = run
        self.needs(kernel=(c.out_channels, c.in_channels, c.taps))
        self.bias = None
        if c.bias:
            self.needs(bias=(c.out_channels,))
        self._rows = max(c.rows + 2 * c.padding, (c.out_rows - 1) * c.stride + c.taken)
        # What is padded is never written, so it stays zero.
        self.padded = iron.state((self._rows, c.in_channels), as_dtype(run.dtype))

    def arranged(self, name: str, array: Any) -> Any:
        """The kernel as rows of one output's weights, in the order in which the points around lie."""
        if name != "kernel":
            return array
        c, array = self.config, np.asarray(array)
        rows = np.zeros((c.out_channels, c.taken, c.in_channels), array.dtype)
        rows[:, : c.taps] = array.swapaxes(1, 2)
        return rows.reshape(c.out_channels, -1)

    def body(self, x: Any) -> Any:
        c = self.config
        if tuple(x.shape) != (c.rows, c.in_channels) or x.bounds:
            whole = [c.rows, c.in_channels]
            raise ShapeError(f"Conv1d: {x}{', bounded per call' if x.bounds else ''}; legal: all of {whole}.")
        Copy(x, self.padded[c.padding : c.padding + c.rows])
        around = iron.Pattern(0, (c.out_rows, c.taken * c.in_channels), (c.stride * c.in_channels, 1))
        columns = Copy(self.padded.reshape(self._rows * c.in_channels), src=around).reshape(c.out_rows, -1)
        return multiplied(columns, self.kernel, self.bias)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        c, kernel = self.config, widen(weights["kernel"]).astype(np.float64)
        padded = np.pad(np.asarray(x, np.float32), ((c.padding, c.padding), (0, 0)))
        y = sum(padded[a :: c.stride][: c.out_rows] @ kernel[:, :, a].T for a in range(c.taps))
        return np.asarray(y + widen(weights["bias"]) if c.bias else y, np.float32)
