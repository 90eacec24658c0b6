"""`iron operators test`: every case of operators, on every backend that is here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import click

from iron_core.cli.operators import find
from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_core.declare.cases import operators
from iron_core.errors import UsageError, printable
from iron_core.plugins.record import normal
from iron_core.plugins.registry import registry
from iron_core.trials.inline_kernels import KERNELS, InlineKernels
from iron_core.trials.suite import array_devices, places, trials
from iron_core.trials.trial import Trial

HEADERS = ("case", "backend", "device", "max |err|", "its bound", "verdict", "")
#: Different refusals that are shown of an operator; the rest are counted.
SHOWN = 4


def test(
    names: Sequence[str],
    *,
    everything: bool,
    backends: list[str] | None,
    dev: str | None,
    bounds: Sequence[str],
    seed: int,
    extensive: bool,
    as_json: bool,
) -> int:
    """Print a table for each operator; 1 if a case failed, or if nothing was compared. names: operators', or distributions'."""
    chosen_classes = classes(names, everything=everything)
    limits = dict(_bound(text) for text in bounds)
    chosen = places(backends, dev)
    compiles = backends is None or KERNELS in backends
    rows: list[Trial] = []
    with InlineKernels() as kernels:
        for cls in chosen_classes:
            with working(f"{cls.__name__}'s cases"):
                devices = array_devices(chosen, dev)
                found = list(
                    trials(
                        cls, chosen, kernels=kernels if compiles else None, devices=devices, bounds=limits, seed=seed, extensive=extensive
                    )
                )
            rows += found
            if not as_json:
                _print(cls, found)
    compared, failed = sum(row.compared > 0 for row in rows), sum(row.failed for row in rows)
    if as_json:
        print_json({"seed": seed, "rows": [attrs.asdict(row) for row in rows], "compared": compared, "failed": failed})
    else:
        refused = sum(row.verdict == "refused" for row in rows)
        click.echo(f"{compared} compared, {refused} refused, {failed} failed")
    return 1 if failed or not compared else 0


def classes(names: Sequence[str], *, everything: bool) -> list[Any]:
    """The operators of these names, or of distributions, or all that are installed but binaries of somebody else's, each once."""
    if everything == bool(names):
        raise UsageError("iron operators test: legal: names of operators or of distributions, or --all.")
    found: list[Any] = []
    if everything:
        found = operators()
    theirs = {normal(record.distribution) for record in registry().select("operators")}
    for name in names:
        if normal(name) in theirs and registry().find("operators", name) is None:
            found += operators(name)
        else:
            found.append(find(name))
    return [cls for cls in dict.fromkeys(found) if cls.binary is None or not everything]


def _bound(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not (name and equals and number.isdecimal()):
        raise UsageError(f"--bound {printable(text, 60)}: legal: EXTENT=NUMBER, as valid=3.")
    return name, int(number)


def _print(cls: Any, rows: list[Trial]) -> None:
    click.echo(cls.__name__)
    print_table(HEADERS, [_cells(row) for row in rows])
    for row in rows:
        if row.failed:
            click.echo(f"  {row.case} on {row.backend} {row.device}: {row.says}")
    refusals = list(dict.fromkeys(row.says for row in rows if row.verdict in ("refused", "skipped")))
    for said in refusals[:SHOWN]:
        click.echo(f"  refused: {said}")
    if len(refusals) > SHOWN:
        click.echo(f"  ... and {len(refusals) - SHOWN} more; --json has them.")
    click.echo()


def _cells(row: Trial) -> list[str]:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    exact = row.verdict == "exact"
    return [row.case, row.backend, row.device, number(row.error), "exact" if exact else number(row.bound), row.gate, row.how]
