"""A graph of few settings, and cost tables of numbers that a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import iron_core as iron
from iron_core.backends.choose import get
from iron_core.devices import device
from iron_ops_aie import ElementwiseAdd, SiLU
from iron_tuner.cost_table import Calibration, CostTable, PackCost, StepCost, cost_key
from iron_tuner.model import Constants
from iron_tuner.settings import Settings

NPU2 = device("npu2")
#: D0, base and R of every table.
DISPATCH, BASE, RESET = 45.0, 32.0, 35.0
#: The only tunable that is left to choose is how many columns.
HELD = dict(tile_size=256, num_channels=1)
SIZE = 2048


class Turns(iron.Graph):
    """Two arrays in turn, `times` times."""

    def __init__(self, times: int = 3):
        self.times = times

    def body(self, x, y):
        for _ in range(self.times):
            x = SiLU(ElementwiseAdd(x, y, **HELD), **HELD)
        return x


def calibration(switch: float) -> Calibration:
    return Calibration(switch, DISPATCH, "turbo", 8, 50, "2026-12-01", base_us=BASE, reset_us=RESET)


def empty(dispatch: str = "fused", dev: str = "npu2") -> CostTable:
    """A table with a calibrated triangle whose loads are 10."""
    table = CostTable(dev, dispatch)
    for a, b in ("ab", "bc", "ac"):
        table.add_calibration(a, b, calibration(42.0 if dispatch == "fused" else 10.0))
    return table


def step(us: float, load: float, base: float = BASE, **other: Any) -> StepCost:
    """A step that takes this, of an array whose load was measured beside a calibrated one."""
    known = {"noise_us": 0.0, **other}
    return StepCost(us, us + 99, known.pop("exact", True), known.pop("accurate", True), "turbo", 8, 50, "2026-12-01", beside="a",
                    pair_us=2 * base + 10 + load, **known)  # fmt: skip


def fill(table: CostTable, op: Any, cost: Callable[[Any], StepCost | None]) -> CostTable:
    """With every setting of an operator that costs something; `cost` is given it resolved."""
    for variant in Settings(op, device(table.device), get("sim")):
        made = cost(variant.resolved)
        if made is not None:
            table.add_step(cost_key(variant.op, table.device), made)
    return table


def by_columns(wide_us: float, load: float, **other: Any) -> Callable[[Any], StepCost]:
    """Half the columns take half as much more time, and load a little faster."""
    extra = {8: 1.0, 4: 1.5, 2: 2.0, 1: 2.5}
    return lambda op: step(wide_us * extra[op.num_aie_columns], load * (0.98 + op.num_aie_columns / 400), **other)


def add(size: int = SIZE) -> Any:
    return ElementwiseAdd(size=size, **HELD)


def silu(size: int = SIZE) -> Any:
    return SiLU(size=size, **HELD)


def of_turns(dispatch: str = "fused", **other: Any) -> CostTable:
    """Of `Turns`: both arrays at every width."""
    return fill(fill(empty(dispatch), add(), by_columns(8.0, 100.0, **other)), silu(), by_columns(4.0, 80.0, **other))


def pack(*members: tuple[Any, float], entry: float) -> tuple[list[str], PackCost]:
    """Designs that were measured on one configuration, each with its step there."""
    times = {cost_key(op, "npu2"): us for op, us in members}
    return list(times), PackCost("a", entry + BASE + 10, times, "turbo", 8, 50, "2026-12-01")


def elf_us(constants: Constants, steps: Iterable[float], entries: Iterable[Iterable[float]]) -> float:
    """A full ELF. steps: of each step. entries: of each entry the loads of the designs that share its configuration."""
    loads = [sum(entry) for entry in entries]
    return constants.dispatch_us + sum(steps) + sum(loads) + constants.base_us * len(loads) + constants.reset_us * (len(loads) % 2)


def chain_us(constants: Constants, steps: Iterable[float], switches: Iterable[float]) -> float:
    """A chain of dispatches. switches: the load of the design that each switch goes to."""
    return constants.dispatch_us + sum(steps) + sum(switches)
