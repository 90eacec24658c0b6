"""Versions with a run past the driver's watchdog are refused when they are made, with what would be short enough."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import BoundsError, UnsupportedError
from iron_core.image.array_image import array_image
from iron_npu.backend import NpuBackend
from iron_npu.image import watchdog
from iron_npu.image.making import image_of
from iron_npu.image.watchdog import WATCHDOG_US, check_estimate, check_time, longest
from iron_ops_aie import GEMM, ElementwiseAdd, SiLU

N = 4096


class Rows(iron.Graph):
    def body(self, x, *, n: iron.Scratchpad[np.int32], m: iron.Scratchpad[np.int32]):
        return SiLU(x[:n]), ElementwiseAdd(x[:m], x[:m])


@attrs.frozen
class Cost:
    """So many microseconds for each of a value, and as many always."""

    values: dict
    per: dict
    base: float = 0.0

    @property
    def total_us(self):
        return self.base + sum(self.per.get(name, 0) * n for name, n in self.values.items())

    def step_us(self, name):
        return self.total_us / 2


class Clock:
    """Prices by a rule. least: of every value, with which arrays have something to move. most: the largest values."""

    def __init__(self, base=0.0, least=0, most=(("n", N), ("m", N)), **per):
        self.base, self.least, self.most, self.per = base, least, dict(most), per

    def price(self, image, values=None):
        if any(n < self.least for n in (values or {}).values()):
            raise BoundsError("an array moves at least one tile of every stream.")
        return Cost(dict(values or self.most), self.per, self.base)


def planned(dev="npu2"):
    return Rows().compile(dev=dev, backend="null", x=(N,)).plan


def imaged(plan):
    return array_image(plan, plan.versions[0].signature)


def test_a_call_that_is_short_enough_passes():
    """To the microsecond."""
    plan = planned()
    assert check_time("Rows", imaged(plan), Clock(base=WATCHDOG_US)).total_us == WATCHDOG_US == 2e6
    assert image_of(plan, pricing=Clock(base=WATCHDOG_US)).kind == "elf"


def test_a_call_that_is_too_long_says_how_far_a_value_may_go():
    """The largest with which it is short enough, the others as large as they may be."""
    plan = planned()
    with pytest.raises(UnsupportedError) as said:
        image_of(plan, pricing=Clock(n=1000, base=3.5))
    assert str(said.value) == (
        "Rows for x=(4096,) bfloat16 on npu2: the call is estimated at 4.1 s with n=4096, m=4096, and the driver's watchdog ends a run "
        "after 2 s. Legal: a context with n up to 1999, or fewer rows at once, or boundaries=iron.each_step."
    )
    cost = Clock(n=1000, base=3.5)
    assert cost.price(None, {"n": 1999, "m": N}).total_us <= WATCHDOG_US < cost.price(None, {"n": 2000, "m": N}).total_us


def test_values_that_are_too_much_together_are_told_together():
    """Where none alone is enough, all of them as much smaller; where even that is not, no context is named."""
    with pytest.raises(UnsupportedError, match=r"Legal: a context with n up to 1000, m up to 1000, or fewer rows"):
        check_time("Rows", imaged(planned()), Clock(n=1000, m=1000))
    with pytest.raises(UnsupportedError, match=r"ends a run after 2 s\. Legal: fewer rows at once"):
        check_time("Rows", imaged(planned()), Clock(base=3e6))
    with pytest.raises(UnsupportedError, match=r"Legal: a context with n up to 2016, m up to 31, or fewer rows"):
        check_time("Rows", imaged(planned()), Clock(most={"n": N, "m": 64}, n=500, m=32000))


def test_of_a_chain_every_step_is_a_run():
    """A call of more than the watchdog's time whose steps are each shorter passes; else the step is named."""
    image = imaged(planned("npu1"))
    assert longest(image, Clock(base=3e6).price(image))[1] == 1.5e6
    check_time("Rows", image, Clock(base=3e6))
    with pytest.raises(UnsupportedError, match=r"on npu1: step silu0 is estimated at 2\.5 s .* Legal: fewer rows at once\.$"):
        check_time("Rows", image, Clock(base=5e6))


def test_the_least_that_arrays_take_is_what_is_named():
    """Values that leave an array nothing to move are no context, however short; where only they were short enough none is named."""
    with pytest.raises(UnsupportedError, match=r"a context with n up to 1999, or fewer"):
        check_time("Rows", imaged(planned()), Clock(n=1000, base=3.5, least=1500))
    with pytest.raises(UnsupportedError, match=r"Legal: fewer rows at once"):
        check_time("Rows", imaged(planned()), Clock(n=1000, base=3.5, least=2000))


def compiled(plan):
    return NpuBackend().compile(plan, plan.versions[0].signature)


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_whoever_compiles_for_an_npu_is_told(monkeypatch, dev):
    """Not `iron compile` alone; what is refused leaves nothing behind."""
    plan = planned(dev)
    monkeypatch.setattr(watchdog, "pricing_backend", lambda dev: Clock(base=5e6))
    with pytest.raises(UnsupportedError, match=rf"Rows for x=\(4096,\) bfloat16 on {dev}: .* ends a run after 2 s"):
        compiled(plan)
    monkeypatch.setattr(watchdog, "pricing_backend", lambda dev: Clock(base=1e6))
    assert compiled(plan).image.graph == "Rows"


def test_where_nobody_knows_how_long_it_takes_nothing_is_refused(monkeypatch):
    """No backend that prices is installed, or the one that is does not know this device's hardware."""
    plan = planned()

    class Unknown(Clock):
        def price(self, image, values=None):
            raise UnsupportedError("its hardware's timing is not known.")

    for answer in (None, Unknown()):
        monkeypatch.setattr(watchdog, "pricing_backend", lambda dev, answer=answer: answer)
        assert check_estimate("Rows", imaged(plan)) is None and compiled(plan).image.kind == "elf"


def test_a_chunk_that_takes_too_long_is_refused_by_the_simulators_clock():
    """And the largest bound that it names is one that fits."""
    sim = pytest.importorskip("iron_sim.backend").SimBackend()

    class Chunk(iron.Graph):
        def __init__(self):
            self.w = iron.weight(np.zeros((2048, 2048), iron.bfloat16))

        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            x = x[:n]
            for _ in range(200):
                x = GEMM(x, self.w)
            return x

    plan = Chunk().compile(dev="npu2", backend="null", x=(2048, 2048)).plan
    with pytest.raises(UnsupportedError, match=r"is estimated at \d\.\d s with n=2048, .* Legal: a context with n up to \d+, or") as said:
        compiled(plan)
    n = int(str(said.value).partition("n up to ")[2].partition(",")[0])
    assert sim.price(imaged(plan), {"n": n}).total_us <= WATCHDOG_US < sim.price(imaged(plan), {"n": n + 1}).total_us
