"""The standard streams of every command: closed, full, read by nobody; and, with --json, for the answer alone."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = [
    "--help",
    "--version",
    "models list",
    "operators list --load",
    "operators show GEMV",
    "operators run SiLU size=8 --backend reference",
    "backends list --json",
    "plugins list --json",
    "doctor",
    "sim --help",
    "run",
    "run tiny",
]
#: A model's run that says three words.
TINY = str(Path(__file__).parents[1] / "data" / "tiny_llama")
THREE_TOKENS = ["llama", TINY, *"--prompt-len 3 --num-tokens 3 --backend reference".split()]
PACK = """
import atexit, os, subprocess, sys
def noise(where):
    print("python noise", where)
    sys.__stdout__.write(f"original noise {where}\\n")
    sys.__stdout__.flush()
    os.write(1, f"descriptor noise {where}\\n".encode())
    subprocess.run(["echo", "child noise", where])
noise("import")
atexit.register(noise, "exit")
from iron_core import In, Operator, Out, Param, Case, Testing
from iron_core.plugins.hooks import hookimpl
class Noisy(Operator):
    size: int = Param()
    x = In(size)
    y = Out(size)
    test = Testing(Case(size=8))
    def reference(self, x):
        noise("reference")
        return x * 2
class Backend:
    name, preference = "noisy", None
    def __init__(self): noise("made")
    def probe(self):
        noise("probe")
    def devices(self): return ("host",)
class Reader:
    @staticmethod
    def sniff(path, head):
        noise("sniff")
        return False
    @staticmethod
    def open(path): pass
class Model:
    summary = "Noisy."
    @staticmethod
    def main(argv):
        from iron_core.cli import streams
        from iron_core.cli.table import print_json
        if "--json" in argv:
            streams.reserve()
            noise("main")
            print_json({"said": argv})
        else:
            print("said", *argv)
        return 0
"""


@pytest.fixture
def noisy(site):
    """A pack that prints wherever its code runs."""
    entries = {
        "iron.operators.v1": {"x.Noisy": "noisy_pack:Noisy"},
        "iron.backends.v1": {"noisy": "noisy_pack:Backend"},
        "iron.checkpoints.v1": {"noisy": "noisy_pack:Reader"},
        "iron.models.v1": {"tiny": "noisy_pack:Model"},
    }
    site.add("iron-noisy", entries=entries, modules={"noisy_pack.py": PACK})
    yield
    if "noisy_pack" in sys.modules:  # imported by this process, at whose end it has nothing to say
        atexit.unregister(sys.modules["noisy_pack"].noise)


@pytest.fixture
def tiny(site):
    """A model that says one line."""
    source = "class Tiny:\n    summary = ''\n    @staticmethod\n    def main(argv):\n        print('said')\n"
    site.add("iron-tiny", entries={"iron.models.v1": {"tiny": "tiny_model:Tiny"}}, modules={"tiny_model.py": source})


def shell(program, redirection, *argv):
    """Run a program as `sh` starts it with a redirection."""
    line = ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "-c", program.code, *argv]
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_that_cannot_be_written_is_an_error_of_one_line(tiny, iron_command, command):
    """Standard output on a full disk: what is wrong with it, and exit status 1."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    done = shell(iron_command, ">/dev/full", *command.split())
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: standard output: No space left on device.\n")


@pytest.mark.parametrize("command", ["--help", "models list", "plugins list --json", "doctor", "run", "run tiny"])
def test_nor_can_one_where_standard_output_is_closed(tiny, iron_command, command):
    """It is given a file before any command runs, so no other takes its place: not of those that start programs either."""
    done = shell(iron_command, ">&-", *command.split())
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: standard output: Bad file descriptor.\n")


def test_the_python_that_a_shell_starts_is_the_console_script(tiny, iron_run):
    """The same of an installed script, whose file Python has open while it starts."""
    from importlib.metadata import distribution

    (script,) = [f for f in distribution("iron-core").files or [] if f.name == "iron-run"] or [None]
    if script is None:
        pytest.skip("no script is installed")
    line = ["sh", "-c", '"$@" <&- >&-', "sh", str(script.locate()), "tiny"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, "error: standard output: Bad file descriptor.\n")


@pytest.mark.parametrize("command", ["operators run x.Twice size=8 --backend host", "operators list", "operators show GEMX"])
def test_what_belongs_on_standard_error_is_never_on_standard_output(site, iron_command, command):
    """Closed or full: the words for it are lost, the answer and the exit status are the same."""
    source = (
        "from iron_core import In, Operator, Out, Param, Case, Testing\nclass Twice(Operator):\n    size: int = Param()\n"
        "    x = In(size)\n    y = Out(size)\n    test = Testing(Case(size=8))\n    def reference(self, x): return x * 2\n"
    )
    site.add("iron-x", entries={"iron.operators.v1": {"x.Twice": "x_ops:Twice"}}, modules={"x_ops.py": source})
    usual = shell(iron_command, "", *command.split())
    for redirection in ("2>&-", "2>/dev/full"):
        other = shell(iron_command, redirection, *command.split())
        assert other.returncode == usual.returncode and other.stderr == "", redirection
        assert len(other.stdout.splitlines()) == len(usual.stdout.splitlines())
        assert "error" not in other.stdout and "iron:" not in other.stdout


def test_all_streams_closed(tiny, iron_run):
    """Nothing can be said, and nothing is written anywhere else."""
    done = shell(iron_run, "<&- >&- 2>&-", "tiny")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_a_closed_standard_input_is_empty(site, iron_run):
    """A program that reads finds the end; one that cannot be read is an error of one line."""
    source = "import sys\nclass Reads:\n    @staticmethod\n    def main(argv):\n        print(repr(sys.stdin.read()))\n"
    site.add("iron-reads", entries={"iron.models.v1": {"reads": "reads_model:Reads"}}, modules={"reads_model.py": source})
    done = shell(iron_run, "<&-", "reads")
    assert (done.returncode, done.stdout, done.stderr) == (0, "''\n", "")
    done = shell(iron_run, "0>/dev/null", "reads")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: standard input: Bad file descriptor.\n")


@pytest.mark.parametrize(
    "command",
    [
        "plugins list --load --json",
        "operators list --load --json",
        "models list --load --json",
        "backends list --json",
        "doctor --json",
        "operators show x.Noisy --json",
        "operators run x.Noisy size=8 --backend reference --json",
        "sim x.Noisy --json",
        "cache list --json",
        "run tiny --json",
    ],
)
def test_json_is_alone_on_standard_output(noisy, iron_command, command):
    """Whatever a plugin prints, from Python, C, a child or at exit, wherever its code runs, is on standard error."""
    done = iron_command(*command.split())
    assert json.loads(done.stdout) is not None and done.returncode in (0, 1), done.stderr
    if "cache" not in command:  # which asks no plugin
        assert all(f"{kind} noise" in done.stderr for kind in ("python", "original", "descriptor", "child"))


def test_what_is_imported_never_speaks_among_the_answer(noisy, iron_command):
    """Without --json too: an import's print is no part of what was asked for."""
    done = iron_command("run", "tiny", "word")
    assert done.stdout.splitlines()[0] == "said word" and "python noise import" in done.stderr
    told = iron_command("backends", "list").stdout
    assert "noise exit" in told and not any(f"noise {where}" in told for where in ("import", "made", "probe"))


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_plugin_that_closes_the_streams_closes_its_own(site, iron_command, options):
    """Standard output is what it was when the import is over, as an object and as a descriptor."""
    source = "import os, sys\nsys.stdout.close()\nos.close(1)\n"
    site.add("iron-closes", entries={"iron.operators.v1": {"x.Closes": "closes_pack:Op"}}, modules={"closes_pack.py": source})
    done = iron_command("operators", "list", "--load", *options)
    assert (done.returncode, done.stderr) == (0, "") and "GEMV" in done.stdout and "closes_pack" in done.stdout


def test_in_one_process_the_streams_are_as_before(noisy, capsys):
    """`main` may be called again and again: `sys.stdout` is what it was."""
    from iron_core.cli import main

    before = sys.stdout
    for _ in range(2):
        assert main(["plugins", "list", "--load", "--json"]) == 0
        told = capsys.readouterr()
        assert json.loads(told.out) and sys.stdout is before


def test_a_commands_main_called_as_a_function_leaves_the_streams(capsys):
    """`iron sim --json` and the like without `iron`: standard output is the caller's afterwards, the next command's too."""
    from iron_core.cli import main
    from iron_sim.command import main as sim

    for _ in range(2):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            sim(["ElementwiseAdd", "--dev", "npu2", "--json"])
            assert sys.stdout is out
        assert json.loads(out.getvalue())["rows"]
        out.close()
        assert main(["plugins", "list", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)


LIBRARY = """
import numpy as np
import iron_core as iron
class Twice(iron.UnaryElementwise):
    def reference(self, x): return x * 2
class G(iron.Graph):
    def body(self, x): return Twice(x)
g = G().compile(x=((4,), np.float32), backend="host", verbose=True)
print("answer", g(np.ones(5, np.float32))[0])
"""


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_program_without_standard_error_has_its_answer_alone(redirection):
    """Iron as a library: what it says aside goes unsaid, and never among the program's own words."""
    line = ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "-c", LIBRARY]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.stdout == "answer 2.0\n", done


def test_a_run_of_a_model_has_its_text_alone(noisy, iron_run):
    """Readers are asked and plugins are loaded without a word among the answer, which --json makes one object."""
    done = iron_run(*THREE_TOKENS)
    words, *noise = done.stdout.splitlines()
    assert done.returncode == 0 and len(words.split()) == 3 and all("exit" in word for word in noise), done
    assert "python noise sniff" in done.stderr
    assert len(json.loads(iron_run(*THREE_TOKENS, "--json").stdout)["ids"]) == 3


def test_ctrl_c_while_plugins_are_loaded_ends_the_command(site, iron_command):
    """Status 130, at once, and no plugin is blamed for it."""
    source = "import sys, time\nsys.stderr.write('importing\\n')\nsys.stderr.flush()\ntry: time.sleep(1000)\nexcept BaseException: pass\n"
    site.add("iron-slow", entries={"iron.operators.v1": {"slow.Op": "slow_pack:Op"}}, modules={"slow_pack.py": source})
    process = iron_command.start("plugins", "list", "--load", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr.readline() == b"importing\n"
    process.send_signal(signal.SIGINT)  # perhaps while that line is still being written
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out.strip(), err.strip()) == (130, b"", b"")


def test_a_plugins_failure_is_one_line_of_a_commands_standard_error(site, iron_run):
    """A warning with whose it is, once, whatever Python makes of warnings; the answer is the same."""
    source = "from iron_core.plugins.hooks import hookimpl\n@hookimpl\ndef iron_plan_built(plan): raise SystemExit('bye')\n"
    site.add("iron-odd", "0.2", entries={"iron.plugins.v1": {"odd": "odd_watcher"}}, modules={"odd_watcher.py": source})
    done = iron_run(*THREE_TOKENS)
    told = [text for text in done.stderr.splitlines() if "iron-odd" in text]
    assert done.returncode == 0 and len(done.stdout.split()) == 3
    assert told == [
        "warning: plugin of iron-odd 0.2 (entry point `odd = odd_watcher`) failed at iron_plan_built and is told nothing more: SystemExit: "
        "bye at odd_watcher.py:3. Fix it or hide it: IRON_PLUGINS=-iron-odd."
    ]
