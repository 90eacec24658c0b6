"""The file of figures that `--csv-output` names: a row for each, in the columns that `iron bench history` draws."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from iron_core import __version__
from iron_core.visualize.history import COLUMNS

ROOT = Path(__file__).parents[2]
#: suite, operator, case, backend, metric, value.
Figure = tuple[str, str, str, str, str, float]


@cache
def at() -> tuple[str, str]:
    """The commit that is tested, and its date; outside a repository the version, and today."""
    line = ["git", "log", "-1", "--format=%H %cI"]
    try:
        commit, _, date = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip().partition(" ")
    except (OSError, subprocess.CalledProcessError):
        return __version__, datetime.now(UTC).isoformat(timespec="seconds")
    return commit, date


def append(path: Path, figures: Iterable[Figure]) -> None:
    """Rows behind those that a file has; a new one begins with the columns' names."""
    commit, date = at()
    rows = [(commit, date, *rest, f"{value:.6g}") for *rest, value in figures]
    new = not path.exists() or not path.stat().st_size
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows([COLUMNS, *rows] if new else rows)
