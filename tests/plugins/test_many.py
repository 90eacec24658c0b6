"""Fifty packs that are installed: commands that need none of them import none of them, and not numpy."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from bench import packs

COUNT = 50
#: What a command has imported when it ends, behind its answer.
MODULES = "import atexit, sys\natexit.register(lambda: sys.stderr.write('modules: ' + ' '.join(sys.modules)))\n" + packs.PROGRAM


@pytest.fixture
def many(site):
    packs.install(site.folder, COUNT)
    return site


def ended(*argv):
    """(standard output, modules) of a command."""
    done = subprocess.run([sys.executable, "-c", MODULES, *argv], capture_output=True, text=True, env=os.environ, check=False)
    said, _, modules = done.stderr.rpartition("modules: ")
    assert done.returncode == 0 and said == "", done.stderr
    return done.stdout, set(modules.split())


@pytest.mark.parametrize("command", [(), *packs.COMMANDS, ("operators", "list"), ("plugins", "list", "--group", "models")], ids=" ".join)
def test_a_command_that_needs_no_pack_imports_none(many, command):
    """Nor numpy, nor a package of ours but iron_core."""
    out, modules = ended(*command)
    assert "iron_core.cli.entry" in modules
    assert not {name for name in modules if name.startswith(("many", "numpy", "ml_dtypes"))}
    assert {name for name in modules if name.startswith("iron_")} == {name for name in modules if name.partition(".")[0] == "iron_core"}
    if command[:1] == ("plugins",):
        assert all(f"many{i}.models" in out for i in range(COUNT))


def test_all_of_them_are_listed(many):
    """With whose they are, as not loaded."""
    rows = [row for row in json.loads(ended("plugins", "list", "--json")[0]) if row["distribution"].startswith("iron-many")]
    assert len(rows) == COUNT * len(packs.GROUPS) and {row["status"] for row in rows} == {"not loaded"}


def test_what_they_cost_is_a_table(monkeypatch, capsys):
    """`python -m bench.packs`: a line for each command, without them and with them."""
    monkeypatch.setattr(packs, "COMMANDS", (("--version",),))
    assert packs.main(["--packs", "2", "--turns", "1"]) == 0
    head, rule, row = capsys.readouterr().out.splitlines()
    assert head == "| command | without | 2 packs |" and set(rule) == {"|", "-"} and row.startswith("| `iron --version` | ")
