"""`composed()` where an operator declares none: element i of every input's tiles makes element i of the output's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core import Auto, Extent, In, Kernel, KernelContract, Out, Param, bfloat16
from iron_core.errors import DeclarationError


class Scaled(iron.Operator):
    """y[r] = (w * x[r]).sum(); w is one tile, sent to every lane."""

    rows: int = Param()
    cols: int = Param()
    tile: int = Auto(default=2)
    x = In(rows, cols, tile=(tile, cols), per=(1,))
    w = In(cols, tile=cols, per=(1,), replicate=True)
    y = Out(rows, tile=tile, per=(1,))
    valid = Extent(rows)

    def reference(self, x, w):
        return (x.astype(np.float32) * w.astype(np.float32)).sum(1)

    def kernel(self) -> Kernel:
        contract = KernelContract(
            roles=(In, In, Out), reference=lambda x, w: (x.astype(np.float32) * w.astype(np.float32)).sum(1)
        )
        return Kernel.inline("scaled", "void KERNEL();", (self.x.tile, self.w.tile, self.y.tile), contract)


def test_tiles_go_through_the_kernel_in_turn(rng):
    """Each rounded once; what every lane has is given every time."""
    op = Scaled(rows=6, cols=32).resolved()
    x, w = (rng.standard_normal(shape).astype(bfloat16) for shape in ((6, 32), (32,)))
    want = np.concatenate([op.kernel().contract.reference(x[i : i + 2], w) for i in (0, 2, 4)])
    got = op.composed(x, w)
    assert got.dtype == bfloat16 and np.array_equal(got, want.astype(bfloat16))


class Uneven(Scaled):
    w = In(Scaled.rows, tile=1, per=(1,))


class Masked(iron.Operator):
    """Uneven too, behind an input that is not there."""

    rows: int = Param()
    masked: bool = Param(default=False)
    mask = In(rows, tile=1, per=(1,), when=masked)
    x = In(rows, tile=2, per=(1,))
    w = In(rows, tile=1, per=(1,))
    y = Out(rows, tile=2, per=(1,))
    kernel = Scaled.kernel

    def reference(self, mask, x, w):
        return x


class Bare(iron.Operator):
    n: int = Param()
    x = In(n)
    y = Out(n)

    def reference(self, x):
        return x


@pytest.mark.parametrize(
    ("op", "shapes", "words"),
    [
        (Uneven(rows=6, cols=32, tile=2), ((6, 32), (6,)), r"Uneven declares no composed\(\); .* equally many tiles, not x in 3, w in 6"),
        (Masked(rows=6), (None, (6,), (6,)), "Masked declares no .* equally many tiles, not x in 3, w in 6"),
        (Bare(n=4), ((4,),), r"Bare declares no composed\(\); the default needs kernel\(\)"),
    ],
    ids=["uneven", "one absent", "no kernel"],
)
def test_an_operator_whose_array_does_otherwise_declares_its_own(op: Any, shapes, words):
    with pytest.raises(DeclarationError, match=words):
        op.composed(*(None if shape is None else np.zeros(shape, bfloat16) for shape in shapes))


@pytest.mark.parametrize("gives", [1.0, np.zeros(3), (np.zeros(2), np.zeros(2))], ids=["a number", "three", "two arrays"])
def test_a_kernels_reference_gives_a_tile(monkeypatch, gives):
    """Not one number for all of them, nor more or fewer elements, nor several arrays."""

    class Wrong(Scaled):
        def kernel(self) -> Kernel:
            contract = KernelContract(roles=(In, In, Out), reference=lambda x, w: gives)
            return Kernel.inline("wrong", "void KERNEL();", (self.x.tile, self.w.tile, self.y.tile), contract)

    with pytest.raises(DeclarationError, match=r"kernel wrong_\w+: its reference gave .*; legal: a tile's 2 elements"):
        Wrong(rows=6, cols=32).resolved().composed(np.zeros((6, 32), bfloat16), np.zeros(32, bfloat16))


def test_a_tile_that_is_open_is_asked_of_a_resolved_operator():
    with pytest.raises(DeclarationError, match=r"Scaled.x.tile: tile is open. Ask a resolved operator"):
        Scaled(rows=6, cols=32).composed(np.zeros((6, 32), bfloat16), np.zeros(32, bfloat16))
