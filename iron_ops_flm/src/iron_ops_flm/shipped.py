"""`Shipped`: FastFlowLM's own matrix product, as downloaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import In, Operator, Out, Param, Tolerance, Xclbin, bfloat16, round_to, widen
from iron_core.declare.formats.numbers import real_numbers
from iron_core.errors import ParamError
from iron_ops_flm.packing import SHIPPED, Packing

#: Rows of A in a pass of its four rows of cores.
ROWS = 4 * 64


class Shipped(Operator):
    """C = A @ B by a binary that FastFlowLM built and you downloaded: what `flm.GEMM` is compared with.

    image: `iron.Xclbin(path)`. A: (M, K), B: `pack_B()` of (K, N), C: (M, N), bfloat16. Without shapes it is of the smallest.

    It runs by itself, as `OperatorImage(flm.Shipped(image=...))`, on an NPU whose backend loads binaries: no graph takes it, for
    nothing here can build its array together with others, and no CPU or simulator, which would run something else. That the
    overlay reads B in this order is its authors' word, checked on no device here.

    Errors: ParamError where image is no Xclbin or the shape not whole tiles.
    """

    image: Any = Param()
    M: int = Param(default=ROWS)
    K: int = Param(default=512)
    N: int = Param(default=64)
    A = In(M, K)
    B = In(K, N)
    C = Out(M, N)

    @property
    def binary(self) -> Any:
        return self.image

    def validate(self) -> None:
        if not isinstance(self.image, Xclbin):
            raise ParamError(f"Shipped: image={self.image!r}; legal: iron.Xclbin(path).")
        if self.M % ROWS:
            raise ParamError(f"Shipped: M={self.M}; legal: a multiple of {ROWS}.")
        Packing(SHIPPED).cut(self.K, self.N)

    def pack_B(self, B: Any) -> np.ndarray:
        """B, (K, N) numbers, in bfloat16 and the order in which the overlay reads it. ParamError for another shape; FormatError for
        what are no numbers."""
        B = real_numbers(B, "Shipped: pack_B()")
        if B.shape != (self.K, self.N):
            raise ParamError(f"Shipped: pack_B() of shape {B.shape}; legal: (K, N), here {(self.K, self.N)}.")
        return Packing(SHIPPED).pack(round_to(B, bfloat16)).reshape(self.K, self.N)

    def reference(self, A: Any, B: Any) -> Any:
        return widen(A).astype(np.float64) @ self._unpacked(B).astype(np.float64)

    def magnitude(self, A: Any, B: Any) -> Any:
        return np.abs(widen(A).astype(np.float64)) @ np.abs(self._unpacked(B).astype(np.float64))

    def _unpacked(self, B: Any) -> np.ndarray:
        return Packing(SHIPPED).unpack(widen(B), self.K, self.N)

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.K)

    def ops(self) -> int:
        return 2 * self.M * self.K * self.N
