"""The way to host memory: channels that slow each other down, lanes that share a bank, and rows whose addresses are translated."""

from __future__ import annotations

import attrs
import pytest

from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.devices import device
from iron_ops_aie import GEMV, Copy
from iron_sim.timing.banks import shared_rates
from iron_sim.timing.estimate import estimate
from iron_sim.timing.events import timed
from iron_sim.timing.hardware import NPU1, NPU2, Quantity
from iron_sim.timing.table import judge
from tests.timing.test_table import BY_NAME


def product(dev, **fields):
    return build(GEMV(**fields).resolved(device(dev)), dev, {})


def rates(dev="npu1", hw=NPU1, **fields):
    return shared_rates(product(dev, **fields)[0], hw)


def test_lanes_whole_periods_apart_share_a_bank():
    """8192 rows over four lanes lie 8 MiB apart, 512 rows 512 KiB; 128 rows 128 KiB, which is four banks."""
    lanes = dict(num_aie_columns=4, num_channels=1, K=2048)
    for rows in (8192, 512):
        assert set(rates(M=rows, **lanes).values()) == {NPU1.bank_rate.value / 4}
    assert not rates(M=128, **lanes)
    assert set(rates(M=256, **lanes).values()) == {NPU1.bank_rate.value / 2}


def test_other_lanes_and_other_devices_do_not():
    """The output head's lanes lie 501 x 256 KiB apart: two and two share. npu2's memory shows nothing of it."""
    head = dict(M=128256, K=2048, num_aie_columns=4, num_channels=1, tile_size_output=32)
    shared = rates(**head)
    assert set(shared.values()) == {NPU1.bank_rate.value / 2} and NPU1.bank_rate.value / 2 > NPU1.shim_read_gbs
    assert not rates("npu2", NPU2, M=8192, K=2048)


def test_events_and_estimates_take_as_long_as_the_bank_gives():
    design, kernels = product("npu1", M=8192, K=2048, num_aie_columns=4, num_channels=1)
    alone = 8192 * 2048 * 2 / NPU1.bank_rate.value / 1e3
    for us in (timed(design, kernels).us, estimate(design, kernels, fit(design)).us):
        assert us == pytest.approx(alone, rel=0.02)


def test_a_product_of_npu1_that_chose_nothing_is_as_measured():
    found = judge(BY_NAME["gemv-512x2048-npu1"])
    assert not found.chose and 0.9 < found.ratio < 1.1


def test_channels_have_less_together_long_before_their_limit():
    """Four could read 56 GB/s, as much as there is, and read 49; two lose little; eight have all of it."""
    each = NPU2.shim_read_gbs
    assert NPU2.shared(each) > 0.995 and NPU2.shared(2 * each) > 0.98
    assert 4 * each * NPU2.shared(4 * each) == pytest.approx(49, rel=0.02)
    assert 8 * each * NPU2.shared(8 * each) == pytest.approx(NPU2.fabric_read.value, rel=0.02)
    assert NPU1.shared(4 * NPU1.shim_read_gbs) == 1


@pytest.mark.parametrize("columns", [1, 4, 8])
def test_events_and_estimates_share_alike(columns):
    design, kernels = product("npu2", M=2048, K=2048, num_aie_columns=columns)
    events, ours = timed(design, kernels).us, estimate(design, kernels, fit(design)).us
    assert ours == pytest.approx(events, rel=0.03)
    demand = columns * NPU2.shim_read_gbs
    assert events == pytest.approx(2048 * 2048 * 2 / (demand * NPU2.shared(demand)) / 1e3, rel=0.07)


def gathered(feeds, hw):
    op = Copy(gather=True, table_rows=65536, rows=320, input_size=65536 * 512, num_channels=feeds).resolved(device("npu2"))
    return timed(*build(op, "npu2", {}), hw=hw).us


def test_rows_that_feeds_gather_wait_for_each_others_addresses():
    """One feed does not see it, four take what the translations of 320 rows take."""
    free = attrs.evolve(NPU2, translation=Quantity(0, "ns", "none"))
    assert gathered(1, NPU2) == pytest.approx(gathered(1, free), rel=0.02)
    alone = 320 * NPU2.translation.value / 1e3
    assert gathered(4, free) < 0.8 * alone < alone < gathered(4, NPU2) < 1.15 * alone
