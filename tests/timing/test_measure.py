"""The simulator measures run lists: simulated time by the cost model of full ELFs and chains, outputs as its array gives them."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.backends.measuring import Estimating, Run, RunList, Timing, drawn, measuring
from iron_core.devices import device
from iron_core.errors import UnsupportedError
from iron_ops_aie import GEMV, ElementwiseAdd, ElementwiseMul, ResampleTaps, SiLU
from iron_sim.backend import SimBackend
from iron_sim.timing.hardware import hardware
from iron_sim.timing.measure import step

NPU2, NPU1 = device("npu2"), device("npu1")
ADD, MUL = Run(ElementwiseAdd(size=2048)), Run(ElementwiseMul(size=2048))


def us(*runs, dev=NPU2, **how):
    (found,) = measuring(SimBackend()).measure([RunList("list", runs, **how)], dev, Timing(rounds=3))
    return found.us


def test_a_step_is_what_eight_more_of_it_add():
    assert (us(*[ADD] * 9) - us(ADD)) / 8 == pytest.approx(step(ADD.op, NPU2).us)


def test_an_elf_pays_its_dispatch_an_entry_wherever_the_array_changes_and_an_odd_reset():
    hw = hardware(NPU2)
    add, mul = step(ADD.op, NPU2), step(MUL.op, NPU2)
    entries = [hw.entry_base.value + one.load_us for one in (add, mul)]
    assert us(ADD) == pytest.approx(hw.dispatch.value + entries[0] + add.us + hw.reset.value)
    assert us(ADD, MUL) == pytest.approx(hw.dispatch.value + sum(entries) + add.us + mul.us)
    assert us(ADD, MUL, ADD, MUL) - us(ADD, ADD, MUL, MUL) == pytest.approx(sum(entries))


def test_a_pack_is_configured_once():
    add, mul = (Run(cls(size=2048, num_aie_columns=2)) for cls in (ElementwiseAdd, ElementwiseMul))
    apart, packed = us(add, mul, add, mul), us(add, mul, add, mul, packs=((0, 1, 2, 3),))
    hw = hardware(NPU2)
    loads = step(add.op, NPU2).load_us + step(mul.op, NPU2).load_us
    assert apart - packed == pytest.approx(3 * hw.entry_base.value + loads - hw.reset.value)
    with pytest.raises(UnsupportedError, match=r"list: a pack of ElementwiseAdd, ElementwiseMul: .*streams"):
        us(ADD, MUL, packs=((0, 1),))


def test_a_chain_pays_each_run_and_what_it_switches_to_the_first_after_the_last():
    hw = hardware(NPU1)
    add, mul = step(ADD.op, NPU1), step(MUL.op, NPU1)
    assert us(ADD, ADD, dev=NPU1, dispatch="separate") == pytest.approx(2 * (hw.chain_run.value + add.us))
    switches = sum(hw.chain_switch.value + one.columns * hw.chain_column.value + one.load_us for one in (add, mul))
    assert us(ADD, MUL, dev=NPU1, dispatch="separate") == pytest.approx(2 * hw.chain_run.value + add.us + mul.us + switches)


@pytest.mark.parametrize(
    "dev, how, rule",
    [
        (NPU1, {}, "full ELF"),
        (NPU2, dict(dispatch="separate", packs=((0,),)), "packs of a chain"),
    ],
)
def test_what_a_device_or_a_packaging_does_not_have_is_refused(dev, how, rule):
    with pytest.raises(UnsupportedError, match=rule):
        us(ADD, dev=dev, **how)


def test_a_run_that_no_array_takes_is_refused_by_its_number_and_the_rule():
    with pytest.raises(UnsupportedError, match=r"list, run 1: .*tile_size"):
        us(ADD, Run(ElementwiseAdd(size=2048, tile_size=8192)))
    with pytest.raises(UnsupportedError, match="run 0: tunables threads"):
        us(Run(ADD.op, tunables=dict(threads=2)))


@pytest.mark.parametrize("size", [2048, 1 << 16])
def test_outputs_are_the_arrays_whether_simulated_or_composed(size):
    runs = RunList("list", (Run(SiLU(size=size)), Run(ElementwiseAdd(size=size))), seed=7)
    (found,) = SimBackend().measure([runs], NPU2, Timing())
    for index, run in enumerate(runs.runs):
        want = run.op.resolved(NPU2).composed(*drawn(runs, index).values())
        np.testing.assert_array_equal(found.outputs[index, "y"].view(np.uint16), want.view(np.uint16))


def test_bounds_cut_the_outputs_and_the_time():
    whole, cut = (RunList("list", (Run(GEMV(M=2048, K=512), members),)) for members in ({}, dict(valid=512)))
    found = SimBackend().measure([whole, cut], NPU2, Timing())
    assert [one.outputs[0, "C"].shape for one in found] == [(2048,), (512,)]
    assert found[1].us < found[0].us


def test_there_is_no_noise_and_equal_lists_are_equal():
    one, other = SimBackend().measure([RunList("list", (ADD,))] * 2, NPU2, Timing())
    assert (one.noise_us, one.us, one.digest()) == (0, other.us, other.digest())


def test_the_time_of_an_array_that_follows_data_is_that_of_its_tests_draw():
    assert us(Run(ResampleTaps(in_size=37, out_size=48))) > 0


def test_the_platform_is_simulated_and_a_device_each():
    platforms = {SimBackend().platform(dev) for dev in ("npu1", "npu2", "npu2_4col")}
    assert len(platforms) == 3
    assert {one.mode for one in platforms} == {"simulated"}


@pytest.mark.parametrize("op", [ADD.op, GEMV(M=512, K=512)], ids=["ElementwiseAdd", "GEMV"])
def test_what_a_step_takes_is_known_about_without_a_run(op):
    """Within a tenth of the step that is measured."""
    backend = SimBackend()
    assert isinstance(backend, Estimating)
    once, often = (found.us for found in backend.measure([RunList("n", (Run(op),) * n) for n in (1, 9)], NPU2, Timing()))
    assert backend.estimate(Run(op), NPU2) == pytest.approx((often - once) / 8, rel=0.1)
    with pytest.raises(UnsupportedError):
        backend.estimate(Run(ElementwiseAdd(size=7)), NPU2)
