"""The tables of mutants fit the sources they are about, and every place of a kind is found."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_spec = importlib.util.spec_from_file_location("mutation_run", Path(__file__).with_name("run.py"))
run = importlib.util.module_from_spec(_spec)
sys.modules["mutation_run"] = run
_spec.loader.exec_module(run)
mutants = run.mutants


def test_every_module_has_tests_that_are_there():
    """modules.toml names files and folders of this tree."""
    for name, module in run.table("modules").items():
        assert (ROOT / module["file"]).is_file(), name
        assert module["tests"] and all((ROOT / test).exists() for test in module["tests"]), name


def test_what_the_core_and_the_host_get_wrong_is_seen_without_a_language_model():
    """Their mutants have tests of their own, outside tests/lm."""
    pairs = [(module["file"], module["tests"]) for module in run.table("modules").values()]
    for file, tests in [*pairs, *((mutant.file, tests) for _, tests, mutant in run.named())]:
        if not file.startswith("iron_models"):
            assert not any(test.startswith("tests/lm") for test in tests), file


def test_every_named_mutant_applies():
    """Its text is in its file once, and Python stays Python."""
    found = run.named()
    assert len(found) >= 12
    for _, tests, mutant in found:
        assert (ROOT / tests[0].partition("::")[0]).exists(), mutant.kind
        if mutant.file.endswith(".py"):
            ast.parse(mutant.text)


def test_every_argued_survivor_is_still_there():
    """A line that has changed is argued anew."""
    known = run.argued()
    for file in {file for file, _, _ in known}:
        lines = {line for of, before, _ in known if of == file for line in before.splitlines()}
        there = {(one.before, one.after) for one in mutants.mutants(file, (ROOT / file).read_text(), lines)}
        gone = [(before, after) for of, before, after in known if of == file and (before, after) not in there]
        assert not gone, f"survivors.toml: {file}: {gone}"
    assert all(why.endswith(".") for why in known.values())


PYTHON = '''
def f(a, b=1):
    """Text > 0."""
    if a < b and not a:
        x[0] = a + b
        for i in range(2):
            continue
    if a is None:
        raise ValueError(f"{a > 1}")
    return digest("key", a, (a, b, 3)), min(a, b)
'''
CPP = """
// a < b
#if defined(__aarch64__)
int x = 1 + 2;
#else
  y[i] = a * b;  // 3 < 4
#endif
  if (a < b && c) f(a, -INFINITY);
"""


@pytest.mark.parametrize(
    "file, text, wanted",
    [
        ("a.py", PYTHON, {"number": 4, "comparison": 2, "and, or": 1, "not": 1, "statement left out": 2, "arithmetic": 1, "no error": 1,
            "key": 6, "function": 1}),
        ("a.h", CPP, {"arithmetic": 1, "statement left out": 1, "comparison": 1, "and, or": 1, "number": 1}),
    ],
)  # fmt: skip
def test_every_place_of_a_kind_is_found(file, text, wanted):
    """Comments, docstrings, messages and other processors' code have none; each mutant differs in a line, which it names."""
    found = mutants.mutants(file, text)
    kinds = {kind: sum(one.kind == kind for one in found) for kind in {one.kind for one in found}}
    assert kinds == wanted
    for one in found:
        assert one.before.splitlines()[0] == text.splitlines()[one.line - 1].strip() != one.after
        assert one.text != text and one.difference.startswith(f"{file}:{one.line}: {one.kind}")


@pytest.mark.parametrize("file, text", [("a.py", PYTHON), ("a.h", CPP)])
def test_the_mutants_of_some_lines_are_those_of_all_that_change_them(file, text):
    """Looking at some lines of a file leaves none of theirs out."""
    everything = mutants.mutants(file, text)
    for line in {line for one in everything for line in one.before.splitlines()}:
        wanted = [one for one in everything if line in one.before.splitlines()]
        assert set(wanted) <= set(mutants.mutants(file, text, {line})) <= set(everything)
