"""One array serves every extent: the same object, byte for byte the same when printed; only the sequence differs."""

from __future__ import annotations

import re
from importlib.util import find_spec

import numpy as np
import pytest

import iron_core as iron
from iron_core.array.build import build
from iron_core.declare.identity import array_key, design_key
from iron_core.devices import device
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, SiLU
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")
#: Operator: fields both have, and the extents of each.
PAIRS = {
    "ElementwiseAdd": (ElementwiseAdd, dict(tile_size=256, num_aie_columns=4), dict(size=4096), dict(size=12288)),
    "SiLU": (SiLU, dict(tile_size=64, num_aie_columns=2), dict(size=1024), dict(size=65536)),
    "GEMV": (GEMV, dict(K=256, num_aie_columns=4, tile_size_input=2, tile_size_output=8), dict(M=64), dict(M=512, num_batches=2)),
    "GEMM": (GEMM, dict(b_col_maj=True, tile_m=16, tile_k=64, tile_n=32, num_aie_columns=2), dict(M=128, K=128, N=128),
        dict(M=256, K=64, N=64)),
    "MHA": (MHA, dict(d=64), dict(num_heads=2, seq_len=64), dict(num_heads=4, seq_len=128)),
    "Copy": (Copy, dict(num_channels=2, tile_size=512), dict(input_size=2048), dict(input_size=8192)),
}  # fmt: skip


def two(name, dev):
    """The pair, resolved; where the device chooses otherwise for the second, it is held to the first's choice."""
    cls, common, first, second = PAIRS[name]
    one = cls(**common, **first).resolved(device(dev))
    held = {k: getattr(one, k) for k in cls.autos() if not cls.fields[k].derived}
    return one, cls(**common | held, **second).resolved(device(dev))


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("name", PAIRS)
def test_two_extents_are_one_array(name, dev):
    one, other = two(name, dev)
    assert design_key(one) != design_key(other) and array_key(one) == array_key(other)
    first, second = build(one, dev).design, build(other, dev).design
    assert first.array is second.array
    assert first.sequence != second.sequence


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("name", PAIRS)
def test_an_array_recorded_anew_is_equal(name, dev, monkeypatch):
    """Not only found in a cache: the second extent alone records the same data, and prints it alike."""
    one, other = two(name, dev)
    first = build(one, dev).design.array
    monkeypatch.setattr("iron_core.array.build._arrays", {})
    monkeypatch.setattr("iron_core.array.build._designs", {})
    second = build(other, dev).design.array
    assert first is not second and first == second and hash(first) == hash(second) and repr(first) == repr(second)


@pytest.mark.skipif(find_spec("iron_npu") is None, reason="iron-npu is not installed")
@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("name", PAIRS)
def test_printed_arrays_are_equal_byte_for_byte(name, dev, monkeypatch):
    """And the rest of the printed designs, which is their sequences, is not."""
    from iron_npu.mlir.printer import print_array, print_design

    one, other = two(name, dev)
    first = build(one, dev).design
    monkeypatch.setattr("iron_core.array.build._arrays", {})
    monkeypatch.setattr("iron_core.array.build._designs", {})
    second = build(other, dev).design
    assert print_array(first.array) == print_array(second.array)

    def without_sequence(text):
        kept, removed = re.subn(r"(?ms)^(\s*)aie\w*\.runtime_sequence.*?^\1}\n", "", text)
        assert removed == 1
        return kept

    whole = [print_design(design).text for design in (first, second)]
    assert whole[0] != whole[1]
    assert without_sequence(whole[0]) == without_sequence(whole[1])


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("name", PAIRS)
def test_both_extents_are_right_on_it(name, dev):
    """The one array gives each its own bits."""
    for op in two(name, dev):
        given = {k: v for k, v in type(op).test.draw(op, np.random.default_rng(0)).items() if v is not None}
        kept = {n: np.zeros(op.shape(n), op.format(n).dtype) for n in op.partial}
        (operand,) = (o.name for o in op.outputs)
        outputs, masks, _ = simulate(op, dev, {**kept, **given})
        want = op.composed(*(given.get(o.name) for o in op.inputs), **kept)
        assert not masks[operand].any()
        assert outputs[operand].tobytes() == np.ascontiguousarray(want).tobytes()


class Layers(iron.Graph):
    """Products of different numbers of rows, one after another."""

    def body(self, x, a, b, c):
        how = dict(num_aie_columns=2, tile_size_input=2, tile_size_output=8)
        return GEMV(c, GEMV(b, GEMV(a, x, **how), **how), **how)


def test_steps_of_several_extents_share_one_entry():
    """In a full ELF, an array is configured once for them all."""
    run = Layers().compile(backend="sim", dev="npu2", x=(64,), a=(64, 64), b=(64, 64), c=(128, 64))
    (version,) = run.versions.values()
    image = version.load().image
    assert image.entries == ((0, 1, 2),)
    assert len({step.design.sequence for step in image.steps}) == 2
