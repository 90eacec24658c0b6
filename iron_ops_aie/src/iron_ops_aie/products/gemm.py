"""`GEMM`: a matrix product."""

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
    Divisors,
    DType,
    Extent,
    In,
    Level,
    Operator,
    OptionalDim,
    Out,
    Param,
    Pins,
    Placement,
    Select,
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
from iron_ops_aie.products.gemm_array import ROWS, GEMMArray
from iron_ops_aie.products.kernels_mm import multiples
from iron_ops_aie.products.picked import check_picked, magnitudes, picked


class GEMM(GEMMArray, Operator):
    """C = A @ B.

    A: (M, K), the activations. B: (K, N), or (N, K) with `b_col_maj`, the weights; block-quantised only as (N, K).
    C: (M, N), or (N, M) with `c_col_maj`. A, B and C have dtypes of their own (`T`, `W`, `O`; by default all as A).
    `activations` names the arithmetic of a block product (see `iron_ops_aie.products.activations`). Where C is floats, sums of
    integers are multiplied by `scale`, and those of a row of A by its number of `row_scale`, float32 (M,), if it is given (see
    `iron_ops_aie.products.scales`). `own_order`: sums over K may be added in another order than GEMV's, which follows K alone: faster
    where no step of one row has to give the same bits. Per call, `valid` bounds the rows M and `valid_k` the depth K. With `ids`, int32
    (M,), each row is multiplied by the matrix that its id picks of B, (num_matrices, N, K), of floats, on the CPU: ids are negative from
    the end and clipped, as `Copy` takes them. Rows are taken matrix by matrix, each read once.

    On an array (bfloat16 to bfloat16 or float32, int8 to int32 or, by one scale, to either), cores keep C in its own dtype between K
    tiles, a bfloat16 one in float32 with `prio_accuracy`. `emulate_bf16_mmul_with_bfp16`: npu2's cores make blocks of eight
    bfloat16 along K one exponent and 8 bits each, multiply those, and are faster for it. `placement`: "shims" pins where
    streams enter and leave, "tiles" every tile.

    Errors: ParamError for block weights without b_col_maj, floats that meet integers, arithmetic that does not exist for
    B's format; FormatError where K is not whole blocks; Unresolvable where an array does not take the shape.
    """

    linear_in = ("A",)
    folds = ("finish",)

    M: int = Param()
    K: int = Param()
    N: int = Param()
    b_col_maj: bool = Param(default=False, array=True)
    c_col_maj: bool = Param(default=False, array=True)
    scale: float = Param(default=1.0)
    rows_scaled: bool = Param(default=False, array=True)
    prio_accuracy: bool = Param(default=False, array=True)
    emulate_bf16_mmul_with_bfp16: bool = Param(default=False, array=True)
    num_matrices: int = Param(default=1)
    activations: str = Param(default="exact")
    experts: bool = Param(default=False)
    own_order: bool = Param(default=False)
    T: Any = DType(default=bfloat16)
    W: Any = DType(default=lambda op: op.T, blocks=True)
    O: Any = DType(default=lambda op: op.T)  # noqa: E741
    tile_m: int = Auto(domain=Divisors(of=lambda op: op.M // ROWS, step=lambda op, dev: multiples(dev.arch, op.mode)[0], cap=128))
    # Another tile_k rounds C elsewhere, unless it is kept in float32.
    tile_k: int = Auto(domain=Divisors(of=lambda op: op.K, step=lambda op, dev: multiples(dev.arch, op.mode)[1], when="prio_accuracy"))
    tile_n: int = Auto(domain=Divisors(of=lambda op: op.N, step=lambda op, dev: multiples(dev.arch, op.mode)[2]))
    num_aie_columns: int = Auto(domain=Width())
    placement: str = Auto(array=True, domain=Placement({"shims": Pins(cores=Level.FREE, memtiles=Level.FREE), "tiles": Pins()}))
    n_shim_mem_a: int = Auto(derived=True, repr=False)
    rows_per_shim: int = Auto(derived=True, repr=False)
    c_tile: int = Auto(derived=True, repr=False)
    A = In(M, K, dtype=T, tile=(rows_per_shim, tile_m, tile_k), per=n_shim_mem_a)
    B = In(
        OptionalDim(num_matrices),
        Select(b_col_maj, (N, K), (K, N)),
        dtype=W,
        tile=(tile_k, tile_n),
        per=num_aie_columns,
    )
    ids = In(M, dtype=np.int32, when=experts)
    row_scale = In(M, dtype=np.float32, when=rows_scaled)
    C = Out(Select(c_col_maj, (N, M), (M, N)), dtype=O, tile=c_tile, per=num_aie_columns, finish=(tile_m, tile_n))
    valid = Extent(M)
    valid_k = Extent(K)
    scale_bits = Value(derive=lambda op: int(np.float32(op.scale).view(np.int32)), optional=True)
    n_tiles = Value(derive=lambda op: op.M // (ROWS * op.tile_m) * op.tiles_across)
    n_tiles_valid = Value(derive=lambda op: -(-op.valid // (ROWS * op.tile_m)) * op.tiles_across)
    k_tiles = Value(derive=lambda op: op.K // op.tile_k)
    k_valid = Value(derive=lambda op: op.valid_k)

    test = Testing(
        Case(M=64, K=64, N=64, lower=True),
        Case(M=128, K=128, N=64, bounds=dict(valid=70, valid_k=37), lower=True),
        Case(M=5, K=96, N=33, b_col_maj=True, T=np.float32),
        Case(M=17, K=40, N=24, T=np.float32),
        Case(M=16, K=64, N=40, b_col_maj=True, c_col_maj=True),
        Case(M=9, K=64, N=40, c_col_maj=True, T=np.float32),
        Case(M=9, K=64, N=40, b_col_maj=True, W=bfloat16, T=np.float32),
        *(
            Case(M=m, K=k, N=n, b_col_maj=True, own_order=True, T=t, W=w)
            for m, k, n, t, w in (
                (31, 96, 70, np.float32, np.float32),
                (13, 37, 24, bfloat16, bfloat16),
                (9, 64, 40, np.float32, bfloat16),
            )
        ),
        Case(M=128, K=128, N=128, b_col_maj=True, lower=True),
        Case(M=64, K=64, N=64, c_col_maj=True, lower=True),
        Case(M=64, K=128, N=64, prio_accuracy=True, lower=True),
        Case(M=64, K=128, N=64, prio_accuracy=True, emulate_bf16_mmul_with_bfp16=True),
        Case(M=64, K=72, N=32, O=np.float32, b_col_maj=True, tile_k=24, lower=True),
        Case(M=128, K=128, N=64, T=np.int8, O=np.int32, lower=True),
        Case(M=64, K=128, N=64, T=np.int8, O=bfloat16, scale=0.002, b_col_maj=True, lower=True),
        Case(M=5, K=37, N=21, T=np.int8, O=np.float32, scale=0.01, b_col_maj=True),
        Case(M=5, K=37, N=21, T=np.int8, O=np.int32, b_col_maj=True, c_col_maj=True),
        Case(M=5, K=37, N=21, T=np.int8, O=np.float32, scale=0.01, rows_scaled=True, b_col_maj=True),
        Case(M=6, K=40, N=24, T=np.int8, O=bfloat16, rows_scaled=True, c_col_maj=True, bounds=dict(valid=4)),
        *(
            Case(M=m, K=192, N=72, b_col_maj=True, W=w, T=t, activations=a)
            for w, m in ((Q4_0, 3), (Q4_1, 13), (Q8_0, 8))
            for t in (np.dtype(np.float32), bfloat16)
            for a in arithmetic.ARITHMETIC
        ),
        *(
            Case(M=9, K=256, N=40, b_col_maj=True, W=w, T=np.float32, activations=a)
            for w in (Q5_0, Q5_1, *SUPERBLOCKS)
            for a in arithmetic.ARITHMETIC
        ),
        Case(M=9, K=40, N=24, num_matrices=3, experts=True, b_col_maj=True, T=np.float32, bounds=dict(valid=6)),
        Case(M=5, K=40, N=24, num_matrices=2, experts=True, b_col_maj=True, c_col_maj=True),
        *(
            Case(M=13, K=96, N=40, num_matrices=3, experts=True, b_col_maj=True, W=w, T=np.float32, activations=a)
            for w in (Q4_0, Q4_1, Q8_0)
            for a in arithmetic.ARITHMETIC
        ),
        Case(M=128, K=576, N=1536, b_col_maj=True, W=Q4_1, T=np.float32, activations="int8_block", bench=True),
        draw=dict(normal=("A", "B")),
    )

    def validate(self) -> None:
        if self.experts:
            check_picked(self)
            if not self.b_col_maj:
                raise ParamError("GEMM: matrices that ids= pick are rows of K. Legal: b_col_maj=True.")
        elif self.num_matrices != 1:
            raise ParamError(f"GEMM: num_matrices={self.num_matrices} and no ids= that pick one for each row. Legal: num_matrices=1.")
        scales.check(self)
        if as_format(self.W).packed:
            if not self.b_col_maj:
                raise ParamError(f"GEMM: {self.W.name} weights are rows of K; give B as (N, K) with b_col_maj=True.")
            self.W.stored((self.N, self.K))  # FormatError where these are no whole blocks

    @property
    def scaled(self) -> bool:
        """Are sums of integers made floats?"""
        return scales.is_scaled(self)

    def _right(self, B: np.ndarray) -> np.ndarray:
        """B as (K, N); under a bound on K, rows of blocks come whole and are cut here."""
        return B[:, : self.K].T if self.b_col_maj else B

    def _stacked(self, B: Any) -> Any:
        """The matrices that ids pick, along a first axis; under a bound on K cut to it."""
        return B.reshape(self.num_matrices, self.N, -1)[..., : self.K] if isinstance(B, np.ndarray) else B.reshape(-1, *B.shape[-2:])

    def reference(self, A: Any, B: Any, ids: Any = None, row_scale: Any = None) -> Any:
        if self.experts:
            product = picked(self._stacked(B), A, ids, self.activations)
        elif self.activations == "int8_block":
            product = arithmetic.block_product(B, A)
        else:
            product = widen(A) @ self._right(arithmetic.numbers(B))
        product = scales.applied(self, product, row_scale)
        return product.T if self.c_col_maj else product

    def magnitude(self, A: Any, B: Any, ids: Any = None, row_scale: Any = None) -> Any:
        if self.experts:
            sums = magnitudes(self._stacked(B), A, ids, self.activations)
        elif self.activations == "int8_block":
            sums = arithmetic.block_magnitude(B, A)
        else:
            sums = np.abs(widen(A)) @ self._right(arithmetic.absolute(B))
        sums = scales.applied(self, sums, None if row_scale is None else np.abs(row_scale))
        return sums.T if self.c_col_maj else sums

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.K)

    def ops(self) -> int:
        return 2 * self.M * self.K * self.N
