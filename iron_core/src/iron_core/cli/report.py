"""`iron doctor --report FILE`: what the doctor finds and what tests of a device found last, as a text to attach to a report of a fault.

It says nothing of who wrote it: the home folder is `~`, the names of user and machine are `USER` and `HOST`.
"""

from __future__ import annotations

import csv
import getpass
import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from iron_core.cli.listing import says
from iron_core.errors import UsageError, printable
from iron_core.files import write_whole
from iron_core.visualize.history import COLUMNS

#: Where sessions of a device leave their results, and how many lines are made of each of their files.
RESULTS, MOST = "build/device", 40
#: How near a case came to its gate, a figure that every one has: the nearest are told.
NEAR = "part of the gate"
#: Names that are words, or so short that they are parts of words.
_COMMON = {"root", "user", "runner", "ubuntu", "localhost", "iron", "npu", "host", "test"}


def write(path: str, facts: Mapping[str, Any], results: str = RESULTS) -> None:
    """The report of these facts (`doctor.examine()`, with what was `examined`) and of the results in a folder. UsageError where it
    cannot be written."""
    text = "\n".join(_lines(facts, Path(results))) + "\n"
    try:
        write_whole(path, private(text))
    except OSError as error:
        raise UsageError(f"--report {printable(path)}: {error.strerror}.") from None


def private(text: str, home: str | None = None, user: str | None = None, host: str | None = None) -> str:
    """A text without the names of this user, of whoever has a folder in /home, and of this machine."""
    home = str(Path.home()) if home is None else home
    if len(home) > 1:
        text = text.replace(home, "~")
    text = re.sub(r"/(home|Users)/[^/\s\"':;,)]+", "~", text)
    for name, stands in ((_user() if user is None else user, "USER"), (platform.node() if host is None else host, "HOST")):
        for word in dict.fromkeys((name, name.partition(".")[0])):
            if len(word) > 2 and word.lower() not in _COMMON:
                text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", stands, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        return ""


def _lines(facts: Mapping[str, Any], results: Path) -> Iterator[str]:
    yield "# Iron: a report"
    yield ""
    yield f"iron {facts['iron']['version']}, Python {facts['python']}, {facts['platform']}, {platform.release()}"
    examined = facts.get("examined")
    if examined is not None:
        yield from _table(
            f"What {examined['backend']} needs", ("", "state", "", "what to do"),
            [(one["what"], one["state"], one["says"], one["fix"]) for one in examined["findings"]],
        )  # fmt: skip
    rows = [(one["name"], "available" if one["available"] else "unavailable", says(one)) for one in facts["backends"]]
    yield from _table("Backends", ("backend", "state", ""), rows)
    yield from _listed("Problems", facts["problems"])
    yield from _listed("Notes", facts["notes"])
    yield from _table("Settings", ("variable", "value"), list(facts["environment"].items()))
    yield from _table("Versions", ("distribution", "version"), list(facts["distributions"].items()))
    yield from _results(results)


def _table(title: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    cells = [[printable(str(cell)).replace("|", "\\|") for cell in row] for row in rows]
    yield from ("", f"## {title}", "")
    if not cells:
        yield "none"
        return
    yield from (f"| {' | '.join(row)} |" for row in (headers, ["---"] * len(headers), *cells))


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    yield from [f"* {printable(line, 400)}" for line in lines] or ["none"]


# -- tests of a device ---------------------------------------------------------------------------------


def _results(folder: Path) -> Iterator[str]:
    """Of every file that a session of a device left: its tests, its figures."""
    files = sorted([*folder.glob("*.xml"), *folder.glob("*.csv")])
    if not files:
        yield from ("", "## Tests of a device", "", f"none in {folder}; `nox -s npu1` or `npu2` leave them there")
    for path in files:
        try:
            yield from _tests(path) if path.suffix == ".xml" else _figures(path)
        except (OSError, ValueError, ElementTree.ParseError, csv.Error) as error:
            yield from _listed(path.name, [f"cannot be read: {error}"])


def _tests(path: Path) -> Iterator[str]:
    """How many passed, which did not and with what, and why others were skipped."""
    counts: Counter[str] = Counter()
    wrong, skipped = [], Counter[str]()
    for case in ElementTree.parse(path).iter("testcase"):
        ends = {one.tag: one.get("message") or "" for one in case if one.tag in ("failure", "error", "skipped")}
        outcome = next((tag for tag in ("failure", "error", "skipped") if tag in ends), "passed")
        counts[outcome] += 1
        if outcome == "skipped":
            skipped[ends[outcome]] += 1
        elif outcome != "passed":
            wrong.append(f"{case.get('name')}: {ends[outcome].strip().partition(chr(10))[0]}")
    stamp = next((suite.get("timestamp") for suite in ElementTree.parse(path).iter("testsuite")), None)
    lines = [f"{stamp or 'no time'}: {', '.join(f'{count} {outcome}' for outcome, count in counts.items()) or 'no test'}", *wrong[:MOST]]
    lines += [f"... and {len(wrong) - MOST} more"] if len(wrong) > MOST else []
    yield from _listed(path.name, [*lines, *(f"{count} skipped: {why}" for why, count in skipped.most_common(5))])


def _figures(path: Path) -> Iterator[str]:
    """Of the newest commit: what was timed, and the cases that came nearest to their gates."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if not set(COLUMNS) <= set(reader.fieldnames or ()):
            raise ValueError(f"its columns are not {','.join(COLUMNS)}")
        rows = list(reader)
    newest = [row for row in rows if row["commit"] == rows[-1]["commit"]]
    latest = {(row["operator"], row["case"], row["metric"]): row["value"] for row in newest}
    near = sorted(((float(value), key) for key, value in latest.items() if key[2] == NEAR), reverse=True)[:10]
    timed = [(*key, value) for key, value in latest.items() if key[2] != NEAR]
    title = f"{path.name}, commit {newest[0]['commit'][:10]}" if newest else path.name
    yield from _table(title, ("operator", "case", "", ""), [*timed[:MOST], *((*key, f"{value:.3f}") for value, key in near)])
