"""`DequantBFP`: block-quantised weights as `flm.GEMM` reads them."""

from __future__ import annotations

from typing import Any

from iron_core import Q4NX, Auto, Case, DType, In, Operator, Out, Param, Testing, Tolerance, Value, Width
from iron_core.declare.formats import as_format
from iron_core.declare.rounding import floored
from iron_core.errors import ParamError
from iron_ops_flm.dequant_bfp_array import DequantBFPArray
from iron_ops_flm.kernels_bfp import IN_BYTES, OUT_BYTES, PACKED


class DequantBFP(DequantBFPArray, Operator):
    """y = the numbers of x, transposed, rounded down to bfloat16 and then to bfp16ebs8, packed as `flm.GEMM` reads its B.

    x: (N, K), weights in a packed format `F`, such as FastFlowLM's chunks. y: (K, N), in blocks of eight along K that share an
    exponent. Both roundings are towards minus infinity: what a core does that nobody tells otherwise. Bit for bit the same
    everywhere, where scales and minima are finite and so is what is made of them.

    The array, npu2's alone, takes Q4NX: each core makes a quarter of the rows of a tile of 512 x 64.

    Errors: ParamError where x is not block-quantised; FormatError where x or y is not whole blocks; Unresolvable where no array
    takes it.
    """

    N: int = Param()
    K: int = Param()
    F: Any = DType(default=Q4NX, blocks=True)
    num_aie_columns: int = Auto(domain=Width())
    x = In(N, K, dtype=F, tile=IN_BYTES, per=num_aie_columns)
    y = Out(K, N, dtype=PACKED, tile=OUT_BYTES, per=num_aie_columns)
    #: Tiles that a column makes.
    tiles = Value(derive=lambda op: op.N // PACKED.block[1] // op.num_aie_columns * (op.K // PACKED.block[0]))

    test = Testing(
        Case(N=64, K=512),
        Case(N=192, K=1024),
        Case(N=1024, K=512),
        Case(N=128, K=1536, num_aie_columns=1),
        Case(N=64, K=512, F="q4nx_signed"),
        Case(N=1024, K=2048, bench=True),
    )

    def validate(self) -> None:
        if not as_format(self.F).packed:
            raise ParamError(f"DequantBFP: x is {self.F}, which is numbers already; flm.GEMM(...).pack_B() packs them.")
        self.F.stored((self.N, self.K))  # FormatError where these are no whole blocks
        PACKED.stored((self.K, self.N))

    def reference(self, x: Any) -> Any:
        return PACKED.quantize(floored(x.dequantize()).T, "floor")

    def tolerance(self) -> Tolerance:
        return Tolerance(exact=True)

    def ops(self) -> int:
        return 2 * self.N * self.K
