"""`BlockQuant`: rows of blocks, each a scale, perhaps a minimum, and integers."""

from __future__ import annotations

from functools import cache

import attrs
import numpy as np

from iron_core.declare.dtypes import as_dtype
from iron_core.declare.formats.plane import Plane
from iron_core.declare.formats.quantized import Quantized
from iron_core.errors import FormatError


@attrs.frozen
class BlockQuant(Quantized):
    """Rows cut into blocks of `group` integers sharing a scale (and a minimum).

    A value is `scale * (q - zero) + minimum`, q an unsigned integer of `bits` bits (4, 5 or 8) or, with
    `signed`, one in two's complement (4 or 8). A block's bytes are: scale, minimum (if any), integers.
    `order` says how nibbles share bytes: "halves" puts element i in the low nibble and i + group/2 in
    the high nibble of byte i (GGUF); "pairs" puts 2i low and 2i + 1 high. The fifth bits of 5-bit
    integers stand in front of the nibbles, element i's in bit i % 8 of byte i / 8. FormatError for
    what is no such block.
    """

    name: str
    bits: int
    group: int
    scale: np.dtype = attrs.field(converter=as_dtype)
    minimum: bool = False
    zero: int = 0
    signed: bool = False
    order: str = "halves"
    runs_as: str = attrs.field(default="float32", eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        for name, legal in (("bits", (4, 5, 8)), ("order", ("halves", "pairs"))):
            if getattr(self, name) not in legal:
                raise FormatError(f"format {self.name} has {name}={getattr(self, name)!r}; legal: {', '.join(map(str, legal))}.")
        if type(self.group) is not int or self.group < 8 or self.group % 8:
            raise FormatError(f"format {self.name} has group={self.group!r}; legal: a multiple of 8.")
        if type(self.zero) is not int:
            raise FormatError(f"format {self.name} has zero={self.zero!r}; legal: a whole number.")
        if self.signed and self.bits == 5:
            raise FormatError(f"format {self.name} has signed=True and bits=5; signed integers have 4 or 8 bits. Legal: zero=16.")

    @property
    def block(self) -> tuple[int, int]:
        return 1, self.group

    @property
    def planes(self) -> tuple[Plane, ...]:
        return _planes(self)

    @property
    def block_bytes(self) -> int:
        return self.scale.itemsize * (2 if self.minimum else 1) + self.group * self.bits // 8

    @property
    def by_rows(self) -> bool:
        return True


@cache
def _planes(format: BlockQuant) -> tuple[Plane, ...]:
    group = (1, format.group)
    planes = [Plane("scales", format.scale, group)]
    if format.minimum:
        planes.append(Plane("minima", format.scale, group))
    kind = "int" if format.signed else "uint"
    if format.bits == 8:
        return (*planes, Plane("values", f"{kind}8", zero=format.zero))
    if format.bits == 5:
        planes.append(Plane("values", "uint1", zero=format.zero, shift=4))
    halves = {"columns": (format.group // 2,), "order": (0, 2, 1)} if format.order == "halves" else {}
    return (*planes, Plane("values", f"{kind}4" if format.bits == 4 else "uint4", zero=format.zero, **halves))  # type: ignore[arg-type]
