"""How large cores' programs are, from ELFs made here by hand."""

from __future__ import annotations

import struct

import pytest

from iron_core.errors import CallError
from iron_npu.tools.program_size import program_bytes, sizes_of
from tests.npu.vendor import core_elf


def test_a_program_is_what_may_be_executed():
    """Data in a core's memory is none of it."""
    assert program_bytes(core_elf((5, 0, 0x1230), (6, 0x70000, 0x8000), (4, 0x60000, 4))) == 0x1230


def test_two_segments_count_with_what_lies_between_them():
    assert program_bytes(core_elf((5, 0x200, 0x100), (5, 0x1000, 0x20))) == 0x1020 - 0x200


def test_no_program_takes_nothing():
    assert program_bytes(core_elf()) == program_bytes(core_elf((6, 0x70000, 16))) == program_bytes(core_elf((5, 64, 0))) == 0


def test_words_of_64_bits_are_read_too():
    header = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 264, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    assert program_bytes(header + struct.pack("<IIQQQQQQ", 1, 5, 0, 0x100, 0, 0, 0x42, 1)) == 0x42


@pytest.mark.parametrize("bad", [b"", b"\x7fELF", b"\x7fELX\x01\x01", b"\x7fELF\x03\x01", b"\x7fELF\x01\x02"])
def test_what_is_no_elf_is_refused(bad):
    with pytest.raises(CallError, match=r"no ELF of little-endian words"):
        program_bytes(bad)


@pytest.mark.parametrize("length", [6, 10, 51, 60, 83])
def test_an_elf_that_is_cut_is_refused(length):
    whole = core_elf((5, 0, 16))
    assert len(whole) == 84
    with pytest.raises(CallError, match=r"ends before its segments do"):
        program_bytes(whole[:length])


def test_files_are_told_by_their_cores(tmp_path):
    (tmp_path / "elfs_main_core_0_2.elf").write_bytes(core_elf((5, 0, 100)))
    (tmp_path / "main_core_3_5.elf").write_bytes(core_elf((5, 0, 8)))
    assert sizes_of(list(tmp_path.iterdir())) == {"main_core_0_2": 100, "main_core_3_5": 8}
    (tmp_path / "bad.elf").write_bytes(b"?")
    with pytest.raises(CallError, match=rf"{tmp_path}/bad\.elf: no ELF"):
        sizes_of(list(tmp_path.iterdir()))
