"""The commands `iron` and `iron-run`: lists, doctor, one operator, errors in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from iron_core.cli.listing import summary
from iron_core.plugins.registry import RESERVED, registry
from iron_core.plugins.summaries import written
from tests.distributions import DISTRIBUTIONS

MODELS = sorted(name for one in DISTRIBUTIONS for name in one.offers("models"))


def error(told):
    """The one line of an error of the user's."""
    status, out, err = told
    assert status == 2, err
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err, err
    return err


# -- lists ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["models", "operators", "backends", "plugins"])
def test_every_list_is_a_table_or_json(iron, group):
    """`iron GROUP list` prints rows under headers; `--json` the same as data."""
    status, out, err = iron(group, "list")
    assert (status, err) == (0, "")
    rows = out.splitlines()[1:]
    status, out, _ = iron(group, "list", "--json")
    data = json.loads(out)
    assert status == 0 and len(data) == len(rows) > 0
    assert all("name" in entry for entry in data)


def test_lists_are_what_is_installed(iron):
    """The catalog, the model, and the backends with what their probes say."""
    assert {e["name"] for e in json.loads(iron("operators", "list", "--json")[1])} >= {"GEMV", "MHA", "Copy"}
    assert [e["name"] for e in json.loads(iron("models", "list", "--json")[1])] == MODELS
    backends = {e["name"]: e for e in json.loads(iron("backends", "list", "--json")[1])}
    assert backends["reference"]["available"] and backends["null"]["available"]
    assert backends["host"]["available"] or backends["host"]["fix"]


def test_models_say_what_they_are(iron):
    """Name, distribution and summary of each; a table and JSON say the same."""
    rows = [line.split(maxsplit=3) for line in iron("models", "list")[1].splitlines()]
    listed = json.loads(iron("models", "list", "--json")[1])
    assert rows[0] == ["name", "distribution", "summary"]
    assert [(e["name"], e["distribution"], e["version"], e["summary"]) for e in listed] == [tuple(row) for row in rows[1:]]
    assert all(e["summary"] for e in listed)


@pytest.mark.parametrize("group", ["models", "commands", "operators", "backends"])
def test_what_is_read_from_the_source_is_what_the_object_says(group):
    """Of everything that is installed here, `written` knows what its object says when it is loaded."""
    for record in registry().select(group):
        assert written(record), record
        assert record.load() and summary(record.object) == written(record)


def test_lists_and_help_import_no_plugin(site, iron_command):
    """Models, operators and commands are told as their sources say, by a process that has imported none of them, nor numpy."""
    spy = "import atexit, sys\natexit.register(lambda: print('imported:', *sorted(sys.modules), file=sys.stderr))\n"
    site.add("watch", modules={"sitecustomize.py": spy})
    for line, says in (("models list", "SmolLM2 and their kin"), ("operators list", "C = A @ B."), ("--help", "on simulated NPU arrays."),
                       ("run", "SmolLM2 and their kin"), ("run --help", "SmolLM2 and their kin")):  # fmt: skip
        told = iron_command(*line.split())
        assert told.returncode == 0 and says in " ".join(told.stdout.split()).replace(" ...", ""), told.stdout
        imported = set(told.stderr.partition("imported:")[2].split())
        assert "iron_core.cli.commands" in imported
        assert not imported & ({"numpy"} | {one.package for one in DISTRIBUTIONS} - {"iron_core"}), line


SAYS = {
    "a docstring's first sentence": ('class It:\n    """One. Two."""', "One."),
    "of several lines": ('class It:\n    """One\n    and two, e.g. this. Three."""', "One and two, e.g. this."),
    "of a function": ('def It(argv):\n    """One."""', "One."),
    "a summary": ('class It:\n    """Doc."""\n    summary = "One. Two."', "One. Two."),
    "one with a type": ('class It:\n    summary: str = "One"', "One"),
    "one that is given afterwards": ('def It(argv): pass\nIt.summary = "One"', "One"),
    "the last of a name": ('class It:\n    "One."\nclass It:\n    "Two."', "Two."),
    "from another module": ("from acme_it.other import Other as It", "Another."),
    "from one beside it": ("from .other import Other as It", "Another."),
    "in another encoding": ("# coding: latin-1\nclass It:\n    'Stra\xdfe.'", "Stra\xdfe."),
    "what does not print": ('class It:\n    summary = "\\x1b[31mOne"', "\\x1b[31mOne"),
    "nothing": ("class It: pass", ""),
    "what is computed": ("It = type('It', (), {'summary': 'One'})", ""),
    "a circle": ("from acme_it.model import It", ""),
    "what does not parse": ("class It(:", ""),
    "no text": ("\0", ""),
    "depth": ("It = " + "(" * 5000 + ")" * 5000, ""),
}


@pytest.mark.parametrize("which", SAYS)
def test_how_a_source_says_what_its_model_is(site, iron, which):
    """A summary, else the first sentence of a docstring; where it has neither, or is no Python, there is a row all the same."""
    source, says = SAYS[which]
    modules = {"acme_it/__init__.py": "raise RuntimeError('imported')", "acme_it/other.py": "class Other:\n    'Another.'\n"}
    site.add("iron-it", "0.1", entries={"iron.models.v1": {"it": "acme_it.model:It"}}, modules=modules)
    (site.folder / "acme_it" / "model.py").write_bytes(source.encode("latin-1"))
    row = next(line for line in iron("models", "list")[1].splitlines() if line.startswith("it "))
    assert row.split(maxsplit=3)[3:] == ([says] if says else []), row


def test_a_model_that_fails_is_a_row_of_the_list(broken, iron):
    """With its reason, where each is loaded, and the others are told as ever."""
    status, out, err = iron("models", "list", "--load")
    assert (status, err) == (0, "") and "bad-models" in out and "failed: RuntimeError: no such luck" in out
    listed = {e["name"]: e for e in json.loads(iron("models", "list", "--load", "--json")[1])}
    assert listed["bad-models"]["status"] == "failed" and "summary" not in listed["bad-models"] and listed["llama"]["summary"]


def test_load_says_what_each_is(iron):
    """With `--load`, a line about each operator."""
    _, out, _ = iron("operators", "list", "--load")
    assert "GEMV" in out and "A[b // repeat] @ B[b]" in out


def test_plugins_of_one_group(iron):
    """`--group` takes the short name and the full one."""
    _, short, _ = iron("plugins", "list", "--group", "backends")
    _, full, _ = iron("plugins", "list", "--group", "iron.backends.v1")
    assert short == full and "operators" not in short


TWIN = """
from iron_core import Operator, Out
class operators(Operator):
    y = Out(3)
    def reference(self): return 0
class backends:
    def probe(self): pass
class models:
    def main(argv): pass
def commands(argv): pass
def devices(): pass
class plugins: pass
"""


@pytest.fixture
def broken(site):
    """A plugin that raises at import, one of another API level, and two with one name; in every group that matters."""
    groups = ("operators", "backends", "models", "commands", "devices", "plugins")
    site.add(
        "iron-bad",
        "0.2",
        entries={f"iron.{group}.v1": {f"bad-{group}": "bad_pack:Thing"} for group in groups},
        modules={"bad_pack.py": "raise RuntimeError('no such luck')"},
    )
    site.add("iron-old", "0.1", entries={f"iron.{group}.v0": {f"old-{group}": "old_pack:Thing"} for group in groups})
    for number in (1, 2):
        entries = {f"iron.{group}.v1": {f"twin-{group}": f"twin{number}:{group}"} for group in groups}
        site.add(f"iron-twin{number}", entries=entries, modules={f"twin{number}.py": TWIN})
    return site


@pytest.mark.parametrize(
    "line",
    [
        "--help", "models list", "operators list --load", "backends list", "plugins list", "doctor", "doctor --json",
        "operators show GEMV", "run llama --help",
    ],
)  # fmt: skip
def test_every_command_works_when_plugins_are_broken(broken, iron, line):
    """Lists, doctor and help do their work."""
    status, out, err = iron(*line.split())
    assert status == line.startswith("doctor") and out, err


def test_a_list_shows_what_happened_to_each_broken_plugin(broken, iron_command):
    """Nothing is loaded unless it is asked for, and then each has its reason; a process of its own has imported none before."""
    listed = {(e["group"], e["name"], e["distribution"]): e for e in json.loads(iron_command("plugins", "list", "--json").stdout)}
    assert listed["operators", "bad-operators", "iron-bad"]["status"] == "not loaded"
    tried = json.loads(iron_command("plugins", "list", "--load", "--json").stdout)
    status = {(e["name"], e["distribution"]): (e["status"], e["detail"]) for e in tried}
    assert status["bad-operators", "iron-bad"] == ("failed", "RuntimeError: no such luck (from bad_pack)")
    assert status["old-operators", "iron-old"] == (
        "incompatible",
        "built for operators v0, this iron reads v1. Upgrade iron-old.",
    )
    assert status["twin-operators", "iron-twin1"] == ("ambiguous", "also provided by iron-twin2 1.0")
    assert status["GEMV", "iron-ops-aie"] == ("ok", "")


def test_the_table_of_plugins_says_so_too(broken, iron):
    """A reason beside each name."""
    table = iron("plugins", "list", "--load")[1]
    assert "failed: RuntimeError: no such luck" in table and "ambiguous: also provided by iron-twin2" in table


def test_doctor_names_the_broken_plugins(broken, iron):
    """Each is a problem with its owner and reason."""
    status, out, _ = iron("doctor", "--json")
    facts = json.loads(out)
    assert status == 1
    problems = "\n".join(facts["problems"])
    for who in ("iron-bad 0.2", "iron-old 0.1", "iron-twin1 1.0"):
        assert who in problems
    assert facts["distributions"]["iron-core"].startswith("2.")


def test_doctor_says_where_the_cache_cannot_be_written(iron, monkeypatch, tmp_path):
    """A cache folder behind a regular file is named with the way out."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "file" / "cache"))
    facts = json.loads(iron("doctor", "--json")[1])
    assert any("Set NPU_CACHE_HOME" in p for p in facts["problems"])


def test_a_backend_whose_probe_raises_is_unavailable(site, iron):
    """The protocol says a probe never raises; one that does is a row like any other."""
    source = "class Thing:\n    name, preference = 'odd', None\n    def probe(self): raise OSError('the bus is gone')\n"
    site.add("iron-odd", entries={"iron.backends.v1": {"odd": "odd_backend:Thing"}}, modules={"odd_backend.py": source})
    rows = {e["name"]: e for e in json.loads(iron("backends", "list", "--json")[1])}
    assert rows["odd"]["available"] is False and "the bus is gone" in rows["odd"]["reason"]


# -- models and commands of others -----------------------------------------------------------------------

MODEL = """
class Tiny:
    summary = "A model of somebody else's."
    @classmethod
    def main(cls, argv):
        print("tiny", *argv)
        return {"ok": 0, "gate": 1}.get(argv[0], 0) if argv else 0
def command(argv):
    print("command", *argv)
class Raises:
    @classmethod
    def main(cls, argv):
        raise KeyError("x")
class Slow:
    @classmethod
    def main(cls, argv):
        import time
        print("started", flush=True)
        time.sleep(60)
class Talks:
    @classmethod
    def main(cls, argv):
        for i in range(100000):
            print("word", i)
class Waits:
    @classmethod
    def main(cls, argv):
        print("started", flush=True)
        print("read", input())
"""


@pytest.fixture
def acme(site):
    """A third party's models and a command."""
    models = {"tiny": "acme_model:Tiny", "raises": "acme_model:Raises", "slow": "acme_model:Slow", "talks": "acme_model:Talks"}
    models |= {"waits": "acme_model:Waits"}
    models["lost"] = "acme_model:command"
    commands = {"acme": "acme_model:command", "run": "acme_model:command"}
    site.add("iron-acme", "0.1", entries={"iron.models.v1": models, "iron.commands.v1": commands}, modules={"acme_model.py": MODEL})


def test_the_rest_of_the_line_is_the_models(acme, iron):
    """`iron run MODEL ...` hands everything after the name to the model's main, options and `--help` included."""
    assert iron("run", "tiny", "ok", "--help", "--backend", "x", "--", "y")[:2] == (0, "tiny ok --help --backend x -- y\n")
    assert iron("run", "tiny", "gate")[0] == 1
    assert iron("run", "iron-acme:tiny")[0] == 0


def test_iron_run_is_iron_run(acme, iron_run, iron_command):
    """Both commands are one."""
    assert iron_run("tiny", "-x").stdout == iron_command("run", "tiny", "-x").stdout == "tiny -x\n"


def test_a_commands_entry_is_called_with_the_rest_of_the_line(acme, iron):
    """`iron.commands.v1` adds commands; `--help` of iron names their owner; a built-in is not shadowed."""
    assert iron("acme", "--flag", "a")[:2] == (0, "command --flag a\n")
    assert "From iron-acme 0.1." in iron("--help")[1]
    assert iron("run", "tiny")[1] == "tiny\n"
    (clash,) = [e for e in json.loads(iron("plugins", "list", "--group", "commands", "--json")[1]) if e["name"] == "run"]
    assert (clash["status"], clash["detail"]) == ("shadowed", "command `run` is Iron's own; this one is `iron-acme:run`")
    assert iron("iron-acme:run", "a")[:2] == (0, "command a\n")


def test_irons_own_commands_are_reserved():
    """The registry knows, without click, which names a plugin cannot take."""
    from iron_core.cli.commands import iron

    assert RESERVED["commands"] == set(iron.commands)


def test_an_unknown_model_suggests_and_lists(iron):
    """Exit status 2, the near name, and every name."""
    told = error(iron("run", "lama"))
    assert "no model `lama`. Did you mean `llama`?" in told and "Known: " in told and "; `iron models list`. No file or folder" in told


def test_an_unknown_command_suggests(iron):
    """The same of commands."""
    assert "no command `operator`. Did you mean `operators`?" in error(iron("operator", "list"))


@pytest.mark.parametrize("argv", [["--frob"], ["plugins", "list", "--frob"], ["operators", "show"], ["run", "llama", "--frob"]])
def test_a_wrong_line_is_one_line_and_where_to_read(iron, argv):
    """A usage error names the mistake and the help to read, which exists."""
    told = error(iron(*argv))
    program, *rest = told.split("`")[-2].split()
    assert program in ("iron", "iron-run") and rest[-1] == "--help"
    assert iron(*(["run"] if program == "iron-run" else []), *rest)[0] == 0


def test_a_plugin_that_fails_is_an_error_of_one_line(broken, iron):
    """Asking for a model or a command whose plugin is broken says whose it is and how to hide it."""
    for argv, kind in ((["run", "bad-models"], "model"), (["bad-commands"], "command")):
        told = error(iron(*argv))
        assert f"{kind} `bad-{kind}s` is provided by iron-bad 0.2" in told and "IRON_PLUGINS=-iron-bad" in told
    assert "built for models v0, this iron reads v1" in error(iron("run", "old-models"))
    assert "`iron-twin1:twin-models` or `iron-twin2:twin-models`" in error(iron("run", "twin-models"))


def test_a_model_without_main_is_refused(acme, iron):
    """An entry point that names something else is the plugin's mistake, in one line."""
    assert "has no main(argv)" in error(iron("run", "lost"))


@pytest.mark.parametrize(
    ("given", "shown"), [("'done'", "'done' (str)"), ("256", "256 (int)"), ("-1", "-1 (int)"), ("[]", "an object of class `list`")]
)
def test_what_is_no_exit_status_is_refused(site, iron, given, shown):
    """A model's or a command's main returns one, or None; 256 would be success to a shell."""
    source = f"class Odd:\n    @staticmethod\n    def main(argv): return {given}\ndef odd(argv): return {given}\n"
    entries = {"iron.models.v1": {"odd": "odd_main:Odd"}, "iron.commands.v1": {"odd": "odd_main:odd"}}
    site.add("iron-odd", entries=entries, modules={"odd_main.py": source})
    for argv, what in ((["run", "odd"], "model"), (["odd"], "command")):
        assert f"{what} `odd`: its main(argv) returned {shown}; legal: an exit status, 0 to 255, or None" in error(iron(*argv))


def test_an_exit_of_a_models_own_is_its_status(site, iron):
    """SystemExit means what Python makes of it."""
    source = "import sys\nclass Odd:\n    @staticmethod\n    def main(argv): sys.exit({'3': 3, 'words': 'words', 'none': None}[argv[0]])\n"
    site.add("iron-odd", entries={"iron.models.v1": {"odd": "odd_main:Odd"}}, modules={"odd_main.py": source})
    assert iron("run", "odd", "3") == (3, "", "")
    assert iron("run", "odd", "words") == (1, "", "words\n")
    assert iron("run", "odd", "none") == (0, "", "")


def test_a_bug_is_status_one_and_says_where(acme, iron):
    """An exception nobody meant for a user: what, where, and how to see the traceback; `--verbose` shows it."""
    status, _, err = iron("run", "raises")
    assert status == 1 and err.count("\n") == 1
    assert "KeyError: 'x' (a bug, at site/acme_model.py:13, of iron-acme 0.1)" in err and "--verbose shows the traceback" in err
    status, _, err = iron("run", "raises", "--verbose")
    assert status == 1 and "Traceback" in err and "--verbose" not in err.splitlines()[-1]


def test_verbose_adds_the_traceback_of_a_users_mistake(iron):
    """Still status 2."""
    status, _, err = iron("operators", "show", "GEMX", "--verbose")
    assert status == 2 and "Traceback" in err and err.splitlines()[-1].startswith("error: no operator `GEMX`")


def test_ctrl_c_ends_quietly(acme, iron_run):
    """SIGINT gives status 130 and no traceback."""
    process = iron_run.start("slow", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"started\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and b"Traceback" not in err


#: Started by a shell in the background: SIGINT is ignored.
IN_BACKGROUND = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]


def test_what_starts_with_sigint_ignored_goes_on(acme, iron_run):
    """As a shell means it: Ctrl-C is for what runs in the foreground."""
    line = [*IN_BACKGROUND, sys.executable, "-c", iron_run.code, "waits"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"started\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(b"a line\n", timeout=60) == (b"read a line\n", b"")
    assert process.returncode == 0


def test_these_tests_pass_in_the_background():
    """`nohup nox -s tests &`: what the tests start has the default signals all the same."""
    line = [*IN_BACKGROUND, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::test_ctrl_c_ends_quietly"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_a_closed_pipe_ends_quietly(acme, iron_run):
    """A reader that has seen enough (`| head -1`) is no error worth a word."""
    process = iron_run.start("talks", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=120) == 141 and err == b""


def test_starting_is_quick(iron_command):
    """`iron --version` takes a small part of a second of CPU."""
    before = os.times()
    assert iron_command("--version").stdout.startswith("iron, version 2.")
    after = os.times()
    assert after.children_user - before.children_user < 1.0


def test_output_in_a_pipe_is_plain(iron_command):
    """No colours, no progress, no trailing spaces."""
    for argv in (["plugins", "list", "--load"], ["operators", "run", "SiLU", "size=64", "--backend", "reference"]):
        done = iron_command(*argv)
        assert done.returncode == 0 and done.stderr == ""
        assert "\x1b" not in done.stdout
        assert all(line == line.rstrip() for line in done.stdout.splitlines())


def test_registry_is_untouched_between_tests():
    """The fixtures leave no fake distribution behind."""
    assert not [r for r in registry().records if r.distribution.startswith(("iron-bad", "iron-acme", "iron-twin"))]
