"""`iron tune OPERATOR`: a table, CSV and JSON of its settings, and the fastest kept for whoever runs next."""

from __future__ import annotations

import csv
import io
import json
import threading
import time

import click
import pytest

from iron_core.cli import main as iron
from iron_core.declare.profile import Profile
from iron_core.devices import device
from iron_core.errors import BoundsError, CallError, ParamError, UnknownName, UnsupportedError, UsageError
from iron_tuner import profiles, tune_operator
from iron_tuner.command import main
from iron_tuner.settings import Settings
from tests.tuner.fake import FakeBackend
from tests.tuner.operators import NPU2, by_width, made

LINE = ["ReLU", "size=512", "--calls", "2", "--exhaustive", "200"]


@pytest.fixture
def fake(monkeypatch):
    """`fake(backend)`: the backend that measures."""

    def use(backend):
        monkeypatch.setattr(tune_operator, "measuring_backend", lambda name, dev: (backend, device(dev or "npu2")))
        return backend

    use(FakeBackend(by_width))
    return use


def tuned(capsys, *more):
    """Status, standard output and error of a line."""
    status = iron(["tune", *LINE, *more])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_table_has_every_setting_the_fastest_first(fake, capsys):
    """With its time and what its output is worth; and a line that says what was gained."""
    status, out, err = tuned(capsys)
    lines = out.splitlines()
    assert status == 0 and lines[0].split()[:3] == ["tile_size", "num_aie_columns", "num_channels"]
    assert lines[1].rstrip().endswith("best") and sum("default" in line for line in lines[:-1]) == 1
    assert "settings measured, every one" in lines[-1] and "% less)" in lines[-1]
    assert "ReLU size=512" in err and "Fake NPU, power mode performance" in err and "64 combinations" in err


def test_json_is_the_answer_alone(fake, capsys):
    """Everything of the table, the settings that do not fit, and the entry of a profile."""
    status, out, _ = tuned(capsys, "--json")
    facts = json.loads(out)
    assert status == 0 and facts["device"] == "npu2" and facts["dispatch"] == "fused" and facts["exhaustive"]
    assert facts["best"] == facts["settings"][0] and facts["best"]["gain_us"] > 0
    (entry,) = map(json.loads, facts["entry"])
    assert entry == {"operator": "ReLU", "size": 512, "T": "bfloat16", **facts["best"]["tunables"]}


def test_csv_has_a_line_for_each_setting(fake, capsys, tmp_path):
    """On standard output, or in a file beside the table."""
    _, out, _ = tuned(capsys, "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert float(rows[0]["gain_us"]) > 0 and rows[0]["said"] == "best" and rows[0]["exact"] == "True"
    _, table, _ = tuned(capsys, "--csv", str(tmp_path / "settings.csv"))
    assert (tmp_path / "settings.csv").read_text() == out and "settings measured" in table


def test_a_tunable_that_is_given_is_held(fake, capsys):
    """It is no column of the table, and every setting has it."""
    _, out, _ = tuned(capsys, "num_channels=1")
    assert out.splitlines()[0].split()[:3] == ["tile_size", "num_aie_columns", "us"]


def test_a_number_that_calls_give_is_a_value(fake, capsys):
    """Every list is timed at it."""
    backend = fake(FakeBackend(by_width))
    tuned(capsys, "--value", "valid=500")
    assert {tuple(run.members.items()) for runs in backend.lists for run in runs.runs} == {(("valid", 500),)}


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        (["ReLU", "size=64", "--value", "n=3"], CallError, r"ReLU has no per-call member n\. Its members: valid"),
        (["ReLU", "size=64", "--value", "valid=--3"], UsageError, "legal: NAME=N"),
        (["ReLU", "size=64", "--value", "valid=" + "9" * 5000], UsageError, "legal: NAME=N"),
        (["ReLU", "size=64", "--value", "valid=65"], BoundsError, "legal: 0 to 64"),
        (["ReLU", "size=64", "--value", "valid=3", "--value", "valid=4"], UsageError, "valid is given twice, 3 before"),
        (["ReLU", "size=64", "size=128"], UsageError, "size is given twice, 64 before"),
        (["ReLU", "size=64", "--json", "--csv", "-"], UsageError, "both for standard output"),
        (["ReLU", "size=64", "--csv", "/nowhere/x.csv"], UsageError, "--csv /nowhere/x.csv: No such file"),
        (["ReLU", "size=64", "--csv", "."], UsageError, r"--csv \.: Is a directory"),
        (["ReLU", "size=64", "--profile", __file__], UsageError, "--profile .*exists"),
        (["ReLU", "size=64", "--cutoff", "nan"], click.BadParameter, "legal: 1 or more"),
        (["ReLU", "size=64", "--repeats", "1000000"], click.BadParameter, "1000"),
        (["Re\x1b[2J\n", "size=64"], UnknownName, r"`Re\\x1b\[2J\\n`"),
        (["ReLU", "size=64", "--value", "valid=x"], UsageError, "legal: NAME=N"),
        (["ReLU", "length=64"], CallError, "has no field length"),
        (["RELU"], UnknownName, "RELU"),
        (["ReLU", "size=64", "--random-weights"], UsageError, "--random-weights is for a model"),
        (["ReLU", "size=64", "--table", "t.json"], UsageError, "--table is for a model"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(fake, line, error, words):
    """With what would be legal, and before anything is measured."""
    backend = fake(FakeBackend(by_width))
    with pytest.raises(error, match=words):
        main(line)
    assert not backend.lists


def test_a_backend_that_measures_nothing_is_refused():
    """By name, with what would be legal."""
    with pytest.raises(UnsupportedError, match="backend null measures nothing"):
        main(["ReLU", "size=64", "--backend", "null", "--dev", "npu2"])


def test_the_fastest_goes_into_a_profile_that_the_next_graph_takes(fake, capsys, tmp_path):
    """One file for each device; an operator of that shape resolves to the setting, others stay as they are."""
    _, out, _ = tuned(capsys, "--json", "--profile", str(tmp_path))
    best = json.loads(out)["best"]["tunables"]
    with Profile.load(tmp_path / "npu2.json"):
        resolved = made("ReLU", size=512).resolved(NPU2)
        assert {name: getattr(resolved, name) for name in best} == best
        assert made("ReLU", size=4096).resolved(NPU2).tile_size != best["tile_size"]


def test_a_damaged_profile_is_said_before_anything_is_measured(fake, tmp_path):
    backend = fake(FakeBackend(by_width))
    (tmp_path / "npu2.json").write_text("{")
    with pytest.raises(ParamError, match=r"npu2\.json is no profile"):
        main(["ReLU", "size=64", "--profile", str(tmp_path)])
    assert not backend.lists


def test_two_tuners_write_into_one_profile(fake, tmp_path, monkeypatch):
    """The entry that another one writes while this one does is not lost."""
    load, other = Profile.load, threading.Thread(target=lambda: profiles.merged(tmp_path, NPU2, [variant(1024)], "fake"))

    def variant(size):
        return Settings(made("ReLU", size=size), NPU2, FakeBackend(by_width)).default

    def slow(path):
        monkeypatch.setattr(Profile, "load", load)
        found = load(path)
        other.start()
        time.sleep(0.2)
        return found

    profiles.merged(tmp_path, NPU2, [variant(512)], "fake")
    monkeypatch.setattr(profiles, "opened", lambda folder, dev: tmp_path / "npu2.json")
    monkeypatch.setattr(Profile, "load", slow)
    profiles.merged(tmp_path, NPU2, [variant(2048)], "fake")
    other.join()
    assert sorted(entry.match["size"] for entry in load(tmp_path / "npu2.json")) == [512, 1024, 2048]


def test_a_default_without_a_figure_is_all_that_is_said(fake, capsys):
    """Nothing was measured, and nothing is counted."""
    fake(FakeBackend(by_width, disturbed=lambda runs: "others used 1.9 CPUs"))
    status, out, _ = tuned(capsys)
    assert status == 1 and out.splitlines()[-1].startswith("left at the default") and "measured" not in out.splitlines()[-1]


def test_tuning_again_replaces_the_entry(fake, capsys, tmp_path):
    """And leaves those of other shapes."""
    tuned(capsys, "--profile", str(tmp_path))
    main(["ReLU", "size=4096", "--calls", "2", "--exhaustive", "4", "--profile", str(tmp_path)])
    fake(FakeBackend(lambda run: 900 - by_width(run)))
    tuned(capsys, "--profile", str(tmp_path), "--remeasure")
    shapes = [entry.match["size"] for entry in Profile.load(tmp_path / "npu2.json")]
    assert sorted(shapes) == [512, 4096]


def test_a_backend_that_keeps_settings_is_given_them(fake, capsys, tmp_path):
    """It says where; nothing is kept where the default stays."""

    class Keeper(FakeBackend):
        def keep(self, profile, dev):
            self.given = profile.lines()
            return tmp_path / "fake.json"

        def kept(self, dev):
            return Profile()

    backend = fake(Keeper(by_width))
    assert "kept in" in tuned(capsys)[2] and len(backend.given) == 1
    same = fake(Keeper(lambda run: 5.0))
    assert "The default stays." in tuned(capsys, "--remeasure")[1] and not hasattr(same, "given")


def test_a_machine_too_busy_to_tell_is_no_success(fake, capsys):
    """The default stays, the table says why, and the exit status is 1."""
    fake(FakeBackend(by_width, disturbed=lambda runs: "another process had the CPU"))
    status, out, _ = tuned(capsys)
    assert status == 1 and "left at the default" in out and "another process had the CPU" in out


def test_an_interrupt_says_that_nothing_is_lost(fake, capsys):
    """And the next run measures what is left."""

    class Interrupted(FakeBackend):
        def measure(self, lists, dev, timing):
            if len(self.lists) >= 12:
                raise KeyboardInterrupt
            return super().measure(lists, dev, timing)

    fake(Interrupted(by_width))
    with pytest.raises(KeyboardInterrupt):
        main(LINE)
    assert "goes on from there" in capsys.readouterr().err
    rest = fake(FakeBackend(by_width))
    tuned(capsys)
    every = fake(FakeBackend(by_width))
    tuned(capsys, "--remeasure")
    assert 0 < len(rest.lists) < len(every.lists)
