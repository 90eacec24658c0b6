"""An access pattern: which elements of a flat buffer, in which order."""

from __future__ import annotations

import math

import attrs
import numpy as np

from iron_core.errors import ShapeError


@attrs.frozen
class Pattern:
    """Elements at `offset + sum(i_k * strides[k])` for every index under `sizes`, row-major in the index.

    All three count elements of the buffer (logical elements for a block format).
    ShapeError for what are no whole numbers, or not a stride for every size.
    """

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        tuples = isinstance(self.sizes, tuple) and isinstance(self.strides, tuple) and len(self.sizes) == len(self.strides)
        if not tuples or not all(isinstance(n, int | np.integer) for n in (self.offset, *self.sizes, *self.strides)):
            raise ShapeError(f"{self!r}; legal: whole numbers, sizes= and strides= tuples of them, a stride for every size.")

    @classmethod
    def whole(cls, shape: tuple[int, ...], offset: int = 0) -> Pattern:
        """Row-major over a contiguous region of this shape."""
        strides, step = [], 1
        for n in reversed(shape):
            strides.append(step)
            step *= n
        return cls(offset, tuple(shape), tuple(reversed(strides)))

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    @property
    def contiguous(self) -> bool:
        """Is it one run of consecutive elements, in order?"""
        step = 1
        for n, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if n != 1 and stride != step:
                return False
            step *= n
        return True

    @property
    def span(self) -> tuple[int, int]:
        """First and one past the last element it touches."""
        low = self.offset + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True) if s < 0)
        high = self.offset + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True) if s > 0)
        return low, high + 1

    def shifted(self, by: int) -> Pattern:
        return attrs.evolve(self, offset=self.offset + by)

    def cut(self, axis: int, n: int) -> Pattern:
        """The first `n` along `axis`."""
        sizes = list(self.sizes)
        sizes[axis] = n
        return attrs.evolve(self, sizes=tuple(sizes))

    def in_units(self, group: int, units: int) -> Pattern:
        """The same walk over a buffer that stores every `group` elements as `units` of its own: a block format's bytes.

        ShapeError unless it takes whole groups, in order.
        """
        inner = self.sizes[-1] if self.sizes else 1
        steps = (self.offset, inner, *self.strides[:-1])
        if any(n % group for n in steps) or (inner > 1 and self.strides[-1] != 1):
            raise ShapeError(f"pattern {self} does not take whole blocks of {group} in order.")
        offset, inner, *strides = (n // group * units for n in steps)
        return Pattern(offset, (*self.sizes[:-1], inner), (*strides, 1))

    def view(self, flat: np.ndarray) -> np.ndarray:
        """The numpy view of a flat array; ShapeError if the pattern leaves it."""
        low, high = self.span
        if self.size and (low < 0 or high > flat.size):
            raise ShapeError(f"pattern {self} touches elements {low} to {high - 1} of a buffer of {flat.size}.")
        if not self.size:
            return np.empty(self.sizes, flat.dtype)
        item = flat.itemsize
        return np.lib.stride_tricks.as_strided(flat[self.offset :], self.sizes, tuple(s * item for s in self.strides))

    def __str__(self) -> str:
        return f"{self.offset}+{'x'.join(map(str, self.sizes))}:{','.join(map(str, self.strides))}"
