"""Settings: what a tuner may try for an operator, and what of it fits the device."""

from __future__ import annotations

import attrs
import pytest

from iron_core.array.build import build
from iron_core.declare.chained import prefold
from iron_core.declare.identity import contract_key
from iron_core.declare.profile import Profile
from iron_core.errors import IronError, Unresolvable
from iron_ops_aie import GEMV, RMSNorm
from iron_tuner import fits
from iron_tuner.fits import Fits
from iron_tuner.settings import Settings, probed, variants
from tests.tuner.fake import FakeBackend
from tests.tuner.operators import NPU2, made

FAKE = FakeBackend(lambda run: 1.0)


def test_the_default_comes_first_and_every_setting_is_another_design():
    """All of one contract: a setting changes how it is computed, and nothing else."""
    op = made("ReLU", size=4096)
    found = variants(op, NPU2, FAKE)
    assert found[0].resolved.num_aie_columns == op.resolved(NPU2).num_aie_columns
    assert len({one.key for one in found}) == len(found) > 20
    assert {contract_key(one.resolved) for one in found} == {contract_key(op)}


def test_every_combination_that_resolves_is_there():
    """And no other: those left out are refused by the operator itself."""
    op = made("ReLU", size=4096)
    settings = Settings(op, NPU2, FAKE)
    there = {one.key for one in settings}
    for tile in settings.axes["tile_size"]:
        for columns in settings.axes["num_aie_columns"]:
            given = dict(tile_size=tile, num_aie_columns=columns, num_channels=1)
            found = settings.at(given)
            if found is None:
                with pytest.raises(IronError):
                    build(op.with_tunables(**given).resolved(NPU2), NPU2)
            else:
                assert found.key in there


def test_what_a_call_gives_or_the_tuner_pins_is_held():
    """It has one value in every setting."""
    op = made("ReLU", size=4096, num_aie_columns=2)
    settings = Settings(op, NPU2, FAKE, pinned={"num_channels"})
    assert set(settings.axes) == {"tile_size"}
    assert {one.resolved.num_aie_columns for one in settings} == {2}


def test_what_a_profile_gave_a_chain_is_held_too():
    """A chain opens a profile's tile that it cannot use. A setting that would is none: what is set is the operator that the steps are
    folded into, and that one refuses."""
    profile = Profile()
    profile.add(GEMV, M=2048, K=2048, num_batches=1, tile_size_output=256, tile_size_input=4)
    with profile:
        plain = GEMV(M=2048, K=2048)
        chain = prefold(plain, RMSNorm(rows=1, cols=2048, weighted=True))
    wide = dict(num_aie_columns=8, num_channels=2)
    assert chain.with_tunables(**wide).resolved(NPU2).tile_size_output != 256
    with pytest.raises(Unresolvable, match="tile_size_output=256"):
        plain.with_tunables(**wide).resolved(NPU2)
    settings = Settings(chain, NPU2, FAKE, plain.pinned)
    assert settings.at({**settings.default.tunables, **wide}) is None
    assert {one.resolved.tile_size_output for one in settings} == {256}
    assert {one.label for one in settings} == {one.label for one in Settings(plain, NPU2, FAKE, plain.pinned)}


def test_placements_are_settings_like_others():
    """Attention may be laid out in three ways."""
    op = made("MHA", num_heads=8, num_KV_heads=8, d=64, seq_len=256, B_q=64, num_pipelines=4, pv_cores=1)
    assert {one.tunables["placement"] for one in Settings(op, NPU2, FAKE)} == {"tiles", "memtiles", "columns"}


def test_an_operator_that_no_array_takes_is_refused_with_its_rule():
    """Nothing can be tuned where nothing runs."""
    with pytest.raises(Unresolvable, match="K=53"):
        Settings(made("GEMV", M=37, K=53), NPU2, FAKE)


def test_channels_of_a_setting_are_those_its_lanes_take():
    """One of each direction for a lane of a unary operator."""
    settings = Settings(made("ReLU", size=4096), NPU2, FAKE)
    assert settings.at(dict(num_aie_columns=4, num_channels=1, tile_size=256)).channels == (4, 4)


def test_a_field_that_does_not_change_the_time_is_timed_at_one_value():
    """`Param(probe=)`: two products that differ in their clamp alone are one to a tuner."""
    one, other = (probed(made("flm.GEMM", M=256, K=512, N=64, clamp=clamp)) for clamp in (None, (0.0, 6.0)))
    assert contract_key(one) == contract_key(other)


# -- fits ------------------------------------------------------------------------------------------


def test_a_verdict_is_remembered_by_the_next_process(cache, monkeypatch):
    """Placer and router are asked once for a design, ever."""
    asked = []
    monkeypatch.setattr(fits, "fit", lambda design: asked.append(design))
    default = Settings(made("ReLU", size=4096), NPU2, FAKE).default
    assert Fits().refused(default) == "" and Fits().refused(default) == ""
    assert len(asked) == 1
    assert [path.read_text() for path in (cache / "iron" / "fits").iterdir()] == ["fits"]


def test_a_setting_that_does_not_fit_is_left_out_with_the_reason(monkeypatch):
    """The default stays: that it does not fit is for whoever compiles it to say."""

    def refuse(design):
        raise Unresolvable("column 3 has no channel left.")

    monkeypatch.setattr(fits, "fit", refuse)
    found = variants(made("ReLU", size=4096), NPU2, FAKE)[:3]
    known = Fits()
    assert known.fitting(found) == found[:1]
    assert known.refused(found[1]) == "column 3 has no channel left."


def test_a_design_that_could_not_be_built_is_refused_from_then_on():
    """Whatever placer and router say of it."""
    one = Settings(made("ReLU", size=4096), NPU2, FAKE).default
    assert Fits().refused(one) == ""
    Fits().refuse(one.built.design, "aiecc: no room in the program memory")
    assert "program memory" in Fits().refused(one)


def test_a_damaged_verdict_is_asked_for_again(cache):
    """Half a file, or anybody's text, is no verdict."""
    one = Settings(made("ReLU", size=4096), NPU2, FAKE).default
    assert Fits().refused(one) == ""
    (path,) = (cache / "iron" / "fits").iterdir()
    path.write_bytes(b"\xff\xfe refu")
    assert Fits().refused(one) == "" and path.read_text() == "fits"


def test_a_verdict_is_of_one_device():
    """The same array on fewer columns is another design."""
    one = Settings(made("ReLU", size=4096, num_aie_columns=1), NPU2, FAKE).default
    other = attrs.evolve(one.built.design, array=attrs.evolve(one.built.design.array, dev="npu2_1col"))
    known = Fits()
    assert known._path(one.built.design) != known._path(other)
