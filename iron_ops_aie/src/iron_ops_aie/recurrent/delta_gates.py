"""`DeltaGates`: how fast each head of a gated delta rule forgets at a token, and how much it corrects."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import (
    Auto,
    Case,
    DType,
    Extent,
    In,
    Kernel,
    KernelContract,
    Loop,
    ObjectFifo,
    ObjectType,
    Operator,
    Out,
    Param,
    Pattern,
    Testing,
    Tolerance,
    Value,
    Worker,
    bfloat16,
    nearest,
    range_,
    require,
    require_dtype,
    require_npu,
    widen,
)
from iron_core.array.numbers import BFLOAT16, float32, power
from iron_ops_aie.elementwise.kernels_softplus import SOFTPLUS, softplus
from iron_ops_aie.logistic import logistic
from iron_ops_aie.rules import divisors, floats_only

#: Numbers of an object at most.
OBJECT = 1024

_GATES = (
    BFLOAT16
    + SOFTPLUS
    + """
extern "C" void KERNEL(const uint16_t *a, const uint16_t *b, const float *bias, const float *rate, float *g, float *beta) {
  for (int32_t i = 0; i < MANY; i++) {
    g[i] = softplus(widen(a[i]) + bias[i % HEADS]) * rate[i % HEADS];
    beta[i] = 1 / (1 + power(-widen(b[i])));
  }
}
"""
)


class DeltaGates(Operator):
    """g = rate softplus(a + bias);  beta = sigmoid(b): what `GatedDeltaStep` takes, in float32.

    a, b: (rows, heads). bias, rate: (heads,), float32; of a rate that is not positive g is not. g, beta: (rows, heads), float32.
    `valid` bounds the rows.

    The array (bfloat16): one core, a block of rows at a time.

    Errors: ParamError for integers. Unresolvable where no array takes it.
    """

    rows: int = Param()
    heads: int = Param(array=True)
    T: Any = DType(default=bfloat16)
    #: Numbers of a block of rows.
    line: int = Auto(1, array=True, derived=True)
    a = In(rows, heads, dtype=T, tile=line)
    b = In(rows, heads, dtype=T)
    bias = In(heads, dtype=np.float32, tile=heads)
    rate = In(heads, dtype=np.float32)
    g = Out(rows, heads, dtype=np.float32, tile=line)
    beta = Out(rows, heads, dtype=np.float32, tile=line)
    valid = Extent(rows)
    lines = Value(derive=lambda op: op.rows * op.heads // op.line)

    test = Testing(
        Case(rows=1, heads=4, lower=True),
        Case(rows=48, heads=32, lower=True),
        Case(rows=20, heads=6, bounds=dict(valid=7), lower=True),
        Case(rows=20, heads=33, bounds=dict(valid=7), T=np.float32),
        Case(rows=3, heads=7, T=np.float16),
        Case(rows=64, heads=32, bench=True),
        draw=dict(centered=("a", "b", "bias"), rate=lambda op, rng: -(10 ** rng.uniform(-2, 1, op.heads))),
    )

    def validate(self) -> None:
        floats_only(self, "T")

    def reference(self, a: Any, b: Any, bias: Any, rate: Any) -> Any:
        return widen(rate) * np.logaddexp(0, widen(a) + widen(bias)), logistic(widen(b))

    def tolerance(self) -> Tolerance:
        # Each of Softplus's and Sigmoid's roundings, and those of the sum before and the product behind.
        return Tolerance(terms=10, absolute=2.0**-120)

    def ops(self) -> int:
        return 60 * self.rows * self.heads

    def resolve(self, dev: Any) -> Any:
        require_npu(self, dev)
        return self.evolve(line=self.heads * max(n for n in divisors(self.rows) if n == 1 or n * self.heads <= OBJECT))

    def compatible(self, dev: Any) -> None:
        require_dtype(self, bfloat16, "T")
        have = self.heads
        require(have % 2 == 0, f"DeltaGates: heads={have} of bfloat16 are no whole words. Nearest legal: heads={nearest(have, 2)}.")
        require(have <= OBJECT, f"DeltaGates: heads={have}; a core takes at most {OBJECT}. Nearest legal: heads={OBJECT}.")

    def kernel(self) -> Kernel:
        """The `Kernel` of one block."""
        many, heads = self.line, self.heads

        def reference(a: Any, b: Any, bias: Any, rate: Any) -> tuple[np.ndarray, np.ndarray]:
            bias, rate = (np.tile(np.asarray(x, np.float32), many // heads) for x in (bias, rate))
            one = np.float32(1)
            with np.errstate(over="ignore"):
                return softplus(float32(a) + bias) * rate, one / (one + power(-float32(b)))

        contract = KernelContract(
            roles=(In, In, In, In, Out, Out),
            reference=reference,
            tolerance=Tolerance(terms=10),
            ops=60 * many,
            loops=(Loop(times=many, reads=2, writes=2, chain=0, scalar=1500),),  # float32 by functions
        )
        line, row = ObjectType.of(many, bfloat16), ObjectType.of(heads, np.float32)
        made = ObjectType.of(many, np.float32)
        return Kernel.inline("delta_gates", _GATES, (line, line, row, row, made, made), contract, dict(MANY=many, HEADS=heads))

    def array(self, target: Any) -> None:
        def core(given: Any, numbers: Any, g: Any, beta: Any, kernel: Any, lines: Any) -> None:
            bias, rate = numbers.acquire(2)
            for _ in range_(lines):
                a, b = given.acquire(2)
                kernel(a, b, bias, rate, g.acquire(), beta.acquire())
                given.release(2)
                g.release()
                beta.release()
            numbers.release(2)

        given, numbers = ObjectFifo(self.a.tile, depth=4, name="a"), ObjectFifo(self.bias.tile, name="bias")
        g, beta = ObjectFifo(self.g.tile, name="g"), ObjectFifo(self.beta.tile, name="beta")
        given.prod(tile=self.a.lane(0))
        numbers.prod(tile=self.bias.lane(0))
        g.cons(tile=self.g.lane(0))
        beta.cons(tile=self.beta.lane(0))
        Worker(core, [given.cons(), numbers.cons(), g.prod(), beta.prod(), self.kernel()], values=[self.lines], name="core0")

    def sequence(self, rt: Any) -> None:
        """All rows, whatever bounds them."""
        rt.preamble()
        size, line = self.rows * self.heads, self.line
        for name in ("g", "beta"):
            rt.transfer("drain", name, 0, Pattern.whole((size,)), managed=False)
        for name in ("bias", "rate"):
            rt.transfer("fill", name, 0, Pattern.whole((self.heads,)), via="bias", managed=False)
        for at in range(0, size, line):
            for name in ("a", "b"):
                rt.transfer("fill", name, 0, Pattern(at, (line,), (1,)), via="a", managed=False)

    def composed(self, a: Any, b: Any, bias: Any, rate: Any) -> Any:
        """Row by row; rows do not meet."""
        kernel = self.evolve(line=self.heads).kernel()
        made = [kernel.reference(*rows, bias, rate) for rows in zip(np.asarray(a), np.asarray(b), strict=True)]
        if not made:
            return np.empty((0, self.heads), np.float32), np.empty((0, self.heads), np.float32)
        return tuple(np.stack(each) for each in zip(*made, strict=True))
