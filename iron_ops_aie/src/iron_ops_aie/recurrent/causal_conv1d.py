"""`CausalConv1d`: every channel convolved over time, a sequence that calls continue."""

from __future__ import annotations

from typing import Any

import numpy as np

from iron_core import Auto, Case, DType, Extent, In, InOut, Operator, Out, Param, Testing, Tolerance, Value, Width, bfloat16, widen
from iron_ops_aie.recurrent.causal_conv1d_array import TAPS, CausalConv1dArray
from iron_ops_aie.rules import floats_only


class CausalConv1d(CausalConv1dArray, Operator):
    """y[t, c] = weight[0, c] x[t - taps + 1, c] + ... + weight[taps - 1, c] x[t, c]; rows before the call's first are in `state`.

    x, y: (rows, channels), a row for every point in time. weight: (taps, channels), of a dtype of its own (`W`). state: (taps - 1,
    channels), the rows of x before the call's first, the oldest first; the call leaves its own last ones there. `valid` bounds the
    rows; a call of none changes nothing. `past`: a per-call number, how many rows came before, `history` at most;
    where it is 0 a sequence begins, and the state counts as zeros. Where calls do not give it the state counts.

    The array (bfloat16, 4 taps): a core per column convolves channels of its own.

    Errors: ParamError for integers, for fewer than two taps. Unresolvable where no array takes it.
    """

    rows: int = Param()
    channels: int = Param()
    taps: int = Param(default=4)
    kept: int = Param(default=lambda op: op.taps - 1)
    history: int = Param(default=1 << 24)
    T: Any = DType(default=bfloat16)
    W: Any = DType(default=lambda op: op.T)
    num_aie_columns: int = Auto(domain=Width())
    #: Channels of a core.
    width: int = Auto(1, array=True, derived=True)
    x = In(rows, channels, dtype=T, tile=width, per=num_aie_columns, depth=TAPS + 1)
    weight = In(taps, channels, dtype=W, tile=width, per=num_aie_columns, depth=TAPS)
    state = InOut(kept, channels, dtype=T)
    y = Out(rows, channels, dtype=T, tile=width, per=num_aie_columns)
    valid = Extent(rows)
    past = Extent(history)
    #: Rows that a core makes, and how many came before.
    steps = Value(derive=lambda op: op.valid)
    begun = Value(derive=lambda op: op.past)

    test = Testing(
        Case(rows=1, channels=64, lower=True),
        Case(rows=20, channels=96, bounds=dict(valid=7, past=3), lower=True),
        Case(rows=5, channels=64, bounds=dict(past=0), num_aie_columns=1, lower=True),
        Case(rows=5, channels=64, bounds=dict(valid=0, past=0), T=np.float32),
        Case(rows=33, channels=1024, lower=True),
        Case(rows=20, channels=96, T=np.float32),
        Case(rows=33, channels=100, bounds=dict(valid=2, past=5), T=np.float32),
        Case(rows=5, channels=64, bounds=dict(past=0), T=np.float32),
        Case(rows=9, channels=7, taps=2, T=bfloat16, W=np.float32),
        Case(rows=3, channels=64, taps=6, T=np.float16),
        Case(rows=64, channels=8192, bench=True),
        Case(rows=1, channels=8192, T=np.float32, bench=True),
        draw=dict(centered=("x", "weight", "state")),
    )

    def validate(self) -> None:
        floats_only(self, "T", "W")
        self.check_derived("kept")

    def _padded(self, x: Any, state: Any) -> np.ndarray:
        """float64: the rows before, then the call's."""
        before = widen(state) if self.past or not len(x) else np.zeros((self.kept, self.channels))
        return np.concatenate([before, widen(x)])

    def _terms(self, x: Any, weight: Any, state: Any) -> Any:
        """Per tap its products, the oldest first; float64."""
        padded = self._padded(x, state)
        return (w * padded[j : j + len(x)] for j, w in enumerate(widen(weight)))

    def reference(self, x: Any, weight: Any, state: Any) -> Any:
        return self._padded(x, state)[len(x) :], sum(self._terms(x, weight, state))

    def magnitude(self, x: Any, weight: Any, state: Any) -> Any:
        return None, sum(np.abs(term) for term in self._terms(x, weight, state))

    def tolerance(self) -> Tolerance:
        return Tolerance(terms=self.taps)

    def ops(self) -> int:
        return 2 * self.taps * self.rows * self.channels
