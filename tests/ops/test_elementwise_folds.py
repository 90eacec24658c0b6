"""Elementwise arrays apply the elementwise steps behind them: a second tensor comes down a stream of its own."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core import array_key, bfloat16, fold
from iron_core.array.build import build
from iron_core.array.spec import check
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import AXPY, GELU, Clamp, ElementwiseAdd, ElementwiseMul, Log, Quantize, ReLU, Sigmoid, SiLU
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")
CHAINS = {
    "one that reads nothing besides": lambda n: fold(ElementwiseAdd(size=n), GELU(size=n)),
    "two of them": lambda n: fold(fold(ElementwiseAdd(size=n), GELU(size=n)), ReLU(size=n)),
    "one that reads another tensor": lambda n: fold(SiLU(size=n), ElementwiseMul(size=n)),
    "as its second input": lambda n: fold(SiLU(size=n), AXPY(size=n, scalar_factor=0.5), "b"),
    "between two that do not": lambda n: fold(fold(fold(ReLU(size=n), SiLU(size=n)), ElementwiseMul(size=n), "b"), Sigmoid(size=n)),
    "behind words": lambda n: fold(Clamp(size=n, low=-1.0, high=1.0), ElementwiseAdd(size=n)),
    "behind another dtype": lambda n: fold(Log(size=n, offset=20.0), ElementwiseMul(size=n)),
}


def drawn(op, rng):
    return {o.name: rng.standard_normal(op.shape(o.name)).astype(op.format(o.name).dtype) for o in op.inputs}


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS.keys())
def test_a_simulated_chain_gives_the_composed_bits(make, dev, rng):
    """And those of the steps one by one; within every step's gate."""
    op = make(3072).resolved(device(dev))
    check(build(op, dev).design)
    inputs = drawn(op, rng)
    got = simulate(op, dev, inputs)[0]["y"]
    assert got.tobytes() == np.asarray(op.composed(**inputs)).tobytes()
    op.array_check(got, op.reference(**inputs), *inputs.values())


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("valid", [1, 700, 3072])
def test_a_bound_shortens_every_stream(dev, valid, rng):
    """The one that a step brings too."""
    op = fold(SiLU(size=3072), ElementwiseMul(size=3072)).resolved(device(dev))
    inputs = drawn(op, rng)
    out, poison, stats = simulate(op, dev, inputs, {"valid": valid})
    assert not poison["y"].reshape(-1)[:valid].any()
    assert out["y"][:valid].tobytes() == np.asarray(op.composed(**inputs))[:valid].tobytes()
    assert stats.elements("x") == stats.elements("finish0_b") < 3072 + (valid == 3072)


def test_a_chain_has_an_array_of_its_own():
    """Which no extent is a part of."""
    keys = [array_key(CHAINS["one that reads another tensor"](n).resolved("npu2")) for n in (2048, 4096)]
    assert keys[0] == keys[1] != array_key(SiLU(size=2048).resolved("npu2"))


class Gated(iron.Graph):
    """relu(silu(x) * y + x): two steps would each read a tensor besides."""

    def body(self, x, y):
        return ReLU(ElementwiseAdd(ElementwiseMul(SiLU(x), y), x))


@pytest.mark.parametrize("dev", DEVICES)
def test_a_graph_takes_as_many_steps_as_a_core_has_streams_for(dev, rng):
    """The product behind SiLU, the last step behind the sum; every bit is as unfolded, and why the sum is no step is said."""
    x, y = rng.standard_normal((2, 2048)).astype(bfloat16)
    plain, folded = (Gated().compile(backend="sim", dev=dev, fold=f, x=x.shape, y=y.shape) for f in (False, True))
    assert plain(x, y).tobytes() == folded(x, y).tobytes()
    steps = [len(compiled.versions[sig].image.steps) for compiled in (plain, folded) for sig in compiled.versions]
    assert steps == [4, 2]
    assert "SiLU.finish: a core would read x, finish0_b, finish1_b, and has 2 input streams" in folded.explain()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fold(ElementwiseAdd(size=64), ElementwiseMul(size=64)), "read a, b, finish0_b, and has 2 input streams. Legal: steps"),
        (lambda: fold(Quantize(size=64, scale=0.1), ReLU(size=64, T=np.float32)), "Quantize has 0 operands declared finish="),
        (lambda: fold(SiLU(size=64), Clamp(size=64, low=0.0, high=1.0)), "Clamp cannot be folded"),
        (lambda: fold(SiLU(size=80), Sigmoid(size=80)), "size=80 is not whole lines"),
    ],
)
def test_what_no_core_takes_is_refused_in_words(make, words):
    with pytest.raises(Unresolvable, match=words):
        make().resolved(device("npu2"))
