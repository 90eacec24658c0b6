"""Ctrl-C before a command has begun and after it is over: a shell's status, and not a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from queue import SimpleQueue

import pytest

from iron_core.side_by_side import side_by_side

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


#: Ctrl-C at ever later moments of a work that three threads share; the last line says how often it came.
SHARED = """
import signal, time
from iron_core.side_by_side import side_by_side

def stop(*_):
    raise KeyboardInterrupt

def item(number):
    time.sleep(0.0002)
    return number

signal.signal(signal.SIGALRM, stop)
came = 0
for at in range(1, 1500):
    under_way = []
    try:
        signal.setitimer(signal.ITIMER_REAL, at * 2e-6)
        done = side_by_side(lambda n: (under_way.append(n), item(n), under_way.remove(n))[1], range(3))
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert done == [0, 1, 2]
    except KeyboardInterrupt:
        came += 1
        assert not under_way
print(came)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that raise a signal here")
def test_shared_work_ends_wherever_it_is_interrupted():
    """No thread waits for ever for what the interrupted one had taken, and none is at work any more."""
    done = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and int(done.stdout) > 100, done


def test_shared_work_begins_nothing_once_it_was_stopped():
    """`end` lets threads go on at once; they take no other item, or a compiler would start that nobody ends."""
    began, ended = [], SimpleQueue()

    def item(number: int) -> None:
        began.append(number)
        if number == 0:
            raise KeyboardInterrupt
        ended.get()

    def end() -> None:
        for _ in range(100):
            ended.put(None)
        time.sleep(0.2)

    with pytest.raises(KeyboardInterrupt):
        side_by_side(item, range(100), end)
    assert len(began) <= (os.cpu_count() or 1) + 1
