"""`iron bench`: operators' `bench` cases timed, a row of CSV for each, and their history over commits as charts."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from iron_core.backends.choose import choose
from iron_core.backends.measuring import Measuring, Run, RunList, Timing, measuring
from iron_core.cli.operators import find
from iron_core.cli.picture import put
from iron_core.cli.progress import working
from iron_core.cli.table import print_json
from iron_core.declare.cases import operators
from iron_core.devices import device
from iron_core.errors import IronError, UnsupportedError, UsageError
from iron_core.plugins.registry import labelled
from iron_core.visualize.history import COLUMNS, read
from iron_core.visualize.history_page import history_html

#: A case is timed in so many rounds of so many calls.
TIMING = Timing(rounds=5, calls=10)


def run(
    names: Sequence[str], *, backend: str | None, dev: str | None, suite: str | None, file: str, commit: str | None, date: str | None
) -> int:
    """Time the `bench` cases and append a row for each to a file as it comes, so that whatever ends this loses none; 1 if there was none,
    which is a row too."""
    chosen = choose(backend, dev)
    timer = measuring(chosen.backend)
    suite = suite or f"{chosen.backend.name}-{chosen.dev}"
    commit, date = commit or _git("%H"), date or _git("%cI")
    classes = [find(name) for name in names] or operators()
    count = 0
    _append(Path(file), [])
    for cls in classes:
        for case in cls.test.cases(cls):
            if case.bench:
                with working(f"{cls.__name__} {case.id}"):
                    us = _time(timer, cls, case, chosen.dev)
                if us is not None:
                    count += 1
                    _append(Path(file), [(commit, date, suite, cls.__name__, case.id, chosen.backend.name, "us", f"{us:.6g}")])
    if not count:
        _append(Path(file), [(commit, date, suite, "", "", chosen.backend.name, "", "")])
    click.echo(f"{count} result{'s' * (count != 1)} of suite {suite} at {commit[:10]}")
    return 0 if count else 1


def _time(timer: Measuring, cls: Any, case: Any, dev: str) -> float | None:
    """Microseconds of a case; None, which is said, where the backend does not take it or was disturbed."""
    try:
        with labelled(cls, "in its test cases"):
            op = cls(**case.fields)
        chosen = device(dev)
        dispatch = "separate" if chosen.is_npu and not chosen.full_elf else "fused"
        (found,) = timer.measure([RunList(case.id, (Run(op, case.bounds),), dispatch=dispatch)], chosen, TIMING)
    except UnsupportedError as error:
        click.echo(f"{cls.__name__} {case.id}: {error}", err=True)
        return None
    except IronError as error:
        click.echo(f"{cls.__name__} {case.id} FAILED: {error}", err=True)
        return None
    if found.disturbed:
        click.echo(f"{cls.__name__} {case.id}: disturbed, {found.disturbed}", err=True)
        return None
    return found.us


def _append(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Rows behind those of a file, which is made with its header where it is not there. UsageError where it cannot be written."""
    try:
        new = not path.exists() or not path.stat().st_size
        with path.open("a", newline="", encoding="utf-8") as out:
            csv.writer(out, lineterminator="\n").writerows([COLUMNS, *rows] if new else rows)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}.") from None


def _git(what: str) -> str:
    """Of the commit that the folder is at."""
    try:
        said = subprocess.run(["git", "log", "-1", f"--format={what}"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise UsageError("this folder is in no git repository; legal: --commit and --date.") from None
    return said.stdout.strip()


def history(files: Sequence[str], *, suites: str | None, output: str, opened: bool, as_json: bool) -> None:
    """Draw charts of these files, and name the suites that gave no result."""
    expected = [name.strip() for name in (suites or "").split(",") if name.strip()]
    found = read([Path(file) for file in files], expected)
    silent = found.silent()
    if as_json:
        changes = [
            {"operator": c.operator, "case": c.case, "by": c.series, "metric": c.metric, "before": before, "now": now}
            for c, before, now in found.changes()
        ]
        print_json({"newest": found.newest, "silent": silent, "changes": changes})
        return
    put(history_html(found), output, opened=opened)
    for suite, last in silent.items():
        click.echo(f"no result at {found.newest[:10]} from {suite}; {f'its last is of {last[:10]}' if last else 'there never was one'}.")
