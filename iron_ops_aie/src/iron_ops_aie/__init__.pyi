"""What a type checker sees of `iron_ops_aie`. Made by `python -m iron_core.declare.stub iron_ops_aie`; do not edit."""

from typing import Any, TypeAlias, overload

import numpy as np
from iron_core.bases.binary import BinaryElementwise
from iron_core.bases.rowwise import Rowwise
from iron_core.bases.unary import UnaryElementwise
from iron_core.declare.affine import Affine
from iron_core.declare.formats import PackedArray
from iron_core.declare.operand import BoundOperand
from iron_core.declare.operator import Operator
from iron_core.graph.handle import Handle
from iron_core.graph.weight import State
from iron_core.graph.weight import Weight
from iron_ops_aie.attention.mha_array import MHAArray
from iron_ops_aie.elementwise.quantize_array import QuantizeArray
from iron_ops_aie.experts.experts_array import CombineExpertsArray
from iron_ops_aie.experts.experts_array import GatedExpertsArray
from iron_ops_aie.experts.route_array import RouteArray
from iron_ops_aie.images.patch_positions_array import PatchPositionsArray
from iron_ops_aie.images.resample_array import ResampleArray
from iron_ops_aie.images.resample_taps_array import ResampleTapsArray
from iron_ops_aie.moving.copy_array import CopyArray
from iron_ops_aie.moving.repeat_array import RepeatArray
from iron_ops_aie.moving.transpose_array import TransposeArray
from iron_ops_aie.products.depthwise_conv1d_array import DepthwiseConv1dArray
from iron_ops_aie.products.dequant_array import DequantArray
from iron_ops_aie.products.gemm_array import GEMMArray
from iron_ops_aie.products.gemv_array import GEMVArray
from iron_ops_aie.recurrent.causal_conv1d_array import CausalConv1dArray
from iron_ops_aie.recurrent.delta_rule import DeltaRule
from iron_ops_aie.rowwise.rope_array import RoPEArray
from iron_ops_aie.rowwise.softmax_array import SoftmaxArray
from iron_ops_aie.tokens.sample_array import SampleArray

_Tensor: TypeAlias = Handle | Weight | State | np.ndarray[Any, Any] | PackedArray
_PerCall: TypeAlias = int | np.integer[Any] | Affine  # a per-call value of the body is an Affine, as an expression of such is

__all__ = ["AXPY", "CausalConv1d", "Clamp", "CombineExperts", "Copy", "DeltaGates", "DepthwiseConv1d", "Dequant", "ElementwiseAdd", "ElementwiseMax", "ElementwiseMul", "Emit", "GELU", "GEMM", "GEMV", "GatedDeltaChunk", "GatedDeltaStep", "GatedExperts", "GatherWords", "L2Norm", "LayerNorm", "LeakyReLU", "Limbs", "Log", "MHA", "Magnitude", "Merge", "PagedMHA", "PatchPositions", "Quantize", "QuantizeRows", "RMSNorm", "ReLU", "Repeat", "Resample", "ResampleTaps", "RoPE", "Route", "RowwiseAdd", "RowwiseMul", "Sample", "Scale", "ScatterRows", "SiLU", "Sigmoid", "SoftCap", "Softmax", "Softplus", "Tanh", "Transpose"]

class AXPY(BinaryElementwise):
    """y = scalar_factor a + b, rounded once. Shapes as in `BinaryElementwise`.

    scalar_factor: rounded to a's dtype before it is used.

    Errors: ParamError for a factor that is not finite, for integers.
    """
    scalar_factor: float
    def reference(self, a: Any, b: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        size: int,
        scalar_factor: float,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> AXPY: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        a: _Tensor,
        b: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        size: int = ...,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        scalar_factor: float = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class CausalConv1d(CausalConv1dArray, Operator):
    """y[t, c] = weight[0, c] x[t - taps + 1, c] + ... + weight[taps - 1, c] x[t, c]; rows before the call's first are in `state`.

    x, y: (rows, channels), a row for every point in time. weight: (taps, channels), of a dtype of its own (`W`). state: (taps - 1,
    channels), the rows of x before the call's first, the oldest first; the call leaves its own last ones there. `valid` bounds the
    rows; a call of none changes nothing. `past`: a per-call number, how many rows came before, `history` at most;
    where it is 0 a sequence begins, and the state counts as zeros. Where calls do not give it the state counts.

    The array (bfloat16, 4 taps): a core per column convolves channels of its own.

    Errors: ParamError for integers, for fewer than two taps. Unresolvable where no array takes it.
    """
    rows: int
    channels: int
    taps: int
    kept: int
    history: int
    T: Any
    W: Any
    num_aie_columns: int
    width: int
    x: BoundOperand
    weight: BoundOperand
    state: BoundOperand
    y: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        channels: int,
        taps: int = ...,
        kept: int = ...,
        history: int = ...,
        T: Any = ...,
        W: Any = ...,
        num_aie_columns: int = ...,
    ) -> CausalConv1d: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        weight: _Tensor,
        state: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        past: _PerCall = ...,
        rows: int = ...,
        channels: int = ...,
        taps: int = ...,
        kept: int = ...,
        history: int = ...,
        T: Any = ...,
        W: Any = ...,
        num_aie_columns: int = ...,
        dtype: Any = ...,
    ) -> tuple[Handle, Handle]: ...

class Clamp(UnaryElementwise):
    """y = min(max(x, low), high); a NaN stays one. Shapes as in `UnaryElementwise`.

    low, high: rounded to x's dtype before they are used; either may be infinite. An array is given them as words, so one
    array serves every pair.

    Errors: ParamError for a low above high, for integers.
    """
    low: float
    high: float
    def reference(self, x: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        size: int,
        low: float,
        high: float,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> Clamp: ...
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
        low: float = ...,
        high: float = ...,
        dtype: Any = ...,
    ) -> Handle: ...

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
    rows: int
    experts: int
    hidden: int
    inner: int
    k: int
    activations: str
    shares: bool
    gates: bool
    T: Any
    W: Any
    O: Any
    num_aie_columns: int
    width: int
    block: int
    x: BoundOperand
    down: BoundOperand
    ids: BoundOperand
    weights: BoundOperand
    shared: BoundOperand
    shared_gate: BoundOperand
    y: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        experts: int,
        hidden: int,
        inner: int,
        k: int,
        shares: bool = ...,
        gates: bool = ...,
        activations: str = ...,
        T: Any = ...,
        W: Any = ...,
        O: Any = ...,
        num_aie_columns: int = ...,
    ) -> CombineExperts: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        down: _Tensor,
        ids: _Tensor,
        weights: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        shared: _Tensor | None = ...,
        shared_gate: _Tensor | None = ...,
        valid: _PerCall = ...,
        shares: bool = ...,
        gates: bool = ...,
        rows: int = ...,
        experts: int = ...,
        hidden: int = ...,
        inner: int = ...,
        k: int = ...,
        activations: str = ...,
        T: Any = ...,
        W: Any = ...,
        O: Any = ...,
        num_aie_columns: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Copy(CopyArray, Operator):
    """y[dst] = x[src], element by element in the order the two patterns walk; numbers are rounded once to y's dtype.

    x: `input_size` elements, y: `output_size`; `src` and `dst` say which of them (a tuple of patterns is walked in
    turn). With `ids` the rows `ids` of x, a table of `table_rows` rows, are read instead: an id counts from the end
    when negative and is clipped to the table. Per call, `in_offset` and `out_offset` move the patterns (elements),
    and `src_valid`, `dst_valid` keep the first n along `src_axis`, `dst_axis` (for a gather, the first n ids).
    Elements of y outside `dst` stay as they were. A block format moves as packed bytes: patterns take whole blocks.
    In a graph: `Copy(x)`, `Copy(x[:, 3])`, `Copy(x, cache[pos])`, `Copy(table[ids])`.

    A number becomes the nearest of the other dtype; a float outside an integer dtype's range becomes the nearer end of it.

    The array has no cores: `num_channels` channels share out every run that both sides step through, and each passes it on
    in objects of `tile_size` elements (of a block format: bytes). For a gather a channel is a feed, of two columns. An array
    moves bytes as they are, in whole 4-byte words.

    Errors: ParamError where the patterns leave a buffer, differ in size or write an element twice, or a conversion is
    between formats. Unresolvable where no array takes it.
    """
    input_size: int
    output_size: int
    src: Any
    dst: Any
    src_axis: Any
    dst_axis: Any
    gather: bool
    table_rows: int
    rows: int
    X: Any
    Y: Any
    num_channels: int
    tile_size: int
    x: BoundOperand
    ids: BoundOperand
    y: BoundOperand
    @property
    def elements(self) -> Any: ...
    @property
    def source(self) -> Any: ...
    @property
    def target(self) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        input_size: int,
        output_size: int = ...,
        src: Any = ...,
        dst: Any = ...,
        src_axis: Any = ...,
        dst_axis: Any = ...,
        gather: bool = ...,
        table_rows: int = ...,
        rows: int = ...,
        X: Any = ...,
        Y: Any = ...,
        num_channels: int = ...,
        tile_size: int = ...,
    ) -> Copy: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        ids: _Tensor | None = ...,
        input_size: int = ...,
        output_size: int = ...,
        src: Any = ...,
        dst: Any = ...,
        src_axis: Any = ...,
        dst_axis: Any = ...,
        gather: bool = ...,
        table_rows: int = ...,
        rows: int = ...,
        X: Any = ...,
        Y: Any = ...,
        num_channels: int = ...,
        tile_size: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class DeltaGates(Operator):
    """g = rate softplus(a + bias);  beta = sigmoid(b): what `GatedDeltaStep` takes, in float32.

    a, b: (rows, heads). bias, rate: (heads,), float32; of a rate that is not positive g is not. g, beta: (rows, heads), float32.
    `valid` bounds the rows.

    The array (bfloat16): one core, a block of rows at a time.

    Errors: ParamError for integers. Unresolvable where no array takes it.
    """
    rows: int
    heads: int
    T: Any
    line: int
    a: BoundOperand
    b: BoundOperand
    bias: BoundOperand
    rate: BoundOperand
    g: BoundOperand
    beta: BoundOperand
    def kernel(self) -> Any: ...
    @overload
    def __new__(cls, *, rows: int, heads: int, T: Any = ...) -> DeltaGates: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        a: _Tensor,
        b: _Tensor,
        bias: _Tensor,
        rate: _Tensor,
        g: Handle | State = ...,
        beta: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        heads: int = ...,
        T: Any = ...,
    ) -> tuple[Handle, Handle]: ...

class DepthwiseConv1d(DepthwiseConv1dArray, Operator):
    """y[t, c] = weight[0, c] x[t - taps + 1, c] + ... + weight[taps - 1, c] x[t, c]; rows before the first are zeros.

    x, y: (rows, channels), a row for every point in time. weight: (taps, channels), of a dtype of its own (`W`). Causal: no row
    depends on a later one. `valid` bounds the rows.

    The array (bfloat16, 5 taps): a core per column convolves a run of rows. Under a bound it makes all rows, those past it of
    whatever x holds there.

    Errors: ParamError for integers. Unresolvable where no array takes it.
    """
    rows: int
    channels: int
    taps: int
    T: Any
    W: Any
    num_aie_columns: int
    x: BoundOperand
    weight: BoundOperand
    y: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        channels: int,
        taps: int = ...,
        T: Any = ...,
        W: Any = ...,
        num_aie_columns: int = ...,
    ) -> DepthwiseConv1d: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        weight: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        channels: int = ...,
        taps: int = ...,
        T: Any = ...,
        W: Any = ...,
        num_aie_columns: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Dequant(DequantArray, Operator):
    """y = scale * (q - zero) + minimum, of rows of blocks.

    x: (rows, cols) in a packed format `F`. y: (rows, cols) of float dtype `T`. `valid` bounds the rows.

    The array makes bfloat16 of int4 in tiles of nibbles and then scales (`iron_ops_aie.products.int4_tiles`): the tiles are shared
    out over num_aie_columns x num_channels cores.

    Errors: ParamError where x is not block-quantised or y not float; FormatError where they are not whole blocks. Unresolvable
    where no array takes it.
    """
    rows: int
    cols: int
    F: Any
    T: Any
    tile_size: int
    tile_bytes: int
    num_aie_columns: int
    num_channels: int
    x: BoundOperand
    y: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        F: Any = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> Dequant: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        F: Any = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class ElementwiseAdd(BinaryElementwise):
    """y = a + b. Shapes as in `BinaryElementwise`."""
    def reference(self, a: Any, b: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        size: int,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> ElementwiseAdd: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        a: _Tensor,
        b: _Tensor,
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

class ElementwiseMax(BinaryElementwise):
    """y = max(a, b); where either is a NaN, so is y. Shapes as in `BinaryElementwise`."""
    def reference(self, a: Any, b: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        size: int,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> ElementwiseMax: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        a: _Tensor,
        b: _Tensor,
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

class ElementwiseMul(BinaryElementwise):
    """y = a * b. Shapes as in `BinaryElementwise`."""
    def reference(self, a: Any, b: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        size: int,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> ElementwiseMul: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        a: _Tensor,
        b: _Tensor,
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

class Emit(Operator):
    """Evaluate a table of rows: what a call's values make of the next call's.

    planes: (2, carried) int32; plane 0 the values this call started from, plane 1 those it computed. program:
    (slots + carried, 9) int32, a `Row` each. words: (slots,) int32, the next call's word image; state: (carried,)
    int32, its carried values. Of every number the low 32 bits are kept; an all-zero row gives 0.

    No graph calls it: a full ELF that loops by itself has it behind its other steps (see `iron_core.image.feedback`). The CPU's loop
    evaluates the same rows natively, so there it has no kernel.

    The array is one core that holds all of it.

    Errors: ParamError where program has another number of rows.
    """
    carried: int
    slots: int
    rows: int
    planes: BoundOperand
    program: BoundOperand
    words: BoundOperand
    state: BoundOperand
    def kernel(self) -> Any: ...
    @overload
    def __new__(cls, *, carried: int, slots: int, rows: int = ...) -> Emit: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        planes: _Tensor,
        program: _Tensor,
        words: Handle | State = ...,
        state: Handle | State = ...,
        /,
        *,
        carried: int = ...,
        slots: int = ...,
        rows: int = ...,
    ) -> tuple[Handle, Handle]: ...

class GELU(UnaryElementwise):
    """y = x times the share of the normal distribution below x, x (1 + erf(x / sqrt(2))) / 2, where `approximate` is "none".

    Where it is "tanh", y = x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + exp(-2 u)).
    Shapes as in `UnaryElementwise`. Errors: ParamError for another form, for integers.
    """
    approximate: str
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
        approximate: str = ...,
    ) -> GELU: ...
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
        approximate: str = ...,
        dtype: Any = ...,
    ) -> Handle: ...

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
    M: int
    K: int
    N: int
    b_col_maj: bool
    c_col_maj: bool
    scale: float
    rows_scaled: bool
    prio_accuracy: bool
    emulate_bf16_mmul_with_bfp16: bool
    num_matrices: int
    activations: str
    experts: bool
    own_order: bool
    T: Any
    W: Any
    O: Any
    tile_m: int
    tile_k: int
    tile_n: int
    num_aie_columns: int
    placement: str
    n_shim_mem_a: int
    rows_per_shim: int
    c_tile: int
    A: BoundOperand
    B: BoundOperand
    ids: BoundOperand
    row_scale: BoundOperand
    C: BoundOperand
    @property
    def scaled(self) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        M: int,
        K: int,
        N: int,
        b_col_maj: bool = ...,
        c_col_maj: bool = ...,
        scale: float = ...,
        rows_scaled: bool = ...,
        prio_accuracy: bool = ...,
        emulate_bf16_mmul_with_bfp16: bool = ...,
        num_matrices: int = ...,
        activations: str = ...,
        experts: bool = ...,
        own_order: bool = ...,
        T: Any = ...,
        W: Any = ...,
        O: Any = ...,
        tile_m: int = ...,
        tile_k: int = ...,
        tile_n: int = ...,
        num_aie_columns: int = ...,
        placement: str = ...,
    ) -> GEMM: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        A: _Tensor,
        B: _Tensor,
        C: Handle | State = ...,
        /,
        *,
        ids: _Tensor | None = ...,
        row_scale: _Tensor | None = ...,
        valid: _PerCall = ...,
        valid_k: _PerCall = ...,
        M: int = ...,
        K: int = ...,
        N: int = ...,
        b_col_maj: bool = ...,
        c_col_maj: bool = ...,
        scale: float = ...,
        rows_scaled: bool = ...,
        prio_accuracy: bool = ...,
        emulate_bf16_mmul_with_bfp16: bool = ...,
        num_matrices: int = ...,
        activations: str = ...,
        experts: bool = ...,
        own_order: bool = ...,
        T: Any = ...,
        W: Any = ...,
        O: Any = ...,
        tile_m: int = ...,
        tile_k: int = ...,
        tile_n: int = ...,
        num_aie_columns: int = ...,
        placement: str = ...,
        dtype: Any = ...,
    ) -> Handle: ...

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
    M: int
    K: int
    num_batches: int
    repeat: int
    num_matrices: int
    scale: float
    rows_scaled: bool
    activations: str
    experts: bool
    T: Any
    W: Any
    O: Any
    tile_size_input: int
    tile_size_output: int
    kernel_vector_size: int
    num_aie_columns: int
    num_channels: int
    A: BoundOperand
    B: BoundOperand
    ids: BoundOperand
    row_scale: BoundOperand
    C: BoundOperand
    @property
    def scaled(self) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        M: int,
        K: int,
        num_batches: int = ...,
        repeat: int = ...,
        num_matrices: int = ...,
        scale: float = ...,
        rows_scaled: bool = ...,
        activations: str = ...,
        experts: bool = ...,
        T: Any = ...,
        W: Any = ...,
        O: Any = ...,
        tile_size_input: int = ...,
        tile_size_output: int = ...,
        kernel_vector_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> GEMV: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        A: _Tensor,
        B: _Tensor,
        C: Handle | State = ...,
        /,
        *,
        ids: _Tensor | None = ...,
        row_scale: _Tensor | None = ...,
        valid: _PerCall = ...,
        M: int = ...,
        K: int = ...,
        num_batches: int = ...,
        repeat: int = ...,
        num_matrices: int = ...,
        scale: float = ...,
        rows_scaled: bool = ...,
        activations: str = ...,
        experts: bool = ...,
        T: Any = ...,
        W: Any = ...,
        O: Any = ...,
        tile_size_input: int = ...,
        tile_size_output: int = ...,
        kernel_vector_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class GatedDeltaChunk(DeltaRule):
    """The gated delta rule of `DeltaRule`, `chunk` tokens at a time: products of matrices, between which a unit lower triangular system
    is solved for what the tokens of a chunk correct. With b the sums of g from the chunk's first token on, and S what was before it:

        (I + tril(beta K K^T e^(b_t - b_s), -1)) U = beta (V - e^(b_t) K S)
        O = e^(b_t) Q S + tril(Q K^T e^(b_t - b_s)) U
        S = e^(b_n) S + (e^(b_n - b_s) K)^T U

    It is GatedDeltaStep's result, rounded otherwise. A token's numbers follow from the tokens before it in its chunk, not from those
    behind it; chunks are counted from the call's first row. Errors: ParamError also for a chunk of more than 64 tokens.
    """
    chunk: int
    def reference(self, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        key_heads: int,
        value_heads: int,
        key_dim: int,
        value_dim: int,
        scale: float = ...,
        tiled: bool = ...,
        history: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        chunk: int = ...,
    ) -> GatedDeltaChunk: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        q: _Tensor,
        k: _Tensor,
        v: _Tensor,
        g: _Tensor,
        beta: _Tensor,
        state: _Tensor,
        o: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        past: _PerCall = ...,
        rows: int = ...,
        key_heads: int = ...,
        value_heads: int = ...,
        key_dim: int = ...,
        value_dim: int = ...,
        scale: float = ...,
        tiled: bool = ...,
        history: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        chunk: int = ...,
        dtype: Any = ...,
    ) -> tuple[Handle, Handle]: ...

class GatedDeltaStep(DeltaRule):
    """The gated delta rule of `DeltaRule`, one token after another: a token's numbers are the same in any company. The state is read
    and written once a call, whatever its rows.
    """
    def reference(self, q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        key_heads: int,
        value_heads: int,
        key_dim: int,
        value_dim: int,
        scale: float = ...,
        tiled: bool = ...,
        history: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
    ) -> GatedDeltaStep: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        q: _Tensor,
        k: _Tensor,
        v: _Tensor,
        g: _Tensor,
        beta: _Tensor,
        state: _Tensor,
        o: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        past: _PerCall = ...,
        rows: int = ...,
        key_heads: int = ...,
        value_heads: int = ...,
        key_dim: int = ...,
        value_dim: int = ...,
        scale: float = ...,
        tiled: bool = ...,
        history: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        dtype: Any = ...,
    ) -> tuple[Handle, Handle]: ...

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
    rows: int
    experts: int
    hidden: int
    inner: int
    k: int
    activations: str
    T: Any
    W: Any
    O: Any
    num_aie_columns: int
    width: int
    block: int
    x: BoundOperand
    gate: BoundOperand
    up: BoundOperand
    ids: BoundOperand
    y: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        experts: int,
        hidden: int,
        inner: int,
        k: int,
        activations: str = ...,
        T: Any = ...,
        W: Any = ...,
        O: Any = ...,
        num_aie_columns: int = ...,
    ) -> GatedExperts: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        gate: _Tensor,
        up: _Tensor,
        ids: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        experts: int = ...,
        hidden: int = ...,
        inner: int = ...,
        k: int = ...,
        activations: str = ...,
        T: Any = ...,
        W: Any = ...,
        O: Any = ...,
        num_aie_columns: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class GatherWords(Operator):
    """Write the addresses of a table's rows `ids` into the control words of a gather (see `iron_core.array.gather`).

    ids: (rows,) int32, negative from the end and clipped to the table, as `Copy` takes them. address: (2,) uint32, where the table
    of `table_rows` rows of `row_bytes` bytes begins, the low word first. words: (size,) uint32, of which the two words of every
    row's address are written. `feeds`: how many share the gather.

    No graph calls it: what makes a full ELF of a graph puts it in front of a gather by ids that the graph itself made, and the host
    writes the other words and the table's address once. So the CPU has no kernel for it.

    The array is one core, which turns `block` ids at a time.

    Errors: ParamError for words of another size, rows that are no whole words, or more feeds than batches.
    """
    rows: int
    table_rows: int
    row_bytes: int
    feeds: int
    size: int
    block: int
    ids: BoundOperand
    address: BoundOperand
    words: BoundOperand
    @property
    def gather(self) -> Any: ...
    def kernel(self) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        table_rows: int,
        row_bytes: int,
        feeds: int = ...,
        size: int = ...,
        block: int = ...,
    ) -> GatherWords: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        ids: _Tensor,
        address: _Tensor,
        words: _Tensor,
        /,
        *,
        rows: int = ...,
        table_rows: int = ...,
        row_bytes: int = ...,
        feeds: int = ...,
        size: int = ...,
        block: int = ...,
    ) -> Handle: ...

class L2Norm(Rowwise):
    """y = x / sqrt(sum(x^2) + epsilon), row by row. x, y: (rows, cols). epsilon is in the units of x squared; with epsilon 0 a row of
    zeros has no norm (NaN). `valid` bounds the rows.

    The array (bfloat16): two cores per lane, one of which divides by the root mean square, the next by the root of cols; its kernel
    sums squares in float32, and a row in which they pass 2^128 comes out as zeros.

    Errors: ParamError for a negative epsilon or integers.
    """
    epsilon: float
    def reference(self, x: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        epsilon: float = ...,
    ) -> L2Norm: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        epsilon: float = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class LayerNorm(Rowwise):
    """y = (x - mean(x)) / sqrt(var(x) + epsilon), row by row; times `weight`, plus `bias`, where they are given. Rounded once.

    x, y: (rows, cols). weight, bias: (cols,), both of one dtype of their own. var is the mean of the squares of x - mean(x).
    epsilon is in the units of x squared; with epsilon 0 a row of equal numbers has no norm (NaN). `valid` bounds the rows.

    The array (bfloat16 throughout): per lane a core that norms, one that multiplies by `weight`, one that adds `bias`; what goes from
    one to the next is rounded. mlir-aie's kernel norms where epsilon is 1e-5, elsewhere one of this pack, without vectors. Squares are
    summed in float32: a row in which they pass 2^127 comes out as zeros (before `bias`).

    Errors: ParamError for a negative epsilon or integers. Unresolvable where no array takes it.
    """
    epsilon: float
    weighted: bool
    biased: bool
    W: Any
    weight: BoundOperand
    bias: BoundOperand
    def reference(self, x: Any, weight: Any = ..., bias: Any = ...) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        epsilon: float = ...,
        weighted: bool = ...,
        biased: bool = ...,
        W: Any = ...,
    ) -> LayerNorm: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        weight: _Tensor | None = ...,
        bias: _Tensor | None = ...,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        epsilon: float = ...,
        weighted: bool = ...,
        biased: bool = ...,
        W: Any = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class LeakyReLU(UnaryElementwise):
    """y = x where x > 0, else alpha x; a NaN stays one. Shapes as in `UnaryElementwise`.

    alpha: the slope below zero, rounded to x's dtype before it is used.

    Errors: ParamError for an alpha that is not finite, for integers.
    """
    alpha: float
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
        alpha: float = ...,
    ) -> LeakyReLU: ...
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
        alpha: float = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Limbs(Rowwise):
    """Six planes, one behind another, of the limbs of each row: hi, mid, hi, lo, mid, hi.

    hi is x rounded to bfloat16, mid what is then left of x, rounded, and lo what is left of that: hi + mid + lo is x, where that is
    0 or from 2^-110 to 2^127 in size. x: (rows, cols) float32; y: (rows, 6 cols) bfloat16.

    A product of bfloat16 with the limbs of a weight (`Limbs.stacked(w)`) is one of float32: it adds six of the nine products of
    limbs, all but those below 2^-24 of the whole. `GEMM(Limbs(x), Limbs.stacked(w), O=np.float32)`.

    Errors: ParamError for another dtype. Unresolvable where no array takes it.
    """
    T: Any
    out_cols: int
    y: BoundOperand
    def reference(self, x: Any) -> Any: ...
    @staticmethod
    def stacked(w: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        out_cols: int = ...,
    ) -> Limbs: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        out_cols: int = ...,
    ) -> Handle: ...

class Log(UnaryElementwise):
    """y = log(x + offset), within one unit of T's last place. -infinity at a sum of zero, a NaN below it.

    x: (size,), float32, a tensor of any shape. y: the same shape, T. offset: a float32; the sum is one too.

    Errors: ParamError for an offset that is not finite, for integers.
    """
    offset: float
    x: BoundOperand
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
        offset: float = ...,
    ) -> Log: ...
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
        offset: float = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class MHA(MHAArray, Operator):
    """O[h] = softmax(scale * Q[h] K[h // g]^T + bias[h] + mask) V[h // g], g = num_heads / num_KV_heads. `soft_cap` c bends the
    scores s, bias and all, to within it, c tanh(s / c), before they are masked.

    Q, O: (num_heads, seq_len, d), or (seq_len, num_heads, d) with `heads_interleaved`. K, V: (num_KV_heads, kv_len, d),
    or (kv_len, num_KV_heads, d) with `kv_interleaved`. bias, with `biased`: (num_heads, seq_len, kv_len), finite numbers, of
    which those of keys that a query does not see count for nothing. Terms for each distance, as relative keys give them, make one:
    those of query r lie r places further on in its row. The queries are the last rows of the keys: query r of n stands at
    position m - n + r of m keys. `causal` keeps keys at or before it; `window` w keeps |key - query| <= w, and spans, with
    `spanned`, of each query the keys from its first number up to its second: rows of several texts behind one another. Per call,
    `valid` bounds the queries and `kv_valid` the keys. A row that sees no key is zero.

    K and V may be stored in another dtype (`C`) than the activations (`T`).

    On an array (bfloat16 alone), `num_pipelines` of three cores each take blocks of `B_q` queries over blocks of as many keys; one
    query, its heads instead. Under `kv_valid` only the blocks that hold keys are moved. `pv_cores` 2 shares a head's values between
    two cores, for heads that one has no room for. `placement` fixes every tile ("tiles"), or leaves the shims ("memtiles") and the
    memory tiles ("columns") to the placer. `exp2` "accurate" is a polynomial, "fast" AIE2P's instruction, up to 6 % too high.
    `state` is the dtype that the softmax's running maximum and sum, and the sums of values, are kept in.

    Errors: ParamError for heads that do not divide, more queries than keys under a mask, a window below 1, a negative
    scale, a soft_cap that is not from 2^-100 to 2^100, an exp2 or state that there is not, integers; Unresolvable where an array
    does not take the shape.
    """
    num_heads: int
    num_KV_heads: int
    seq_len: int
    kv_len: int
    d: int
    heads_interleaved: bool
    kv_interleaved: bool
    causal: bool
    window: Any
    scale: float
    soft_cap: Any
    biased: bool
    spanned: bool
    exp2: str
    state: str
    T: Any
    C: Any
    B_q: int
    num_pipelines: int
    pv_cores: int
    placement: str
    packed: bool
    q_lanes: int
    kv_lanes: int
    bias_lanes: int
    o_rows: int
    pv_width: int
    Q: BoundOperand
    K: BoundOperand
    V: BoundOperand
    bias: BoundOperand
    spans: BoundOperand
    O: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        num_heads: int,
        seq_len: int,
        num_KV_heads: int = ...,
        kv_len: int = ...,
        d: int = ...,
        heads_interleaved: bool = ...,
        kv_interleaved: bool = ...,
        causal: bool = ...,
        window: Any = ...,
        scale: float = ...,
        soft_cap: Any = ...,
        biased: bool = ...,
        spanned: bool = ...,
        exp2: str = ...,
        state: str = ...,
        T: Any = ...,
        C: Any = ...,
        B_q: int = ...,
        num_pipelines: int = ...,
        pv_cores: int = ...,
        placement: str = ...,
    ) -> MHA: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        Q: _Tensor,
        K: _Tensor,
        V: _Tensor,
        O: Handle | State = ...,
        /,
        *,
        bias: _Tensor | None = ...,
        spans: _Tensor | None = ...,
        valid: _PerCall = ...,
        kv_valid: _PerCall = ...,
        num_heads: int = ...,
        num_KV_heads: int = ...,
        seq_len: int = ...,
        kv_len: int = ...,
        d: int = ...,
        heads_interleaved: bool = ...,
        kv_interleaved: bool = ...,
        causal: bool = ...,
        window: Any = ...,
        scale: float = ...,
        soft_cap: Any = ...,
        biased: bool = ...,
        spanned: bool = ...,
        exp2: str = ...,
        state: str = ...,
        T: Any = ...,
        C: Any = ...,
        B_q: int = ...,
        num_pipelines: int = ...,
        pv_cores: int = ...,
        placement: str = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Magnitude(Rowwise):
    """y = sqrt(re^2 + im^2), of rows that hold cols / 2 numbers re, then as many im.

    x: (rows, cols) float32, as a transform gives it; y: (rows, cols / 2) float32.

    Errors: ParamError for odd cols or another dtype. Unresolvable where no array takes it.
    """
    T: Any
    out_cols: int
    y: BoundOperand
    def reference(self, x: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        out_cols: int = ...,
    ) -> Magnitude: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        out_cols: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Merge(Operator):
    """y[i] = i, but the j-th `audio_token` among the ids gives audio_at + j, and the j-th `image_token` vision_at + j.

    ids, y: (rows,) int32. So y are the ids of a gather from [text | audio | vision], one table of the text's embeddings by position and
    of the soft tokens that take the placeholders' places, which begin at rows `audio_at` and `vision_at`. Per call, `valid` bounds the
    rows.

    The array is one core that goes through the ids `block` at a time and counts.

    Errors: ParamError for one placeholder twice, or a row below 0.
    """
    rows: int
    audio_token: int
    image_token: int
    audio_at: int
    vision_at: int
    block: int
    ids: BoundOperand
    y: BoundOperand
    def kernel(self) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        audio_token: int,
        image_token: int,
        audio_at: int,
        vision_at: int,
        block: int = ...,
    ) -> Merge: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        ids: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        audio_token: int = ...,
        image_token: int = ...,
        audio_at: int = ...,
        vision_at: int = ...,
        block: int = ...,
    ) -> Handle: ...

class PagedMHA(Operator):
    """o[r] = softmax(scale * q[r] K^T) V, of the keys K and values V that row r sees: those of its sequence at 0 to its own position.

    q, o: (rows, num_heads, d), rows of any sequences in any order. k, v: (pages, page, num_KV_heads, d), a pool of pages,
    `page` tokens each; those of the rows' own tokens are written before. tables: int32 (sequences, most): page tables[s, i] holds
    tokens i * page up to (i + 1) * page of sequence s; sequences may share pages. owner: int32 (rows,): whose a row is. at: int32
    (rows,): its position. Every index counts from the end when negative and is clipped, as `Copy` takes ids. `window` w keeps the last w
    keys before a row's own, `soft_cap` c bends the scores s to c tanh(s / c), both as in `MHA`. Per call, `valid` bounds the rows.

    A row's result is, bit for bit, that of `MHA` for one query over those keys in a row, whatever rows run with it. k and v
    may be stored in another dtype (`C`) than q and o (`T`). On the CPU consecutive rows of one sequence at consecutive positions, as a
    prompt's are, pass its keys together.

    No array: by its reference and on the CPU.

    Errors: ParamError for pages that are no multiple of 64 tokens, heads that do not divide, a window below 1, a negative scale, a
    soft_cap that is not from 2^-100 to 2^100, integers.
    """
    rows: int
    num_heads: int
    num_KV_heads: int
    d: int
    pages: int
    page: int
    sequences: int
    most: int
    window: Any
    scale: float
    soft_cap: Any
    T: Any
    C: Any
    q: BoundOperand
    k: BoundOperand
    v: BoundOperand
    tables: BoundOperand
    owner: BoundOperand
    at: BoundOperand
    o: BoundOperand
    @property
    def longest(self) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        num_heads: int,
        pages: int,
        num_KV_heads: int = ...,
        d: int = ...,
        page: int = ...,
        sequences: int = ...,
        most: int = ...,
        window: Any = ...,
        scale: float = ...,
        soft_cap: Any = ...,
        T: Any = ...,
        C: Any = ...,
    ) -> PagedMHA: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        q: _Tensor,
        k: _Tensor,
        v: _Tensor,
        tables: _Tensor,
        owner: _Tensor,
        at: _Tensor,
        o: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        num_heads: int = ...,
        num_KV_heads: int = ...,
        d: int = ...,
        pages: int = ...,
        page: int = ...,
        sequences: int = ...,
        most: int = ...,
        window: Any = ...,
        scale: float = ...,
        soft_cap: Any = ...,
        T: Any = ...,
        C: Any = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class PatchPositions(PatchPositionsArray, Operator):
    """The patches of a picture of `rows` x `columns`, window by window, in `places` places.

    A window is `pool` x `pool` patches, which a tower pools to one token: they stand one after the other, row by row, and so do
    the windows. sources: (places,) int32, the row of `Resample`'s patches that each place reads, for as many `cores`;
    positions: (2, places) int32, its x and its y, rows of tables of position embeddings or angles. Places past the last
    patch read the last row of every table, which is zero: source_rows - 1 and position_rows - 1; patches past the last place
    are left out.

    `valid_rows` and `valid_columns` bound the picture; of what is no whole window nothing is read.

    The array: one core, a block of places at a time.

    Errors: ParamError for sizes that are not whole windows, or tables too small for them.
    """
    rows: int
    columns: int
    pool: int
    cores: int
    places: int
    source_rows: int
    position_rows: int
    block: int
    sources: BoundOperand
    positions: BoundOperand
    @property
    def row_of_sources(self) -> Any: ...
    def __new__(
        cls,
        *,
        rows: int,
        columns: int,
        pool: int = ...,
        cores: int = ...,
        places: int = ...,
        source_rows: int = ...,
        position_rows: int = ...,
        block: int = ...,
    ) -> PatchPositions: ...

class Quantize(QuantizeArray, UnaryElementwise):
    """y = x / scale as int8, rounded to the nearest even number and held from -127 to 127; symmetric, one scale for all.

    x: (size,), a tensor of any shape. y: the same shape, int8. scale: the number that one unit stands for; without it the one
    that makes the largest of x 127, which comes out as `found`, float32 (1,), behind y. x is multiplied by 1 / scale, both
    float32, so every device gives the same integers; where that scale is no normal number they are 0, as a NaN's is.

    The array: as any elementwise one, which is given the scale as a word; without a scale one core, which x passes twice.

    Errors: ParamError for a scale that is not positive and finite, for integers.
    """
    scale: Any
    measured: bool
    y: BoundOperand
    found: BoundOperand
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
        scale: Any = ...,
        measured: bool = ...,
    ) -> Quantize: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        found: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        size: int = ...,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        scale: Any = ...,
        measured: bool = ...,
    ) -> tuple[Handle, Handle]: ...

class QuantizeRows(Rowwise):
    """y = x / found as int8, row by row, where `found` makes the largest number of a row 127; otherwise as `Quantize`.

    x: (rows, cols); y: the same, int8; found: float32 (rows,), what a product takes as its `row_scale`. Of a row of zeros, or with an
    infinity, all integers are 0. `valid` bounds the rows.

    The array (bfloat16): a core per lane finds a row's scale, then rounds the row. It has two outputs, as many as a column's shim
    takes, so there is one lane a column; and it takes all rows.

    Errors: ParamError for integers. Unresolvable where no array takes it.
    """
    y: BoundOperand
    found: BoundOperand
    def reference(self, x: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> QuantizeRows: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        found: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> tuple[Handle, Handle]: ...

class RMSNorm(Rowwise):
    """y = x / sqrt(mean(x^2) + epsilon), row by row; with `weight`, the row rounded to x's dtype, times the weight. (The CPU rounds the
    product alone, which is nearer to the exact one.)

    x, y: (rows, cols). weight: (cols,), of its own dtype. epsilon is in the units of x squared; with epsilon 0 a row of
    zeros has no norm (NaN). `valid` bounds the rows.

    The array (bfloat16 throughout): a core per lane; with `weight` two, one of which norms what the next multiplies.
    Its kernel sums squares in float32: a row in which they pass 2^128 comes out as zeros.

    Errors: ParamError for a negative epsilon or integers.
    """
    epsilon: float
    weighted: bool
    W: Any
    weight: BoundOperand
    def reference(self, x: Any, weight: Any = ...) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        epsilon: float = ...,
        weighted: bool = ...,
        W: Any = ...,
    ) -> RMSNorm: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        weight: _Tensor | None = ...,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        epsilon: float = ...,
        weighted: bool = ...,
        W: Any = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class ReLU(UnaryElementwise):
    """y = max(x, 0); a NaN stays one. Shapes as in `UnaryElementwise`. Errors: ParamError for integers."""
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
    ) -> ReLU: ...
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

class Repeat(RepeatArray, Operator):
    """y = x with each row `repeat` times in a row, as np.repeat(x, repeat, axis=0).

    x: (rows, cols). y: (rows * repeat, cols). `valid` bounds the rows of x; y then has `repeat` times as many.

    The array has no cores: one channel passes x on `repeat` times, in objects of `tile_size` elements, a row or part of one.

    Errors: ParamError for a repeat below 1, or an output given that has another number of rows. Unresolvable where no array
    takes it.
    """
    rows: int
    cols: int
    repeat: int
    out_rows: int
    T: Any
    tile_size: int
    x: BoundOperand
    y: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        repeat: int = ...,
        out_rows: int = ...,
        T: Any = ...,
        tile_size: int = ...,
    ) -> Repeat: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        repeat: int = ...,
        out_rows: int = ...,
        T: Any = ...,
        tile_size: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Resample(ResampleArray, Operator):
    """Resize a picture of uint8 RGB as torch's antialiased bicubic does, and cut it into patches of 16 x 16 pixels.

    image: (height, row_bytes), each row `width` pixels of three bytes, padded to whole slices of 4096 bytes. taps_w, taps_h:
    (chunks_w, words) and (chunks_h, words), the tables that `ResampleTaps(words=, slots=16)` makes from width to out_width and
    from height to out_height. patches: (patches, 768) of float dtype `T`, a patch's rows one after the other, channels last,
    each number a pixel / 255 rounded to float32 first. Rows are resized before columns.

    Patch (py, px) is row py * pad + px, where pad = (columns // cores + 1) * cores and columns = out_width // 16: a row of
    patches ends with zeros, and so does what lies behind the last. Where a table says that it does not fit, all is zero.
    `rows` bounds the image's height, `out_rows` and `out_columns` the size it gets (multiples of 16); how wide the
    image is, taps_w says.

    The array: every core reads the picture and the tables, and makes patch columns k, k + cores, ..., 8 at most.

    Errors: ParamError for sizes that are not whole patches, rows that are not whole slices, tables or patches too few.
    """
    height: int
    width: int
    out_height: int
    out_width: int
    row_bytes: int
    words: int
    chunks_w: int
    chunks_h: int
    cores: int
    patches_out: int
    T: Any
    num_aie_columns: int
    column_cores: int
    image: BoundOperand
    taps_w: BoundOperand
    taps_h: BoundOperand
    patches: BoundOperand
    @property
    def pad(self) -> Any: ...
    @property
    def reach(self) -> Any: ...
    def table(self, axis: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        height: int,
        width: int,
        out_height: int,
        out_width: int,
        row_bytes: int = ...,
        words: int = ...,
        chunks_w: int = ...,
        chunks_h: int = ...,
        cores: int = ...,
        patches_out: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        column_cores: int = ...,
    ) -> Resample: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        image: _Tensor,
        taps_w: _Tensor,
        taps_h: _Tensor,
        patches: Handle | State = ...,
        /,
        *,
        rows: _PerCall = ...,
        out_rows: _PerCall = ...,
        out_columns: _PerCall = ...,
        height: int = ...,
        width: int = ...,
        out_height: int = ...,
        out_width: int = ...,
        row_bytes: int = ...,
        words: int = ...,
        chunks_w: int = ...,
        chunks_h: int = ...,
        cores: int = ...,
        patches_out: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        column_cores: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class ResampleTaps(ResampleTapsArray, Operator):
    """The weights that resize `in_size` numbers to `out_size`: taps (chunks, words) int32, see `iron_ops_aie.images.table`.

    Each chunk has `slots` outputs, or where that is None as many as fit. With `Resample` they are what
    `torch.nn.functional.interpolate(mode="bicubic", antialias=True)` does to uint8, bit for bit. `in_length` and `out_length`
    bound the two sizes: the table is then that of a resize from the one to the other. Where the chunks are too few or too
    small for it, every header is (-1, window, 0, 0).

    The array: a core per lane makes every lanes-th chunk, in float64. It computes its weights twice: first for the largest of
    them, which goes from core to core and back from the last to all, for it decides the precision; then to round them.

    Errors: ParamError for words or slots that hold nothing.
    """
    in_size: int
    out_size: int
    words: int
    slots: int | None
    chunks: int
    num_aie_columns: int
    num_channels: int
    taps: BoundOperand
    def whole_chunks(self) -> Any: ...
    def __new__(
        cls,
        *,
        in_size: int,
        out_size: int,
        words: int = ...,
        slots: int | None = ...,
        chunks: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> ResampleTaps: ...

class RoPE(RoPEArray, Operator):
    """Each pair of a row's numbers rotated by an angle: y1 = x1 c - x2 s, y2 = x1 s + x2 c.

    x, y: (rows, cols). angles: (angle_rows, cols), cosine and sine interleaved (c0, s0, c1, s1, ...); an angle row serves
    rows / angle_rows consecutive rows of x (the heads of one position). `method_type` 0 pairs number i with i + cols/2
    (the halves), 1 pairs neighbours 2i and 2i + 1. The table may have a dtype of its own (`A`). `valid` bounds rows and
    `angles_valid` angle_rows.

    The array (bfloat16 throughout): a core per column, which turns rows / angle_rows rows by each angle row it takes.

    Errors: ParamError for odd cols, rows that are not whole angle rows, an unknown method_type, integers. Unresolvable where
    no array takes it.
    """
    rows: int
    cols: int
    angle_rows: int
    rows_per_angle: int
    method_type: int
    T: Any
    A: Any
    num_aie_columns: int
    x: BoundOperand
    angles: BoundOperand
    y: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        angle_rows: int = ...,
        rows_per_angle: int = ...,
        method_type: int = ...,
        T: Any = ...,
        A: Any = ...,
        num_aie_columns: int = ...,
    ) -> RoPE: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        angles: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        angles_valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        angle_rows: int = ...,
        rows_per_angle: int = ...,
        method_type: int = ...,
        T: Any = ...,
        A: Any = ...,
        num_aie_columns: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Route(RouteArray, Operator):
    """The k experts of each row with the largest logits, and their shares of a softmax over all experts.

    logits: (rows, experts). ids: int32 (rows, k), by falling weight, the lower id first among equal logits. weights: float32
    (rows, k), exp(logit - max) over the sum of all experts' such, or with `renormalise` of the k chosen ones', times `scale`; in
    float64, exponentials as `exp64` has them on every device and sums in order, rounded once. `valid` bounds the rows.

    A row without a softmax, for a logit is NaN or infinite or all are -inf, has the ids 0 to k - 1 and weights NaN. A logit of -inf is
    otherwise chosen last, with weight 0.

    The array (bfloat16 or float32): a core per column takes a row at a time. It has two outputs, as many as a column's shim takes.
    A bound spares it rows where k and a row of logits are whole 16 bytes; else all rows go by.

    Errors: ParamError for integers, a k that is not 1 to experts, a scale that is no positive float32. Unresolvable where no array
    takes it.
    """
    rows: int
    experts: int
    k: int
    renormalise: bool
    scale: float
    T: Any
    num_aie_columns: int
    logits: BoundOperand
    ids: BoundOperand
    weights: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        experts: int,
        k: int,
        renormalise: bool = ...,
        scale: float = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
    ) -> Route: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        logits: _Tensor,
        ids: Handle | State = ...,
        weights: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        experts: int = ...,
        k: int = ...,
        renormalise: bool = ...,
        scale: float = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
    ) -> tuple[Handle, Handle]: ...

class RowwiseAdd(Rowwise):
    """y[r] = x[r] + vector: a projection's bias. x, y: (rows, cols); vector: (cols,)."""
    vector: BoundOperand
    def reference(self, x: Any, vector: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> RowwiseAdd: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        vector: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class RowwiseMul(Rowwise):
    """y[r] = x[r] * vector, number by number: a gain of each column. x, y: (rows, cols); vector: (cols,)."""
    vector: BoundOperand
    def reference(self, x: Any, vector: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> RowwiseMul: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        vector: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Sample(SampleArray, Operator):
    """Draw a token from `logits` as row `row` of `draws` says; note it at `tokens[at]`.

    logits: (vocab,). draws: (steps, 4) int32, see `draw_words`; an all-zero row is greedy. tokens: (steps,) int32, a record
    written at one place. token: (1,) int32. `row` is an element offset into draws (4 times the step), `at` the step.

    Greedy takes the largest logit, the lowest id among equals. Otherwise the candidates are the top-k logits (1 <= k <=
    k_max, ties by lowest id), ordered from the largest; their probabilities are exp((l - max) / temperature) in float64, as
    `exp64` has it on every device, and the token is the first whose cumulative sum exceeds uniform / 2^53 of the total.

    Where any logit is NaN or infinite there is no token: it is -1, in both places, and a loop that carries it ends there with
    NotFinite. What shall never be drawn has a logit far below the others, not -inf.

    On an array `cores` select from a slice of the logits each, `chunk` logits at a time.

    Errors: ParamError for draws that are not whole rows, a k_max below 1, integer logits.
    """
    vocab: int
    steps: int
    words: int
    k_max: int
    T: Any
    cores: int
    chunk: int
    logits: BoundOperand
    draws: BoundOperand
    tokens: BoundOperand
    token: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        vocab: int,
        steps: int = ...,
        words: int = ...,
        k_max: int = ...,
        T: Any = ...,
        cores: int = ...,
        chunk: int = ...,
    ) -> Sample: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        logits: _Tensor,
        draws: _Tensor,
        tokens: _Tensor,
        token: Handle | State = ...,
        /,
        *,
        row: _PerCall = ...,
        at: _PerCall = ...,
        vocab: int = ...,
        steps: int = ...,
        words: int = ...,
        k_max: int = ...,
        T: Any = ...,
        cores: int = ...,
        chunk: int = ...,
    ) -> tuple[Handle, Handle]: ...

class Scale(UnaryElementwise):
    """y = factor x, rounded once. Shapes as in `UnaryElementwise`.

    factor: a float32. To have it in x's own dtype, as some models do, round it before.

    Errors: ParamError for a factor that is not finite, for integers.
    """
    factor: float
    def reference(self, x: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        size: int,
        factor: float,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> Scale: ...
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
        factor: float = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class ScatterRows(Operator):
    """pool[places[r]] = x[r], row by row; of a place that is named twice the last row stays. All other rows stay as they were.

    x: (rows, width). pool: (slots, width), of a dtype of its own (`C`), to which numbers are rounded once. places: int32 (rows,),
    negative from the end and clipped, as `Copy` takes ids. Per call, `valid` bounds the rows.

    No array: by its reference and on the CPU.

    Errors: ParamError for a conversion from or to integers.
    """
    rows: int
    width: int
    slots: int
    T: Any
    C: Any
    x: BoundOperand
    pool: BoundOperand
    places: BoundOperand
    @overload
    def __new__(cls, *, rows: int, width: int, slots: int, T: Any = ..., C: Any = ...) -> ScatterRows: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        pool: _Tensor,
        places: _Tensor,
        /,
        *,
        valid: _PerCall = ...,
        rows: int = ...,
        width: int = ...,
        slots: int = ...,
        T: Any = ...,
        C: Any = ...,
    ) -> Handle: ...

class SiLU(UnaryElementwise):
    """y = x / (1 + exp(-x)). Shapes as in `UnaryElementwise`. Errors: ParamError for integers."""
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
    ) -> SiLU: ...
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

class Sigmoid(UnaryElementwise):
    """y = 1 / (1 + exp(-x)). Shapes as in `UnaryElementwise`. Errors: ParamError for integers."""
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
    ) -> Sigmoid: ...
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

class SoftCap(UnaryElementwise):
    """y = cap tanh(x / cap): x where it is small beside `cap`, never beyond it. Shapes as in `UnaryElementwise`.

    Errors: ParamError for a cap that is not from 2^-100 to 2^100, for integers.
    """
    cap: float
    def reference(self, x: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        size: int,
        cap: float,
        T: Any = ...,
        tile_size: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> SoftCap: ...
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
        cap: float = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Softmax(SoftmaxArray, Rowwise):
    """y = exp(x - max) / sum, over the first `vector_size` numbers of a row; the rest of the row is zero.

    x, y: (rows, cols). Per call, `valid` bounds the rows and `valid_cols` the numbers of a row that count:
    `Softmax(x, valid_cols=n)`. y keeps its cols, so what reads it needs no bound.

    The array (bfloat16): a core per lane computes whole vectors of 32, in which what does not count is hidden, of rows that are
    zero beyond them.

    Errors: ParamError for a vector_size that is not 1 to cols, or integers. Unresolvable where no array takes it.
    """
    vector_size: int
    def reference(self, x: Any) -> Any: ...
    @overload
    def __new__(
        cls,
        *,
        rows: int,
        cols: int,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        vector_size: int = ...,
    ) -> Softmax: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        valid: _PerCall = ...,
        valid_cols: _PerCall = ...,
        rows: int = ...,
        cols: int = ...,
        T: Any = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        vector_size: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...

class Softplus(UnaryElementwise):
    """y = log(1 + exp(x)), which is x where x is large and exp(x) where it is far below zero. Shapes as in `UnaryElementwise`.

    Errors: ParamError for integers.
    """
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
    ) -> Softplus: ...
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

class Tanh(UnaryElementwise):
    """y = tanh x. Shapes as in `UnaryElementwise`. Errors: ParamError for integers."""
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
    ) -> Tanh: ...
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

class Transpose(TransposeArray, Operator):
    """y = x^T, or of each of `num_batches` matrices.

    x: ([num_batches,] M, N). y: ([num_batches,] N, M).

    The array (bfloat16, uint8, uint32): num_aie_columns share out x's columns and num_channels a column's rows, a core each, tiles
    of `m` x `n` elements at a time. A memory tile puts squares of `s` x `s` where they belong, and a core transposes them.

    Errors: Unresolvable where no array takes it.
    """
    M: int
    N: int
    num_batches: int
    T: Any
    m: int
    n: int
    s: int
    num_aie_columns: int
    num_channels: int
    x: BoundOperand
    y: BoundOperand
    @overload
    def __new__(
        cls,
        *,
        M: int,
        N: int,
        num_batches: int = ...,
        T: Any = ...,
        m: int = ...,
        n: int = ...,
        s: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
    ) -> Transpose: ...
    @overload
    def __new__(  # type: ignore[misc]
        cls,
        x: _Tensor,
        y: Handle | State = ...,
        /,
        *,
        M: int = ...,
        N: int = ...,
        num_batches: int = ...,
        T: Any = ...,
        m: int = ...,
        n: int = ...,
        s: int = ...,
        num_aie_columns: int = ...,
        num_channels: int = ...,
        dtype: Any = ...,
    ) -> Handle: ...
