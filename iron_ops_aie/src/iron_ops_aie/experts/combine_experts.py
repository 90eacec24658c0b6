"""`CombineExperts`: what each row's experts make, weighted and added up."""

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
    widen,
)
from iron_core.declare.formats import SUPERBLOCKS, as_format
from iron_core.errors import ParamError
from iron_ops_aie.experts.experts_array import CombineExpertsArray
from iron_ops_aie.logistic import logistic
from iron_ops_aie.products import activations as arithmetic
from iron_ops_aie.products.picked import magnitudes, picked
from iron_ops_aie.rules import floats_only


class CombineExperts(CombineExpertsArray, Operator):
    """y[r] = weights[r, 0] * (down[e0] @ x[r, 0]) + weights[r, 1] * (down[e1] @ x[r, 1]) + ..., where es = ids[r, s].

    x: (rows, k, inner), as `GatedExperts` gives it. down: (experts, hidden, inner), dense or block-quantised. ids: int32 (rows, k),
    negative from the end and clipped, as `Copy` takes them. weights: float32 (rows, k). y: (rows, hidden). x, the matrices and y have
    dtypes of their own (`T`, `W`, `O`; by default all as x). In float32 the terms are added in the order of their columns, and rounded
    once to y's dtype. `shared` (rows, hidden), what an expert makes that every row goes to, is added last: as it is, or times the
    logistic function of `shared_gate`, float32 (rows, 1). `activations` names the arithmetic of block products. `valid` bounds the rows.

    On the CPU rows are taken expert by expert, so each matrix is read once however many rows go to it; a row's result does not
    depend on the others.

    The array (bfloat16): the matrices of all experts go by, E / k times what is needed; cores share out
    their rows, and multiply by those chosen.

    Errors: ParamError for integers, arithmetic that does not exist for W, or a gate of nothing shared; FormatError where inner is not
    whole blocks. Unresolvable where no array takes it.
    """

    rows: int = Param()
    experts: int = Param(array=True)
    hidden: int = Param()
    inner: int = Param(array=True)
    k: int = Param(array=True)
    activations: str = Param(default="exact")
    shares: bool = Param(default=False, array=True)
    gates: bool = Param(default=False, array=True)
    T: Any = DType(default=bfloat16)
    W: Any = DType(default=lambda op: op.T, blocks=True)
    O: Any = DType(default=lambda op: op.T)  # noqa: E741
    num_aie_columns: int = Auto(domain=Width())
    #: Of a core: rows of every matrix, and rows of a block of x.
    width: int = Auto(1, array=True, derived=True)
    block: int = Auto(1, array=True, derived=True)
    x = In(rows, k, inner, dtype=T, tile=inner, per=num_aie_columns)
    down = In(experts, hidden, inner, dtype=W)
    ids = In(rows, k, dtype=np.int32, tile=(block, k), per=num_aie_columns)
    weights = In(rows, k, dtype=np.float32)
    shared = In(rows, hidden, dtype=T, when=shares)
    shared_gate = In(rows, 1, dtype=np.float32, when=gates)
    y = Out(rows, hidden, dtype=O, tile=(block, width), per=num_aie_columns)
    valid = Extent(rows)
    blocks = Value(derive=lambda op: op.rows // op.block)
    count = Value(derive=lambda op: op.valid)

    test = Testing(
        Case(rows=1, experts=8, hidden=96, inner=40, k=2, lower=True),
        Case(rows=9, experts=4, hidden=64, inner=48, k=3, bounds=dict(valid=5), lower=True),
        Case(rows=32, experts=2, hidden=32, inner=128, k=1, num_aie_columns=2, lower=True),
        Case(rows=6, experts=3, hidden=48, inner=36, k=3, shares=True, lower=True),
        Case(rows=9, experts=4, hidden=64, inner=16, k=2, num_aie_columns=2, shares=True, gates=True, bounds=dict(valid=5), lower=True),
        Case(rows=9, experts=4, hidden=33, inner=64, k=3, T=np.float32, bounds=dict(valid=5)),
        Case(rows=5, experts=3, hidden=24, inner=37, k=3, T=np.float32, W=bfloat16, shares=True),
        *(
            Case(rows=rows, experts=4, hidden=40, inner=96, k=2, W=w, T=np.float32, activations=a, shares=True, gates=True)
            for w, rows in ((Q4_0, 1), (Q4_1, 3), (Q8_0, 21))
            for a in arithmetic.ARITHMETIC
        ),
        *(
            Case(rows=5, experts=4, hidden=40, inner=256, k=2, W=w, T=np.float32, activations="int8_block")
            for w in (Q5_0, Q5_1, *SUPERBLOCKS)
        ),
        draw=lambda op: dict(
            normal=("x", "down", "weights", "shared", "shared_gate"),
            ids=lambda op, rng: rng.integers(-1, op.experts + 1, (op.rows, op.k)),
        ),
    )

    def validate(self) -> None:
        floats_only(self, "T", "W", "O")
        if self.gates and not self.shares:
            raise ParamError("CombineExperts: shared_gate= is given, and no shared= that it opens. Legal: both, or neither.")
        arithmetic.check(type(self).__name__, self.activations, self.T, self.W, self.O)
        as_format(self.W).stored((self.hidden, self.inner))  # FormatError where these are no whole blocks

    def _flat(self, x: Any, ids: Any) -> tuple[Any, Any]:
        """A row of x and an id for each product."""
        return np.asarray(x).reshape(-1, self.inner), np.asarray(ids).reshape(-1)

    def _added(self, products: Any, weights: Any, shared: Any, shared_gate: Any) -> Any:
        total = (products.reshape(len(weights), self.k, self.hidden) * weights[..., None]).sum(1)
        if shared is None:
            return total
        return total + (shared if shared_gate is None else logistic(shared_gate) * shared)

    def reference(self, x: Any, down: Any, ids: Any, weights: Any, shared: Any = None, shared_gate: Any = None) -> Any:
        products = picked(down, *self._flat(x, ids), self.activations)
        return self._added(products, widen(weights), *(None if a is None else widen(a) for a in (shared, shared_gate)))

    def magnitude(self, x: Any, down: Any, ids: Any, weights: Any, shared: Any = None, shared_gate: Any = None) -> Any:
        sums = magnitudes(down, *self._flat(x, ids), self.activations)
        shared = None if shared is None else np.abs(widen(shared))
        gate = None if shared_gate is None else widen(shared_gate)
        return self._added(sums, np.abs(widen(weights)), shared, gate)

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.inner + self.k)

    def ops(self) -> int:
        return 2 * self.rows * self.k * self.inner * self.hidden
