"""Warm starts: versions that the cache has kept, over the graph's own weights and states."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

import iron_core as iron
from iron_core.cache.store import Cache, CacheWarning
from iron_core.errors import BoundsError
from iron_ops_aie import GEMM, SiLU
from tests.compiled.graphs import F32, Project, Walk


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    return Cache("reference")


def refuse(*_, **__):
    raise AssertionError("traced")


def test_a_warm_start_traces_nothing(cache, w, x):
    """With a key, a second process's graph takes the plan from the cache, over its own weights and states."""
    cold = Project(w).compile(x=((16, 8), F32), backend="reference", cache_key="model")
    graph = Project(w * 2)
    graph.trace = refuse
    warm = graph.compile(x=((16, 8), F32), backend="reference", cache_key="model")
    assert np.array_equal(warm(x, n=7), 2 * cold(x, n=7))
    assert warm.plan.banks == cold.plan.banks
    with pytest.raises(BoundsError):
        warm(x, n=17)


def test_a_warm_start_serves_states_and_loops(cache):
    """Versions from the cache share the graph's states with versions that were traced."""
    Walk([1, 0]).compile(backend="reference", cache_key="walk")
    graph = Walk([1, 0])
    graph.trace = refuse
    warm = graph.compile(backend="reference", cache_key="walk")
    assert warm.loop(3, node=0, steps=0) == {"node": 1, "steps": 3}
    assert warm.read(graph.way)[:3, 0].tolist() == [1, 0, 1]


def test_a_guarded_process_has_plans_of_its_own(cache, w, x, monkeypatch):
    """Gaps between buffers are a part of what is kept: a start with other gaps places its buffers itself."""
    Project(w).compile(x=((16, 8), F32), backend="reference", cache_key="model")
    monkeypatch.setenv("IRON_GUARD", "64")
    guarded = Project(w)
    guarded.trace = refuse
    with pytest.raises(AssertionError, match="traced"):
        guarded.compile(x=((16, 8), F32), backend="reference", cache_key="model")


def test_a_profile_has_plans_of_its_own(cache, w, x):
    """What fills a tunable is a part of what is asked."""
    shapes = dict(x=((16, 8), F32), backend="reference", cache_key="model")
    for tile in (16, 32):
        profile = iron.Profile()
        profile.add(GEMM, tile_n=tile)
        with profile:
            compiled = Project(w).compile(**shapes)
        assert {step.op.tile_n for step in compiled.plan.versions[0].steps if isinstance(step.op, GEMM)} == {tile}


@pytest.mark.parametrize("change", ["key", "shape", "weights"])
def test_another_key_shape_or_set_of_weights_is_traced(cache, w, change):
    """What does not fit is not used; the result is that of a fresh trace."""
    Project(w).compile(x=((16, 8), F32), backend="reference", cache_key="model")
    graph = Project(np.ones((5, 8), F32) if change == "weights" else w)
    rows = 4 if change == "shape" else 16
    compiled = graph.compile(x=((rows, 8), F32), backend="reference", cache_key="other" if change == "key" else "model")
    assert compiled(np.ones((rows, 8), F32), n=3).shape == (3, len(graph.w.data))


class Evil:
    """What is unpickled as a call."""

    def __init__(self, function, *given):
        self.given = function, given

    def __reduce__(self):
        return self.given


@pytest.mark.parametrize("what", ["a call", "a class", "no pickle", "nothing", "half", "of another shape"])
def test_what_is_no_version_is_traced_anew(cache, w, x, tmp_path, what):
    """An entry that says all is well and is no version runs nothing, and the next start finds a version in its place."""
    cold = Project(w).compile(x=((16, 8), F32), backend="reference", cache_key="model")
    (kept,) = cache.folder.glob("*/version.pickle")
    was = kept.read_bytes()
    made = tmp_path / "made"
    other = {
        "a call": pickle.dumps(Evil(os.mkdir, str(made))),
        "a class": pickle.dumps(Evil(getattr, "a", "upper")),
        "no pickle": b"hello",
        "nothing": b"",
        "half": was[: len(was) // 2],
        "of another shape": was.replace(b"reference", b"ecnerefer") if b"reference" in was else pickle.dumps(3),
    }[what]
    cache.keep(kept.parent.name, "version.pickle", other, replace=True)
    again = Project(w).compile(x=((16, 8), F32), backend="reference", cache_key="model")
    assert np.array_equal(again(x, n=7), cold(x, n=7)) and not made.exists()
    graph = Project(w)
    graph.trace = refuse
    graph.compile(x=((16, 8), F32), backend="reference", cache_key="model")


def test_starts_on_other_weights_leave_each_others_version_alone(cache, w):
    """Two graphs of one key whose weights differ in shape have a version each: neither takes the other's away."""
    wide = np.ones((5, 8), F32)
    for weights in (w, wide):
        Project(weights).compile(x=((16, 8), F32), backend="reference", cache_key="model")
    for weights in (w, wide):
        graph = Project(weights)
        graph.trace = refuse
        graph.compile(x=((16, 8), F32), backend="reference", cache_key="model")


def test_where_the_cache_cannot_be_used_versions_are_traced(cache, w, x):
    """With a warning."""
    cache.root.chmod(0o777)
    with pytest.warns(CacheWarning, match="others may write to it"):
        compiled = Project(w).compile(x=((16, 8), F32), backend="reference", cache_key="model")
    assert compiled(x, n=3).shape == (3, len(w)) and not cache.folder.exists()


def test_folded_and_unfolded_versions_are_kept_apart(cache, w):
    """A start with fold=True finds no version that was kept without, nor the other way round."""

    class Activated(iron.Graph):
        def __init__(self):
            self.w = iron.weight(w)

        def body(self, x):
            return SiLU(GEMM(x, self.w, b_col_maj=True))

    for fold in (False, True, False, True):
        (version,) = Activated().compile(x=((16, 8), F32), backend="reference", cache_key="model", fold=fold).plan.versions
        assert bool(version.folds) == fold


def test_a_graph_that_holds_unnamed_weights_is_traced_each_time(cache, w, x):
    """An array that no public attribute holds cannot be found again by name."""

    class Inline(iron.Graph):
        def __init__(self):
            self._w = w

        def body(self, x):
            return GEMM(x, self._w, b_col_maj=True)

    for _ in range(2):
        compiled = Inline().compile(x=((16, 8), F32), backend="reference", cache_key="inline")
        assert np.allclose(compiled(x), x @ w.T, rtol=1e-5)
    assert not cache.folder.exists()


def test_without_a_key_nothing_is_written(cache, w):
    """The cache is for those who name what they store."""
    Project(w).compile(x=((16, 8), F32), backend="reference")
    assert not cache.folder.exists()
