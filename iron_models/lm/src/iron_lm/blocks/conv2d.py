"""`Conv2d`: every place of a plane of channels, from those around it."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ShapeError
from iron_lm.blocks.windows import Windows
from iron_lm.fields import counted, flag
from iron_lm.parts.part import Part, Weights, widen
from iron_lm.parts.projection import biased
from iron_lm.run import Run
from iron_ops_aie import GEMM, Copy

#: A product on an array takes a multiple of as many numbers; a transfer, whole words of 4 bytes, so of 2 numbers.
DEEP, WORD = 8, 2


@attrs.frozen(kw_only=True)
class Conv2dConfig(Windows):
    """`Windows`; padding is of zeros. bias: is a vector added?"""

    in_channels: int = attrs.field(validator=counted)
    out_channels: int = attrs.field(validator=counted)
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    bias: bool = attrs.field(default=False, validator=flag)

    @property
    def lead(self) -> int:
        """Places that are taken left of the kernel, with weight zero, so that the plane begins at a whole word."""
        return self.padding[1] * self.in_channels % WORD

    @property
    def taken(self) -> tuple[int, int]:
        """(down, across): the kernel with its lead, and as much more, of weight zero, as makes a row of it whole words and all of
        it what a product takes."""
        down, across = self.kernel[0], self.kernel[1] + self.lead
        sizes = ((a, b) for b in range(across, across + WORD) for a in range(down, down + DEEP))
        legal = [(a, b) for a, b in sizes if b * self.in_channels % WORD == 0 and a * b * self.in_channels % DEEP == 0]
        return min(legal, key=lambda size: size[0] * size[1])


def multiplied(x: Any, kernel: Any, bias: Any) -> Any:
    """x (places, taps) times kernel (out, taps) transposed, plus bias, in tiles of as many taps as divide them."""
    taps = x.shape[1]
    y = GEMM(x, kernel, b_col_maj=True, tile_k=max(n for n in range(DEEP, 65, DEEP) if taps % n == 0))
    return y if bias is None else biased(y, bias)


class Conv2d(Part):
    """x: (height, width, in_channels) -> (out_height, out_width, out_channels), channels last. kernel: (out, in, down, across), as
    torch stores it.

    The places around each are laid side by side, and one product is taken of all of them.
    """

    kernel: Any
    bias: Any

    def __init__(self, config: Conv2dConfig, run: Run) -> None:
        c = self.config = config
        self.run = run
        self.needs(kernel=(c.out_channels, c.in_channels, *c.kernel))
        self.bias = None
        if c.bias:
            self.needs(bias=(c.out_channels,))
        (down, across), (top, left) = c.taken, (c.padding[0], c.padding[1] + c.lead)
        self._height = max(c.height + 2 * top, (c.out_height - 1) * c.stride[0] + down)
        self._width = max(left + c.width + c.padding[1], (c.out_width - 1) * c.stride[1] + across)
        self._width += self._width * c.in_channels % WORD
        # What is padded is never written, so it stays zero.
        self.padded = iron.state((self._height, self._width, c.in_channels), as_dtype(run.dtype))

    def arranged(self, name: str, array: Any) -> Any:
        """The kernel as rows of one output's weights, in the order in which the places around lie."""
        if name != "kernel":
            return array
        c, (down, across) = self.config, self.config.taken
        array = np.asarray(array)
        rows = np.zeros((c.out_channels, down, across, c.in_channels), array.dtype)
        rows[:, : c.kernel[0], c.lead : c.lead + c.kernel[1]] = array.transpose(0, 2, 3, 1)
        return rows.reshape(c.out_channels, -1)

    def body(self, x: Any) -> Any:
        c, (down, across), top, left = self.config, self.config.taken, self.config.padding[0], self.config.padding[1] + self.config.lead
        size = (c.height, c.width, c.in_channels)
        if tuple(x.shape) != size or x.bounds:
            raise ShapeError(f"Conv2d: {x}{', bounded per call' if x.bounds else ''}; legal: all of {list(size)}.")
        Copy(x, self.padded[top : top + c.height, left : left + c.width])
        line = self._width * c.in_channels
        sizes = (c.out_height, c.out_width, down, across * c.in_channels)
        around = iron.Pattern(0, sizes, (c.stride[0] * line, c.stride[1] * c.in_channels, line, 1))
        columns = Copy(self.padded.reshape(self._height * line), src=around).reshape(c.out_height * c.out_width, -1)
        return multiplied(columns, self.kernel, self.bias).reshape(c.out_height, c.out_width, c.out_channels)

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        c, (top, left) = self.config, self.config.padding
        kernel = widen(weights["kernel"])
        padded = np.pad(np.asarray(x, np.float32), ((top, top), (left, left), (0, 0)))
        y = np.zeros((c.out_height, c.out_width, c.out_channels))
        for a, b in itertools.product(range(c.kernel[0]), range(c.kernel[1])):
            seen = padded[a :: c.stride[0], b :: c.stride[1]][: c.out_height, : c.out_width]
            y += seen.astype(np.float64) @ kernel[:, :, a, b].T
        return (y + widen(weights["bias"]) if c.bias else y).astype(np.float32)
