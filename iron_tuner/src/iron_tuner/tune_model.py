"""`iron tune MODEL`: every design of a model's versions at its settings and operating points, what entering each takes, as a cost table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from iron_core.aside import aside
from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_core.compiled.narrowing import Asked
from iron_core.errors import IronError, UsageError
from iron_core.files import writable
from iron_core.plugins.registry import registry
from iron_tuner import report
from iron_tuner.backends import measuring_backend
from iron_tuner.cost_table import Calibration, CostTable, PackCost, Point, StepCost, cost_key
from iron_tuner.designs import short
from iron_tuner.entries import calibrate, packing, pairing
from iron_tuner.errors import CostError
from iron_tuner.model_designs import ModelDesign, Recorder, designs
from iron_tuner.narrowing import JointNarrowing
from iron_tuner.near import fastest, near
from iron_tuner.points import compared, points
from iron_tuner.probe import Probe
from iron_tuner.records import Measurement, today
from iron_tuner.search import EXHAUSTIVE, Found, Search, Tried
from iron_tuner.settings import Settings, Variant, probed
from iron_tuner.table_file import TableFile
from iron_tuner.tune_operator import Progress, probe_of, written

#: Small designs of one column, each of an array of its own: what entering a configuration takes is told from them.
TRIANGLE = (("ElementwiseAdd", "ElementwiseMul"), ("ElementwiseAdd", "SiLU"), ("SiLU", "ElementwiseMul"))
_CALIBRATED = dict(size=4096, num_aie_columns=1, num_channels=1)


def tune_model(name: str, rest: Sequence[str], options: Mapping[str, Any]) -> int:
    """Measure, write the table, say what of it. The exit status: 1 where a design could not be measured."""
    for option in ("values", "csv_file", "folder"):
        if options[option]:
            raise UsageError(f"--{ {'csv_file': 'csv', 'folder': 'profile', 'values': 'value'}[option] } is for an operator.")
    backend, dev = measuring_backend(options["backend"], options["dev"])
    progress = Progress(name)
    probe = probe_of(backend, dev, options, progress)
    line = [*rest, "--backend", backend.name, "--dev", dev.name]
    line += ["--random-weights", str(options["random_weights"])] if options["random_weights"] is not None else []
    line += ["--each-step"] if dev.full_elf and probe.dispatch == "separate" else []
    family = registry().load("models", name)
    if not callable(getattr(family, "compiled", None)):
        raise UsageError(f"model {name} has no compiled(argv), so its designs are not known. Legal: one of iron-lm's families.")
    if not options["as_json"]:
        aside(f"{name} on {backend.name} {dev}: {probe.platform.name}, power mode {probe.platform.mode}")
    if not dev.is_npu:
        if options["table"]:
            raise UsageError(f"--table: {dev} has no arrays and so no cost table; the fastest settings are kept. Legal: leave it out.")
        from iron_tuner.tune_lowerings import tune_lowerings

        return tune_lowerings(family, line, probe, options, progress)
    path = Path(options["table"] or CostTable.file_name(dev.name, probe.dispatch, "fused" if dev.full_elf else "separate"))
    with written("--table", path):
        writable(path)
        file = TableFile(path, probe, options["remeasure"])
    recorder = Recorder()
    with working(f"{name}: its designs"):
        family.compiled(line, coresident=recorder, **({"unread": True} if options["random_weights"] is not None else {}))
        found, refused = designs(recorder.asked, dev)
    tuned = ModelTuning(probe, options["exhaustive"] or EXHAUSTIVE, options["context"], progress)
    with working(progress.words):
        tuned.calibrate(file.table)
        for number, design in enumerate(found):
            progress.name = f"{name}: {short(design.op)}, {number + 1} of {len(found)}"
            tuned.measure(design, file.table)
            with written("--table", path):
                file.write()
        progress.name = f"{name}: its packs"
        for asked in recorder.asked:
            tuned.packs(asked, file.table)
            with written("--table", path):
                file.write()
    _say(tuned, file.table, refused, path, options)
    return 1 if tuned.left else 0


@attrs.frozen
class Row:
    """A design in the answer: how many steps are of it, and its best setting beside the default."""

    design: str
    steps: int
    settings: int
    default_us: float
    best_us: float
    best: str
    exact: bool


class ModelTuning:
    """Measures designs into a cost table. context: how long contexts are priced, at most; None for all that the caches hold."""

    def __init__(self, probe: Probe, exhaustive: int, context: int | None, progress: Progress) -> None:
        self.probe, self.exhaustive, self.context, self.progress = probe, exhaustive, context, progress
        self.rows: list[Row] = []
        #: Designs without a figure, and why.
        self.left: dict[str, str] = {}
        self._references: list[Variant] = []
        #: By cost key, every setting that is in the table.
        self._variants: dict[str, Variant] = {}

    def calibrate(self, table: CostTable) -> None:
        """The triangle. UnknownName where the operators of it are not installed."""
        probe = self.probe
        made = {name: self._calibrated(name) for pair in TRIANGLE for name in pair}
        self._references = list(made.values())
        for a, b in TRIANGLE:
            found = calibrate(probe, made[a], made[b])
            rounds, calls = probe.timing.rounds, probe.timing.calls
            cost = Calibration(
                found.switch_us, found.dispatch_us, found.pmode, rounds, calls, found.measured, found.base_us, found.reset_us
            )
            table.add_calibration(cost_key(made[a].op, probe.dev), cost_key(made[b].op, probe.dev), cost)

    def _calibrated(self, name: str) -> Variant:
        op = registry().load("operators", name)(**_CALIBRATED)
        return Settings(op, self.probe.dev, self.probe.backend).default

    def measure(self, design: ModelDesign, table: CostTable) -> None:
        """A design at its settings and points, and what entering each takes."""
        probe, op = self.probe, probed(design.op)
        at = points(op, sorted(design.members), design.chunk, self.context, design.scales)
        middle = at[len(at) // 2]
        shown = compared(op, middle.members, design.chunk, design.scales) if probe.simulated and len(at) > 1 else None
        settings = Settings(op, probe.dev, probe.backend, design.pinned, middle.members, shown)
        self.progress.now = "estimating"
        among = near(settings, probe)
        found = Search(settings, probe, exhaustive=self.exhaustive, seen=self.progress.seen, among=among).run()
        if found.default.measured is None:
            self.left[short(design.op)] = found.said
            return
        tried = [one for one in found.tried if one.measured is not None and (one.accurate or one is found.default)]
        if among is not None:
            tried = fastest(tried, found.default)
        elsewhere = {point.label: self._at(point.members, found, tried) for point in at if point is not middle}
        of = cost_key(found.default.variant.op, probe.dev)
        for one in tried:
            costs = self._points(one, found, middle.label, elsewhere, {point.label: point.weight for point in at})
            if costs is not None:
                key = cost_key(one.variant.op, probe.dev)
                self._variants[key] = one.variant
                table.add_step(key, attrs.evolve(self._cost(one, found, costs, design), setting_of=of, tunables=dict(one.variant.tunables)))
        best = found.best.measured or found.default.measured
        self.rows.append(
            Row(short(design.op), design.count, len(found.tried), found.default.measured.t_step_us, best.t_step_us,
                found.best.variant.label if found.best is not found.default else "", found.best.exact)
        )  # fmt: skip

    def packs(self, asked: Asked, table: CostTable) -> None:
        """Measure the packs that the table by itself would choose for a version, as what members take together is not always the sum of
        what each takes. None where every array is a program of its own, or where the table does not tell."""
        if self.probe.dispatch != "fused":
            return
        try:
            groups = JointNarrowing(table).tuning(asked).groups
        except IronError as error:
            self.left[f"packs of {asked.traced.name}"] = str(error)
            return
        for group in groups:
            members = [self._variants[key] for key in group.costs if key in self._variants]
            reference = next((one for one in self._references if one.array_key not in group.keys), None)
            if len(members) < len(group.costs) or reference is None:
                continue
            try:
                found = packing(self.probe, reference, members)
            except IronError as error:
                self.left[f"pack of {', '.join(group.arrays)}"] = str(error)
                continue
            each = dict(zip(group.costs, found.t_step_us, strict=True))
            beside = cost_key(reference.op, self.probe.dev)
            table.add_pack(
                group.costs, PackCost(beside, found.pair_us, each, found.pmode, found.rounds, found.calls, found.measured)
            )

    def _at(self, members: Mapping[str, int], found: Found, tried: Sequence[Tried]) -> dict[Any, tuple[Measurement, bool, bool]]:
        """By setting, what it takes at another point, whether its bits are the default's there, and whether it is accurate."""
        default = attrs.evolve(found.default.variant, members=members)
        others = [attrs.evolve(one.variant, members=members) for one in tried if one is not found.default]
        measured = self.probe.steps(default, others)
        usual = measured[default]
        result: dict[Any, tuple[Measurement, bool, bool]] = {}
        for one in (default, *others):
            own = measured.get(one)
            if isinstance(own, Measurement) and isinstance(usual, Measurement):
                exact = one is default or own.output == usual.output
                said = None if exact else self.probe.accuracy(default, one)
                result[one.key] = (own, exact, exact or (said is not None and said.within))
        return result

    def _points(
        self, one: Tried, found: Found, middle: str, elsewhere: Mapping[str, Mapping[Any, Any]], weights: Mapping[str, float]
    ) -> dict[str, Point] | None:
        """A setting at every operating point; None where one has no figure."""
        if not elsewhere:
            return {}
        assert one.measured is not None
        here = {middle: (one.measured, one.exact, one.accurate)}
        costs = {}
        for label, weight in weights.items():
            own = here.get(label) or elsewhere[label].get(one.variant.key)
            if own is None:
                return None
            measured, exact, accurate = own
            costs[label] = Point(weight, measured.t_step_us, exact, accurate, measured.calls, _noise(measured, one is found.default))
        return costs

    def _cost(self, one: Tried, found: Found, costs: dict[str, Point], design: ModelDesign) -> StepCost:
        probe, measured = self.probe, one.measured
        assert measured is not None
        # One that is calibrated, of another array than its own.
        reference = next(other for other in self._references if other.array_key != one.variant.array_key)
        beside, pair_us = "", None
        try:
            pair_us = pairing(probe, reference, one.variant).pair_us
            beside = cost_key(reference.op, probe.dev)
        except CostError as error:
            self.left[f"{short(design.op)}, {one.variant.label}"] = str(error)
        return StepCost(
            measured.t_step_us, measured.alone_us, one.exact, one.accurate, measured.pmode, len(measured.round_us), measured.calls,
            measured.measured, _noise(measured, one is found.default), beside, pair_us, costs, short(design.op),
        )  # fmt: skip


def _noise(measured: Measurement, default: bool) -> float | None:
    return measured.noise_us if default else measured.gain_noise_us


def _say(tuned: ModelTuning, table: CostTable, refused: Mapping[str, str], path: Path, options: Mapping[str, Any]) -> None:
    if options["as_json"]:
        found = [attrs.asdict(row) for row in tuned.rows]
        print_json({"table": str(path), "designs": found, "left": tuned.left, "refused": dict(refused), "measured": today()})
        return
    rows = sorted(tuned.rows, key=lambda row: -row.steps * row.default_us)
    cells = [
        [row.design, row.steps, row.settings, report.figure(row.default_us), report.figure(row.best_us), row.best if row.exact else
         f"{row.best} (within its gates, not exact)"] for row in rows
    ]  # fmt: skip
    print_table(("design", "steps", "settings", "us", "best us", ""), cells)
    print(f"\n{len(rows)} designs and {len(table.packs)} packs in {path}; a model takes it as --cost-table {path}")
    for what, why in {**refused, **tuned.left}.items():
        print(f"not in it: {what}: {why}")
