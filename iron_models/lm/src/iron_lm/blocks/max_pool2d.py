"""`MaxPool2d`: the largest number around each place of a plane, channel by channel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

import iron_core as iron
from iron_core.declare.formats import as_dtype
from iron_core.errors import ParamError, ShapeError
from iron_lm.blocks.windows import Windows
from iron_lm.fields import counted
from iron_lm.parts.part import Part, Weights
from iron_lm.run import Run
from iron_ops_aie import Copy, ElementwiseMax


@attrs.frozen(kw_only=True)
class MaxPool2dConfig(Windows):
    """`Windows`; padding counts for nothing, and is half of the kernel at most. stride is the kernel by default."""

    channels: int = attrs.field(validator=counted)
    kernel: tuple[int, int] = (2, 2)
    stride: tuple[int, int] = attrs.field(default=attrs.Factory(lambda self: self.kernel, takes_self=True))

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if any(2 * p > k for p, k in zip(self.padding, self.kernel, strict=True)):
            half = tuple(k // 2 for k in self.kernel)
            raise ParamError(f"MaxPool2dConfig: padding={self.padding} of kernel={self.kernel}; legal: {half} at most.")


class MaxPool2d(Part):
    """x: (height, width, channels) -> (out_height, out_width, channels), channels last.

    First of each column, then of each row. Around the plane stand copies of its edge, which every window that reaches there has.
    """

    padded: Any = None

    def __init__(self, config: MaxPool2dConfig, run: Run) -> None:
        c = self.config = config
        self.run = run
        if any(c.padding):
            (top, left) = c.padding
            self.padded = iron.state((c.height + 2 * top, c.width + 2 * left, c.channels), as_dtype(run.dtype))

    def body(self, x: Any) -> Any:
        c = self.config
        if tuple(x.shape) != (c.height, c.width, c.channels) or x.bounds:
            whole = [c.height, c.width, c.channels]
            raise ShapeError(f"MaxPool2d: {x}{', bounded per call' if x.bounds else ''}; legal: all of {whole}.")
        x = self._framed(x)
        (down, across), width = c.stride, x.shape[1]
        tall = [x[a : a + (c.out_height - 1) * down + 1 : down] for a in range(c.kernel[0])]
        x = _largest(tall).reshape(c.out_height, width, c.channels)
        wide = [x[:, b : b + (c.out_width - 1) * across + 1 : across] for b in range(c.kernel[1])]
        return _largest(wide).reshape(c.out_height, c.out_width, c.channels)

    def _framed(self, x: Any) -> Any:
        """x between copies of its edges."""
        if self.padded is None:
            return x
        c, (top, left) = self.config, self.config.padding
        for (down, row), (across, column) in itertools.product(_strips(c.height, top), _strips(c.width, left)):
            Copy(x[row, column], self.padded[down, across])
        return self.padded

    def twin(self, weights: Weights, x: Any) -> np.ndarray:
        c, (top, left) = self.config, self.config.padding
        padded = np.pad(np.asarray(x, np.float32), ((top, top), (left, left), (0, 0)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, c.kernel, (0, 1))
        return np.asarray(windows[:: c.stride[0], :: c.stride[1]].max((-2, -1)))


def _strips(size: int, padding: int) -> Iterator[tuple[slice, slice]]:
    """(places of the padded axis, those of the plane's that stand there)."""
    yield slice(padding, padding + size), slice(0, size)
    for edge in range(padding):
        yield slice(edge, edge + 1), slice(0, 1)
        yield slice(padding + size + edge, padding + size + edge + 1), slice(size - 1, size)


def _largest(views: list[Any]) -> Any:
    """Number by number of all of them."""
    most, *others = (Copy(view).reshape(-1) for view in views)
    for other in others:
        most = ElementwiseMax(most, other)
    return most
