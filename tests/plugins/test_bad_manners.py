"""Plugins that do to the process what a library does not: each in a process of its own with all the others, and the commands' answers
are what they are without them."""

from __future__ import annotations

import json
import re

import pytest

OP = "from iron_core import UnaryElementwise\nclass It(UnaryElementwise):\n    def reference(self, x): return x\n"
#: By name: what is done at import, and what doctor has of it, "" for nothing.
MANNERS = {
    "prints": ("import os\nprint('word ' * 9)\nos.write(1, b'bytes\\n')\nos.system('echo child')", ""),
    "prints-much": ("print('x' * 5_000_000)", ""),
    "takes-stdout": ("import io, sys\nsys.stdout = io.StringIO()\nsys.__stdout__ = None", ""),
    "closes-stdout": ("import sys\nsys.stdout.close()", ""),
    "takes-stderr": ("import io, sys\nsys.stderr = io.StringIO()", ""),
    "warns-much": ("import warnings\nfor i in range(3000): warnings.warn(f'warned {i} ' + 'w' * 9000)", ""),
    "would-not-be-warned": ("import warnings\nwarnings.simplefilter('ignore')", ""),
    "threads": ("import threading, time\nthreading.Thread(target=time.sleep, args=(0.05,)).start()", ""),
    "threads-for-good": ("import threading\nthreading.Thread(target=threading.Event().wait).start()", ""),
    "daemon-for-good": ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()", ""),
    "logs": ("import logging, sys\nlogging.basicConfig(stream=sys.stdout, level=0)\nlogging.warning('logged')", ""),
    "exits-later": ("import atexit\natexit.register(lambda: print('at exit'))", ""),
    "exits": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "syntax": ("def (:", "SyntaxError: "),
    "tabs": ("if 1:\n\tx = 1\n        y = 2", "TabError: "),
    "null-bytes": ("x = '\0'", "(SyntaxError|ValueError): source code string cannot contain null bytes"),
    "no-utf-8": ("x = '\udce9'", r"SyntaxError: .*(utf-8|UTF-8)"),
    "circular": ("import {0}_other\nname = 1", r"ImportError: cannot import name 'name' from .*'circular_pack'"),
    "needs": ("import a_dependency_that_is_not_here", "ModuleNotFoundError: No module named 'a_dependency_that_is_not_here'"),
    "recurses": ("def f(): f()\nf()", "RecursionError: "),
    "deep-recursion-limit": ("import sys\nsys.setrecursionlimit(10**6)", ""),
    "changes-folder": ("import os\nos.chdir('/')", ""),
    "clears-path": ("import sys\ndel sys.path[:]", ""),
    "numpy-raises": ("import numpy\nnumpy.seterr(all='raise')", ""),
    "asserts": ("assert 1 == 2, 'a check of its own'", "AssertionError: a check of its own"),
    "group-of-errors": ("raise ExceptionGroup('several', [ValueError('a'), OSError('b')])", "ExceptionGroup: several"),
    "long-error": ("raise ValueError('line\\n' * 100000)", r"ValueError: line line .* \.\.\. "),
}  # fmt: skip


@pytest.fixture
def unmannerly(site):
    """All of them, installed."""
    for name, (source, _) in MANNERS.items():
        word = name.replace("-", "_")
        head = source.format(word) if "{0}" in source else source
        entries = {"iron.operators.v1": {f"{name}.It": f"{word}_pack:It"}}
        site.add(f"iron-{name}", "0.2", entries=entries, modules={f"{word}_other.py": f"from {word}_pack import name\n"})
        (site.folder / f"{word}_pack.py").write_bytes(f"{head}\n{OP}".encode("utf-8", "surrogateescape"))
    return site


@pytest.fixture
def ended(unmannerly, iron_command):
    """ended(*argv, env=): (status, standard output, standard error) of `iron ARGV...`."""

    def run(*argv, env=None):
        done = iron_command(*argv, env=env)
        return done.returncode, done.stdout, done.stderr

    return run


def test_commands_that_load_none_of_them_know_nothing(ended):
    """Help, a list, one operator on both backends: their answers alone."""
    assert ended("--help")[::2] == (0, "")
    status, out, err = ended("operators", "run", "SiLU", "size=64", "--backend", "reference,host", "--json")
    assert (status, err) == (0, "") and [row["failure"] for row in json.loads(out)["rows"]] == ["", ""]


def test_commands_that_load_all_of_them_answer(ended):
    """JSON alone on standard output, a state for each; what they print and warn of is on standard error, so much as can be read."""
    status, out, err = ended("plugins", "list", "--load", "--json")
    rows = {row["distribution"]: row for row in json.loads(out) if row["group"] == "operators"}
    assert status == 0 and rows["iron-ops-aie"]["status"] == "ok"
    for name, (_, says) in MANNERS.items():
        row = rows[f"iron-{name}"]
        assert row["status"] == ("failed" if says else "ok"), row
        assert re.match(says, row["detail"]) and len(row["detail"]) < 600 and row["detail"].isprintable(), row
    lines = err.splitlines()
    warned = [line for line in lines if "warned" in line or "warns of more" in line]
    assert len(warned) == 11 and all(len(line) < 1100 for line in warned) and "which is not shown" in warned[-1]
    assert (
        "warning: a thread of iron-threads-for-good 0.2 (entry point `threads-for-good.It = threads_for_good_pack:It`) has not ended, "
        "and ends with the command. Fix it or hide it: IRON_PLUGINS=-iron-threads-for-good."
    ) in lines
    assert "at exit\n" in err and "logged" in err and "child\n" in err


def test_doctor_names_those_that_fail_and_hiding_them_mends_it(ended):
    """What it advises of each, at once."""
    status, out, _ = ended("doctor", "--json")
    problems = json.loads(out)["problems"]
    failing = [name for name, (_, says) in MANNERS.items() if says]
    assert status == 1 and len(problems) == len(failing)
    advice = []
    for name, problem in zip(sorted(failing), sorted(problems), strict=True):
        assert f"operators {name}.It (iron-{name} 0.2) is failed: " in problem and re.search(MANNERS[name][1], problem)
        advice += re.findall(r"IRON_PLUGINS=(-\S+)\.$", problem)
    assert sorted(advice) == sorted(f"-iron-{name}" for name in failing)
    status, out, _ = ended("doctor", "--json", env={"IRON_PLUGINS": ",".join(advice)})
    assert status == 0 and json.loads(out)["problems"] == []
