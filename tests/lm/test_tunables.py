"""A family's profiles: what its models' operators are given on an array, as data beside its code."""

from __future__ import annotations

import pytest

import iron_core as iron
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.devices import HOST, device
from iron_llama.model import Llama
from iron_lm.tunables import profile_of
from iron_ops_aie import GEMM, GEMV, MHA

DEVICES = ("npu1", "npu2")
ENTRIES = [(dev, entry) for dev in DEVICES for entry in profile_of(Llama, device(dev))]
#: What an entry leaves to the call, where its operator cannot do without.
LEFT = {MHA: dict(kv_len=2048), GEMM: dict(K=2048, N=2048)}


@pytest.mark.parametrize(("dev", "entry"), ENTRIES, ids=lambda x: x if isinstance(x, str) else f"{x.operator.__name__}-{x.match}")
def test_an_entry_is_taken_as_it_is(dev, entry):
    """The operator it speaks of has exactly these tunables, and its array fits the device."""
    with profile_of(Llama, device(dev)):
        op = entry.operator(**LEFT.get(entry.operator, {}) | entry.match).resolved(device(dev))
    assert {name: getattr(op, name) for name in entry.give} == entry.give
    fit(build(op, dev).design)


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("width", [576, 2048], ids=["SmolLM2", "Llama 3.2 1B"])
def test_both_models_projections_are_there(dev, width):
    """Whatever multiplies a row of theirs."""
    (found, *_) = [e for d, e in ENTRIES if d == dev and e.operator is GEMV and e.match == dict(M=width, K=width)]
    assert found.give["tile_size_output"] % found.give["tile_size_input"] == 0


def test_a_variant_of_a_device_has_its_familys():
    assert profile_of(Llama, device("npu2_4col")).lines() == profile_of(Llama, device("npu2")).lines() != []


def test_where_there_is_none_it_is_empty(tmp_path):
    """The host has no arrays; a family that a script defines has no package."""
    Own = type("Own", (Llama,), {"__module__": "__main__"})
    assert not list(profile_of(Llama, HOST))
    assert not list(profile_of(Own, device("npu2")))


def test_one_that_is_active_stays():
    """Who enters a profile means it."""
    mine = iron.Profile()
    mine.add(GEMV, M=2048, K=2048, tile_size_output=32)
    with mine, profile_of(Llama, device("npu2")) as found:
        assert found is mine
        assert GEMV(M=2048, K=2048).tile_size_output == 32
