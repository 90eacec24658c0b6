"""Ctrl-C before a command has begun and after it is over: a shell's status, and not a word."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: `iron` in a process that sends itself SIGINT when a module is first looked for, or as Python ends.
AT = """
import atexit, signal, sys

class Look:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Look())
if {name!r} == "the end":
    atexit.register(signal.raise_signal, signal.SIGINT)
import _iron_start

_iron_start.{command}()
"""


def run(name: str, *argv: str, command: str = "iron", before: str = "") -> subprocess.CompletedProcess[str]:
    code = before + AT.format(name=name, command=command)
    return subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", ["iron", "iron_run"])
@pytest.mark.parametrize("name", ["iron_core", "iron_core.cli", "iron_core.cli.entry", "click", "iron_core.cli.commands"])
def test_imports_end_without_a_word(command, name):
    """Whatever is being imported, by us or for us: exit status 130, as a shell gives it, no traceback, no output."""
    done = run(name, "--help", command=command)
    assert done.returncode == 130 and (done.stdout, done.stderr.strip()) == ("", ""), done


@pytest.mark.parametrize("name", ["numpy", "iron_ops_aie.products.gemv"])
def test_imports_of_a_command_end_without_a_traceback(name):
    """A command's own imports are a part of its run."""
    done = run(name, "operators", "show", "GEMV")
    assert done.returncode == 130 and "Traceback" not in done.stderr and "error" not in done.stderr, done


def test_the_end_of_python_is_quiet():
    """The answer is there; a late Ctrl-C changes the status and says nothing."""
    done = run("the end", "--version")
    assert done.returncode == 130 and done.stdout.startswith("iron") and done.stderr == "", done


def test_where_it_is_ignored_it_stays_so():
    """A shell's background: the command goes on to its end."""
    before = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    for name in ("iron_core.cli", "iron_core.cli.commands", "the end"):
        done = run(name, "--version", before=before)
        assert done.returncode == 0 and done.stdout.startswith("iron") and done.stderr == ""
