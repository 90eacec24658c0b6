"""`SquaredReLU`: y = max(x, 0)^2."""

from __future__ import annotations

from typing import Any

import numpy as np
from iron_core import Case, In, Kernel, KernelContract, Out, Param, Testing, Tolerance, UnaryElementwise, widen
from iron_core.array.numbers import BFLOAT16, float32

# One line of an array's core. BFLOAT16 brings `widen` and `narrow`: bfloat16 to float32 and back.
SOURCE = (
    BFLOAT16
    + """
extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    float v = widen(x[i]);
    v = v < 0 ? 0 : v;
    y[i] = narrow(v * v);
  }
}
"""
)


def _squared(x: np.ndarray) -> np.ndarray:
    y = np.maximum(x, np.float32(0))
    return np.asarray(y * y)


class SquaredReLU(UnaryElementwise):
    """y = max(x, 0)^2, elementwise. x, y: tensors of one shape and dtype; a NaN stays one."""

    test = Testing(
        Case(size=1000),
        Case(size=4096, lower=True),
        Case(size=4096, bounds=dict(valid=1500)),
        Case(size=4096, T=np.float32),
        Case(size=1 << 20, bench=True),
        draw=dict(centered=("x",)),
    )

    def reference(self, x: Any) -> Any:
        return _squared(widen(x))

    def kernel(self) -> Kernel:
        contract = KernelContract(
            roles=(In, Out, Param), bindings=((2, self.tile_size),), reference=lambda x, n: _squared(float32(x)), elementwise=True
        )
        return Kernel.inline("squared_relu", SOURCE, (self.x.tile, self.y.tile, np.int32), contract)

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=1)
