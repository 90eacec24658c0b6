"""`LazyPackedArray`: a packed tensor whose bytes are made where they are asked for."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable

import numpy as np

from iron_core.declare.formats.format import Format, PackedArray
from iron_core.errors import FormatError


class LazyPackedArray(PackedArray):
    """A PackedArray of `make()`, uint8 and the same at every call: asked for its data it has it made, and again once nobody holds that.

    What has a copy of its own, in another order say, then takes no second one. FormatError for a shape that is no whole blocks, and, where
    the data is asked for, for another number of bytes.
    """

    __slots__ = ("_held", "_make")

    def __init__(self, make: Callable[[], np.ndarray], shape: tuple[int, ...], format: Format) -> None:
        format.stored(tuple(shape))  # FormatError for what is no whole blocks
        self.shape, self.format, self._make = tuple(int(n) for n in shape), format, make
        self._held: weakref.ref[np.ndarray] | None = None

    @property
    def data(self) -> np.ndarray:  # type: ignore[override]  # an attribute of any other, which nobody sets
        made = None if self._held is None else self._held()
        if made is None:
            made, want = self._make(), math.prod(self.format.stored(self.shape))
            if made.dtype != np.uint8 or made.size != want:
                raise FormatError(f"{self!r} is {want} bytes (uint8); its data was made as {made.size} of {made.dtype}.")
            while isinstance(made.base, np.ndarray):  # what views hold, and not one another
                made = made.base
            self._held = weakref.ref(made)
        return made.reshape(self.format.stored(self.shape))

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(self.shape)
