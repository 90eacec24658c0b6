"""`GatedExperts`: the gated projections of the experts that each row goes to."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Auto,
    Case,
    DType,
    Extent,
    In,
    Operator,
    Out,
    Param,
    Testing,
    Tolerance,
    Value,
    Width,
    bfloat16,
)
from iron_core.declare.formats import SUPERBLOCKS, as_format
from iron_ops_aie.experts.experts_array import GatedExpertsArray
from iron_ops_aie.logistic import silu
from iron_ops_aie.products import activations as arithmetic
from iron_ops_aie.products.picked import magnitudes, picked
from iron_ops_aie.rules import floats_only


class GatedExperts(GatedExpertsArray, Operator):
    """y[r, s] = silu(gate[e] @ x[r]) * (up[e] @ x[r]), where e = ids[r, s].

    x: (rows, hidden). gate, up: (experts, inner, hidden), dense or block-quantised. ids: int32 (rows, k), negative from the end and
    clipped, as `Copy` takes them. y: (rows, k, inner). x, the matrices and y have dtypes of their own (`T`, `W`, `O`; by default all as
    x). `activations` names the arithmetic of block products (see `iron_ops_aie.products.activations`). `valid` bounds the rows.

    On the CPU rows are taken expert by expert, so each matrix is read once however many rows go to it; a row's result does not
    depend on the others.

    The array (bfloat16): the matrices of all experts go by, E / k times what is needed; cores share out
    their rows, and multiply by those chosen.

    Errors: ParamError for integers, or arithmetic that does not exist for W; FormatError where hidden is not whole blocks.
    Unresolvable where no array takes it.
    """

    rows: int = Param()
    experts: int = Param(array=True)
    hidden: int = Param(array=True)
    inner: int = Param()
    k: int = Param(array=True)
    activations: str = Param(default="exact")
    T: Any = DType(default=bfloat16)
    W: Any = DType(default=lambda op: op.T, blocks=True)
    O: Any = DType(default=lambda op: op.T)  # noqa: E741
    num_aie_columns: int = Auto(domain=Width())
    #: Of a core: rows of every matrix, and rows of a block of x.
    width: int = Auto(1, array=True, derived=True)
    block: int = Auto(1, array=True, derived=True)
    x = In(rows, hidden, dtype=T, tile=hidden, per=num_aie_columns)
    gate = In(experts, inner, hidden, dtype=W)
    up = In(experts, inner, hidden, dtype=W)
    ids = In(rows, k, dtype=np.int32, tile=(block, k), per=num_aie_columns)
    y = Out(rows, k, inner, dtype=O, tile=(block, k, width), per=num_aie_columns)
    valid = Extent(rows)
    blocks = Value(derive=lambda op: op.rows // op.block)
    count = Value(derive=lambda op: op.valid)

    test = Testing(
        Case(rows=1, experts=8, hidden=96, inner=40, k=2, lower=True),
        Case(rows=9, experts=4, hidden=64, inner=48, k=3, bounds=dict(valid=5), lower=True),
        Case(rows=32, experts=2, hidden=128, inner=32, k=1, num_aie_columns=2, lower=True),
        Case(rows=9, experts=4, hidden=64, inner=33, k=3, T=np.float32, bounds=dict(valid=5)),
        Case(rows=5, experts=3, hidden=37, inner=24, k=3, T=np.float32, W=bfloat16),
        *(
            Case(rows=rows, experts=4, hidden=96, inner=40, k=2, W=w, T=np.float32, activations=a)
            for w, rows in ((Q4_0, 1), (Q4_1, 3), (Q8_0, 21))
            for a in arithmetic.ARITHMETIC
        ),
        *(
            Case(rows=5, experts=4, hidden=256, inner=40, k=2, W=w, T=np.float32, activations="int8_block")
            for w in (Q5_0, Q5_1, *SUPERBLOCKS)
        ),
        draw=lambda op: dict(normal=("x", "gate", "up"), ids=lambda op, rng: rng.integers(-1, op.experts + 1, (op.rows, op.k))),
    )

    def validate(self) -> None:
        floats_only(self, "T", "W", "O")
        arithmetic.check(type(self).__name__, self.activations, self.T, self.W, self.O)
        as_format(self.W).stored((self.inner, self.hidden))  # FormatError where these are no whole blocks

    def _flat(self, x: Any, ids: Any) -> tuple[Any, Any]:
        """A row of x and an id for each product."""
        return np.repeat(np.asarray(x), self.k, 0), np.asarray(ids).reshape(-1)

    def reference(self, x: Any, gate: Any, up: Any, ids: Any) -> Any:
        given = self._flat(x, ids)
        g, u = (picked(matrices, *given, self.activations) for matrices in (gate, up))
        return (silu(g) * u).reshape(len(x), self.k, self.inner)

    def magnitude(self, x: Any, gate: Any, up: Any, ids: Any) -> Any:
        """What rounding either product moves, with the gate's slope, which is at most 1.1."""
        given = self._flat(x, ids)
        g, u = (picked(matrices, *given, self.activations) for matrices in (gate, up))
        about_g, about_u = (magnitudes(matrices, *given, self.activations) for matrices in (gate, up))
        return (1.1 * about_g * np.abs(u) + np.abs(silu(g)) * about_u).reshape(len(x), self.k, self.inner)

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.hidden)

    def ops(self) -> int:
        return 4 * self.rows * self.k * self.inner * self.hidden
