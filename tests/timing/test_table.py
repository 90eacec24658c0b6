"""Published timings beside the clock's: which rows are simulated, which chose something, and how near the others are."""

from __future__ import annotations

import attrs
import pytest

from iron_core.array.work import Loop
from iron_ops_aie.attention.kernels_mha import AttentionKernels
from iron_sim.timing.hardware import NPU2, TABLES
from iron_sim.timing.kernels import kernel_cycles, loop_cycles
from iron_sim.timing.measure import step
from iron_sim.timing.rows import PACKAGINGS, ROWS, Part, Row
from iron_sim.timing.table import choosers, judge, main, mean, operator

BY_NAME = {row.name: row for row in ROWS}
#: Quick ones, of every packaging.
QUICK = (
    "npu2-int8-peak", "npu2-bfp16-tile", "gemv-512x2048", "gemv-residual", "rope-small", "npu1-tiny-chain", "npu1-mm2s-4096",
    "npu1-s2mm-4096",
)  # fmt: skip


def test_a_row_is_simulated_or_says_what_is_unknown():
    assert len(BY_NAME) == len(ROWS)
    for row in ROWS:
        assert bool(row.packaging) != bool(row.unknown), row
        assert row.packaging in ("", *PACKAGINGS)
        assert row.unknown or 0 < row.us[0] <= row.us[1]


def test_every_quantity_has_a_source_and_rows_that_chose_it_are_rows():
    for table in TABLES.values():
        for name, quantity in table.quantities().items():
            assert quantity.source and quantity.unit, name
    assert choosers() <= set(BY_NAME)


@pytest.mark.parametrize("name", QUICK)
def test_quick_rows_are_within_a_factor_of_one_and_a_half(name):
    found = judge(BY_NAME[name])
    assert not found.failure
    assert 2 / 3 < found.ratio < 1.5


def test_a_full_elf_of_one_entry_has_no_empty_reset():
    """As published ones, of which the smallest leave no room for it."""
    (part,) = BY_NAME["gemv-2048x2048"].parts
    one = Row("one", "npu2", "", (1, 1), "S", "elf", (part,))
    of = step(operator(part), "npu2")
    assert judge(one).us == pytest.approx(NPU2.dispatch.value + NPU2.entry_base.value + of.load_us + of.us)


def test_inside_a_range_the_ratio_is_one_and_outside_that_to_its_nearer_end():
    row = BY_NAME["rope-small"]
    us = judge(row).us
    measured = ((us / 2, us * 2), (us / 2, us / 2), (us * 4, us * 5))
    ratios = [judge(attrs.evolve(row, us=one)).ratio for one in measured]
    assert ratios == pytest.approx([1, 2, 1 / 4])
    assert mean([judge(row)]) == max(judge(row).ratio, 1 / judge(row).ratio)


def test_a_row_that_cannot_be_predicted_fails_the_command(monkeypatch, capsys):
    bad = Row("bad", "npu2", "", (1, 1), "", "step", (Part("GEMV", {"M": 7, "K": 7}),))
    monkeypatch.setattr("iron_sim.timing.table.ROWS", (bad, BY_NAME["rope-small"]))
    assert main([]) == 1
    out = capsys.readouterr().out
    assert "GEMV" in next(line for line in out.splitlines() if line.startswith("bad"))
    assert "chose: 1 rows" in out and "held: 1 rows" in out


def test_turns_that_overlap_take_what_they_issue_and_others_their_latencies():
    hw = NPU2
    loop = Loop(times=100, reads=32, writes=32, chain=2)
    alone = sum(q.value for q in (hw.load_latency, hw.mac_latency, hw.mac_latency, hw.convert_latency, hw.store_latency))
    assert loop_cycles(loop, hw) == 100 * alone
    assert loop_cycles(Loop(times=100, reads=32, writes=32, chain=2, overlapped=True), hw) == 100 * 2 + alone


def test_conversions_and_whole_numbers_wait_for_each_other_too():
    hw = NPU2
    made = Loop(times=3, reads=64, writes=64, chain=10, conversions=8, scalar=5)
    waits = 10 * hw.mac_latency.value + 9 * hw.convert_latency.value + 5 + hw.load_latency.value + hw.store_latency.value
    assert loop_cycles(made, hw) == 3 * waits


def test_an_accurate_power_takes_the_steps_of_its_polynomial():
    """32 of a block's scores at once; a fast one is an instruction among others."""
    fast, accurate = (kernel_cycles(AttentionKernels(64, 64, exp2=exp2).softmax(), NPU2) for exp2 in ("fast", "accurate"))
    assert 100 < (accurate - fast) / (64 * 64 / 32) < 125
