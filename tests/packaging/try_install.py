"""Run by the Python of an environment, alone: `try_install.py NAME...` tries what was installed there by these names.

Each package is imported, every plugin loads, `iron doctor` finds nothing but that no backend is there where none is, an operator of each
pack runs on `reference`, and each model says its options.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import sys
import tempfile
from importlib import metadata

NO_BACKEND = "no backend but `reference` can run here"


def main(asked: list[str]) -> None:
    there = sorted(str(dist.metadata["Name"]) for dist in metadata.distributions() if str(dist.metadata["Name"]).startswith("iron-"))
    wanted = needed(asked)
    assert there == sorted(wanted), f"asked for {asked}, which need {sorted(wanted)}; installed are {there}"
    for name in there:
        package = importlib.import_module(name.replace("-", "_"))
        assert package.__file__.startswith(sys.prefix), f"{package.__file__} is not in {sys.prefix}"
        assert any(str(file) == f"{package.__name__}/py.typed" for file in metadata.files(name) or ()), f"{name} has no py.typed"
    assert iron("--version") == f"iron, version {metadata.version('iron-core')}\n"
    plugins = json.loads(iron("plugins", "list", "--load", "--json"))
    wrong = [(one["name"], one["status"], one["detail"]) for one in plugins if one["status"] != "ok"]
    assert plugins and not wrong, wrong
    doctor = json.loads(iron("doctor", "--json", status=None))
    usable = [one["name"] for one in doctor["backends"] if one["available"] and one["name"] not in ("reference", "null")]
    assert all(NO_BACKEND in one and not usable for one in doctor["problems"]), doctor["problems"]
    assert set(there) <= set(doctor["distributions"]), doctor["distributions"]
    operators = [one for one in plugins if one["group"] == "operators"]
    for pack in {one["distribution"] for one in operators}:
        assert any(runs(one["name"]) for one in operators if one["distribution"] == pack), f"{pack}: no operator runs"
    for one in plugins:
        if one["group"] in ("models", "commands"):
            words = ("run", one["name"]) if one["group"] == "models" else (one["name"],)
            assert "--" in iron(*words, "--help"), one["name"]


def needed(names: list[str]) -> set[str]:
    """These, and what they need of ours, without extras."""
    found: set[str] = set()
    queue = list(names)
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            ours = (re.match(r"iron-[a-z0-9-]+", line) for line in metadata.requires(name) or () if "extra" not in line)
            queue += [match[0] for match in ours if match]
    return found


def runs(operator: str) -> bool:
    """Does its first case, on its own numbers, pass on `reference`? Operators without a case are passed over."""
    try:
        rows = iron("operators", "run", operator, "--backend", "reference", status=None)
    except SystemExit:
        return False
    return "reference" in rows and "exact" in rows


def iron(*line: str, status: int | None = 0) -> str:
    """What the command prints; an error where its exit status is another one."""
    from iron_core.cli import main as command

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        given = command(list(line))
    assert status is None or given == status, f"iron {' '.join(line)}: {given}, {err.getvalue()}"
    return out.getvalue()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NPU_CACHE_HOME"] = folder
        main(sys.argv[1:])
