"""`backend="sim"`: chosen by name alone, for the devices with an array, for the operators whose array fits."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core import In, Operator, Out, bfloat16
from iron_core.backends.choose import choose, get
from iron_core.backends.protocol import Available, Backend
from iron_core.devices import DEVICES
from iron_core.errors import BoundsError, CallError, UnsupportedError
from iron_core.lowering.answer import No, Yes
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, SiLU
from iron_sim.backend import SimBackend

SIM = SimBackend()


class Bare(Operator):
    """An operator without an array."""

    x, y = In(64), Out(64)

    def reference(self, x):
        return x


def test_it_is_a_backend_that_is_always_there():
    assert isinstance(SIM, Backend)
    assert SIM.probe() == Available("simulates the arrays of npu1 and npu2 and their column variants")


def test_it_is_chosen_by_name_and_only_so(monkeypatch):
    assert choose("sim").backend.name == "sim" and choose("sim").dev == "npu2"
    assert choose(None).backend.name != "sim"
    monkeypatch.setenv("IRON_BACKEND", "sim")
    assert choose(None).backend.name == "sim"


def test_what_it_does_not_take_is_refused(tmp_path):
    """Options of other backends, keywords nobody reads, and a trace that is no path."""

    class Smooth(iron.Graph):
        def body(self, x):
            return SiLU(x)

    for wrong in (dict(strict=True), dict(threads=99)):
        with pytest.raises(CallError, match=f"has no input {next(iter(wrong))}"):
            Smooth().compile(backend="sim", dev="npu2", x=(4096,), **wrong)
        with pytest.raises(CallError, match=f"sim has no option {next(iter(wrong))}. Its options: trace"):
            get("sim", **wrong)
    with pytest.raises(CallError, match=r"Smooth: feeds='nonsense': no version of it"):
        Smooth().compile(backend="sim", dev="npu2", x=(4096,), feeds="nonsense")
    for trace in ("", 7, b"bytes"):
        with pytest.raises(CallError, match="legal: the path of a file"):
            SimBackend(trace=trace)
    assert SimBackend(trace=tmp_path) == SimBackend(trace=str(tmp_path)) != SIM == get("sim")


def test_its_devices_are_those_with_an_array():
    """npu2 first, which is its default."""
    assert SIM.devices()[0] == "npu2"
    assert set(SIM.devices()) == {name for name, dev in DEVICES.items() if dev.is_npu}


def test_it_says_what_it_takes_and_how():
    assert SIM.supports(SiLU(size=16384), "npu2") == Yes("array of 8 cores and 16 fifos")
    assert SIM.supports(SiLU(size=16384), "npu1_2col") == Yes("array of 2 cores and 4 fifos")


@pytest.mark.parametrize(
    ("op", "rule"),
    [
        (Bare(), "Bare declares no array."),
        (SiLU(size=1000), "SiLU: size=1000 is not whole lines of tile_size=32"),
        (ElementwiseAdd(size=4096, T=np.float32), "ElementwiseAdd: T=float32; its array computes on bfloat16"),
    ],
    ids=["no array", "size", "dtype"],
)
def test_it_says_what_it_does_not_take_and_why(op, rule):
    found = SIM.supports(op, "npu2")
    assert isinstance(found, No) and found.rule.startswith(rule)


def test_a_step_it_does_not_take_is_refused_while_compiling():
    class Graph(iron.Graph):
        def body(self, x):
            return SiLU(Copy(x), T=np.float32)

    with pytest.raises(UnsupportedError, match=r"SiLU \(step silu0\) on npu1: .*T=float32.*Legal: T=bfloat16"):
        Graph().compile(backend="sim", dev="npu1", x=((64,), np.float32))


def test_it_has_no_host():
    class Graph(iron.Graph):
        def body(self, x):
            return SiLU(x)

    with pytest.raises(UnsupportedError, match="host"):
        Graph().compile(backend="sim", dev="host", x=(64,))


class First(iron.Graph):
    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return SiLU(x[:n])


@pytest.mark.parametrize("n", [9, -1])
def test_a_bound_outside_its_view_is_refused_before_anything_runs(n):
    run = First().compile(backend="sim", dev="npu2", x=(8, 64))
    with pytest.raises(BoundsError, match=rf"is {n} \(n={n}\); legal: 0 to 8"):
        run(np.ones((8, 64), bfloat16), n=n)


def test_a_bound_of_nothing_is_refused_in_words():
    """An array moves at least one tile of every stream; the host would give no rows. The call's own value is named."""
    run = First().compile(backend="sim", dev="npu2", x=(8, 64))
    with pytest.raises(BoundsError, match=r"SiLU: valid_y is 0 \(valid=0, n=0\); an array moves at least one tile of every stream"):
        run(np.ones((8, 64), bfloat16), n=0)


@pytest.mark.parametrize("dev", ["npu1", "npu1_1col", "npu2", "npu2_3col"])
def test_every_device_gives_the_same_bits(dev):
    """Arrays of other widths cut the work elsewhere, and round alike."""
    rng = np.random.default_rng(0)
    a, x = rng.standard_normal((96, 64)).astype(bfloat16), rng.standard_normal(64).astype(bfloat16)

    class Graph(iron.Graph):
        def body(self, x):
            return SiLU(GEMV(a, x, kernel_vector_size=16, tile_size_input=1))

    got, want = (np.asarray(Graph().compile(backend="sim", dev=d, x=(64,))(x)) for d in (dev, "npu2"))
    assert got.tobytes() == want.tobytes()
