"""The search: the fastest setting that may stand in the default's place, and only where measurement says so."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from iron_core.backends.measuring import Run, Timing
from iron_core.declare.identity import design_key
from iron_tuner.probe import Probe
from iron_tuner.search import CONFIDENCE, CONFIRMED, search
from iron_tuner.settings import Settings
from tests.tuner.fake import FakeBackend
from tests.tuner.operators import NPU2, by_width, made

RELU = dict(size=1024)


def found(backend, op=None, **keywords):
    """By a backend that no earlier one has measured for."""
    timing = keywords.pop("timing", Timing(calls=2))
    probe = Probe(backend, NPU2, timing=timing, remeasure=True)
    return search(op or made("ReLU", **RELU), probe, **{"exhaustive": 200} | keywords)


def test_the_fastest_of_all_settings_is_found():
    """Brute force over the model that the backend measures by says the same."""
    backend = FakeBackend(by_width)
    result = found(backend)
    assert result.exhaustive and len(result.tried) > 10
    least = min(result.tried, key=lambda one: backend.us(backend.lists[0].runs[0].__class__(one.variant.resolved)))
    assert result.best.variant.key == least.variant.key != result.default.variant.key
    assert result.best.exact and result.best.faster
    assert [one.measured.t_step_us for one in result.tried] == sorted(one.measured.t_step_us for one in result.tried)


def test_a_step_is_what_one_more_run_takes():
    """What a call takes besides, and the configuration, cancel."""
    backend = FakeBackend(by_width, dispatch_us=1000.0)
    default = found(backend).default
    step = by_width(backend.lists[0].runs[0])
    assert default.measured.t_step_us == pytest.approx(step)
    assert default.measured.alone_us == pytest.approx(1000 + 20 + 5 + 7 + step)


def test_one_tunable_at_a_time_finds_it_where_there_are_too_many():
    """Coordinate descent, with far fewer settings measured."""
    backend = FakeBackend(by_width)
    every = found(backend)
    few = found(backend, exhaustive=4)
    assert not few.exhaustive and len(few.tried) < len(every.tried)
    assert few.best.variant.key == every.best.variant.key


def test_a_setting_that_differs_is_taken_within_the_gates_and_never_beyond():
    """Other bits are legal where the contract has room for them, and the result says so."""
    op = made("SiLU", **RELU)

    def other(run):
        return run.op.num_channels == 2

    inside = found(FakeBackend(by_width, wrong=lambda run: 2.0**-8 if other(run) else 0.0), op)
    assert inside.best.variant.tunables["num_channels"] == 2
    assert not inside.best.exact and inside.best.accurate and "of the gate" in inside.best.why
    outside = found(FakeBackend(by_width, wrong=lambda run: 0.2 if other(run) else 0.0), op)
    assert outside.best.exact
    assert all("contract allows" in one.why or "exact" in one.why for one in outside.tried if not one.accurate)


def test_bits_may_not_differ_where_the_contract_is_exact():
    """A ReLU is exact: nothing within any gate but its bits."""
    result = found(FakeBackend(by_width, wrong=lambda run: 2.0**-8 if run.op.num_channels == 2 else 0.0))
    wrong = [one for one in result.tried if not one.exact]
    assert wrong and not any(one.accurate for one in wrong)


def test_faster_is_only_what_is_beyond_the_noise():
    """A gain of a tenth of the noise is none, however many settings there are to be lucky with."""
    result = found(FakeBackend(lambda run: 100.0, noise=0.05))
    lucky = [one for one in result.tried if one.measured.t_step_us < result.default.measured.t_step_us]
    assert lucky
    for one in result.tried:
        noise = one.measured.gain_noise_us
        beyond = noise is not None and one.measured.gain_us > CONFIDENCE * noise
        assert one.faster == beyond or one.why == "not faster when it was measured again"


def test_nothing_is_faster_of_which_one_round_is_known():
    """A single round has no error to compare with; simulated time needs none."""
    one_round = Timing(rounds=1, calls=1)
    real = found(FakeBackend(by_width), timing=one_round)
    assert real.best is real.default
    simulated = found(FakeBackend(by_width, mode="simulated"), timing=one_round)
    assert simulated.best.faster


def test_a_busy_machine_leaves_the_default_and_says_so():
    """After its tries a backend has no figure to trust; the tuner has none to decide by, and keeps none."""
    busy = FakeBackend(by_width, disturbed=lambda runs: "after 5 tries another process had the CPU")
    result = found(busy)
    assert result.best is result.default and result.default.measured is None
    assert result.said.startswith("left at the default") and "another process" in result.said
    assert found(FakeBackend(by_width)).best.faster


def test_a_setting_that_was_disturbed_is_left_out_alone():
    """The others are searched, and the result says how many are missing."""
    result = found(FakeBackend(by_width, disturbed=lambda runs: "a CPU was waited for" if runs.runs[0].op.num_channels == 2 else ""))
    assert result.best.faster and result.best.variant.tunables["num_channels"] != 2
    assert result.said.endswith("gave no figure to trust and were left out")


def test_less_than_no_time_is_no_figure():
    """Where noise is more than a step, the setting is left out, or the operator at its default; what helps is said."""
    result = found(FakeBackend(lambda run: -3.0 if run.op.num_channels == 2 else by_width(run)))
    assert {one.variant.tunables.get("num_channels") for one in result.tried if one.measured is None} == {2}
    assert all(one.measured.t_step_us >= 0 for one in result.tried if one.measured is not None)
    lost = found(FakeBackend(lambda run: -3.0))
    assert lost.default.measured is None and "raise --repeats" in lost.said


def test_what_is_slow_is_timed_no_further():
    """After `settle` rounds of one that takes more than `cutoff` times the fastest it has beside it."""
    result = found(FakeBackend(by_width))
    rounds = {len(one.measured.round_us) for one in result.tried}
    assert rounds == {2, 8}


def test_a_step_is_timed_at_the_numbers_calls_give():
    """A bounded extent is a member of every run of every list, and the output is compared under it."""
    backend = FakeBackend(by_width)
    found(backend, members={"valid": 1000})
    assert {tuple(run.members.items()) for runs in backend.lists for run in runs.runs} == {(("valid", 1000),)}


def test_progress_names_the_best_so_far():
    """Each call of `seen` is of one at least as good as the last."""
    seen = []
    found(FakeBackend(by_width), seen=seen.append)
    gains = [one.gain_us for one in seen]
    assert len(gains) > 2 and all(a <= b for a, b in itertools.pairwise(gains)) and gains[-1] > 0


def test_the_best_must_be_faster_a_second_time():
    """One that was lucky is measured again beside the default, and left; the next is asked then, and at last the default stays."""

    class Lucky(FakeBackend):
        def measure(self, lists, dev, timing):
            for runs in lists:
                if len(runs.runs) == 1:
                    seen[design_key(runs.runs[0].op)] += 1
            return super().measure(lists, dev, timing)

    seen = Counter()
    result = found(Lucky(lambda run: 50.0 if run.op.num_channels == 2 and seen[design_key(run.op)] == 1 else 100.0))
    assert result.best is result.default
    assert sum(one.why == "not faster when it was measured again" for one in result.tried) == CONFIRMED


def test_what_is_written_may_be_compared_elsewhere():
    """A setting is timed at one number and compared at another, and what is kept of it is of both."""
    op = made("ReLU", size=4096)
    backend = FakeBackend(by_width)
    probe = Probe(backend, NPU2)
    settings = Settings(op, NPU2, backend, members={"valid": 4096}, compared={"valid": 256})
    (found,) = probe.steps(settings.default).values()
    shown = [runs for runs in backend.lists if runs.compared]
    assert [dict(runs.runs[0].members) for runs in shown] == [{"valid": 256}]
    assert found.t_step_us == pytest.approx(by_width(Run(settings.default.resolved)))
    assert probe.entry(settings.default) != probe.entry(Settings(op, NPU2, backend, members={"valid": 4096}).default)
