"""Tables of per-call parameters and the scratchpad that is filled by one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from iron_npu.errors import ImageError
from iron_npu.formats.parameters import ParameterTable, TableEntry, is_table

TABLE = b"3\ncount_core 0 i32 core\nrows_length 5 i16 core\nstart_offset 31 i32 addr\n"


def test_a_table_is_read_and_written():
    table = ParameterTable.read(TABLE)
    assert table.entries == (
        TableEntry("count_core", 0, "i32", "core"),
        TableEntry("rows_length", 5, "i16", "core"),
        TableEntry("start_offset", 31, "i32", "addr"),
    )
    assert table.write() == TABLE and ParameterTable.read(TABLE[:-1]) == table and is_table(TABLE)
    assert ParameterTable.read(b"0\n") == ParameterTable(())


def test_the_scratchpad_keeps_cores_words_shifted_and_addresses_as_they_are():
    words = struct.unpack("<32I", ParameterTable.read(TABLE).scratchpad({"count_core": 3, "rows_length": 7, "start_offset": 1 << 31}))
    assert {k: word for k, word in enumerate(words) if word} == {0: 12, 5: 28, 31: 1 << 31}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"count_core": 0, "rows_length": 0}, "start_offset: not given; legal: a number for each of count_core, "),
        ({"count_core": 0, "rows_length": 0, "start_offset": 0, "x": 1}, "x: no parameter; legal: "),
        ({"count_core": 1 << 30, "rows_length": 0, "start_offset": 0}, "count_core=1073741824; legal: 0 to 1073741823, i32 of kind core."),
        ({"count_core": 0, "rows_length": 1 << 16, "start_offset": 0}, "rows_length=65536; legal: 0 to 65535, i16 of kind core."),
        ({"count_core": 0, "rows_length": 0, "start_offset": -4}, "start_offset=-4; legal: 0 to 4294967295, i32 of kind addr."),
        ({"count_core": True, "rows_length": 0, "start_offset": 0}, "count_core=True; legal: 0 to "),
    ],
)
def test_a_number_that_a_parameter_does_not_hold_is_refused(values, said):
    with pytest.raises(ImageError) as refused:
        ParameterTable.read(TABLE).scratchpad(values)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "line 1: ''; legal: the number of parameters."),
        (b"x\n", "line 1: 'x'; legal: the number of parameters."),
        (b"2\na 0 i32 core\n", "line 1: 2 parameters; legal: 1, the lines behind it."),
        (b"1\na 0 i32\n", "line 2: 'a 0 i32'; legal: name, number, type and kind, a space between."),
        (b"1\na -1 i32 core\n", "line 2: 'a -1 i32 core'; legal: name"),
        (b"1\na 32 i32 core\n", "line 2: a is word 32; legal: 0 to 31."),
        (b"1\n1a 0 i32 core\n", "line 2: name '1a'; legal: letters"),
        (b"1\na 0 f32 core\n", "line 2: a is of type 'f32'; legal: i8, i16, i32, bf16."),
        (b"1\na 0 i32 shim\n", "line 2: a is of kind 'shim'; legal: core, addr."),
        (b"1\na 0 i16 addr\n", "line 2: a is an address of type i16; legal: i32."),
        (b"2\na 0 i32 core\na 1 i32 core\n", "line 3: a once more; legal: a name once."),
        (b"2\na 0 i32 core\nb 0 i32 core\n", "line 3: b is word 0, as a is; legal: a word each."),
        (b"1\n\xff 0 i32 core\n", "byte 0x2: 0xff; legal: ASCII."),
        (b"1" * 70000, "70000 bytes; legal: a table of at most 65536."),
    ],
)
def test_each_fault_of_a_table_is_one_line(data, said):
    with pytest.raises(ImageError) as refused:
        ParameterTable.read(data)
    assert str(refused.value).startswith(said)


NAMES = some.from_regex(r"[A-Za-z_][A-Za-z0-9_.$-]{0,20}", fullmatch=True)


@settings(max_examples=100, deadline=None)
@given(some.lists(some.tuples(NAMES, some.integers(0, 31), some.sampled_from(["i8", "i16", "i32", "bf16", "addr"])), max_size=8))
def test_any_table_that_is_written_is_read(rows):
    entries = {}
    for name, index, kind in rows:
        entries[name] = TableEntry(name, index, "i32", "addr") if kind == "addr" else TableEntry(name, index, kind, "core")
    table = ParameterTable(tuple({entry.index: entry for entry in entries.values()}.values()))
    assert ParameterTable.read(table.write()) == table
    assert len(table.scratchpad({entry.name: entry.most for entry in table.entries})) == 128
