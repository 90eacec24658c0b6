"""Packs on the simulator: arrays that share a configuration give the same bits in fewer entries."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import iron_core as iron
from iron_core import array_key, bfloat16
from iron_core.errors import CallError, UnsupportedError
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, RMSNorm, SiLU


def drawn(rng, *shape):
    return rng.standard_normal(shape).astype(bfloat16)


class Block(iron.Graph):
    """A gated projection of narrow designs, some used twice."""

    def __init__(self):
        rng = np.random.default_rng(1)
        self.gate, self.up, self.down = drawn(rng, 256, 64), drawn(rng, 256, 64), drawn(rng, 64, 256)

    def body(self, x):
        gate = SiLU(GEMV(self.gate, x, num_aie_columns=2), num_aie_columns=2)
        up = GEMV(self.up, x, num_aie_columns=2)
        down = GEMV(self.down, ElementwiseAdd(gate, up, num_aie_columns=2), num_aie_columns=2)
        return ElementwiseAdd(x, down, num_aie_columns=1)


class Attend(iron.Graph):
    """Rows up to a bound, attention over a state, a per-call offset into it: words of all kinds."""

    def __init__(self):
        rng = np.random.default_rng(2)
        self.w = drawn(rng, 64, 64)
        self.kept = iron.state((4, 64, 64), name="kept")

    def body(self, x, *, at: iron.Scratchpad[np.int32], n: iron.Scratchpad[np.int32]):
        rows = GEMM(x[:n], self.w, b_col_maj=True, num_aie_columns=1)
        Copy(RMSNorm(rows), self.kept[at])
        return ElementwiseAdd(rows, rows, num_aie_columns=1)


def keys(graph, dev="npu2", **shapes):
    """The array keys of a graph's steps, in the order they run."""
    compiled = graph.compile(backend="sim", dev=dev, **shapes)
    (version,) = compiled.versions.values()
    return compiled, list(dict.fromkeys(step.array_key for step in version.image.steps))


def image(compiled):
    return next(iter(compiled.versions.values())).image


@pytest.mark.parametrize("of", [(0, 1), (1, 2), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4)])
def test_packed_equals_unpacked_bit_for_bit(of):
    """Call after call; whoever is in the pack is entered together with the others."""
    x = drawn(np.random.default_rng(0), 64)
    alone, arrays = keys(Block(), x=(64,))
    packed = Block().compile(x=(64,), backend="sim", dev="npu2", coresident=[[arrays[i] for i in of]])
    for _ in range(3):
        assert np.asarray(packed(x)).tobytes() == np.asarray(alone(x)).tobytes()
    steps, entries = image(packed).steps, image(packed).entries
    inside = [step.array_key in {arrays[i] for i in of} for step in steps]
    assert [index for entry in entries for index in entry] == list(range(len(steps)))
    assert len(entries) == sum(1 for same, run in itertools.groupby(inside) for _ in (run if not same else [0]))
    assert image(packed).resets == len(entries) % 2
    assert packed.traffic.loads == 3 * len(entries) <= alone.traffic.loads - 3 * (of != (1, 2)), "those two are never side by side"
    assert {step.design.array for step, one in zip(steps, inside, strict=True) if one} == {steps[inside.index(True)].design.array}


def test_several_packs_and_words_of_every_kind():
    """Bounds and offsets follow each call, whichever configuration the step is on; states too are the same bits."""
    x = drawn(np.random.default_rng(3), 64, 64)
    alone, arrays = keys(Attend(), x=(64, 64))
    assert len(arrays) == 4
    packed = Attend().compile(x=(64, 64), backend="sim", dev="npu2", coresident=[arrays[:2], arrays[2:]])
    assert len(image(packed).entries) == 2
    for n, at in ((64, 0), (5, 3), (33, 1), (64, 0)):
        assert np.asarray(packed(x, n=n, at=at)).tobytes() == np.asarray(alone(x, n=n, at=at)).tobytes()
        assert packed.read("kept").tobytes() == alone.read("kept").tobytes()


def test_explain_names_packs():
    x = (64,)
    _, arrays = keys(Block(), x=x)
    said = Block().compile(x=x, backend="sim", dev="npu2", coresident=[arrays[:2]]).explain()
    assert "pack       GEMV, SiLU share a configuration: 3 steps" in said or "pack       SiLU, GEMV share a configuration: 3 steps" in said
    assert "pack " not in Block().compile(x=x, backend="sim", dev="npu2").explain()


def test_a_packed_image_is_data():
    """It pickles, and runs when it comes back."""
    _, arrays = keys(Block(), x=(64,))
    packed = image(Block().compile(x=(64,), backend="sim", dev="npu2", coresident=[arrays]))
    back = pickle.loads(pickle.dumps(packed))
    assert back.entries == packed.entries and [step.design for step in back.steps] == [step.design for step in packed.steps]


def test_what_is_no_pack_is_refused():
    x = (64,)
    _, arrays = keys(Block(), x=x)
    other = array_key(MHA(num_heads=2, num_KV_heads=2, d=64, seq_len=64).resolved("npu2"))
    for given, says in (
        (7, r"coresident=7; legal: collections of array keys"),
        ([7], r"coresident=\[7\]; legal"),
        ("ab", "'a' is the array of no step"),
        ([[arrays[0], other]], "is the array of no step"),
        ([arrays[:2], arrays[1:3]], "is in two packs"),
    ):
        with pytest.raises(CallError, match=says):
            Block().compile(x=x, backend="sim", dev="npu2", coresident=given)
    for chain in (dict(dev="npu1"), dict(dev="npu2", boundaries=iron.each_step), dict(dev="npu2", image=iron.CONTEXTS)):
        own = keys(Block(), dev=chain["dev"], x=x)[1]
        with pytest.raises(UnsupportedError, match=r"coresident= of 1 packs.*share a configuration in a full ELF"):
            Block().compile(x=x, backend="sim", coresident=[own], **chain)


def test_arrays_that_do_not_fit_together_are_refused():
    """Naming them, with the placer's words."""

    class Wide(iron.Graph):
        def body(self, x, y):
            return SiLU(ElementwiseAdd(x, y))

    shapes = dict(x=(65536,), y=(65536,))
    _, arrays = keys(Wide(), **shapes)
    with pytest.raises(UnsupportedError, match=r"pack of (ElementwiseAdd, SiLU|SiLU, ElementwiseAdd) on npu2: .*streams go out of shims"):
        Wide().compile(backend="sim", dev="npu2", coresident=[arrays], **shapes)
