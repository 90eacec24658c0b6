"""What a type checker sees of `iron_acme`. Made by `python -m iron_core.declare.stub iron_acme`; do not edit."""

from typing import Any, TypeAlias, overload

import numpy as np
from iron_core.bases.unary import UnaryElementwise
from iron_core.declare.affine import Affine
from iron_core.declare.formats import PackedArray
from iron_core.declare.operand import BoundOperand
from iron_core.graph.handle import Handle
from iron_core.graph.weight import State
from iron_core.graph.weight import Weight

_Tensor: TypeAlias = Handle | Weight | State | np.ndarray[Any, Any] | PackedArray
_PerCall: TypeAlias = int | np.integer[Any] | Affine  # a per-call value of the body is an Affine, as an expression of such is

__all__ = ["SquaredReLU"]

class SquaredReLU(UnaryElementwise):
    """y = max(x, 0)^2, elementwise. x, y: tensors of one shape and dtype; a NaN stays one."""
    def reference(self, x: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        size: int,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> SquaredReLU: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        size: int = ...,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...
