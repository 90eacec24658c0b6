"""Figures of operators' `bench` cases over commits, as CSV files have them: a row for each, by whatever suite measured it.

A suite that ran and has nothing to say writes a row with neither operator nor value.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import attrs

from iron_core.errors import UsageError

COLUMNS = ("commit", "date", "suite", "operator", "case", "backend", "metric", "value")


@attrs.frozen
class Chart:
    """What one line of figures is of."""

    operator: str
    case: str
    metric: str
    series: str


@attrs.frozen(eq=False)
class History:
    """commits: (commit, date) in the order of their dates. figures: per line, by commit, its value: of several the last that was
    written. suites: all that are named, and those that should be there. results: by suite, how many figures it gave at each
    commit that it gave some at."""

    commits: tuple[tuple[str, datetime], ...]
    figures: dict[Chart, dict[str, float]]
    suites: tuple[str, ...]
    results: dict[str, dict[str, int]]

    @property
    def newest(self) -> str:
        return self.commits[-1][0]

    def silent(self) -> dict[str, str | None]:
        """The suites that gave nothing at the newest commit, and the last commit at which they did; None where they never did."""
        order = [commit for commit, _ in self.commits]
        found: dict[str, str | None] = {}
        for suite in self.suites:
            given = self.results.get(suite, {})
            if self.newest not in given:
                found[suite] = next((commit for commit in reversed(order) if commit in given), None)
        return found

    def points(self, chart: Chart) -> list[float | None]:
        """Its values at each commit; None where there is none."""
        return [self.figures[chart].get(commit) for commit, _ in self.commits]

    def changes(self) -> list[tuple[Chart, float, float]]:
        """Lines with a value at the newest commit and one before: (line, the one before, the newest), the largest change first."""
        found = []
        for chart in self.figures:
            *before, last = self.points(chart)
            earlier = [value for value in before if value is not None]
            if last is not None and earlier:
                found.append((chart, earlier[-1], last))
        return sorted(found, key=lambda one: -abs(math.log(one[2] / one[1])) if one[1] > 0 and one[2] > 0 else 0.0)


def read(paths: Iterable[Path], suites: Iterable[str] = ()) -> History:
    """The history in these files. suites: those that should have given results. UsageError, with file and line, for a file that is none."""
    dates: dict[str, datetime] = {}
    figures: dict[Chart, dict[str, float]] = {}
    results: dict[str, dict[str, int]] = {suite: {} for suite in suites}
    for path in paths:
        for where, row in _rows(path):
            commit, suite = row["commit"], row["suite"]
            if not commit or not suite:
                raise UsageError(f"{where}: {'suite' if commit else 'commit'} is empty; a row names both.")
            dates[commit] = min(dates.get(commit, _date(where, row["date"])), _date(where, row["date"]))
            given = results.setdefault(suite, {})
            if not row["operator"] and not row["value"]:
                continue
            series = suite if row["backend"] in suite else f"{row['backend']} ({suite})"
            chart = Chart(row["operator"], row["case"], row["metric"], series)
            figures.setdefault(chart, {})[commit] = _value(where, row["value"])
            given[commit] = given.get(commit, 0) + 1
    if not dates:
        raise UsageError(f"no row in {', '.join(map(str, paths)) or 'no file'}; a history has the columns {','.join(COLUMNS)}.")
    commits = tuple(sorted(dates.items(), key=lambda one: one[1]))
    return History(commits, figures, tuple(results), results)


def _rows(path: Path) -> Iterable[tuple[str, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise UsageError(f"{path}: no column {missing[0]}; a history has the columns {','.join(COLUMNS)}.")
            for row in reader:
                yield f"{path}:{reader.line_num}", {name: (row[name] or "").strip() for name in COLUMNS}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}.") from None


def _date(where: str, text: str) -> datetime:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{where}: date={text!r}; legal: as 2026-01-31 or 2026-01-31T12:00:00+00:00.") from None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _value(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{where}: value={text!r}; legal: a number.")
    return value
