"""How long a plugin's import took: beside its name, and told where it is long."""

from __future__ import annotations

import json
import sys
import time

import pytest

from iron_core.cli import main
from iron_core.errors import PluginWarning
from iron_core.plugins import record
from iron_core.plugins.registry import registry

OPERATOR = "from iron_core import UnaryElementwise\nclass Op(UnaryElementwise):\n    def reference(self, x): return x\n"
WAITS = "from iron_core.plugins import record\nrecord.clock.now += {}\n"


class Clock:
    """A clock that goes on when it is told to."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def packs(site, monkeypatch):
    """Two packs, and one that fails; the first takes 2.5 s, each by a clock of the test's."""
    monkeypatch.setattr(record, "clock", Clock())
    for name, seconds, rest in (("slow", 2.5, OPERATOR), ("quick", 0.0125, OPERATOR), ("bad", 0.5, "1/0")):
        modules = {f"{name}_ops.py": WAITS.format(seconds) + rest}
        site.add(f"iron-{name}", "0.2", entries={"iron.operators.v1": {f"{name}.Op": f"{name}_ops:Op"}}, modules=modules)
    return site


REAL = record.clock


def test_what_is_slept_is_counted():
    """Unlike a wait for a CPU that others have."""
    before, wall = REAL(), time.perf_counter()
    time.sleep(0.05)
    after = REAL()
    assert 0.04 < after - before < time.perf_counter() - wall + 0.01


def test_plugins_list_load_has_a_column_of_it(packs, capsys):
    """In seconds or milliseconds; of one that failed too, and of one that was not tried, nothing. JSON has seconds."""
    assert main(["plugins", "list", "--load", "--group", "operators"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["group", "name", "distribution", "api", "import", "status"]
    rows = {line.split()[1]: line.split()[5:7] for line in lines[1:]}
    assert rows["slow.Op"] == ["2.5", "s"] and rows["quick.Op"] == ["12.5", "ms"] and rows["bad.Op"] == ["500.0", "ms"]
    assert main(["plugins", "list", "--json"]) == 0
    seconds = {row["name"]: row["seconds"] for row in json.loads(capsys.readouterr().out)}
    assert (seconds["slow.Op"], seconds["quick.Op"], seconds["bad.Op"]) == (2.5, 0.0125, 0.5)
    registry.cache_clear()
    assert main(["plugins", "list"]) == 0 and "import" not in capsys.readouterr().out.splitlines()[0].split()
    assert main(["plugins", "list", "--json"]) == 0
    assert {row["seconds"] for row in json.loads(capsys.readouterr().out)} == {None}


def test_doctor_names_one_that_takes_more_than_a_second(packs, capsys):
    """As a note: it works."""
    assert main(["doctor", "--json"]) == 1  # iron-bad
    facts = json.loads(capsys.readouterr().out)
    assert facts["notes"] == ["importing operator `slow.Op` of iron-slow 0.2 (entry point `slow.Op = slow_ops:Op`) took 2.5 s."]
    assert not any("slow" in problem or "quick" in problem for problem in facts["problems"])


def test_a_start_that_it_makes_slow_is_told_why_once(packs, recwarn, monkeypatch):
    """Where it is asked for; with what does without it. Lists that show it say no more."""
    for _ in range(2):
        assert registry().load("operators", "slow.Op").__name__ == registry().load("operators", "quick.Op").__name__ == "Op"
    (told,) = [one.message for one in recwarn if isinstance(one.message, PluginWarning)]
    assert str(told) == (
        "importing operator `slow.Op` of iron-slow 0.2 (entry point `slow.Op = slow_ops:Op`) took 2.5 s. Its author can have it import "
        "late what it needs; IRON_PLUGINS=-iron-slow does without it."
    )
    recwarn.clear()
    del sys.modules["slow_ops"]
    registry.cache_clear()
    registry().select(load=True)
    monkeypatch.setenv("IRON_PLUGINS", "-iron-slow")
    registry.cache_clear()
    assert "slow.Op" not in registry().names("operators") and not recwarn.list
