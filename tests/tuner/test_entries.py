"""Probes of configurations: from the times of run lists alone, what the model behind them is made of."""

from __future__ import annotations

import pytest

from iron_core.backends.measuring import Timing
from iron_tuner.entries import calibrate, packing, pairing
from iron_tuner.errors import CostError
from iron_tuner.probe import Probe
from iron_tuner.settings import Settings
from tests.tuner.fake import FakeBackend
from tests.tuner.operators import NPU2, made

LOADS = {"ElementwiseAdd": 11.0, "ElementwiseMul": 13.0, "SiLU": 17.0, "ReLU": 4.0}
STEPS = {"ElementwiseAdd": 3.0, "ElementwiseMul": 5.0, "SiLU": 8.0, "ReLU": 2.0}
D0, BASE, RESET = 140.0, 23.0, 6.0


def fake(**keywords):
    return FakeBackend(
        lambda run: STEPS[type(run.op).__name__],
        load_us=lambda run: LOADS[type(run.op).__name__],
        dispatch_us=D0, base_us=BASE, reset_us=RESET, **keywords,
    )  # fmt: skip


def probe(backend=None, **keywords):
    return Probe(backend or fake(), NPU2, timing=Timing(rounds=3, calls=1), **keywords)


def default(name):
    return Settings(made(name, size=1024, num_aie_columns=1, num_channels=1), NPU2, fake()).default


def test_a_pair_tells_dispatch_base_and_reset():
    """By lists in turn, grouped, alone and packed."""
    found = calibrate(probe(), default("ElementwiseAdd"), default("ElementwiseMul"))
    assert found.dispatch_us == pytest.approx(D0)
    assert found.base_us == pytest.approx(BASE)
    assert found.reset_us == pytest.approx(RESET)
    assert found.switch_us == pytest.approx(((BASE + 11) + (BASE + 13)) / 2)


def test_a_triangle_tells_what_each_entry_takes():
    """An odd cycle of pairs determines every one of them."""
    add, mul, silu = map(default, ("ElementwiseAdd", "ElementwiseMul", "SiLU"))
    sums = [2 * calibrate(probe(), a, b).switch_us for a, b in ((add, mul), (add, silu), (silu, mul))]
    assert (sums[0] + sums[1] - sums[2]) / 2 == pytest.approx(BASE + 11)


def test_where_every_step_is_a_dispatch_a_switch_is_a_load():
    """There is no base, nothing to reset, and nothing is packed."""
    found = calibrate(probe(dispatch="separate"), default("ElementwiseAdd"), default("ElementwiseMul"))
    assert (found.base_us, found.reset_us) == (None, None)
    assert found.dispatch_us == pytest.approx(D0)
    assert found.switch_us == pytest.approx((11 + 13) / 2)


def test_a_load_is_measured_beside_a_design_that_is_calibrated():
    """What both take to enter, and how far off that may be."""
    found = pairing(probe(fake(noise=0.001)), default("ElementwiseAdd"), default("ReLU"))
    assert found.pair_us == pytest.approx(2 * BASE + 11 + 4, rel=0.1) and found.noise_us > 0
    exact = pairing(probe(remeasure=True), default("ElementwiseAdd"), default("ReLU"))
    assert exact.pair_us == pytest.approx(2 * BASE + 11 + 4)


def test_a_pack_enters_once_for_all_its_members():
    """Its entry has one base and every load; its members' steps are measured there."""
    members = [default("ElementwiseMul"), default("SiLU")]
    found = packing(probe(), default("ElementwiseAdd"), members)
    assert found.pair_us == pytest.approx((BASE + 13 + 17) + (BASE + 11))
    assert found.t_step_us == pytest.approx((5.0, 8.0))


def test_what_was_measured_is_not_measured_again():
    """By another probe of the same platform."""
    backend = fake()
    pair = default("ElementwiseAdd"), default("ElementwiseMul")
    first = calibrate(probe(backend), *pair)
    asked = len(backend.lists)
    assert calibrate(probe(backend), *pair) == first and len(backend.lists) == asked
    calibrate(probe(backend, remeasure=True), *pair)
    assert len(backend.lists) == 2 * asked


def test_a_busy_machine_calibrates_nothing():
    """A wrong base would be in every price."""
    with pytest.raises(CostError, match=r"in turn: no figure to trust \(another process"):
        calibrate(probe(fake(disturbed=lambda runs: "another process")), default("ElementwiseAdd"), default("ElementwiseMul"))


def test_a_step_in_a_pack_takes_no_less_than_nothing():
    """Noise is more than it; a table with such a step would drop the pack when it is read."""
    members = [default("ElementwiseMul"), default("SiLU")]
    lost = FakeBackend(lambda run: -3.0 if type(run.op).__name__ == "SiLU" else 5.0)
    with pytest.raises(CostError, match=r"on one configuration: a step there is less than the noise, -3 us\. Raise --repeats \(9\)"):
        packing(probe(lost), default("ElementwiseAdd"), members)


def test_designs_of_one_array_say_nothing_of_entries():
    """They are never switched between."""
    small, large = (
        Settings(made("ReLU", size=size, num_aie_columns=1, num_channels=1, tile_size=256), NPU2, fake()).default for size in (1024, 2048)
    )
    with pytest.raises(CostError, match="are one array"):
        pairing(probe(), small, large)
