"""`iron bench`: cases timed into CSV, and charts of them over commits."""

from __future__ import annotations

import csv
import json

import pytest

from iron_core.cli import bench, main
from iron_core.visualize.history import COLUMNS, Chart, read
from iron_core.visualize.history_page import history_html

ROWS = [
    ("c2", "2026-02-01", "host-host", "SiLU", "size64", "host", "us", "9"),
    ("c1", "2026-01-01", "host-host", "SiLU", "size64", "host", "us", "10"),
    ("c3", "2026-03-01", "host-host", "SiLU", "size64", "host", "us", "18"),
    ("c1", "2026-01-01", "sim-npu2", "SiLU", "size64", "sim", "us", "4"),
    ("c3", "2026-03-01", "sim-npu2", "SiLU", "size64", "sim", "us", "5"),
    ("c2", "2026-02-01", "sim-npu1", "GEMV", "<b>", "sim", "us", "7"),
    ("c3", "2026-03-01", "sim-npu1", "", "", "sim", "", ""),
]

#: A backend whose SiLU takes 3 microseconds, and during whose ReLU something else ran.
WATCH = """
from iron_core.backends.measuring import Measured, Platform
from iron_core.backends.null import NullBackend

class Watch(NullBackend):
    name = 'watch'
    def platform(self, dev):
        return Platform('watch', 'simulated')
    def measure(self, lists, dev, timing):
        return [Measured((3.0,), disturbed='' if type(one.runs[0].op).__name__ == 'SiLU' else 'a neighbour') for one in lists]
"""


@pytest.fixture
def file(tmp_path):
    """`file(rows, head)`: the path of a CSV file."""

    def written(rows=ROWS, head=COLUMNS):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.csv"
        with path.open("w", newline="") as out:
            csv.writer(out).writerows([head, *rows])
        return path

    return written


@pytest.fixture
def iron(capsys, tmp_path, monkeypatch):
    """`iron ARGV...` in an empty folder: (status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        status = main(list(map(str, argv)))
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def test_commits_are_in_the_order_of_their_dates(file):
    """Whatever the order of the rows; a line has a gap where a commit gave it no figure."""
    history = read([file()])
    assert [commit for commit, _ in history.commits] == ["c1", "c2", "c3"] and history.newest == "c3"
    assert history.points(Chart("SiLU", "size64", "us", "host-host")) == [10, 9, 18]
    assert history.points(Chart("SiLU", "size64", "us", "sim-npu2")) == [4, None, 5]


def test_suites_without_a_result_are_named(file):
    """Those that said so, those that are not in the newest commit at all, and those that somebody expects."""
    assert read([file()], ["npu2"]).silent() == {"npu2": None, "sim-npu1": "c2"}
    assert read([file(ROWS[:-1])]).silent() == {"sim-npu1": "c2"}
    assert not read([file(ROWS[:5])]).silent()


def test_changes_are_to_the_figure_before(file):
    """The largest first, whether it rose or fell; one without a figure at the newest commit has none."""
    changes = [(chart.series, before, now) for chart, before, now in read([file()]).changes()]
    assert changes == [("host-host", 9, 18), ("sim-npu2", 4, 5)]


def test_several_files_are_one_history(file):
    """As CI keeps one for each suite; a figure that is written twice is the later one."""
    history = read([file(ROWS[:3]), file([*ROWS[3:], ("c3", "2026-03-01", "host-host", "SiLU", "size64", "host", "us", "17")])])
    assert history.points(Chart("SiLU", "size64", "us", "host-host"))[-1] == 17 and len(history.suites) == 3


def test_the_page_says_first_what_is_missing(file, outline):
    """Then what changed, then a chart for each case, a line for each suite."""
    page = outline(history_html(read([file()], ["npu2"])))
    text = " ".join(page.texts)
    assert not page.wrong and not page.all("script")
    assert "No result at c3" in text and "npu2 (never one)" in text and "sim-npu1 (the last is of c2)" in text
    assert text.index("No result at c3") < text.index("+100.0 %") < text.index("Charts")
    assert len(page.all("svg", "chart")) == 2 and len(page.all("path", "line")) == 3 and len(page.all("circle")) == 6
    assert "<b>" in page.texts or any("<b>" in t for t in page.texts)
    assert all(own["aria-label"] for own in page.all("svg"))


def test_a_line_is_broken_where_there_is_no_figure(file, outline):
    """Of the simulated suite two dots, and no stroke between them."""
    paths = [own["d"] for own in outline(history_html(read([file()]))).all("path", "line")]
    assert sorted(path.count("L") for path in paths) == [0, 0, 2] and max(path.count("M") for path in paths) == 2


def test_the_command_draws_and_names(iron, file, tmp_path):
    """The page's path, then a line for each suite that gave no result; as JSON without a page."""
    path = file()
    status, out, err = iron("bench", "history", path, "--suites", "npu2", "-o", "h.html")
    assert (status, err) == (0, "") and (tmp_path / "h.html").read_text().startswith("<!doctype html>")
    assert out.splitlines() == [
        "h.html",
        "no result at c3 from npu2; there never was one.",
        "no result at c3 from sim-npu1; its last is of c2.",
    ]
    facts = json.loads(iron("bench", "history", path, "--json")[1])
    assert facts["silent"] == {"sim-npu1": "c2"} and facts["changes"][0]["now"] == 18


@pytest.mark.parametrize(
    ("rows", "head", "says"),
    [
        (ROWS, (*COLUMNS[:-1], "us"), "no column value"),
        ([], COLUMNS, "no row in"),
        ([(*ROWS[0][:-1], "fast")], COLUMNS, ":2: value='fast'; legal: a number"),
        ([(*ROWS[0][:-1], "nan")], COLUMNS, ":2: value='nan'"),
        ([("c1", "yesterday", *ROWS[0][2:])], COLUMNS, ":2: date='yesterday'"),
        ([("", *ROWS[0][1:])], COLUMNS, ":2: commit is empty"),
    ],
)
def test_a_file_that_is_no_history_is_refused(iron, file, rows, head, says):
    """With its line, and what would be legal."""
    status, out, err = iron("bench", "history", file(rows, head))
    assert (status, out) == (2, "") and err.count("\n") == 1 and says in err, err


@pytest.fixture
def watch(iron, site):
    """`iron bench run` by a backend with times of its own."""
    site.add("iron-watch", entries={"iron.backends.v1": {"watch": "watch:Watch"}}, modules={"watch.py": WATCH})
    return lambda *argv: iron("bench", "run", "--backend", "watch", "--dev", "npu2", "--csv", "b.csv", *argv)


def test_cases_are_timed_into_a_file(watch, tmp_path, outline):
    """A row for each `bench` case, appended; charts are made of what was written. What was disturbed is no figure, which is said."""
    status, out, err = watch("SiLU", "ReLU", "--commit", "abc", "--date", "2026-01-01")
    assert (status, out) == (0, "2 results of suite watch-npu2 at abc\n") and "disturbed, a neighbour" in err
    assert watch("SiLU", "--commit", "def", "--date", "2026-01-02", "--suite", "watch-npu2")[0] == 0
    history = read([tmp_path / "b.csv"])
    assert len(history.commits) == 2 and {chart.operator for chart in history.figures} == {"SiLU"}
    assert [history.points(chart) for chart in history.figures] == [[3.0, 3.0]] * 2
    assert not outline(history_html(history)).wrong


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_each_family_is_timed_as_it_dispatches(iron, tmp_path, dev):
    """npu1 has no full ELF, so a case of it is a dispatch of a chain."""
    argv = ("bench", "run", "Copy", "--backend", "sim", "--dev", dev, "--csv", "b.csv", "--commit", "abc", "--date", "2026-01-01")
    status, out, err = iron(*argv)
    assert (status, out) == (0, f"1 result of suite sim-{dev} at abc\n"), err
    (figure,) = read([tmp_path / "b.csv"]).figures.values()
    assert figure["abc"] > 1


def test_a_suite_without_a_result_says_so_in_its_file(watch, tmp_path):
    """Here of an operator during which something else ran; status 1."""
    assert watch("ReLU", "--commit", "abc", "--date", "2026-01-01")[0] == 1
    history = read([tmp_path / "b.csv"])
    assert history.silent() == {"watch-npu2": None} and not history.figures


def test_what_ends_a_run_loses_no_row(watch, tmp_path, monkeypatch):
    """Each is in the file before the next case begins."""
    time, taken = bench._time, []

    def ends(timer, cls, case, dev):
        taken.append(case)
        if len(taken) == 2:
            raise KeyboardInterrupt
        return time(timer, cls, case, dev)

    monkeypatch.setattr(bench, "_time", ends)
    assert watch("SiLU", "--commit", "abc", "--date", "2026-01-01")[0] == 130
    assert [history.points(chart) for history in [read([tmp_path / "b.csv"])] for chart in history.figures] == [[3.0]]


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(watch, monkeypatch):
    monkeypatch.setattr(bench, "_time", lambda *case: pytest.fail("it ran"))
    status, _, err = watch("SiLU", "--commit", "abc", "--date", "2026-01-01", "--csv", "nowhere/b.csv")
    assert (status, err) == (2, "error: nowhere/b.csv: No such file or directory.\n")


def test_a_backend_that_measures_nothing_is_refused(iron):
    """Before anything runs."""
    status, _, err = iron("bench", "run", "--backend", "null", "--csv", "b.csv", "--commit", "a", "--date", "2026-01-01")
    assert status == 2 and "measures nothing" in err
