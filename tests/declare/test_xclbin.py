"""`Xclbin`: a file's header, sections and kernels, each offset checked."""

from __future__ import annotations

import os
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from fuzz.seeds import METADATA, PARTITION, xclbin
from iron_core.errors import ParamError

GOOD = xclbin()


@pytest.fixture
def write(tmp_path):
    def write(data: bytes, name: str = "mm.xclbin"):
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


def test_it_says_what_it_can_run(write):
    """Its kernels' names and a digest; two files of the same bytes are one."""
    found = iron.Xclbin(write(GOOD))
    assert found.kernels == ("MLIR_AIE",) and str(found) == "mm.xclbin"
    assert found == iron.Xclbin(str(write(GOOD, "other"))) and hash(found) == hash(iron.Xclbin(write(GOOD, "other")))
    assert found != iron.Xclbin(write(xclbin(kinds=(PARTITION, METADATA)), "third"))


def changed(at: int, form: str, value: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into(form, data, at, value)
    return bytes(data)


BAD = {
    "empty": (b"", "does not begin with 'xclbin2'"),
    "another file": (b"\x7fELF" + bytes(1000), "does not begin with 'xclbin2'"),
    "half a header": (GOOD[:0x100], "256 bytes, and a header has 456"),
    "half a file": (GOOD[:-8], f"{len(GOOD) - 8} bytes, and its header says {len(GOOD)}"),
    "more behind": (GOOD + b"\0", "and its header says"),
    "too many sections": (changed(0x1C0, "<I", 0xFFFFFFFF), "a table of 4294967295 sections"),
    "none": (xclbin(kinds=()), "no section AIE_PARTITION"),
    "no NPU's": (xclbin(kinds=(METADATA,)), "no section AIE_PARTITION"),
    "a section behind the end": (changed(0x1C8 + 32, "<Q", 1 << 63), "damaged: section 6 has bytes"),
    "a section in the table": (changed(0x1C8 + 24, "<Q", 8), "damaged: section 6 has bytes 8"),
    "no metadata": (xclbin(kinds=(PARTITION,)), "no kernel"),
    "no kernel": (xclbin(b"<project/>"), "no kernel"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_error(write, name):
    """It names the file and what is wrong."""
    data, why = BAD[name]
    with pytest.raises(ParamError) as told:
        iron.Xclbin(write(data))
    assert why in str(told.value) and "mm.xclbin" in str(told.value) and "\n" not in str(told.value)


def test_sections_that_lie_over_one_another_take_no_more_memory(write):
    """A table of thousands, each of which is all that follows it."""
    count, behind = 4000, 1 << 18
    end = 0x1C8 + 40 * count
    data = bytearray(GOOD[:0x1C8].ljust(end + behind, b"\0"))
    struct.pack_into("<Q", data, 0x130, len(data))
    struct.pack_into("<I", data, 0x1C0, count)
    for i in range(count):
        struct.pack_into("<I16s4xQQ", data, 0x1C8 + 40 * i, 1000 + i, b"", end, behind)
    tracemalloc.start()
    with pytest.raises(ParamError, match="no section AIE_PARTITION"):
        iron.Xclbin(write(bytes(data)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * len(data)


def test_metadata_that_begins_kernels_without_end_is_read_once(write):
    """In time that grows as it does: a million bytes of them are refused."""
    with pytest.raises(ParamError, match="no kernel"):
        iron.Xclbin(write(xclbin(b"<kernel " * (1 << 17))))


def test_what_is_no_file_is_one_error(tmp_path):
    """Nor does a pipe make it wait."""
    os.mkfifo(tmp_path / "pipe")
    for given_, why in ((tmp_path / "pipe", "not a file"), (tmp_path, "not a file"), ("no such", "No such file"), ("a\0b", "null")):
        with pytest.raises(ParamError, match=why) as told:
            iron.Xclbin(given_)
        assert str(told.value).count("Xclbin(") == 1
    for given_ in (None, 3, ""):
        with pytest.raises(ParamError, match="legal: the path of a file"):
            iron.Xclbin(given_)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=4), st.integers(0, len(GOOD)))
def test_no_damage_does_more_than_that(write, changes, end):
    """Bytes changed anywhere, the end cut off: read, or refused."""
    data = bytearray(GOOD)
    for at, byte in changes:
        data[at] = byte
    try:
        assert iron.Xclbin(write(bytes(data[:end]))).kernels
    except ParamError as error:
        assert len(str(error)) <= 300
