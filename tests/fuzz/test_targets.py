"""A few cases of every fuzz target at one seed; `nox -s fuzz` runs them for as long as it is given."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzz import rule, seeds, targets
from fuzz.mutation import Mutator
from iron_core.errors import CheckpointError, UsageError

#: Cases of each; of some that start a process, fewer.
CASES = 12
FEWER = {"template": 3}


@pytest.mark.parametrize("target", targets.TARGETS)
def test_a_damaged_file_is_taken_or_refused_by_name(tmp_path: Path, target: str) -> None:
    """With one short printable line, whatever was damaged."""
    for number in range(FEWER.get(target, CASES)):
        ended = targets.TARGETS[target](Mutator(random.Random(f"0 {target} {number}")), rule.emptied(tmp_path))
        assert ended in ("taken", "refused")


@pytest.mark.parametrize("target", targets.TARGETS)
def test_what_is_damaged_is_whole_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Without damage every target's file is taken: what is fuzzed is behind the first check, not in front of it."""
    monkeypatch.setattr(Mutator, "tree", lambda self, root, most=3: root)
    monkeypatch.setattr(Mutator, "raw", lambda self, data, most=3: data)
    monkeypatch.setattr(Mutator, "text", lambda self, text: text)
    monkeypatch.setattr(Mutator, "odd", lambda self: "")
    monkeypatch.setattr(targets, "_PARTS", (seeds.TEMPLATE,))
    for number in range(3):
        rng = random.Random(number)
        if target == "ranks":
            monkeypatch.setattr(rng, "random", lambda: 0.9)
        assert targets.TARGETS[target](Mutator(rng), rule.emptied(tmp_path)) == "taken", number


@pytest.mark.parametrize(
    "error",
    (
        ValueError("model.gguf"),
        CheckpointError("no file"),
        UsageError("model.gguf"),
        type("Long", (CheckpointError,), {"__str__": lambda self: "model.gguf" * 99})(),
    ),
    ids=("another class", "no name", "another's mistake", "a long one"),
)
def test_what_breaks_the_rule_is_a_fault(error: Exception) -> None:
    """The targets' own judgement: class, name and length."""
    with pytest.raises(rule.Fault):
        rule.told(error, ["model.gguf"])
