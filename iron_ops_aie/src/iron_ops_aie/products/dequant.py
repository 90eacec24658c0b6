"""`Dequant`: the numbers of a block-quantised tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Q4_0, Q4_1, Q8_0, Case, DType, Extent, In, Operator, Out, Param, Testing, Tolerance, bfloat16
from iron_core.declare.formats import as_format
from iron_core.errors import ParamError
from iron_ops_aie.products.activations import absolute, numbers
from iron_ops_aie.rules import floats_only


class Dequant(Operator):
    """y = scale * (q - zero) + minimum, of rows of blocks.

    x: (rows, cols) in a packed format `F`. y: (rows, cols) of float dtype `T`. `valid` bounds the rows.

    Errors: ParamError where x is not block-quantised or y not float; FormatError where they are not whole blocks.
    """

    rows: int = Param()
    cols: int = Param()
    F: Any = DType(default=Q4_0, blocks=True)
    T: Any = DType(default=bfloat16)
    x = In(rows, cols, dtype=F)
    y = Out(rows, cols, dtype=T)
    valid = Extent(rows)

    test = Testing(
        *(Case(rows=5, cols=96, F=f, T=t) for f in (Q4_0, Q4_1, Q8_0) for t in (np.dtype(np.float32), bfloat16)),
        Case(rows=1024, cols=576, F=Q8_0, T=np.float32, bench=True),
    )

    def validate(self) -> None:
        if not as_format(self.F).packed:
            raise ParamError(f"Dequant: x is {self.F}, which is numbers already; Copy converts dtypes.")
        floats_only(self, "T")
        self.F.stored((self.rows, self.cols))  # FormatError where these are no whole blocks

    def reference(self, x: Any) -> Any:
        return numbers(x)

    def magnitude(self, x: Any) -> Any:
        return absolute(x)

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=1)

    def ops(self) -> int:
        return 2 * self.rows * self.cols
