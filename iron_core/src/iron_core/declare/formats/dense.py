"""`Dense`: a numpy array of one dtype."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from iron_core.declare.dtypes import DTYPES, as_dtype
from iron_core.declare.formats.format import Format
from iron_core.declare.formats.numbers import real_numbers
from iron_core.declare.rounding import round_to
from iron_core.errors import FormatError

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@attrs.frozen
class Dense(Format):
    """One element after another, row-major."""

    dtype: np.dtype = attrs.field(converter=as_dtype)

    packed = False
    kept_axes = 0
    block = (1, 1)

    @property
    def name(self) -> str:  # type: ignore[override]
        return _NAMES[self.dtype]

    @property
    def runs_as(self) -> str:  # type: ignore[override]
        return self.name

    @property
    def block_bytes(self) -> int:
        return self.dtype.itemsize

    def stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(shape)

    def tensor(self, raw: np.ndarray, shape: tuple[int, ...]) -> Any:
        return raw.view(self.dtype).reshape(shape)

    def dequantize(self, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        numbers = real_numbers(data, f"{self.name}: dequantize()")
        dims = isinstance(shape, (tuple, list)) and all(isinstance(n, (int, np.integer)) for n in shape)
        if not dims or math.prod(shape) != numbers.size:
            raise FormatError(f"{self.name}: dequantize() of {numbers.size} numbers, shape={shape!r}; legal: a shape of as many.")
        return numbers.astype(np.float32).reshape(shape)

    def quantize(self, values: Any) -> Any:
        return round_to(real_numbers(values, f"{self.name}: quantize()"), self.dtype)
