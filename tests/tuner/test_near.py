"""Settings that are worth measuring, where a backend knows without a run about what each takes."""

from __future__ import annotations

from iron_core.backends.measuring import Estimating, Run
from iron_core.errors import UnsupportedError
from iron_tuner.near import NEAR, OF_A_SIZE, fastest, near, size
from iron_tuner.probe import Probe
from iron_tuner.search import Search
from iron_tuner.settings import Settings
from tests.tuner.fake import FakeBackend
from tests.tuner.operators import NPU2, by_width, made


class Knowing(FakeBackend):
    """Estimates what it would measure, and a little less."""

    def estimate(self, run, dev):
        return 0.95 * self.us(run)


def asked(us=by_width):
    """A backend that knows, the settings of an operator, and those that are near."""
    probe = Probe(Knowing(us), NPU2)
    settings = Settings(made("ReLU", size=4096), NPU2, probe.backend)
    return probe, settings, near(settings, probe)


def test_a_backend_that_estimates_nothing_is_asked_for_all():
    """Nothing is left out unseen."""
    probe = Probe(FakeBackend(by_width), NPU2)
    assert not isinstance(probe.backend, Estimating)
    assert near(Settings(made("ReLU", size=4096), NPU2, probe.backend), probe) is None


def test_the_fastest_of_every_size_is_among_them():
    """What it takes of an array is channels and cores: a narrow setting is worth a slower step where arrays share a configuration."""
    _, settings, found = asked()
    assert found[0] is settings.default
    every = list(settings)
    assert len(found) < len(every)
    there = {one.key for one in found}
    for one in every:
        smaller = [other for other in every if all(a <= b for a, b in zip(size(other), size(one), strict=True))]
        if all(by_width(run(other)) >= by_width(run(one)) for other in smaller):
            assert one.key in there


def run(variant):
    """What a list has of a setting."""
    return Run(variant.resolved)


def test_what_a_smaller_one_beats_by_far_is_left_out():
    """Where wide settings are slow, one that is wide is not measured, but for the default."""
    slow_when_wide = lambda run: 10.0 * run.op.num_aie_columns  # noqa: E731
    _, settings, found = asked(slow_when_wide)
    assert {one.resolved.num_aie_columns for one in found if one is not settings.default} == {1}
    assert len(found) < 1 + sum(10.0 * one.resolved.num_aie_columns < 10 * NEAR for one in settings)


def test_what_the_backend_cannot_run_is_left_out():
    """It says so when it is asked."""

    def us(run):
        if run.op.tile_size == 256:
            raise UnsupportedError("tile_size=256: not here. Legal: another.")
        return by_width(run)

    _, settings, found = asked(us)
    assert len(settings.axes["tile_size"]) > 1 and 256 in settings.axes["tile_size"]
    assert 256 not in {one.resolved.tile_size for one in found if one is not settings.default} and len(found) > 4


def test_of_one_size_there_are_few():
    """The best by estimate."""
    _, settings, found = asked()
    sizes = [size(one) for one in found if one is not settings.default]
    assert max(map(sizes.count, sizes)) <= OF_A_SIZE


def test_a_search_among_them_measures_them_alone():
    """And finds the fastest all the same."""
    probe, settings, found = asked()
    result = Search(settings, probe, among=found).run()
    assert len(result.tried) == len(found)
    assert by_width(run(result.best.variant)) == min(by_width(run(one)) for one in settings)


def test_one_of_every_size_goes_on():
    """The default, and the fastest of each size that may stand in its place."""
    probe, settings, found = asked()
    result = Search(settings, probe, among=found).run()
    kept = fastest(result.tried, result.default)
    assert kept[0] is result.default
    sizes = [size(one.variant) for one in kept[1:]]
    assert len(set(sizes)) == len(sizes)
    for one in kept[1:]:
        same = [other for other in result.tried if size(other.variant) == size(one.variant) and other is not result.default]
        assert one.measured.t_step_us == min(other.measured.t_step_us for other in same)
