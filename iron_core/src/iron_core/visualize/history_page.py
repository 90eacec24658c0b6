"""Charts of a history: small multiples, a line for each backend, and first of all what is missing and what changed.

Drawn here and not by a library: a page holds a hundred small charts without a script, follows the reader's colours, and costs
`iron-core` no dependency.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from iron_core.visualize.history import Chart, History
from iron_core.visualize.markup import Raw, details, facts, page, table
from iron_core.visualize.times import percent

WIDTH, HEIGHT, LEFT, BOTTOM = 400, 130, 54, 16
#: A scale reaches at least this far to either side of its middle, so that noise does not look like news.
_SPREAD = 0.1


def history_html(history: History, title: str = "Benchmarks over commits") -> str:
    """The page of a history."""
    charts: dict[tuple[str, str, str], list[Chart]] = {}
    for chart in sorted(history.figures, key=lambda one: (one.operator, one.case, one.metric, one.series)):
        charts.setdefault((chart.operator, chart.case, chart.metric), []).append(chart)
    colour = {series: i % 8 for i, series in enumerate(dict.fromkeys(chart.series for chart in sorted(history.figures, key=str)))}
    (first, since), (_, until) = history.commits[0], history.commits[-1]
    body = [
        f"<h1>{escape(title)}</h1><p class='soft'>{escape(_short(first))} of {since:%Y-%m-%d} to {escape(_short(history.newest))} of "
        f"{until:%Y-%m-%d}</p>",
        facts(_counts(history)),
        _silent(history),
        "<h2>Changes at the newest commit</h2>",
        _changes(history),
    ]  # fmt: skip
    legend = "".join(f'<li class="o{n}"><span class="swatch"></span>{escape(name)}</li>' for name, n in colour.items())
    body.append(f'<h2>Charts</h2><ul class="legend">{legend}</ul>')
    figures = [_figure(history, *names, lines, colour) for names, lines in charts.items()]
    body.append(f'<div class="charts">{"".join(figures)}</div>')
    body.append(details("all of them in figures", _figures(history, [line for lines in charts.values() for line in lines])))
    return page(title, "\n".join(body))


def _counts(history: History) -> list[tuple[str, str]]:
    operators = {chart.operator for chart in history.figures}
    counted = ((history.commits, "commits"), (operators, "operators"), (history.figures, "series"), (history.suites, "suites"))
    return [(str(len(those)), what) for those, what in counted]


def _short(commit: str) -> str:
    return commit[:10]


def _silent(history: History) -> str:
    """The suites that gave no result, first of all."""
    silent, total = history.silent(), len(history.commits)
    lines = []
    for suite in history.suites:
        given = history.results.get(suite, {})
        last = next((commit for commit, _ in reversed(history.commits) if commit in given), None)
        state = Raw('<span class="warn">no result</span>') if suite in silent else given[history.newest]
        lines.append((suite, state, _short(last) if last else "never", f"{total - len(given)} of {total}"))
    warning = ""
    if silent:
        said = (f"{escape(suite)} ({f'the last is of {escape(_short(last))}' if last else 'never one'})" for suite, last in silent.items())
        warning = f'<p class="warn"><b>No result at {escape(_short(history.newest))}</b> from {", ".join(said)}.</p>'
    head = ("suite", "results at the newest", "last commit with one", "commits without")
    return f"<h2>Suites</h2>{warning}{table(head, lines, 'knkn', 'Suites')}"


def _changes(history: History) -> str:
    found = history.changes()
    if not found:
        return "<p class='soft'>None: no line has two figures.</p>"
    lines = [
        (one.operator, one.case, one.series, _number(before, one.metric), _number(now, one.metric), _change(before, now))
        for one, before, now in found[:12]
    ]
    more = f"<p class='soft'>The {len(lines)} largest of {len(found)}.</p>" if len(found) > len(lines) else ""
    return table(("operator", "case", "by", "before", "now", "change"), lines, "k knnn", "Changes") + more


def _number(value: float, metric: str) -> str:
    return f"{value:.4g} {metric}".rstrip()


def _change(before: float, now: float) -> str:
    return f"{'+' if now >= before else '−'}{percent(abs(now - before) / abs(before))}" if before else "-"


def _figures(history: History, lines: Sequence[Chart]) -> str:
    rows = []
    for chart in lines:
        values = [value for value in history.points(chart) if value is not None]
        shown = (f"{value:.4g}" for value in (values[0], min(values), max(values), values[-1]))
        rows.append((chart.operator, chart.case, chart.series, chart.metric, len(values), *shown, _change(values[0], values[-1])))
    head = ("operator", "case", "by", "metric", "figures", "first", "least", "most", "last", "since the first")
    return table(head, rows, "k kknnnnnn", "Figures")


def _figure(history: History, operator: str, case: str, metric: str, lines: Sequence[Chart], colour: dict[str, int]) -> str:
    points = {chart: history.points(chart) for chart in lines}
    known = [value for values in points.values() for value in values if value is not None]
    low, high = min(known), max(known)
    middle = (low + high) / 2
    least = abs(middle) * _SPREAD or 1.0
    low, high = min(low, middle - least), max(high, middle + least)
    inner_w, inner_h = WIDTH - LEFT - 8, HEIGHT - BOTTOM - 10
    step = inner_w / max(len(history.commits) - 1, 1)

    def x(n: int) -> float:
        return LEFT + (step * n if len(history.commits) > 1 else inner_w / 2)

    def y(value: float) -> float:
        return 8 + inner_h * (high - value) / (high - low)

    parts = []
    for value in (high, (high + low) / 2, low):
        parts.append(f'<path class="grid" d="M{LEFT} {y(value):.1f}H{WIDTH - 8}"/>')
        parts.append(f'<text class="soft" x="{LEFT - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    ends = ((0, "start", history.commits[0]), (len(history.commits) - 1, "end", history.commits[-1]))
    for n, anchor, (_, date) in ends if len(history.commits) > 1 else ends[1:]:
        parts.append(f'<text class="soft" x="{x(n):.1f}" y="{HEIGHT - 2}" text-anchor="{anchor}">{date:%Y-%m-%d}</text>')
    for chart, values in points.items():
        at = [None if value is None else (x(n), y(value)) for n, value in enumerate(values)]
        parts.append(_line(history, chart, at, values, colour[chart.series]))
    last = ", ".join(_number(v[-1], metric) if v[-1] is not None else f"none by {chart.series}" for chart, v in points.items())
    named = escape(f"{operator} {case}: {metric} over commits, last {last}", quote=True)
    return (
        f"<figure><figcaption><b>{escape(operator)}</b> {escape(case)} <span class='soft'>{escape(last)}</span></figcaption>"
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{named}" xmlns="http://www.w3.org/2000/svg">'
        f'{"".join(parts)}</svg></figure>'
    )


def _line(history: History, chart: Chart, at: Sequence[tuple[float, float] | None], values: Sequence[float | None], colour: int) -> str:
    """A line that is broken where a commit has no figure, and a dot for each."""
    path, pen, radius = "", "M", 2.4 if len(history.commits) < 60 else 1.4
    dots = []
    for (commit, date), point, value in zip(history.commits, at, values, strict=True):
        if point is None or value is None:
            pen = "M"
            continue
        path += f"{pen}{point[0]:.1f} {point[1]:.1f}"
        pen = "L"
        said = f"{chart.series}: {_number(value, chart.metric)} at {_short(commit)} of {date:%Y-%m-%d}"
        dots.append(f'<circle class="point" cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="{radius}"><title>{escape(said)}</title></circle>')
    return f'<g class="o{colour}"><path class="line" d="{path}"/>{"".join(dots)}</g>'
