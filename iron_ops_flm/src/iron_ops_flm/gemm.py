"""`GEMM`: a matrix product with an activation and a clamp behind it; one array for every shape."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from iron_core import (
    Auto,
    Case,
    Divisors,
    DType,
    Extent,
    In,
    Operator,
    Out,
    Param,
    Select,
    Testing,
    Tolerance,
    Value,
    bfloat16,
    round_to,
    widen,
)
from iron_core.declare.formats.bfp16 import ROUNDINGS
from iron_core.declare.formats.numbers import real_numbers
from iron_core.errors import ParamError
from iron_ops_flm.epilogue import GELUS, Epilogue, Finish
from iron_ops_flm.gemm_array import HIGH, ROWS, GEMMArray
from iron_ops_flm.packed import Packed
from iron_ops_flm.packing import BF16, BFP16, Packing


def _packing(op: Any) -> Packing:
    """The packing of the B that is given, or the usual one."""
    return getattr(op.W, "packing", Packing()) if "W" in op._given else Packing()


#: What a bound of the clamp may be.
_NUMBERS = (int, float, np.generic)
#: What becomes an epilogue, by package and class.
_ACTIVATIONS = {"iron_ops_aie.SiLU": Epilogue.SILU, "iron_ops_aie.Sigmoid": Epilogue.SIGMOID}


def _named(op: Any) -> str:
    """Package and class of an operator, as another pack's are named."""
    cls = type(op.base)
    return f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}"


def _bits(bound: float) -> int:
    """A bound as cores are given it."""
    return int(round_to(np.float64(bound), bfloat16).view(np.uint16))


class GEMM(GEMMArray, Operator):
    """C = clamp(act(A @ B)), in bfloat16.

    A: (M, K). B: (K, N) as `pack_B()` packs it, a tensor of a format of its own; or with `b_col_maj` (N, K) as stored, bfloat16.
    C: (M, N). `packed_blocks`: B is packed as bfp16ebs8, nine bytes for eight numbers, else as bfloat16; `k_tile`, `tile_n`: the
    tiles in whose order it lies. Per call, `valid` bounds the rows M.

    `epilogue` (`iron_ops_flm.epilogue.Epilogue`): products are added up in float32 and rounded to bfloat16 *before* the
    activation, whose result is rounded again; `gelu`, x * sigmoid(1.702 x), takes float32 sums unless it is "bf16_steps". `rounding`:
    "conv_even", or "floor", down. `clamp`: (min, max), each rounded to bfloat16, behind the activation.

    Errors: ParamError for another epilogue, rounding, gelu or clamp, for tiles that no kernel has, for a B in another format;
    FormatError where a packed B is not whole tiles.
    """

    M: int = Param()
    K: int = Param()
    N: int = Param()
    epilogue: Any = Param(default=Epilogue.NONE)
    clamp: Any = Param(default=None, probe=None)
    rounding: str = Param(default="conv_even", array=True)
    gelu: str = Param(default="fp32", array=True)
    b_col_maj: bool = Param(default=False, array=True)
    packed_blocks: bool = Param(default=lambda op: _packing(op).order == BFP16, array=True)
    k_tile: int = Param(default=lambda op: _packing(op).k_tile, array=True)
    tile_n: int = Param(default=lambda op: _packing(op).tile_n, array=True)
    W: Any = DType(default=lambda op: op.order, blocks=True)
    tile_ma: int = Auto(domain=Divisors(of=lambda op: HIGH, step=lambda op, dev: 16), array=True)
    emulate_bf16_mmul_with_bfp16: bool = Auto(array=True)
    num_aie_columns: int = Auto()
    n_shim_mem_a: int = Auto(derived=True, repr=False)
    rows_per_shim: int = Auto(derived=True, repr=False, array=True)
    a_tile: int = Auto(derived=True, repr=False)
    b_tile: int = Auto(derived=True, repr=False)
    c_tile: int = Auto(derived=True, repr=False)
    A = In(M, K, tile=a_tile, per=n_shim_mem_a)
    B = In(Select(b_col_maj, (N, K), (K, N)), dtype=W, tile=b_tile, per=num_aie_columns)
    C = Out(M, N, tile=c_tile, per=num_aie_columns)
    valid = Extent(M)
    #: What cores read: tiles of C across, row blocks, steps of K, the activation, and the bits of the clamp's bounds.
    n_val = Value(derive=lambda op: op.N // op.tile_n)
    m_row_blocks = Value(derive=lambda op: op.M // (ROWS * HIGH))
    k_iters = Value(derive=lambda op: op.K // op.k_tile)
    mode = Value(derive=lambda op: int(op.epilogue))
    clamp_min = Value(derive=lambda op: _bits(op.finish_of_sums.low))
    clamp_max = Value(derive=lambda op: _bits(op.finish_of_sums.high))

    test = Testing(
        Case(M=256, K=512, N=64, lower=True),
        Case(M=256, K=512, N=64, epilogue=Epilogue.SILU, b_col_maj=True, lower=True),
        Case(M=256, K=512, N=128, epilogue=Epilogue.GELU, clamp=(-0.125, 2.0), b_col_maj=True, bounds=dict(valid=70), lower=True),
        Case(M=512, K=256, N=96, epilogue=Epilogue.SIGMOID, k_tile=64, tile_n=32, lower=True),
        Case(M=256, K=512, N=64, epilogue=Epilogue.SILU, packed_blocks=True),
        Case(M=256, K=512, N=64, rounding="floor", packed_blocks=True),
        Case(M=256, K=128, N=64, epilogue=Epilogue.GELU, gelu="bf16_steps", rounding="floor", k_tile=128, b_col_maj=True, lower=True),
        Case(M=5, K=37, N=21, epilogue=Epilogue.SILU, clamp=(-1.0, 3.0), b_col_maj=True),
        Case(M=256, K=1024, N=2048, epilogue=Epilogue.SILU, b_col_maj=True, bench=True),
        draw=dict(normal=("A", "B")),
    )

    def validate(self) -> None:
        if not isinstance(self.epilogue, Epilogue):
            raise ParamError(f"GEMM: epilogue={self.epilogue!r}; legal: {', '.join(map(str, Epilogue))}.")
        for field, legal in (("rounding", ROUNDINGS), ("gelu", GELUS)):
            if getattr(self, field) not in legal:
                raise ParamError(f"GEMM: {field}={getattr(self, field)!r}; legal: {', '.join(map(repr, legal))}.")
        low, high = self._bounds()
        if not low <= high:
            raise ParamError(f"GEMM: clamp={self.clamp!r}; legal: None, or (min, max) with min at most max.")
        if self.packed_blocks and self.b_col_maj:
            raise ParamError("GEMM: packed_blocks=True with b_col_maj=True, whose B is bfloat16 as it is stored; legal: one of them.")
        if self.W != self.order:
            raise ParamError(f"GEMM: W={self.W} with {self._lies}; legal: W={self.order}, as pack_B() makes it.")
        if not self.b_col_maj:
            self.W.stored((self.K, self.N))  # FormatError where these are no whole tiles

    def _bounds(self) -> tuple[float, float]:
        """The clamp's bounds as numbers, NaN where it gives none."""
        if self.clamp is None:
            return -np.inf, np.inf
        if not isinstance(self.clamp, tuple) or len(self.clamp) != 2 or not all(isinstance(bound, _NUMBERS) for bound in self.clamp):
            return np.nan, np.nan
        with suppress(OverflowError):  # an int that no float is as large as
            low, high = (float(round_to(np.float64(bound), bfloat16)) for bound in self.clamp)
            return low, high
        return np.nan, np.nan

    @property
    def _lies(self) -> str:
        """How the fields say that B lies, in words."""
        if self.b_col_maj:
            return "b_col_maj=True"
        return f"packed_blocks={self.packed_blocks}, k_tile={self.k_tile}, tile_n={self.tile_n}"

    @property
    def packing(self) -> Packing:
        """The order in which a core takes B."""
        return Packing(BFP16 if self.packed_blocks else BF16, self.tile_n, self.k_tile)

    @property
    def order(self) -> Any:
        """The format of B."""
        return bfloat16 if self.b_col_maj else Packed(self.packing)

    @property
    def finish_of_sums(self) -> Finish:
        """What is made of a sum."""
        return Finish(Epilogue(self.epilogue), self.rounding, self.gelu, *self._bounds())

    def pack_B(self, B: Any, by: Callable[[np.ndarray], Any] | None = None) -> Any:
        """B, (K, N) numbers, as this operator takes it.

        by: another program's packing, a function of a bfloat16 matrix, which packs instead of this one. It is tried on a known
        matrix first: ParamError, with the name of its order, where the digest of what it makes is another's. ParamError for
        another shape, and for `by` where B is taken as stored; FormatError for what are no numbers.
        """
        B = real_numbers(B, "GEMM: pack_B()")
        if B.shape != (self.K, self.N):
            raise ParamError(f"GEMM: pack_B() of shape {B.shape}; legal: (K, N), here {(self.K, self.N)}.")
        if by is not None and self.b_col_maj:
            raise ParamError("GEMM: pack_B() with by= and b_col_maj=True, whose B is taken as it is stored; legal: one of them.")
        if self.b_col_maj:
            return np.ascontiguousarray(round_to(B, bfloat16).T)
        if by is None:
            return self.order.quantize(B)
        self.order.check(by)
        return self.order.tensor(np.ascontiguousarray(by(round_to(B, bfloat16))).reshape(-1).view(np.uint8), B.shape)

    def absorbed(self, consumer: Any) -> Any:
        """SiLU and Sigmoid become the epilogue, a Clamp the clamp: with a word for it, the array is the same. A GELU never does: its
        formula is another."""
        epilogue = _ACTIVATIONS.get(_named(consumer))
        if self.clamp is not None or (epilogue and (self.epilogue != Epilogue.NONE or self.rounding != "conv_even")):
            return None
        if epilogue:
            return self.evolve(epilogue=epilogue)
        return self.evolve(clamp=(consumer.low, consumer.high)) if _named(consumer) == "iron_ops_aie.Clamp" else None

    def _right(self, B: Any) -> np.ndarray:
        """B as (K, N), float64."""
        return widen(B).T if self.b_col_maj else widen(B)

    def reference(self, A: Any, B: Any) -> Any:
        return self.finish_of_sums.of(widen(A) @ self._right(B))

    def magnitude(self, A: Any, B: Any) -> Any:
        """Sums' sizes, and what the rounding before an activation may move: a unit of bfloat16 where float32 is beside a tie."""
        sums, size = widen(A) @ self._right(B), np.abs(widen(A)) @ np.abs(self._right(B))
        step = np.abs(sums) * 2.0**-7 if self.epilogue != Epilogue.NONE else 0.0
        return self.finish_of_sums.slope(sums) * (size + step * 2.0**24 / (self.K + 8))

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.K)

    def ops(self) -> int:
        return 2 * self.M * self.K * self.N

    def __repr__(self) -> str:
        return f"flm.{super().__repr__()}"  # beside the main catalog's
