"""What the tiles of an operator's array hold is added up in one place: the limits', `explain`'s and the operators'."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from iron_core import Auto, In, Operator, Out, Param
from iron_core.array import Buffer, Kernel, KernelContract, ObjectFifo, Worker, fit, set_rounding
from iron_core.array.build import build
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import GEMM, GEMV, MHA


class Held(Operator):
    """One core with a buffer of `kept` numbers beside its lines."""

    size: int = Param()
    kept: int = Param(array=True)
    tile: int = Auto(default=64)
    x = In(size, tile=tile, per=(1,))
    y = Out(size, tile=tile, per=(1,))

    def reference(self, x: Any) -> Any:
        return x

    def array(self, target: Any) -> None:
        contract = KernelContract(roles=(In, Out), reference=lambda x: x, stack=2048)
        copy = Kernel.inline("copy", "void KERNEL();", (self.x.tile, self.y.tile), contract)

        def core(x: Any, y: Any, kernel: Any, kept: Any) -> None:
            set_rounding("conv_even")
            kernel(x.acquire(), y.acquire())
            x.release()
            y.release()

        x, y = ObjectFifo(self.x.tile, name="x"), ObjectFifo(self.y.tile, name="y")
        x.prod(tile=self.x.lane(0))
        y.cons(tile=self.y.lane(0))
        Worker(core, [x.cons(), y.prod(), copy, Buffer(self.kept, "int32", name="kept")], name="only")


def test_objects_buffers_and_stack_are_counted_as_they_lie():
    """Two lines of 128 bytes each way, a buffer of 20 bytes at a multiple of 32, the stack its kernel needs."""
    (held,) = fit.memory(Held(size=640, kept=5).resolved(), "npu2")
    assert held.parts == (("its stack", 2048), ("fifo x_cons, 2 x 64 bfloat16", 256), ("fifo y, 2 x 64 bfloat16", 256), ("buffer kept", 32))
    assert (held.worker, held.kind, held.used, held.there, held.fits) == ("only", "core", 2592, 65536, True)


def test_a_class_that_is_defined_again_is_counted_again():
    """As in a notebook: by the array it has now."""

    def defined(words):
        class Again(Held):
            def array(self, target: Any) -> None:
                super().array(target)
                Worker(lambda buffer: None, [Buffer(words, "int32", name="more")], name="idle")

        return Again

    for words in (8, 16):
        held = fit.memory(defined(words)(size=640, kept=5).resolved(), "npu2")
        assert ("buffer more", 4 * words) in next(one for one in held if one.worker == "idle").parts


def test_what_fits_to_the_byte_is_what_the_limits_take():
    """65536 bytes: one number more is refused by both, with the same sum."""
    room = 65536 - 2048 - 512
    fit.fit(build(Held(size=640, kept=room // 4), "npu2").design)
    over = Held(size=640, kept=room // 4 + 1).resolved()
    with pytest.raises(Unresolvable, match=r"Held: core only needs 65568 bytes of its 65536 \(buffer kept: 63008; .*\). Give less\."):
        fit.require_memory(over, "npu2", "Give less.")
    with pytest.raises(Unresolvable, match=r"core only \(column 0, row 2\) needs 65568 bytes of memory and has 65536"):
        fit.fit(build(over, "npu2").design)


@pytest.mark.parametrize("op", [GEMM(M=64, K=64, N=64), GEMV(M=64, K=64), MHA(num_heads=1, seq_len=16)], ids=lambda op: type(op).__name__)
def test_an_operator_is_told_what_the_limits_count(op, monkeypatch):
    """compatible(dev) asks the accounting: where a core had less, the operator is refused with its sum."""
    op = op.resolved("npu2")
    fullest = next(held for held in fit.memory(op, "npu2") if held.kind == "core")
    less = attrs.evolve(fullest, there=fullest.used - 1)
    monkeypatch.setattr(fit, "memory", lambda op, dev: (less,))
    with pytest.raises(Unresolvable, match=rf"core {fullest.worker} needs {fullest.used} bytes of its {fullest.used - 1}"):
        op.compatible(device("npu2"))
    op.compatible(None)  # made for a device that is yet to be chosen
