"""The tests of a device, tested without one: the simulator stands in, or nothing does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from iron_core.backends.protocol import Available, Unavailable
from iron_core.declare.testing import Case
from iron_core.visualize.history import read
from iron_ops_aie import SiLU
from tests.device import target, weights
from tests.device.llama import session, walk
from tests.device.params import params, takes
from tests.device.target import Target, absent
from tests.lm.arrays.small_llama import loaded
from tests.npu.tree import Tree

ROOT = Path(__file__).parents[2]
#: Small ones of every kind: under a bound, of two outputs, timed; a gather, a loop, a bound per call.
FEW = "(Quantize and (size2048 or valid1537)) or (RMSNorm and rows48) or (Route and bench) or test_a_gather or test_a_loop or every_bound"


def run(*arguments: object, folder: Path = ROOT) -> SimpleNamespace:
    """pytest in a process of its own: `code`, `out`, and by outcome how many tests there were."""
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--no-header", *map(str, arguments)]
    # Not a worker of whoever runs this one: those leave the file of figures to who started them.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(line, cwd=folder, env=alone, capture_output=True, text=True, timeout=300)
    last = done.stdout.splitlines()[-1] if done.stdout else done.stderr
    counts = Counter({word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|errors?|deselected)", last)})
    return SimpleNamespace(code=done.returncode, out=done.stdout + done.stderr, counts=counts)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Some of them on the simulator, and their file of figures; of npu1 what is timed."""
    file = tmp_path_factory.mktemp("figures") / "deep" / "few.csv"
    return run("tests/device", "--npu-backend", "sim", "-m", "npu2 or (npu1 and bench)", "-k", FEW, "--csv-output", file), file


def test_they_pass_where_the_simulator_stands_in(few):
    ran, _ = few
    assert ran.code == 0 and ran.counts["passed"] >= 8 and set(ran.counts) == {"passed", "deselected"}, ran.out


def test_what_they_measure_is_a_history(few):
    """In the columns of `iron bench`: how near each case came to its gate, and how long a timed one took, on each family."""
    found = read([few[1]])
    assert set(found.suites) == {"sim-npu1", "sim-npu2"}
    near = [value for chart, at in found.figures.items() if chart.metric == "part of the gate" for value in at.values()]
    assert len(near) >= 6 and all(0 <= value <= 1 for value in near)
    timed = {chart.series: at for chart, at in found.figures.items() if chart.metric == "us"}
    assert timed.keys() == {"sim-npu1", "sim-npu2"} and all(us > 1 for at in timed.values() for us in at.values())


@pytest.mark.slow
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_they_pass_on_a_machine_whose_npu_is_simulated(dev, tmp_path):
    """Backend npu itself, behind whose calls of XRT a simulated device is."""
    file = tmp_path / "few.csv"
    ran = run("-p", "tests.device.simulated_npu", "tests/device", "-m", dev, "-k", FEW, "--csv-output", file)
    assert ran.code == 0 and ran.counts["passed"] >= 7 and set(ran.counts) == {"passed", "deselected"}, ran.out
    metrics = {chart.metric: chart.series for chart in read([file]).figures}
    assert metrics == {"part of the gate": f"npu-{dev}", "us": f"npu-{dev}"}


@pytest.mark.slow
def test_they_run_in_several_processes(tmp_path):
    """Each builds beside the others; figures are written by one."""
    file = tmp_path / "few.csv"
    ran = run("tests/device", "--npu-backend", "sim", "-m", "npu2", "-k", FEW, "--csv-output", file, "-n", 2)
    assert ran.code == 0 and ran.counts["passed"] >= 7, ran.out
    assert len(read([file]).figures) == len(file.read_text().splitlines()) - 1 >= 5


def test_without_a_device_they_skip_and_say_why():
    """With what the backend's probe says."""
    why = {dev: absent("npu", dev) for dev in target.FAMILIES}
    if not all(why.values()):
        pytest.skip("there is a device here")
    ran = run("tests/device/test_graphs.py", "-m", "npu1 or npu2")
    assert ran.code == 0 and ran.counts.keys() == {"skipped"} and ran.counts["skipped"] >= 16, ran.out
    assert set(re.findall(r"^SKIPPED \[\d+\] [^:]+:\d+: (.*)$", ran.out, re.M)) == set(why.values())


@pytest.mark.slow
def test_one_that_is_required_is_here_or_nothing_runs(monkeypatch):
    """In a line that says why; what is here is no obstacle."""
    required = [dev for dev in target.FAMILIES if absent("npu", dev)][-1]
    monkeypatch.setenv("IRON_TESTS_REQUIRE", f"smollm2,{required}")
    ran = run("tests/device/test_graphs.py", "-m", required)
    assert ran.code == 4 and f"IRON_TESTS_REQUIRE names {required}: {absent('npu', required)}" in ran.out, ran.out
    assert run("tests/device/test_graphs.py", "-m", required, "--npu-backend", "sim", "-k", "test_a_gather").counts["passed"] == 1


# -- which are chosen ----------------------------------------------------------------------------------


def ids(*arguments: object) -> set[str]:
    """Of all but the catalog's, which take seconds to collect."""
    ran = run("tests/device", "--ignore", "tests/device/test_catalog.py", "--collect-only", "-q", *arguments)
    assert ran.code in (0, 5), ran.out
    return set(re.findall(r"^(tests/\S+)", ran.out, re.M))


@pytest.mark.slow
def test_markers_choose_a_family_and_options_the_long_ones():
    """What needs no device has neither mark; of the cases beyond the default suite some are there where they are asked for."""
    sessions = (ROOT / "noxfile.py").read_text()
    nothing = re.search(r'^NEEDS_NOTHING = "(.*)"', sessions, re.M)[1]
    everywhere = ids("-m", nothing)
    assert everywhere and all(re.search(r"test_(harness|sessions|workflows)\.py", one) for one in everywhere)
    found = ids("-m", "npu2")
    assert len(found) > 10 and not found & everywhere and not any("npu1" in one for one in found)
    assert ids("-m", "npu2", "--extensive") == found | ids("-m", "npu2 and extensive") > found


def test_every_case_that_some_array_takes_is_there():
    """Of both families, with what it is marked; none that is refused, but what says that there is an array for it."""
    marked = Counter((param.values[2], mark) for param in params() for mark in ("any", *(one.name for one in param.marks)))
    assert marked["npu1", "any"] > 500 and marked["npu2", "any"] > marked["npu1", "any"]
    for dev in target.FAMILIES:
        assert 35 <= marked[dev, "bench"] < 60 and 200 < marked[dev, "extensive"] < marked[dev, "any"] - 250
    assert takes(SiLU, Case(size=1024), "npu2") and takes(SiLU, Case(size=1000, lower=True), "npu2")
    assert not takes(SiLU, Case(size=1000), "npu2")


FOREIGN = """
import pytest
from iron_core.devices import current_device

pytestmark = pytest.mark.supported_devices("npu2")


def test_forgets(npu):
    assert (npu.dev, npu.options) == ("npu2", {"backend": "sim", "dev": "npu2"})


@pytest.mark.parametrize("n", [1, 2])
def test_skips(n, npu):
    npu.refuse("a rule")


def test_compiles_alone(npu2, npu):
    assert current_device().name == "npu2"
    npu.refuse("another")
"""


#: By what is wrong with it, a file's tests.
WRONG = {
    "supported_devices names nothing; legal: npu1, npu2.": ("", "npu"),
    "supported_devices names 'npu3'; legal: npu1, npu2.": ("'npu3'", "npu"),
    "is marked supported_devices; legal: with a parameter npu.": ("'npu1'", ""),
}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Files of tests somewhere else, to which the plugin is named."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "test_foreign.py").write_text(FOREIGN)
    for number, (names, given) in enumerate(WRONG.values()):
        text = f"import pytest\n@pytest.mark.supported_devices({names})\ndef test_it({given}): pass\n"
        (folder / f"test_wrong{number}.py").write_text(text)
    options = ("--continue-on-collection-errors", "--import-mode=importlib", "-rs", "--rootdir", folder, "-c", "/dev/null")
    return run("-p", "tests.device.choosing", "--npu-backend", "sim", *options, folder)


def test_one_that_never_takes_the_device_is_an_error(foreign):
    """It may have run beside another, or nowhere. One that skips is none."""
    ran = foreign
    assert ran.counts["passed"] == 1 and ran.counts["skipped"] == 3 and ran.counts["errors"] == 1 + len(WRONG), ran.out
    assert ran.out.count("\nnever took the device: npu.take(") == 1 and "test_forgets[npu2]" in ran.out, ran.out
    assert "npu2 refuses it: a rule" in ran.out


@pytest.mark.parametrize("says", WRONG)
def test_a_mark_that_says_nothing_is_refused(says, foreign):
    assert says in foreign.out, foreign.out


# -- who has the device --------------------------------------------------------------------------------


class Stub:
    """A backend that says this of itself."""

    def __init__(self, said, *devices):
        self.said, self.names = said, devices
        self.supports = self.accepts = self.compile = self.memory = self.load = lambda *_: None

    def probe(self):
        return self.said

    def devices(self):
        return self.names


BOTH = Stub(Available("it runs"), *target.FAMILIES)


@pytest.mark.parametrize(
    ("backend", "made", "plugged", "first", "second"),
    [
        ("npu", BOTH, "npu1", "", "no npu2: the NPU here is npu1"),
        ("npu", BOTH, "npu2", "no npu1: the NPU here is npu2", ""),
        ("npu", BOTH, "", "", ""),
        ("sim", Stub(Available("one"), "npu2"), "npu1", "no npu1: backend sim takes npu2", ""),
        ("npu", Stub(Unavailable("no node", "Load it."), "npu2"), "", *["backend npu cannot run here: no node. Load it."] * 2),
    ],
)
def test_a_device_is_here_or_why_not(backend, made, plugged, first, second, monkeypatch, tmp_path):
    """By what the system lists and the backend's probe; where nothing is known of it, it is tried."""
    machine = Tree.whole(tmp_path, plugged) if plugged else Tree(tmp_path)
    monkeypatch.setattr(target, "get", lambda name: made)
    monkeypatch.setattr(target, "System", machine.system)
    assert [absent.__wrapped__(backend, dev) for dev in target.FAMILIES] == [first, second]


TRIES = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def test_one_process_has_the_device(tmp_path, monkeypatch):
    """From when it takes what it compiled, and built, until the test ends; what was loaded is unloaded then."""
    monkeypatch.setattr(target, "lock_file", lambda: tmp_path / "lock")
    version = SimpleNamespace(executable=object())
    made = SimpleNamespace(_program=SimpleNamespace(versions={(): version}, _memory=object()))

    def other() -> bool:
        """Could another process have it?"""
        return subprocess.run([sys.executable, "-c", TRIES, str(tmp_path / "lock")], capture_output=True).returncode == 0

    free = []
    monkeypatch.setattr(target, "built", lambda program: free.append((program, other())))
    held = Target("npu2", "npu")
    assert not held.taken and held.take(made) is made and held.taken and held.take(made) is made
    assert free == [(made._program, True)] and not other()
    held.release()
    assert not held.taken and other() and version.executable is None and made._program._memory is None


# -- the full Llama ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_the_full_llama_is_walked_through_passes_with_a_small_one():
    """And gives its figures."""
    npu, small = Target("npu2", "sim"), loaded((4, 1))
    try:
        walk(npu, session(npu, small), small)
    finally:
        npu.release()
    assert [metric for _, _, metric, value in npu.figures if value > 0] == ["first token s", "s/token"]


def test_weights_are_found_by_name(tmp_path, monkeypatch):
    """A folder or a GGUF file, in the folder that a variable names."""
    monkeypatch.setenv(weights.VARIABLE, str(tmp_path))
    monkeypatch.delenv("IRON_TESTS_REQUIRE", raising=False)
    (tmp_path / "Llama-3.2-3B").mkdir()
    (tmp_path / "llama3.2-1b.txt").write_text("")
    with pytest.raises(pytest.skip.Exception, match=f"in {tmp_path}; {weights.VARIABLE} names another"):
        weights.llama()
    monkeypatch.setenv("IRON_TESTS_REQUIRE", "smollm2,llama")
    with pytest.raises(pytest.fail.Exception, match="no folder or GGUF file"):
        weights.llama()
    (tmp_path / "llama3.2-1b-q4.gguf").write_text("")
    assert weights.llama() == tmp_path / "llama3.2-1b-q4.gguf"
    (tmp_path / "Llama-3.2-1B-Instruct").mkdir()
    assert weights.llama() == tmp_path / "Llama-3.2-1B-Instruct"
