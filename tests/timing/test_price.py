"""The price of a call: dispatch, steps, entries and reset of a full ELF; runs and switches of a chain."""

from __future__ import annotations

import json

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.array.build import array_of
from iron_core.backends.choose import choose
from iron_core.backends.pricing import Prices, Pricing
from iron_core.errors import BoundsError
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, SiLU
from iron_sim.timing import price as pricing
from iron_sim.timing.hardware import hardware
from iron_sim.timing.load import load_us
from iron_sim.timing.price import largest, price


class Gate(iron.Graph):
    """Two products by one design, on the same array; what they give is added."""

    def __init__(self):
        self.a, self.b = (np.zeros((256, 64), bfloat16) for _ in range(2))
        self.kept = iron.state((512, 256))

    def body(self, x, *, at: iron.Scratchpad[np.int32]):
        y = ElementwiseAdd(SiLU(GEMV(self.a, x)), GEMV(self.b, x))
        Copy(y, self.kept[at])
        return y


def image_of(dev="npu2", **options):
    """The image of Gate, compiled and not loaded."""
    compiled = Gate().compile(x=64, backend="sim", dev=dev, **options)
    (version,) = compiled.versions.values()
    return version.image


def entered(image):
    """Of every entry the load of its array, as the clock has it."""
    firsts = [image.steps[entry[0]] for entry in image.entries]
    hw = hardware(image.dev)
    return [load_us(step.design.array, array_of(step.array_key, image.dev).kernels, hw) for step in firsts]


def test_an_elf_is_its_dispatch_its_steps_its_entries_and_a_reset():
    image, hw = image_of(), hardware("npu2")
    found = price(image, {"at": 3})
    assert found.image == "elf" and found.dispatch_us == hw.dispatch.value
    assert list(found.loads) == entered(image)
    assert list(found.entries) == [hw.entry_base.value + load for load in found.loads]
    assert found.reset_us == image.resets * hw.reset.value
    parts = (found.dispatch_us, *found.steps.values(), *found.entries, found.reset_us)
    assert found.total_us == pytest.approx(sum(parts))


def wide(image, at):
    """Columns of an entry's array that have cores: none of a copy's."""
    step = image.steps[at]
    return len({step.placement[core.tile][0] for core in step.design.array.cores})


def test_a_chain_is_its_runs_and_what_switches():
    """Steps of one array in turn load it once; round from call to call the last and the first too."""
    image, hw = image_of(boundaries=iron.each_step), hardware("npu2")
    found, alone = price(image, {"at": 3}), price(image_of(), {"at": 3})
    assert found.image == "chain" and found.dispatch_us == found.reset_us == 0
    names = [step.name for step in image.steps]
    assert names == list(found.steps) and len(found.entries) == len(names)
    for name in names:
        assert found.step_us(name) == pytest.approx(alone.step_us(name) + hw.chain_run.value)
    arrays = [step.design.array for step in image.steps]
    assert {wide(image, at) > 0 for at in range(len(names))} == {True, False}
    loads = entered(image)
    for at, (array, us) in enumerate(zip(arrays, found.entries, strict=True)):
        assert us == (0 if array is arrays[at - 1] else hw.chain_switch.value + wide(image, at) * hw.chain_column.value + loads[at])
    assert found.host_us == len(names) * hw.host_run.value


def test_contexts_load_nothing_at_a_call():
    found, chain = price(image_of(image=iron.CONTEXTS), {"at": 3}), price(image_of(boundaries=iron.each_step), {"at": 3})
    assert found.image == "contexts" and not any(found.loads)
    assert found.total_us == pytest.approx(chain.total_us - sum(chain.loads))


def test_npu1_is_priced_by_its_own_table():
    found = price(image_of("npu1"), {"at": 3})
    assert found.image == "chain" and found.steps["silu0"] > hardware("npu1").chain_run.value


def test_equal_designs_are_estimated_once(monkeypatch):
    seen = []
    estimate = pricing.estimate
    monkeypatch.setattr(pricing, "estimate", lambda design, *rest: seen.append(design) or estimate(design, *rest))
    image = image_of()
    found = price(image, {"at": 3})
    assert len(seen) == len({id(step.design) for step in image.steps}) < len(image.steps)
    assert found.steps["gemv0"] == found.steps["gemv1"]


def test_values_that_are_left_out_are_as_large_as_they_may_be():
    assert largest(image_of()) == {"at": 511}
    assert price(image_of()).values == {"at": 511}
    assert price(image_of(), {"at": 2}).values == {"at": 2}


class Rest(iron.Graph):
    """The first rows, and what they leave."""

    def body(self, x, y, *, n: iron.Scratchpad[np.int32]):
        return SiLU(x[:n]), SiLU(y[: 64 - n])


def test_a_value_leaves_every_array_something_to_move():
    """Of what is not given: it is as large as it may be and still does. Only what is limited by what it leaves is 0, which leaves most."""
    (version,) = Rest().compile(x=(64, 64), y=(64, 64), backend="sim", dev="npu2").versions.values()
    assert largest(version.image) == {"n": 63} and price(version.image).total_us > 0

    class Left(iron.Graph):
        def body(self, y, *, n: iron.Scratchpad[np.int32]):
            return SiLU(y[: 64 - n])

    (version,) = Left().compile(y=(64, 64), backend="sim", dev="npu2").versions.values()
    assert largest(version.image) == {"n": 0}


def test_what_nothing_else_limits_is_all_that_transfers_move():
    """As of a run list, whose tensors are residents and whole."""
    (version,) = Rest().compile(x=(64, 64), y=(64, 64), backend="sim", dev="npu2").versions.values()
    image = attrs.evolve(version.image, version=attrs.evolve(version.image.version, inputs=(), outputs=(), checks=()))
    assert largest(image) == {"n": 63}

    class One(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return SiLU(x[:n])

    (version,) = One().compile(x=(4096,), backend="sim", dev="npu2").versions.values()
    image = attrs.evolve(version.image, version=attrs.evolve(version.image.version, inputs=(), outputs=(), checks=()))
    found = largest(image)["n"]
    assert found >= 4096 and price(image).total_us == pytest.approx(price(version.image).total_us)


@pytest.mark.parametrize("n", [0, 64])
def test_a_call_that_no_array_takes_has_no_price(n):
    """It is refused as the call is."""
    compiled = Rest().compile(x=(64, 64), y=(64, 64), backend="sim", dev="npu2")
    (version,) = compiled.versions.values()
    with pytest.raises(BoundsError) as priced:
        price(version.image, {"n": n})
    with pytest.raises(BoundsError) as called:
        compiled(np.zeros((64, 64), bfloat16), np.zeros((64, 64), bfloat16), n=n)
    assert str(priced.value) == str(called.value) and "an array moves at least one tile" in str(called.value)


def test_the_simulator_is_a_backend_that_prices():
    backend = choose("sim", "npu2").backend
    assert isinstance(backend, Pricing)
    found = backend.price(image_of(), {"at": 3})
    assert isinstance(found, Prices) and found.total_us == price(image_of(), {"at": 3}).total_us
    assert found.step_us("gemv0") > 0 and found.step_us("nothing") is None


def test_it_is_told_as_data_and_as_a_table():
    found = price(image_of(), {"at": 3})
    told = json.loads(json.dumps(found.as_dict()))
    assert told["total_us"] == found.total_us and told["steps"] == found.steps and told["bounds"] == found.bounds
    rows = found.rows()
    assert all(len(row) == len(found.HEADERS) for row in rows)
    names = [row[0] for row in rows]
    assert names[:4] == ["(dispatch)", "(entries)", "(reset)", "(total)"] and set(names[4:]) == set(found.steps)
    assert [float(row[1]) for row in rows[4:]] == sorted((round(us, 1) for us in found.steps.values()), reverse=True)
