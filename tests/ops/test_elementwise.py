"""`AXPY`, `Clamp`, `ElementwiseMax`, `LeakyReLU`, `Log`, `Tanh`: at the ends of their ranges, on every road, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import iron_core as iron
from iron_core import array_key, bfloat16
from iron_core.array.build import build
from iron_core.devices import device
from iron_core.errors import ParamError, Unresolvable
from iron_ops_aie import AXPY, Clamp, ElementwiseMax, LeakyReLU, Log, Tanh
from iron_ops_aie.elementwise import kernels_log
from iron_sim.machine import Machine
from iron_sim.run import regions_of, simulate

F32 = np.dtype(np.float32)
NAN, INF = math.nan, math.inf


def run(backend, function, *inputs):
    """What a graph of one operator gives."""

    class One(iron.Graph):
        def body(self, a, b=None):
            return function(a) if b is None else function(a, b)

    given = dict(zip("ab", ((x.shape, x.dtype) for x in inputs), strict=False))
    return np.asarray(One().compile(backend=backend, **given)(*inputs))


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_ends(backend):
    """What is no number stays none; what is infinite is told by its sign."""
    x = np.array([NAN, INF, -INF, 2.0, -2.0, 0.0, 1e30, -1e30], F32)

    def same(function, *want):
        assert np.array_equal(run(backend, function, x), np.array(want, F32), equal_nan=True)

    same(lambda x: LeakyReLU(x, alpha=0.5), NAN, INF, -INF, 2, -1, 0, 1e30, -5e29)
    same(lambda x: Clamp(x, low=-1.5, high=1e3), NAN, 1e3, -1.5, 2, -1.5, 0, 1e3, -1.5)
    same(lambda x: Clamp(x, low=-INF, high=0.25), NAN, 0.25, -INF, 0.25, -2, 0, 0.25, -1e30)
    same(lambda x: Log(x, T=np.float32), NAN, INF, NAN, math.log(2), NAN, -INF, math.log(1e30), NAN)
    y = run(backend, Tanh, x)
    assert np.isnan(y[0]) and y[1] == 1 and y[2] == -1 and y[5] == 0 and y[6] == 1 and y[7] == -1


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_the_larger_of_two(backend):
    """A NaN on either side comes through."""
    a, b = np.array([NAN, 1, 3, -INF, 2], F32), np.array([1, NAN, 2, -5, INF], F32)
    assert np.array_equal(run(backend, ElementwiseMax, a, b), np.array([NAN, NAN, 3, -5, INF], F32), equal_nan=True)


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_numbers_are_rounded_to_the_dtype_they_meet(backend, rng):
    """A factor, a slope and bounds are bfloat16 where what they meet is, as on the cores."""
    a, b = rng.standard_normal((2, 500)).astype(bfloat16)
    wide = a.astype(float)
    third = float(np.asarray(1 / 3).astype(bfloat16))
    assert third != np.float32(1 / 3)
    want = (third * wide + b.astype(float)).astype(F32).astype(bfloat16)
    assert np.array_equal(run(backend, lambda a, b: AXPY(a, b, scalar_factor=1 / 3), a, b), want)
    want = np.where(wide > 0, wide, third * wide).astype(F32).astype(bfloat16)
    assert np.array_equal(run(backend, lambda a: LeakyReLU(a, alpha=1 / 3), a), want)
    assert run(backend, lambda a: Clamp(a, low=-1 / 3, high=1 / 3), a).astype(float).max() == third
    x = a.astype(F32)
    assert run(backend, lambda a: Clamp(a, low=-1 / 3, high=1 / 3), x).max() == np.float32(1 / 3)


@pytest.mark.parametrize("T", [np.float32, bfloat16, np.float16])
def test_a_logarithm_keeps_its_contract(T, rng):
    """Numbers of every size, below the normal ones too, and densely near one, where the logarithm is small."""
    every = np.exp2(rng.uniform(-149, 127.9, 4000)).astype(F32)
    near = (1 + np.linspace(-0.6, 0.6, 4001)).astype(F32)
    closest = np.nextafter(np.ones(64, F32), np.repeat(np.array([0, 2], F32), 32)).astype(F32)
    x = np.concatenate([every, near, closest])
    op = Log(size=x.size, T=T)
    op.check(run("host", lambda x: Log(x, T=T), x), op.reference(x), x)
    for offset in (1e-3, 2.0):
        op = Log(size=x.size, T=T, offset=offset)
        op.check(run("host", lambda x, c=offset: Log(x, T=T, offset=c), x), op.reference(x), x)


def test_the_cores_logarithm_is_within_one_unit(rng):
    """Over every size of number it is the exact logarithm, rounded once, but where that lies between two bfloat16."""
    x = np.concatenate([np.exp2(rng.uniform(-149, 127.9, 1 << 14)), 1 + np.linspace(-0.6, 0.6, 1 << 14)]).astype(F32)
    op = Log(size=1 << 15).resolved(device("npu2"))
    got, exact = op.composed(x), op.reference(x)
    op.check(got, exact, x)
    assert (got != exact.astype(F32).astype(bfloat16)).mean() < 1e-4
    ends = Log(size=16, tile_size=16).composed(np.array([0, -0.0, -1, INF, -INF, NAN] + 10 * [1], F32)).astype(float)
    assert np.array_equal(ends, [-INF, -INF, NAN, INF, NAN, NAN] + 10 * [0], equal_nan=True)


def test_the_logarithms_polynomial_is_a_fit():
    """Through the Chebyshev nodes of its interval; 7.5e-9 of the result off at most."""
    low, high = math.sqrt(0.5) - 1, math.sqrt(2) - 1
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos((2 * np.arange(10) + 1) * np.pi / 20)
    fit = np.polynomial.polynomial.polyfit(nodes, np.log1p(nodes) / nodes, 9)
    assert np.allclose(kernels_log.Q, fit, rtol=3e-7, atol=0)
    f = np.linspace(low, high, 10001)
    f = f[f != 0]
    assert np.abs(np.polynomial.polynomial.polyval(f, kernels_log.Q) * f / np.log1p(f) - 1).max() < 7.6e-9


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_one_array_clamps_to_any_bounds(dev, rng):
    """The bounds are words of the cores: two designs on one array, one after the other, and what a call bounds."""
    ops = [Clamp(size=2048, low=low, high=high).resolved(device(dev)) for low, high in ((-0.5, 1.0), (0.25, INF))]
    assert len({array_key(op) for op in ops}) == 1
    built = [build(op, dev) for op in ops]
    assert built[0].design.array is built[1].design.array
    machine = Machine(built[0].design.array, built[0].kernels)
    x = (3 * rng.standard_normal(2048)).astype(bfloat16)
    for op, made in zip(ops, built, strict=True):
        regions = regions_of(made.design, {"x": x})
        machine.run(made.design.sequence, regions, {})
        assert np.array_equal(regions["y"].data, np.clip(x.astype(F32), op.low, op.high).astype(bfloat16))
    short, poison, _ = simulate(ops[0], dev, {"x": x}, {"valid": 700})
    assert np.array_equal(short["y"][:700], np.clip(x[:700].astype(F32), -0.5, 1).astype(bfloat16)) and not poison["y"][:700].any()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: AXPY(size=4, scalar_factor=INF), "AXPY: scalar_factor=inf; legal: a finite bfloat16"),
        (lambda: AXPY(size=4, scalar_factor=1e6, T=np.float16), "AXPY: scalar_factor=1000000.0; legal: a finite float16"),
        (lambda: LeakyReLU(size=4, alpha=NAN), "LeakyReLU: alpha=nan; legal: a finite bfloat16"),
        (lambda: Log(size=4, offset=1e39), "Log: offset=1e\\+39; legal: a finite float32"),
        (lambda: Clamp(size=4, low=2.0, high=1.0), "Clamp: low=2.0 with high=1.0; legal: a low of at most high"),
        (lambda: Clamp(size=4, low=NAN, high=1.0), "Clamp: low=nan with high=1.0; legal: a low of at most high"),
        (lambda: Tanh(size=4, T=np.int32), "Tanh: T=int32; legal: float32, bfloat16, float16"),
        (lambda: Clamp(size=4, low=0.0, high=1.0, T=np.int8), "Clamp: T=int8; legal: float32, bfloat16, float16"),
        (lambda: LeakyReLU(size=4, T=np.int8), "LeakyReLU: T=int8; legal: float32, bfloat16, float16"),
    ],
)
def test_what_means_nothing_is_refused(make, sentence):
    """By keyword, value and what would be legal."""
    with pytest.raises(ParamError, match=sentence):
        make()


def test_an_array_leaks_less_than_all():
    """Its kernel takes the larger of x and alpha x; the largest slope that it names is legal."""
    with pytest.raises(Unresolvable, match=r"LeakyReLU: alpha=1.5; .* Nearest legal alpha: 1\."):
        build(LeakyReLU(size=4096, alpha=1.5), "npu2")
    build(LeakyReLU(size=4096, alpha=1.0), "npu2")
