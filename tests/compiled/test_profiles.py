"""A graph's profile: tunables as data, beside its code or given where it is compiled, one file for each device."""

from __future__ import annotations

import pytest

import iron_core as iron
from iron_core.errors import CallError, DeclarationError
from iron_ops_aie import GEMM
from tests.compiled.graphs import F32, Project

SHAPES = dict(x=((16, 8), F32), backend="null")


def profile(**tunables):
    made = iron.Profile()
    made.add(GEMM, **tunables)
    return made


def tiles(compiled):
    """What each version's product was given."""
    return [{step.op.tile_n for step in version.steps if isinstance(step.op, GEMM)} for version in compiled.plan.versions]


@pytest.fixture
def folder(tmp_path):
    """A file for each of two families."""
    profile(tile_n=16).save(tmp_path / "npu1.json")
    profile(tile_n=32).save(tmp_path / "npu2.json")
    return tmp_path


def test_a_compile_takes_a_profile(w):
    """A Profile; what a call gives is given all the same."""
    assert tiles(Project(w).compile(**SHAPES, profile=profile(tile_n=32))) == [{32}]
    assert tiles(Project(w).compile(**SHAPES)) == [{None}]


@pytest.mark.parametrize(("dev", "tile"), [("npu1", 16), ("npu2", 32), ("npu2_4col", 32), ("host", None)])
def test_a_folder_has_a_file_for_each_device(w, folder, dev, tile):
    """The device's own, else its family's; a device that has neither is given nothing."""
    assert tiles(Project(w).compile(**SHAPES, dev=dev, profile=folder)) == [{tile}]
    assert tiles(Project(w).compile(**SHAPES, dev=dev, profile=str(folder))) == [{tile}]
    with iron.using_device(dev):
        assert [entry.give["tile_n"] for entry in iron.Profile.load(folder)] == ([] if tile is None else [tile])


def test_a_file_of_the_device_itself_goes_before_its_familys(w, folder):
    """Fewer columns are tuned otherwise."""
    profile(tile_n=8).save(folder / "npu2_4col.json")
    assert tiles(Project(w).compile(**SHAPES, dev="npu2_4col", profile=folder)) == [{8}]
    assert tiles(Project(w).compile(**SHAPES, dev="npu2", profile=folder)) == [{32}]


def test_a_graph_has_a_profile_beside_its_code(w, folder):
    """As an attribute of its class or its own: for whatever backend and device it is compiled."""

    class Tuned(Project):
        profile = folder

    graph = Tuned(w)
    assert tiles(graph.compile(**SHAPES, dev="npu2")) == [{32}]
    assert tiles(graph.compile(**SHAPES, dev="npu1")) == [{16}]


def test_who_compiles_decides_before_the_graph_does(w):
    """The argument, then the profile that is entered, then the graph's own."""
    graph = Project(w)
    graph.profile = profile(tile_n=8)
    assert tiles(graph.compile(**SHAPES, dev="npu1")) == [{8}]
    with profile(tile_n=16):
        assert tiles(graph.compile(**SHAPES, dev="npu2")) == [{16}]
        assert tiles(graph.compile(**SHAPES, dev="npu2_4col", profile=profile(tile_n=32))) == [{32}]


def test_a_version_that_comes_later_has_the_same_profile(w):
    """Whoever adds it, and wherever."""
    compiled = Project(w).compile(**SHAPES, profile=profile(tile_n=32))
    compiled.add(x=((32, 8), F32))
    assert tiles(compiled) == [{32}, {32}]


def test_a_trace_for_pictures_has_it_too(w):
    """What `CompiledGraph.trace` shows is what is run."""
    compiled = Project(w).compile(**SHAPES, profile=profile(tile_n=32))
    steps = compiled.trace(x=((16, 8), F32)).steps
    assert {step.op.tile_n for step in steps if isinstance(step.op, GEMM)} == {32}


@pytest.mark.parametrize(("given", "words"), [(3, "profile=3; legal: a Profile, or the path"), ("nowhere", "no such file or folder")])
def test_what_is_no_profile_is_refused(w, given, words):
    """By the keyword, with what would be legal."""
    with pytest.raises(CallError, match=words):
        Project(w).compile(**SHAPES, profile=given)


def test_a_folder_is_of_a_device(folder):
    """Without one nobody knows which file is meant."""
    with pytest.raises(CallError, match="set_current_device"):
        iron.Profile.load(folder)


def test_an_input_may_not_be_called_so():
    """It would be a keyword of the compile."""

    class Named(iron.Graph):
        def body(self, profile):
            return profile

    with pytest.raises(DeclarationError, match="input profile has the name of a keyword"):
        Named().compile(profile=None)
