"""`iron doctor --report FILE`: what is in it, and what is not."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path

import pytest

from iron_core.cli.report import MOST, private

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" timestamp="2026-02-03T04:05:06">
<testcase name="test_a[1]"/><testcase name="test_b"/>
<testcase name="test_c[GEMV-npu2]"><failure message="AssertionError: 3 | 4 differ&#10;second line">more</failure></testcase>
<testcase name="test_d"><error message="failed on setup">x</error></testcase>
<testcase name="test_e"><skipped message="npu2 refuses it"/></testcase>
<testcase name="test_f"><skipped message="npu2 refuses it"/></testcase>
</testsuite></testsuites>
"""
HEAD = "commit,date,suite,operator,case,backend,metric,value\n"
CSV = (
    "old,2026-01-01,npu-npu2,GEMV,M64,npu,us,9\n"
    "abcdef0123456789,2026-01-02,npu-npu2,GEMV,M64,npu,us,7.5\n"
    "abcdef0123456789,2026-01-02,npu-npu2,GEMV,M64,npu,us,8.5\n"
    + "".join(f"abcdef0123456789,2026-01-02,npu-npu2,ReLU,size{n},npu,part of the gate,0.{n}\n" for n in range(10, 30))
)


@pytest.fixture
def report(iron, tmp_path, monkeypatch):
    """report(*argv): the text of a report of the results in `tmp_path / "results"`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()

    def made(*argv: str) -> str:
        status, out, err = iron("doctor", "--report", "report.md", "--results", "results", *argv)
        assert "report.md is written; read it before you attach it." in err and status in (0, 1)
        assert out, "what it finds is printed too"
        return (tmp_path / "report.md").read_text()

    return made


def section(text: str, title: str) -> list[str]:
    """The lines of a section."""
    found = text.partition(f"## {title}\n\n")[2].partition("\n\n")[0]
    assert found, text
    return found.splitlines()


def test_everything_that_the_doctor_finds_is_in_it(report, monkeypatch):
    """Versions, backends, settings, and of a backend that is named what it needs."""
    monkeypatch.setenv("IRON_BACKEND", "ho|st")
    text = report("--backend", "sim")
    import iron_core

    assert f"iron {iron_core.__version__}, Python {platform.python_version()}" in text
    assert "| probe | ok | simulates the arrays" in "\n".join(section(text, "What sim needs"))
    assert "| IRON_BACKEND | ho\\|st |" in section(text, "Settings")
    assert any(line.startswith("| iron-host | 2") for line in section(text, "Versions"))
    assert any(line.startswith("| host | available | ") for line in section(text, "Backends"))
    assert section(text, "Tests of a device") == ["none in results; `nox -s npu1` or `npu2` leave them there"]
    assert "What" not in report()


def test_tests_of_a_device_are_counted_and_those_that_failed_are_named(report, tmp_path):
    (tmp_path / "results" / "npu2.xml").write_text(JUNIT)
    assert section(report(), "npu2.xml") == [
        "* 2026-02-03T04:05:06: 2 passed, 1 failure, 1 error, 2 skipped",
        "* test_c[GEMV-npu2]: AssertionError: 3 | 4 differ",
        "* test_d: failed on setup",
        "* 2 skipped: npu2 refuses it",
    ]


def test_of_many_that_failed_the_first_are_named(report, tmp_path):
    failed = "".join(f'<testcase name="test_{n}"><failure message="no"/></testcase>' for n in range(MOST + 3))
    (tmp_path / "results" / "npu1.xml").write_text(f"<testsuites><testsuite>{failed}</testsuite></testsuites>")
    lines = section(report(), "npu1.xml")
    assert lines[0] == f"* no time: {MOST + 3} failure" and lines[MOST] == f"* test_{MOST - 1}: no" and lines[-1] == "* ... and 3 more"


def test_figures_are_those_of_the_newest_commit(report, tmp_path):
    """The last of each, and the ten cases that came nearest to their gates."""
    (tmp_path / "results" / "npu2.csv").write_text(HEAD + CSV)
    lines = section(report(), "npu2.csv, commit abcdef0123")
    assert lines[2:4] == ["| GEMV | M64 | us | 8.5 |", "| ReLU | size29 | part of the gate | 0.290 |"] and len(lines) == 2 + 1 + 10
    assert lines[-1] == "| ReLU | size20 | part of the gate | 0.200 |"


@pytest.mark.parametrize(
    ("name", "content"),
    [("npu2.xml", "<a"), ("npu2.csv", "a,b\n1,2\n"), ("npu2.csv", ""), ("npu2.csv", HEAD + CSV + "x,y,z,a,b,c,part of the gate,n\n")],
)
def test_results_that_cannot_be_read_are_told(report, tmp_path, name, content):
    (tmp_path / "results" / name).write_text(content)
    (line,) = section(report(), name)
    assert line.startswith("* cannot be read: ")


def test_a_file_of_no_figures_is_no_fault(report, tmp_path):
    (tmp_path / "results" / "npu2.csv").write_text(HEAD)
    assert section(report(), "npu2.csv") == ["none"]


def test_a_report_that_cannot_be_written_is_refused(iron):
    status, _, err = iron("doctor", "--report", "nowhere/report.md")
    assert status == 2 and err.endswith("error: --report nowhere/report.md: No such file or directory.\n")


# -- what is not in it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("/home/jdoe/iron and /home/jdoe", "~/iron and ~"),
        ("NPU_CACHE_HOME=/data/jdoe/cache", "NPU_CACHE_HOME=/data/USER/cache"),
        ("JDOE jdoe2 ajdoe jdoe.", "JDOE jdoe2 ajdoe USER."),
        ("of jdoe@box7.lab.example, box7 and box77", "of USER@HOST, HOST and box77"),
        ('"/home/somebody/x", /Users/other:/usr/lib', '"~/x", ~:/usr/lib'),
        ("a folder home/of/tests", "a folder home/of/tests"),
    ],
)
def test_nobody_is_named(text, becomes):
    assert private(text, "/home/jdoe", "jdoe", "box7.lab.example") == becomes


def test_names_that_are_words_stay():
    """Else the text could not be read."""
    assert private("root of the npu, at /x", "/root", "root", "npu") == "root of the npu, at /x"
    assert private("ab on a machine", "/", "ab", "") == "ab on a machine"


def test_a_report_names_nobody(report, monkeypatch, tmp_path):
    """This user's folder, name and machine."""
    home = tmp_path / "homes" / "jane-doe"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(getpass, "getuser", lambda: "jane-doe")
    monkeypatch.setattr(platform, "node", lambda: "janes-box")
    monkeypatch.setenv("IRON_DEBUG", f"{home}/x on janes-box by jane-doe")
    (tmp_path / "results" / "npu2.xml").write_text(JUNIT.replace("failed on setup", f"in {home}/iron of jane-doe"))
    text = report()
    assert Path.home() == home and "jane" not in text
    assert "| IRON_DEBUG | ~/x on HOST by USER |" in section(text, "Settings") and "* test_d: in ~/iron of USER" in text


def test_a_user_without_a_name_is_none(report, monkeypatch):
    def none():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", none)
    assert "# Iron: a report" in report()
