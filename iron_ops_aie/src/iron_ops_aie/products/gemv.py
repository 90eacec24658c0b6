"""`GEMV`: a matrix times a vector, or a batch of them."""

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
    Choices,
    Divisors,
    DType,
    Extent,
    In,
    Operator,
    OptionalDim,
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
from iron_ops_aie.products import activations as arithmetic
from iron_ops_aie.products import scales
from iron_ops_aie.products.gemv_array import GEMVArray, vectors
from iron_ops_aie.products.picked import check_picked, magnitudes, picked


class GEMV(GEMVArray, Operator):
    """C[b] = A[b // repeat] @ B[b].

    A: ([num_matrices,] M, K), dense or block-quantised; B: ([num_batches,] K); C: ([num_batches,] M). A single batch or
    matrix has no such dimension. `repeat` batches share a matrix (a group's keys serve several query heads). A, B and C
    have dtypes of their own (`W`, `T`, `O`; by default all as B). `activations` names the arithmetic of a block product
    (see `iron_ops_aie.products.activations`). Where C is floats, sums of integers are multiplied by `scale`, and those of a batch by
    its number of `row_scale`, float32 (num_batches,), if it is given (see `iron_ops_aie.products.scales`). `valid` bounds M per
    call. With `ids`, int32 (num_batches,), C[b] = A[ids[b]] @ B[b], of floats, on the CPU: negative from the end and clipped, as `Copy`
    takes ids.

    The array (bfloat16 to bfloat16 or float32, int8 to int32 or, by one scale, to either): the rows of A are split over
    num_aie_columns x num_channels lanes, one core and one stream each. B has no stream of its own: per batch a tile that holds it
    goes ahead of the rows. `tile_size_input` rows of A and `tile_size_output` numbers of C are a tile; `kernel_vector_size` numbers
    are multiplied at once. Cores apply the steps of `prepare` to B and those of `finish` to every tile of C; what they read besides
    rides A's lanes too.

    Errors: ParamError where num_matrices * repeat is not num_batches, floats meet integers, or the arithmetic does not
    exist for A's format; FormatError where K is not whole blocks. Unresolvable where no array takes it.
    """

    linear_in = ("B",)
    folds = ("finish", "prepare")

    M: int = Param()
    K: int = Param()
    num_batches: int = Param(default=1)
    repeat: int = Param(default=1)
    num_matrices: int = Param(default=lambda op: op.num_batches // max(1, op.repeat) if not op.experts else 1)
    scale: float = Param(default=1.0)
    rows_scaled: bool = Param(default=False, array=True)
    activations: str = Param(default="exact")
    experts: bool = Param(default=False)
    T: Any = DType(default=bfloat16)
    W: Any = DType(default=lambda op: op.T, blocks=True)
    O: Any = DType(default=lambda op: op.T)  # noqa: E741
    tile_size_input: int = Auto(domain=Divisors(of=lambda op: op.tile_size_output, cap=lambda op, dev: dev.core.memory // (4 * op.K)))
    tile_size_output: int = Auto(domain=Divisors(of=lambda op: op.M // op.lanes, step=lambda op: op.tile_size_input, span=3))
    kernel_vector_size: int = Auto(array=True, domain=Choices(lambda op: vectors(op.K)))
    num_aie_columns: int = Auto(domain=Width())
    num_channels: int = Auto(domain=Choices((1, 2)))
    A = In(
        OptionalDim(num_matrices),
        M,
        K,
        dtype=W,
        tile=(tile_size_input, K),
        per=(num_aie_columns, num_channels),
        feed=True,
    )
    B = In(OptionalDim(num_batches), K, dtype=T, prepare=True)
    ids = In(num_batches, dtype=np.int32, when=experts)
    row_scale = In(num_batches, dtype=np.float32, when=rows_scaled)
    C = Out(OptionalDim(num_batches), M, dtype=O, tile=tile_size_output, per=(num_aie_columns, num_channels), finish=True)
    valid = Extent(M)
    batches = Value(derive=lambda op: op.num_batches)
    scale_bits = Value(derive=lambda op: int(np.float32(op.scale).view(np.int32)), optional=True)
    #: Tiles of C that a lane makes per batch.
    tiles = Value(derive=lambda op: -(-op.valid // (op.lanes * op.tile_size_output)))

    test = Testing(
        Case(M=64, K=64, lower=True),
        Case(M=256, K=64, bounds=dict(valid=77), lower=True),
        Case(M=64, K=96, num_batches=4, repeat=2, lower=True),
        Case(M=64, K=48, num_batches=2, num_channels=2, num_aie_columns=2, lower=True),
        Case(M=576, K=576, lower=True),
        Case(M=96, K=160, O=np.float32, lower=True),
        Case(M=1, K=64, O=np.float32, lower=True),
        Case(M=96, K=160, T=np.int8, O=np.int32, lower=True),
        Case(M=256, K=64, T=np.int8, O=bfloat16, scale=0.002, bounds=dict(valid=77), lower=True),
        Case(M=64, K=96, T=np.int8, O=np.float32, scale=0.01, num_batches=4, repeat=2, lower=True),
        Case(M=37, K=53, T=np.int8, O=np.float32, scale=0.01, rows_scaled=True),
        Case(M=48, K=64, T=np.int8, O=bfloat16, num_batches=3, rows_scaled=True),
        Case(M=100, K=576, T=np.float32),
        Case(M=33, K=96, W=np.float32, T=np.float32, num_batches=4, repeat=2),
        Case(M=96, K=128, num_batches=3, lower=True),
        Case(M=48, K=160, W=bfloat16, T=np.float32),
        Case(M=48, K=160, W=np.float16, T=np.float32),
        *(
            Case(M=72, K=192, W=w, T=t, activations=a)
            for w in (Q4_0, Q4_1, Q8_0)
            for t in (np.dtype(np.float32), bfloat16)
            for a in arithmetic.ARITHMETIC
        ),
        *(Case(M=40, K=512, W=w, T=np.float32, activations=a) for w in (Q5_0, Q5_1, *SUPERBLOCKS) for a in arithmetic.ARITHMETIC),
        Case(M=24, K=40, num_batches=5, num_matrices=3, experts=True, T=np.float32),
        Case(M=24, K=96, num_matrices=7, experts=True, bounds=dict(valid=9)),
        *(
            Case(M=40, K=96, num_batches=4, num_matrices=3, experts=True, W=w, T=np.float32, activations=a)
            for w in (Q4_0, Q4_1, Q8_0)
            for a in arithmetic.ARITHMETIC
        ),
        Case(M=1536, K=576, W=Q4_1, T=np.float32, activations="int8_block", bench=True),
        Case(M=2048, K=2048, bench=True, lower=True),
        draw=dict(normal=("A", "B")),
    )

    def validate(self) -> None:
        if self.experts:
            check_picked(self)
        if self.repeat < 1:
            raise ParamError(f"GEMV: repeat={self.repeat}; legal: 1 or more.")
        if self.experts and self.repeat > 1:
            raise ParamError(f"GEMV: repeat={self.repeat} with ids=, which say which batches share a matrix. Legal: repeat=1.")
        if not self.experts and self.num_matrices * self.repeat != self.num_batches:
            whole, rest = divmod(self.num_batches, self.num_matrices)
            legal = f" Legal: repeat={whole}." if not rest else ""
            raise ParamError(
                f"GEMV: num_matrices={self.num_matrices} times repeat={self.repeat} is not num_batches={self.num_batches}.{legal}"
            )
        scales.check(self)
        as_format(self.W).stored((self.M, self.K))  # FormatError where these are no whole blocks

    @property
    def scaled(self) -> bool:
        """Are sums of integers made floats?"""
        return scales.is_scaled(self)

    def _stacked(self, A: Any, B: Any) -> tuple[Any, Any]:
        """A's matrices, and B's rows, along a first axis."""
        return A.reshape(self.num_matrices, self.M, self.K), B.reshape(self.num_batches, self.K)

    def _pairs(self, A: Any, B: Any) -> Any:
        matrices, rows = self._stacked(A, B)
        return ((matrices[b // self.repeat], rows[b : b + 1]) for b in range(self.num_batches))

    def reference(self, A: Any, B: Any, ids: Any = None, row_scale: Any = None) -> Any:
        if self.experts:
            return picked(*self._stacked(A, B), ids, self.activations).reshape(self.shape("C"))
        if self.activations == "int8_block":
            product = [arithmetic.block_product(m, x)[0] for m, x in self._pairs(A, B)]
        else:
            product = [arithmetic.numbers(m) @ widen(x)[0] for m, x in self._pairs(A, B)]
        return scales.applied(self, np.stack(product), row_scale).reshape(self.shape("C"))

    def magnitude(self, A: Any, B: Any, ids: Any = None, row_scale: Any = None) -> Any:
        if self.experts:
            return magnitudes(*self._stacked(A, B), ids, self.activations).reshape(self.shape("C"))
        if self.activations == "int8_block":
            sums = [arithmetic.block_magnitude(m, x)[0] for m, x in self._pairs(A, B)]
        else:
            sums = [arithmetic.absolute(m) @ np.abs(widen(x)[0]) for m, x in self._pairs(A, B)]
        row_scale = None if row_scale is None else np.abs(row_scale)
        return scales.applied(self, np.stack(sums), row_scale).reshape(self.shape("C"))

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.K)

    def ops(self) -> int:
        return 2 * self.num_batches * self.M * self.K
