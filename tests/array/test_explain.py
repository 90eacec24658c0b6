"""`iron.explain(op, dev)`: what an operator becomes on a device, in words."""

from __future__ import annotations

import pytest

from iron_core import Rowwise
from iron_core.array.build import build
from iron_core.array.explain import explain
from iron_core.declare.cases import cases
from iron_core.errors import Unresolvable
from iron_ops_aie import GEMV
from tests.catalog import PLACES, named


def taken(op, dev):
    """Is there an array of it on this device?"""
    try:
        return bool(build(op, dev))
    except Unresolvable:
        return False


def test_it_tells_tiers_memory_transfers_and_words():
    """Which fields the array depends on and which tunables were chosen; what streams; how each value reaches a core."""
    text = explain(GEMV(M=576, K=576, num_channels=1), "npu2", ("valid",))
    for part in (
        "num_channels=1 (given)", "tile_size_input=12 (chosen)", "8 on columns 0, 1, 2, 3, 4, 5, 6, 7; 16 fifos",
        "bytes of a core's 65536", "A          8 transfers of 331776 bfloat16 in all, 331776 in the tensor",
        "batches: 1, written once by the sequence", "tiles: a word patched per call",
    ):  # fmt: skip
        assert part in text
    sequence = next(line for line in text.splitlines() if line.startswith("  sequence"))
    assert "M=576" in sequence and "tile_size_input" not in sequence


@pytest.mark.parametrize(("cls", "dev"), PLACES, ids=named)
def test_every_operator_explains_itself(cls, dev):
    """Of the first case that the device takes: every field, and what each operand moves."""
    op = next(op for _, case, _ in cases([cls]) if taken(op := cls(**case.fields), dev))
    text = op.explain(dev)
    first, array, *_ = text.splitlines()
    assert first.partition("(")[0].rpartition(".")[2] == cls.__name__ and first.endswith(f" on {dev}") and array.startswith("  array")
    assert all(f"{name}=" in text for name in cls.fields)
    assert set(op.present) <= {line.split()[0] for line in text.splitlines() if " transfer" in line}


def test_an_operator_without_an_array_says_so():
    class Plain(Rowwise):
        def reference(self, x):
            return x

    with pytest.raises(Unresolvable, match="Plain declares no array; it runs on the CPU"):
        explain(Plain(rows=4, cols=64), "npu2")
