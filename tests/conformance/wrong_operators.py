"""Operators with a mistake each, under the suite that operators inherit: `test_operator_mistakes.py` runs this and reads what failed."""

from __future__ import annotations

import itertools

import numpy as np

import iron_core as iron
from iron_core import Case, In, Kernel, KernelContract, Out, Param, Testing, Tolerance
from iron_core.declare.rounding import widen
from iron_core.testing import OperatorConformance

SOURCE = """
#include <stdint.h>
extern "C" void KERNEL(const uint16_t *x, uint16_t *y, int32_t n) {
  for (int32_t i = 0; i < n; i++)
    y[i] = x[i] & 0x7FFF;
}
"""
CASE = Case(size=512, bounds=dict(valid=300))
DRAW = dict(centered=("x",))


class Right(iron.UnaryElementwise):
    """y = |x|, elementwise; valid bounds it."""

    test = Testing(Case(size=512, lower=True), CASE, draw=DRAW)
    source = SOURCE
    promised = dict(elementwise=True)

    def reference(self, x):
        return np.abs(widen(x))

    def tile(self, x, n):
        return np.abs(x)

    def kernel(self):
        contract = KernelContract((In, Out, Param), self.tile, ((2, self.tile_size),), **self.promised)
        return Kernel.inline("absolute", self.source, (self.x.tile, self.y.tile, np.int32), contract)


class Conformance(OperatorConformance):
    backends = ("reference", "sim")
    devices = ("npu2",)


class TestRight(Conformance):
    operator = Right


# -- references ------------------------------------------------------------------------------------


class Overwrites(Right):
    def reference(self, x):
        return np.abs(x, out=x).astype(np.float32)


class TestOverwrites(Conformance):
    operator = Overwrites


class Random(Right):
    def reference(self, x):
        return np.abs(widen(x)) * np.random.default_rng().uniform(0.5, 1)


class TestRandom(Conformance):
    operator = Random


class Counts(Right):
    calls = itertools.count()

    def reference(self, x):
        return np.abs(widen(x)) + next(self.calls)


class TestCounts(Conformance):
    operator = Counts


class Short(Right):
    def reference(self, x):
        return np.abs(widen(x))[:-1]


class TestShort(Conformance):
    operator = Short


class Infinite(Right):
    def reference(self, x):
        return np.abs(widen(x)) + np.inf


class TestInfinite(Conformance):
    operator = Infinite


class Narrow(iron.UnaryElementwise):
    """y = |x| / 3 * 3 + x, in the arithmetic of its operand."""

    test = Testing(Case(size=512), CASE, draw=DRAW)

    def reference(self, x):
        third = np.asarray(3, x.dtype)
        return np.abs(x) / third * third + x


class TestNarrow(Conformance):
    operator = Narrow


# -- tolerances ------------------------------------------------------------------------------------


class Tolerant(Right):
    def tolerance(self):
        return Tolerance(absolute=1e6)


class TestTolerant(Conformance):
    operator = Tolerant


class Unbounded(Right):
    def tolerance(self):
        return Tolerance(absolute=np.inf)


class TestUnbounded(Conformance):
    operator = Unbounded


class Small(Right):
    def magnitude(self, x):
        return np.abs(widen(x)) / 2


class TestSmall(Conformance):
    operator = Small


# -- declarations ----------------------------------------------------------------------------------


class Silent(iron.Operator):
    """The absolute value of every number."""

    size: int = Param()
    x = In(size)
    y = Out(size)
    test = Testing(Case(size=512), draw=DRAW)

    def reference(self, x):
        return np.abs(widen(x))


class TestSilent(Conformance):
    operator = Silent


class Untested(Right):
    test = Testing()


class TestUntested(Conformance):
    operator = Untested


class Twice(Right):
    test = Testing(Case(size=512, id="one"), Case(size=256, id="one"), CASE, draw=DRAW)


class TestTwice(Conformance):
    operator = Twice


class Whole(Right):
    test = Testing(Case(size=512), draw=DRAW)


class TestWhole(Conformance):
    operator = Whole


class Zeros(Right):
    test = Testing(CASE, draw=dict(x=lambda op, rng: np.zeros(op.shape("x"))))


class TestZeros(Conformance):
    operator = Zeros


class Drifting(Right):
    test = Testing(CASE, draw=dict(x=lambda op, rng: np.random.default_rng().standard_normal(op.shape("x"))))


class TestDrifting(Conformance):
    operator = Drifting


class Renamed(Right):
    pass


class TestRenamed(Conformance):
    operator = Renamed
    name = "SiLU"


class Serial(Right):
    made = itertools.count()
    serial: int = Param(default=lambda op: next(Serial.made))


class TestSerial(Conformance):
    operator = Serial


class Debt(Right):
    def ops(self):
        return -1


class TestDebt(Conformance):
    operator = Debt


# -- arrays and kernels ----------------------------------------------------------------------------


class Garbage(Right):
    source = "This is no C++."


class TestGarbage(Conformance):
    operator = Garbage


class Other(Right):
    source = SOURCE.replace("uint16_t *", "float *").replace("x[i] & 0x7FFF", "x[i]")


class TestOther(Conformance):
    operator = Other


class Mangled(Right):
    source = SOURCE.replace('extern "C"', "")


class TestMangled(Conformance):
    operator = Mangled


class Behind(Right):
    source = SOURCE.replace("i < n", "i <= n")


class TestBehind(Conformance):
    operator = Behind


class Unequal(Right):
    source = SOURCE.replace("0x7FFF", "0xFFFF")


class TestUnequal(Conformance):
    operator = Unequal


class Deviates(Right):
    def tile(self, x, n):
        return np.abs(x) + 1


class TestDeviates(Conformance):
    operator = Deviates


class Neighbours(Right):
    def tile(self, x, n):
        return np.abs(x) + np.roll(np.abs(x), 1) / 8

    source = "#include <stdint.h>"


class TestNeighbours(Conformance):
    operator = Neighbours


class Careless(Right):
    def tile(self, x, n):
        return np.abs(x, out=x)


class TestCareless(Conformance):
    operator = Careless


class Loose(Right):
    promised = dict(tolerance=Tolerance(absolute=1e6))


class TestLoose(Conformance):
    operator = Loose


class Roomless(Right):
    test = Testing(CASE, Case(size=300, lower=True), draw=DRAW)


class TestRoomless(Conformance):
    operator = Roomless
