"""What a type checker sees of `iron_ops_flm`. Made by `python -m iron_core.declare.stub iron_ops_flm`; do not edit."""

from typing import Any, TypeAlias, overload

import numpy as np
from iron_core.declare.affine import Affine
from iron_core.declare.formats import PackedArray
from iron_core.declare.operand import BoundOperand
from iron_core.declare.operator import Operator
from iron_core.graph.handle import Handle
from iron_core.graph.weight import State
from iron_core.graph.weight import Weight
from iron_ops_flm.dequant_bfp_array import DequantBFPArray
from iron_ops_flm.gemm_array import GEMMArray

_Tensor: TypeAlias = Handle | Weight | State | np.ndarray[Any, Any] | PackedArray
_PerCall: TypeAlias = int | np.integer[Any] | Affine  # a per-call value of the body is an Affine, as an expression of such is

__all__ = ["DequantBFP", "GEMM", "Shipped"]

class DequantBFP(DequantBFPArray, Operator):
    """y = the numbers of x, transposed, rounded down to bfloat16 and then to bfp16ebs8, packed as `flm.GEMM` reads its B.

    x: (N, K), weights in a packed format `F`, such as FastFlowLM's chunks. y: (K, N), in blocks of eight along K that share an
    exponent. Both roundings are towards minus infinity: what a core does that nobody tells otherwise. Bit for bit the same
    everywhere, where scales and minima are finite and so is what is made of them.

    The array, npu2's alone, takes Q4NX: each core makes a quarter of the rows of a tile of 512 x 64.

    Errors: ParamError where x is not block-quantised; FormatError where x or y is not whole blocks; Unresolvable where no array
    takes it.
    """
    N: int
    K: int
    F: Any
    num_aie_columns: int
    x: BoundOperand
    y: BoundOperand
    @overload
    def __new__(cls, *, N: int, K: int, F: Any = ..., num_aie_columns: int = ...) -> DequantBFP: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        N: int = ...,
        K: int = ...,
        F: Any = ...,
        num_aie_columns: int = ...,
    ) -> Handle: ...

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
    M: int
    K: int
    N: int
    epilogue: Any
    clamp: Any
    rounding: str
    gelu: str
    b_col_maj: bool
    packed_blocks: bool
    k_tile: int
    tile_n: int
    W: Any
    tile_ma: int
    emulate_bf16_mmul_with_bfp16: bool
    num_aie_columns: int
    n_shim_mem_a: int
    rows_per_shim: int
    a_tile: int
    b_tile: int
    c_tile: int
    A: BoundOperand
    B: BoundOperand
    C: BoundOperand
    @property
    def packing(self) -> Any: ...
    @property
    def order(self) -> Any: ...
    @property
    def finish_of_sums(self) -> Any: ...
    def pack_B(self, B: Any, by: Any = ...) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        M: int,
        K: int,
        N: int,
        epilogue: Any = ...,
        clamp: Any = ...,
        rounding: str = ...,
        gelu: str = ...,
        b_col_maj: bool = ...,
        packed_blocks: bool = ...,
        k_tile: int = ...,
        tile_n: int = ...,
        W: Any = ...,
        tile_ma: int = ...,
        emulate_bf16_mmul_with_bfp16: bool = ...,
        num_aie_columns: int = ...,
    ) -> GEMM: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        A: _Tensor,
        B: _Tensor,
        C: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        M: int = ...,
        K: int = ...,
        N: int = ...,
        epilogue: Any = ...,
        clamp: Any = ...,
        rounding: str = ...,
        gelu: str = ...,
        b_col_maj: bool = ...,
        packed_blocks: bool = ...,
        k_tile: int = ...,
        tile_n: int = ...,
        W: Any = ...,
        tile_ma: int = ...,
        emulate_bf16_mmul_with_bfp16: bool = ...,
        num_aie_columns: int = ...,
    ) -> Handle: ...

class Shipped(Operator):
    """C = A @ B by a binary that FastFlowLM built and you downloaded: what `flm.GEMM` is compared with.

    image: `iron.Xclbin(path)`. A: (M, K), B: `pack_B()` of (K, N), C: (M, N), bfloat16. Without shapes it is of the smallest.

    It runs by itself, as `OperatorImage(flm.Shipped(image=...))`, on an NPU whose backend loads binaries: no graph takes it, for
    nothing here can build its array together with others, and no CPU or simulator, which would run something else. That the
    overlay reads B in this order is its authors' word, checked on no device here.

    Errors: ParamError where image is no Xclbin or the shape not whole tiles.
    """
    image: Any
    M: int
    K: int
    N: int
    A: BoundOperand
    B: BoundOperand
    C: BoundOperand
    def pack_B(self, B: Any) -> Any: ...
    @overload
    def __new__(cls, *, image: Any, M: int = ..., K: int = ..., N: int = ...) -> Shipped: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        A: _Tensor,
        B: _Tensor,
        C: Handle | State = ...,
        /,
        *,
        image: Any = ...,
        M: int = ...,
        K: int = ...,
        N: int = ...,
    ) -> Handle: ...
