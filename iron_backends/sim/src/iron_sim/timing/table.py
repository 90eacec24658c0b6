"""`python -m iron_sim.timing.table`: published timings beside what the simulator's clock makes of their designs.

A row that chose a quantity of the hardware, or a rate of a kernel, is told from those that are held against it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from iron_core.array.work import Loop
from iron_core.backends.measuring import RunList
from iron_core.cli import streams
from iron_core.cli.table import print_json, print_table
from iron_core.declare.chained import fold
from iron_core.errors import IronError
from iron_core.plugins.registry import registry
from iron_sim.timing.events import Timed, timed
from iron_sim.timing.hardware import TABLES, Hardware, hardware
from iron_sim.timing.kernels import loop_cycles
from iron_sim.timing.measure import Step, step, total_us
from iron_sim.timing.rows import ROWS, Part, Row

#: Rows from which kernels of the catalog have their rates (see their contracts' `cycles_source`).
RATED = ("gemm-emulated", "gemm-native", "gemm-2048-f32")
#: Rows that chose no number but what is said of a kernel or channel: that an elementwise loop's turns do not overlap, what a turn of RoPE,
#: RMSNorm, LayerNorm and Sample holds, that a reading channel pauses between descriptors.
SHAPED = ("add-4m-1", "rope-large", "rms-norm-2048", "layer-norm", "sample", "gather-1")
#: Micro tiles of a core's matrix instruction that a row of packaging "kernel" runs: (products an instruction, products in all, MHz).
KERNELS = {"npu1-bf16-tile": (128, 32 * 32 * 32, 1800), "npu2-bfp16-tile": (512, 64 * 96 * 64, 1800)}


@attrs.frozen
class Judged:
    """A row with its prediction. ratio: predicted to measured, 1 inside a range. failure: why there is none, where there should be."""

    row: Row
    us: float = 0.0
    ratio: float = 0.0
    failure: str = ""

    @property
    def chose(self) -> bool:
        return self.row.name in choosers()

    @property
    def off(self) -> float:
        return max(self.ratio, 1 / self.ratio) if self.ratio else 0.0


def choosers() -> frozenset[str]:
    """The names of the rows that chose something."""
    quantities = [quantity for table in TABLES.values() for quantity in table.quantities().values()]
    return frozenset((*RATED, *SHAPED)).union(*(quantity.rows for quantity in quantities))


def judge(row: Row) -> Judged:
    """Predict a row whose design is known."""
    try:
        us = predict(row) / row.scale
    except IronError as error:
        return Judged(row, failure=str(error))
    low, high = row.us
    return Judged(row, us, us / low if us < low else us / high if us > high else 1.0)


def predict(row: Row) -> float:
    """Microseconds of a row's design."""
    hw = hardware(row.dev)
    if row.packaging == "kernel":
        each, products, mhz = KERNELS[row.name]
        loop = Loop(times=products // each, reads=1, writes=1, chain=1, overlapped=True)
        return (loop_cycles(loop, hw) + 2 * hw.branch.value) / mhz
    if row.packaging == "peak":
        return hw.us(4096)
    operators = [operator(part) for part in row.parts]
    steps = [step(op, row.dev, part.members) for op, part in zip(operators, row.parts, strict=True)]
    match row.packaging:
        case "step":
            return sum(one.us for one in steps)
        case "xclbin":
            return hw.standalone.value + sum(one.us for one in steps)
        case "chain":
            return sum(hw.chain_run.value + one.us for one in steps)
        case "elf":
            return total_us(steps, RunList(row.name, ()), hw, resets=False)
    return _task(steps[0], hw, fills=row.packaging == "fill")


def operator(part: Part) -> Any:
    """The operator of a part, with what is folded into it."""
    found = registry().load("operators", part.operator)(**part.fields)
    for behind in part.finish:
        found = fold(found, operator(behind))
    return found


def _task(one: Step, hw: Hardware, *, fills: bool) -> float:
    """From a shim task's start to its end: of the one that fills the array, or of the one that drains it, from its first word on."""
    run: Timed = timed(one.design, one.kernels, trace=True)
    way = "fill" if fills else "drain"
    fifo = next(step.fifo for step in one.design.sequence.transfers() if step.way == way)
    pieces = run.events[f"stream {fifo}"]
    latency = (hw.read_latency if fills else hw.write_latency).value * 1e-3
    return pieces[-1][1] + pieces[-1][2] - pieces[0][1] + latency


def mean(found: Iterable[Judged]) -> float:
    """The geometric mean of max(r, 1 / r); 0 of none."""
    logs = [math.log(one.off) for one in found if one.ratio]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0


@attrs.frozen
class Table:
    """Rows with their predictions, and those of which something is unknown."""

    found: tuple[Judged, ...]
    missing: tuple[Row, ...]

    @property
    def groups(self) -> dict[str, list[Judged]]:
        """Those that chose something, and those that are held against it."""
        return {"chose": [one for one in self.found if one.chose], "held": [one for one in self.found if not one.chose]}

    @property
    def failed(self) -> bool:
        """Could a row whose design is known not be predicted?"""
        return any(one.failure for one in self.found)

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "rows": [_plain(one) for one in self.found],
            "unknown": [{"name": row.name, "case": row.case, "unknown": row.unknown} for row in self.missing],
            "geometric_mean": {name: round(mean(group), 3) for name, group in self.groups.items()},
            "worst": {name: _worst(group) for name, group in self.groups.items()},
        }

    def show(self) -> None:
        """Print it."""
        print_table(("row", "device", "case", "predicted us", "measured us", "ratio", ""), [_cells(one) for one in self.found])
        if self.missing:
            print()
            print_table(("not simulated", "device", "case", "what is unknown"), [[r.name, r.dev, r.case, r.unknown] for r in self.missing])
        print()
        for name, group in self.groups.items():
            print(f"{name}: {len(group)} rows, geometric mean of max(r, 1/r) {mean(group):.3f}, the worst {_worst(group):.2f}")


def judged(names: Sequence[str] = ()) -> Table:
    """The rows whose names begin so, or all of them."""
    rows = [row for row in ROWS if not names or row.name.startswith(tuple(names))]
    return Table(tuple(judge(row) for row in rows if not row.unknown), tuple(row for row in rows if row.unknown))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a row whose design is known could not be predicted."""
    parser = argparse.ArgumentParser(prog="iron_sim.timing.table", description="Published timings beside the simulator's.")
    parser.add_argument("names", nargs="*", metavar="ROW", help="rows whose names begin so (default: all)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.json:
        streams.reserve()
    table = judged(args.names)
    if args.json:
        print_json(table.as_dict())
    else:
        table.show()
    return int(table.failed)


def _worst(group: Iterable[Judged]) -> float:
    return max((one.off for one in group), default=0.0)


def _plain(one: Judged) -> dict[str, Any]:
    row = one.row
    return {
        "name": row.name, "device": row.dev, "case": row.case, "source": row.source, "packaging": row.packaging, "predicted_us": one.us,
        "measured_us": list(row.us), "ratio": one.ratio, "chose": one.chose, "failure": one.failure,
    }  # fmt: skip


def _cells(one: Judged) -> list[str]:
    low, high = one.row.us
    measured = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    said = one.failure or ("chose" if one.chose else "held")
    return [one.row.name, one.row.dev, one.row.case, f"{one.us:.4g}", measured, f"{one.ratio:.2f}", said]


if __name__ == "__main__":
    raise SystemExit(main())
