"""`Elementwise`: what `UnaryElementwise` and `BinaryElementwise` share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from iron_core.bases.elementwise_array import TILE_CAP, ElementwiseArray
from iron_core.declare.domain import Divisors, Width
from iron_core.declare.field import Auto, DType, Param
from iron_core.declare.formats import bfloat16
from iron_core.declare.operator import Operator
from iron_core.declare.value import Extent, Value


class Elementwise(ElementwiseArray, Operator):
    """Operands of `size` elements; element i of the output is computed from element i of the inputs. A subclass declares them."""

    elementwise: ClassVar[bool] = True
    folds: ClassVar[tuple[str, ...]] = ("finish",)

    size: int = Param()
    T: Any = DType(default=bfloat16)
    tile_size: int = Auto(domain=Divisors(of=lambda op: op.size, step=64, cap=TILE_CAP, span=3))
    num_aie_columns: int = Auto(domain=Width())
    num_channels: int = Auto(default=1)
    valid = Extent(size)
    count = Value(derive=lambda op: -(-op.valid // (op.num_aie_columns * op.num_channels * op.tile_size)))

    @abstractmethod
    def reference(self, *inputs: Any, **scratchpads: Any) -> Any:
        """As `Operator.reference`: a subclass gives it."""

    def ops(self) -> int:
        return self.size


def stream(dtype: Any = Elementwise.T) -> dict[str, Any]:
    """Keywords of an elementwise operand: its dtype, and a lane per core that carries one line at a time."""
    cls = Elementwise
    return dict(dtype=dtype, tile=cls.tile_size, per=(cls.num_aie_columns, cls.num_channels))
