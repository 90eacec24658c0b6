"""`iron tune MODEL` killed and gone on with, and two of it at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest

from iron_core.devices import device
from iron_core.plugins.registry import registry
from iron_tuner import tune_model
from iron_tuner.cost_cache import CostCache, record_of
from iron_tuner.cost_table import CostTable
from iron_tuner.records import KINDS
from tests.tuner.fake import FakeBackend
from tests.tuner.test_tune_model import OPTIONS, Model, us

pytestmark = pytest.mark.slow
TABLE = Path("costs_npu2.json")


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A file in which every record is noted once it is in the cache. The model is compiled once, for all children."""
    path, kind, load, put = tmp_path / "log", type(registry()), type(registry()).load, CostCache.put
    asked = tune_model.Recorder()
    Model.compiled([], coresident=asked)
    backend = FakeBackend(us, load_us=lambda run: 5.0 + getattr(run.op, "num_aie_columns", 1), sleep_s=0.002)

    class Known:
        """The model, compiled before."""

        @staticmethod
        def compiled(argv, coresident, **options):
            coresident.asked += asked.asked

    def noted(self, record, *key, of=""):
        put(self, record, *key, of=of)
        with open(path, "a") as file:
            file.write(json.dumps([type(record).__name__, self._path(type(record), key).name]) + "\n")

    monkeypatch.setattr(tune_model, "measuring_backend", lambda name, dev: (backend, device("npu2")))
    monkeypatch.setattr(kind, "load", lambda self, group, name: Known if name == "block" else load(self, group, name))
    monkeypatch.setattr(CostCache, "put", noted)
    monkeypatch.chdir(tmp_path)
    return path


def tune():
    """In a process that may be killed."""
    raise SystemExit(tune_model.tune_model("block", (), OPTIONS))


def started():
    child = multiprocessing.get_context("fork").Process(target=tune)
    child.start()
    return child


def lines(log):
    return [tuple(json.loads(line)) for line in log.read_text().splitlines() if line.endswith("]")] if log.exists() else []


def test_killed_at_ten_random_moments_no_measurement_is_lost_and_no_table_is_torn(log, cache):
    """Every record that was finished is there and whole and is not made again; the table is one whenever it is there, and in the end it
    is that of a run that nobody disturbed."""
    moments = random.Random(14)
    for _ in range(10):
        child, until = started(), len(lines(log)) + moments.randint(1, 12)
        while child.is_alive() and len(lines(log)) < until:
            child.join(0.002)
        child.join(moments.uniform(0, 0.05))
        assert child.exitcode is None, "it ended before it could be killed"
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        files = {path.name: path for path in (cache / "iron" / "costs").rglob("*.json")}
        for kind, name in lines(log):
            entry = json.loads(files[name].read_text())
            assert entry["kind"] == kind
            record_of(KINDS[kind], entry["record"])
        if TABLE.exists():
            assert not CostTable.load(TABLE, "npu2", "fused").dropped
    child = started()
    child.join(120)
    assert child.exitcode == 0
    made = [name for kind, name in lines(log) if kind == "Measurement"]
    assert len(made) == len(set(made)) > 20
    resumed = CostTable.load(TABLE)
    TABLE.unlink()
    again = started()
    again.join(120)
    assert CostTable.load(TABLE) == resumed and len(resumed.steps) > 6


def test_two_at_once_share_the_work_and_the_table(log):
    """Nothing is measured by both, and both end with the same table."""
    both = [started(), started()]
    for child in both:
        child.join(240)
        assert child.exitcode == 0
    made = [name for kind, name in lines(log) if kind == "Measurement"]
    assert len(made) == len(set(made)) > 20
    assert len(CostTable.load(TABLE).steps) > 6
