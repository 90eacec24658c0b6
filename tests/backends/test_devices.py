"""Devices: numbers only, npu1 and npu2 with their column variants, and the host."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends.choose import choose
from iron_core.devices import DEVICES, device
from iron_core.errors import CallError, UnknownName, UnsupportedError
from iron_core.plugins.record import Record
from iron_core.plugins.registry import Registry
from iron_ops_aie import SiLU


class Plain(iron.Operator):
    size: int = iron.Param()
    x = iron.In(size)
    y = iron.Out(size)

    def reference(self, x):
        return x


class Same(iron.Graph):
    def body(self, x):
        return Plain(x)


def test_column_variants_exist():
    """npu1 with 1 to 4 columns, npu2 with 1 to 8, the whole ones under the plain name."""
    assert [d.columns for d in DEVICES.values() if d.family == "npu1"] == [4, 3, 2, 1]
    assert [d.columns for d in DEVICES.values() if d.family == "npu2"] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert device("npu2_4col").cores == 16


def test_only_npu2_takes_a_full_elf():
    """Its control scratchpad has 32 words; npu1 and the host have none."""
    assert device("npu2").full_elf and device("npu2").scratchpad_words == 32
    assert not device("npu1").full_elf and not device("host").full_elf


def test_tiles_are_those_of_the_manuals():
    """64 KiB a core with 2 channels each way, 512 KiB a memory tile with 6, 16 descriptors at the shim."""
    npu1, npu2 = device("npu1"), device("npu2")
    assert (npu1.core, npu1.memtile, npu1.shim) == (npu2.core, npu2.memtile, npu2.shim)
    assert (npu1.core.memory, npu1.core.channels, npu1.memtile.memory, npu1.memtile.channels) == (65536, 2, 524288, 6)
    assert npu1.shim.descriptors == 16
    assert (npu1.stream_bytes, npu2.stream_bytes) == (4, 8)


def test_a_device_is_found_by_name_or_is_itself():
    """An unknown name lists what there is."""
    assert device(device("npu1")) is device("npu1")
    assert not device("host").is_npu
    with pytest.raises(UnknownName, match=r"dev='npu4'.*Known: host, npu1"):
        device("npu4")


def test_an_unknown_name_lists_those_of_plugins_too(monkeypatch):
    """And asks whether one of them was meant."""
    installed = Registry([Record("devices", 1, "tpu9", "acme:It", "iron-acme", "1", None)])
    monkeypatch.setattr("iron_core.plugins.registry.registry", lambda: installed)
    with pytest.raises(UnknownName, match=r"no such device\. Did you mean tpu9\? Known: host, .*, tpu9; `iron devices list`\."):
        device("tpu8")


@pytest.mark.parametrize("given", [0, 5, b"npu2", [], {}, object(), np.ones(3), True], ids=lambda given: type(given).__name__)
def test_what_names_no_device_is_told_as_such(given):
    """It is no unknown name; wherever one is asked for."""
    for ask in (device, Plain(size=4).resolved, lambda dev: choose("reference", dev), lambda dev: Same().compile(dev=dev, x=(4, 8))):
        with pytest.raises(CallError, match=r"dev=.*; legal: a device's name, as 'npu2', or a Device"):
            ask(given)


# -- the current device ------------------------------------------------------------------------------


@pytest.fixture
def npu1():
    iron.set_current_device("npu1")
    yield
    iron.set_current_device(None)


def test_there_is_none_at_first():
    """Then an operator is resolved for no device, and whatever needs one says so."""
    assert iron.current_device() is None
    assert SiLU(size=4096).resolved().num_aie_columns == 1
    with pytest.raises(CallError, match=r"explain\(\) is of one device\. Legal: dev='npu1', dev='npu2', or set_current_device\(\)"):
        SiLU(size=4096).explain()


def test_it_is_meant_where_dev_is_left_out(npu1):
    """By operators, by what explains them, and where a graph is compiled; a dev= that is given is the one."""
    assert SiLU(size=4096).resolved().num_aie_columns == 4
    assert SiLU(size=4096).resolved("npu2").num_aie_columns == 8
    assert SiLU(size=4096).explain().startswith("SiLU(size=4096") and " on npu1\n" in SiLU(size=4096).explain()
    assert choose("sim").dev == "npu1" and choose("sim", "npu2").dev == "npu2"


def test_a_backend_that_does_not_have_it_says_whose_it_is(npu1):
    with pytest.raises(UnsupportedError, match=r"dev='npu1' \(the current device\): backend host takes host\."):
        choose("host")


def test_a_block_has_its_own(npu1):
    """The innermost counts; after it, whatever happens, the one before does again."""
    with iron.using_device("npu2") as outer, iron.using_device("npu2_2col"):
        assert outer is device("npu2") and iron.current_device() is device("npu2_2col")
    with pytest.raises(ZeroDivisionError), iron.using_device("npu2"):
        raise ZeroDivisionError
    assert iron.current_device() is device("npu1")


def test_a_block_is_of_its_thread(npu1):
    """What is set for the process holds in every thread."""
    seen = []
    with iron.using_device("npu2"):
        thread = threading.Thread(target=lambda: seen.append(iron.current_device()))
        thread.start()
        thread.join()
    assert seen == [device("npu1")]


def test_an_unknown_one_is_refused_and_changes_nothing(npu1):
    with pytest.raises(UnknownName, match=r"dev='npu4'"):
        iron.set_current_device("npu4")
    assert iron.current_device() is device("npu1")
