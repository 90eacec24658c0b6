"""The cache of measurements: whatever was finished is there for the next tuner, however this one ended and however many there are."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time

import attrs
import pytest

from iron_core.backends.measuring import Platform, Timing
from iron_core.errors import CacheError
from iron_tuner.cost_cache import CostCache, record_of, slug
from iron_tuner.errors import CostError
from iron_tuner.probe import Probe
from iron_tuner.records import KINDS, Accuracy, Measurement, today
from iron_tuner.search import search
from iron_tuner.settings import variants
from tests.tuner.fake import FakeBackend
from tests.tuner.operators import NPU2, by_width, made

STRIX = Platform("RyzenAI-npu4 (Strix)", "Performance")
RECORD = Measurement(12.5, (12.0, 12.5, 13.0), 150.0, (), "ab" * 32, "Performance", 50, "2026-01-31")


def test_a_record_comes_back_as_it_was():
    """By its kind and key, in another object of the same platform."""
    CostCache(STRIX).put(RECORD, "a", 1)
    assert CostCache(STRIX).get(Measurement, "a", 1) == RECORD
    assert CostCache(STRIX).get(Measurement, "a", 2) is None
    assert CostCache(STRIX).get(Accuracy, "a", 1) is None


def test_an_entry_is_a_json_file_in_the_platforms_folder(cache):
    """Named by 32 hex digits, for people to look into."""
    CostCache(STRIX).put(RECORD, "a", of="GEMV of a layer")
    (path,) = (cache / "iron" / "costs" / "ryzenai-npu4-strix" / "performance").iterdir()
    assert len(path.stem) == 32 and path.suffix == ".json"
    entry = json.loads(path.read_text())
    assert entry["kind"] == "Measurement" and entry["of"] == "GEMV of a layer" and entry["record"]["t_step_us"] == 12.5


OTHERS = [Platform(STRIX.name, "Balanced"), Platform("Phoenix", "Performance"), Platform("RyzenAI npu4 Strix", "performance")]


@pytest.mark.parametrize("other", OTHERS)
def test_figures_of_another_platform_or_power_mode_are_not_found(other):
    """Not even of one whose folder has the same name."""
    CostCache(STRIX).put(RECORD, "a")
    assert CostCache(other).get(Measurement, "a") is None


def test_remeasuring_forgets_what_others_measured_and_not_its_own():
    """What this run measured anew it does not measure again."""
    CostCache(STRIX).put(RECORD, "a")
    again = CostCache(STRIX, remeasure=True)
    assert again.get(Measurement, "a") is None
    again.put(attrs.evolve(RECORD, t_step_us=11.0), "a")
    assert again.get(Measurement, "a").t_step_us == 11.0 == CostCache(STRIX).get(Measurement, "a").t_step_us


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b"[]", b'{"kind": "Measurement"}', b"\xff\xfe\x00", b"[" * 100_000])
def test_a_damaged_entry_is_missing_and_measured_again(cache, damage):
    """Whatever is in the file, it is no error."""
    CostCache(STRIX).put(RECORD, "a")
    (path,) = (cache / "iron" / "costs").rglob("*.json")
    path.write_bytes(damage)
    assert CostCache(STRIX).get(Measurement, "a") is None
    CostCache(STRIX).put(RECORD, "a")
    assert CostCache(STRIX).get(Measurement, "a") == RECORD


NO_TIMES = [{"t_step_us": float("nan")}, {"alone_us": 10**400}, {"round_us": [1.0, float("inf")]}, {"default_us": [-1e308]}]


@pytest.mark.parametrize("change", [{"unheard": 1}, {"calls": None}, {"round_us": ["12"]}, {"t_step_us": "12"}, {"pmode": 3}, *NO_TIMES])
def test_a_record_of_other_fields_is_missing(change):
    """Another version of Iron may keep more, or less, of it."""
    fields = attrs.asdict(RECORD) | change
    if change == {"calls": None}:
        del fields["calls"]
    with pytest.raises(ValueError, match="Measurement"):
        record_of(Measurement, json.loads(json.dumps(fields)))


def test_every_kind_of_record_survives_json():
    """Numbers, texts, tuples and what is not known."""
    samples = {"float": 1.5, "float | None": None, "str": "x", "int": 3, "bool": True, "tuple[float, ...]": (1.0, 2.5)}
    for kind in KINDS.values():
        record = kind(**{field.name: samples[field.type] for field in attrs.fields(kind)})
        assert record_of(kind, json.loads(json.dumps(attrs.asdict(record)))) == record


def test_a_folder_that_others_may_write_to_is_not_used(cache):
    """They could put figures there."""
    CostCache(STRIX).put(RECORD, "a")
    os.chmod(cache / "iron" / "costs", 0o777)
    with pytest.raises(CacheError, match="others may write to it"):
        CostCache(STRIX).put(RECORD, "b")


def test_names_of_platforms_are_folders():
    """Whatever a vendor puts into them."""
    assert slug("AMD Ryzen AI 9 HX 370 w/ Radeon") == "amd-ryzen-ai-9-hx-370-w-radeon"
    assert slug("../..") == slug("") == "unnamed"


def test_a_power_mode_that_changes_meanwhile_ends_the_run():
    """Figures of two are not put together; those before the change are kept under their own."""
    fake = FakeBackend(by_width)
    probe = Probe(fake, NPU2, timing=Timing(calls=2))
    found = variants(made("ReLU", size=1024), NPU2, fake)
    assert probe.steps(found[0], found[1:3])
    fake.mode = "balanced"
    with pytest.raises(CostError, match=r"performance.*balanced"):
        probe.steps(found[0], found[3:5])
    assert CostCache(probe.platform).get(Measurement, probe.entry(found[0]), probe.entry(found[1])) is not None


def test_a_date_is_a_date():
    """Of measuring, as people read it."""
    assert len(today()) == 10 and today()[4] == "-"


# -- killed, and two at once -------------------------------------------------------------------------


class Logged(Probe):
    """A probe that notes in a file what it has finished, after it is in the cache."""

    def __init__(self, log, backend, **keywords):
        super().__init__(backend, NPU2, timing=Timing(calls=1), **keywords)
        put = self.cache.put

        def noted(record, *key, of=""):
            put(record, *key, of=of)
            with open(log, "a") as file:
                file.write(json.dumps([type(record).__name__, self.cache._path(type(record), key).name, of]) + "\n")

        self.cache.put = noted


def tune(log, sleep_s):
    """Tune an operator, in a process that may be killed."""
    search(silu(), Logged(log, backend(sleep_s)), exhaustive=200)


def backend(sleep_s=0.0):
    """Some of whose settings write other bits, within the gate."""
    return FakeBackend(by_width, sleep_s=sleep_s, wrong=lambda run: 2.0**-8 * (run.op.num_channels == 2))


def silu():
    return made("SiLU", size=1024)


def started(*args):
    """A child of this process, which has everything imported and built."""
    child = multiprocessing.get_context("fork").Process(target=tune, args=args)
    child.start()
    return child


def noted(log):
    return [tuple(json.loads(line)) for line in log.read_text().splitlines() if line.endswith("]")] if log.exists() else []


def measurements(log):
    """Of what was noted, the files of measurements. Whether one is accurate is kept just before it, and may be found out again."""
    return [name for kind, name, _ in noted(log) if kind == "Measurement"]


def test_killed_at_ten_random_moments_nothing_finished_is_lost_and_nothing_is_corrupt(cache, tmp_path):
    """Every record that was finished before a kill is there and whole, and is not made again."""
    variants(silu(), NPU2, FakeBackend(by_width))  # built once, for all children
    log, random_ = tmp_path / "log", random.Random(14)
    kills = 0
    while kills < 10:
        child, until = started(log, 0.01), len(noted(log)) + random_.randint(0, 3)
        while child.is_alive() and len(noted(log)) < until:
            child.join(0.001)
        child.join(random_.uniform(0, 0.05))
        if child.exitcode is not None:  # it finished: all is known, so begin with less
            for path in list((cache / "iron" / "costs").rglob("*.json"))[::2]:
                path.unlink()
            log.unlink()
            continue
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        kills += 1
        files = {path.name: path for path in (cache / "iron" / "costs").rglob("*.json")}
        for kind, name, _ in noted(log):
            entry = json.loads(files[name].read_text())
            assert entry["kind"] == kind
            record_of(KINDS[kind], entry["record"])
    before = measurements(log)
    assert before
    resumed = search(silu(), Logged(log, backend()), exhaustive=200)
    every = measurements(log)
    assert len(every) == len(set(every))
    assert {path.suffix for path in (cache / "iron" / "costs").rglob("*") if path.is_file() and not path.name.startswith(".")} == {".json"}
    fresh = search(silu(), Probe(backend(), NPU2, timing=Timing(calls=1), remeasure=True), exhaustive=200)
    assert resumed.best.variant.key == fresh.best.variant.key
    assert [one.measured.output for one in resumed.tried] == [one.measured.output for one in fresh.tried]


def test_two_tuners_on_one_cache_share_the_work(tmp_path):
    """They take turns, so neither disturbs the other, and nothing is measured by both."""
    variants(silu(), NPU2, FakeBackend(by_width))
    log = tmp_path / "log"
    both = [started(log, 0.01), started(log, 0.01)]
    for child in both:
        child.join(60)
        assert child.exitcode == 0
    names = measurements(log)
    assert len(names) == len(set(names)) > 10


def test_a_tuner_waits_for_one_that_is_measuring(capsys):
    """In real time: what both would time at once would be slower for both. It says that it waits."""
    cache = CostCache(STRIX)

    def hold(taken, let_go):
        with CostCache(STRIX).turn():
            taken.set()
            let_go.wait(30)

    context = multiprocessing.get_context("fork")
    taken, let_go = context.Event(), context.Event()
    child = context.Process(target=hold, args=(taken, let_go))
    child.start()
    taken.wait(30)
    began = time.monotonic()
    context.Process(target=lambda: (time.sleep(0.2), let_go.set())).start()
    with cache.turn():
        assert let_go.is_set() and time.monotonic() - began > 0
    child.join()
    assert capsys.readouterr().err == f"another tuner measures {STRIX.name}; this one waits for its turn ...\n"
