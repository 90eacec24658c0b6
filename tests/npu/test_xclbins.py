"""xclbins, their sections, PDIs and CDOs are read without trusting a length, and written again bit for bit."""

from __future__ import annotations

import struct

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from iron_core import Xclbin
from iron_npu.errors import ImageError
from iron_npu.formats.mirror import END, START
from iron_npu.formats.partition import CdoGroup, Partition, PdiEntry
from iron_npu.formats.pdi import DMA_WRITE, MASK_WRITE, NOP, SYNC, WRITE, Cdo, Command, Pdi, without_build
from iron_npu.formats.sections import KINDS, Bank, Connection, Connectivity, IpLayout, MemoryTopology, Place
from iron_npu.formats.xclbin import Section, XclbinFile, XclbinHeader
from tests.npu.xclbins import XML, commands, partition, pdi, sections, xclbin

U8, U16, U32, U64 = (some.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))
I32 = some.integers(-(1 << 31), (1 << 31) - 1)


def names(most: int):
    return some.text(some.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=most // 4)


def exactly(size: int):
    return some.binary(min_size=size, max_size=size)


def lists(of, most: int = 3):
    return some.lists(of, max_size=most).map(tuple)


HEADERS = some.builds(
    XclbinHeader, U64, U64, U64, some.tuples(U8, U8, U16), U16, U16, exactly(16), names(63), exactly(16), names(15), exactly(28),
    exactly(256),
)  # fmt: skip
ANY = some.builds(Section, U32, some.binary(max_size=50), names(15))
SECTIONS = some.lists(ANY, min_size=1, max_size=6, unique_by=lambda one: one.kind)


@settings(max_examples=100, deadline=None)
@given(some.builds(XclbinFile, HEADERS, SECTIONS.map(tuple), some.none() | some.binary(max_size=40)))
def test_any_file_that_is_written_is_read_and_written_again(file):
    data = file.write()
    again = XclbinFile.read(data)
    assert again == file and again.write() == data


GROUPS = some.builds(CdoGroup, names(60), U8, U64, lists(U64), lists(U32))
PDIS = some.builds(PdiEntry, exactly(16), some.binary(max_size=40), lists(GROUPS))


@settings(max_examples=100, deadline=None)
@given(some.builds(Partition, names(60), U16, lists(U16), lists(PDIS), U32, U64, U64))
def test_any_partition_that_is_written_is_read(one):
    assert Partition.read(one.write()) == one


@settings(max_examples=100, deadline=None)
@given(
    some.one_of(
        lists(some.builds(Bank, names(15), U64, U64, U8, U8)).map(MemoryTopology),
        lists(some.builds(Place, names(63), U32, U32, U64)).map(IpLayout),
        lists(some.builds(Connection, I32, I32, I32)).map(Connectivity),
    )
)
def test_any_list_that_is_written_is_read(one):
    data = one.write()
    assert type(one).read(data) == one and type(one).read(data).write() == data


WORDS = some.lists(U32, min_size=3, max_size=6).map(tuple)
COMMANDS = some.builds(Command, some.sampled_from([WRITE, MASK_WRITE, DMA_WRITE, NOP, 0x1FF]), WORDS, some.booleans())


@settings(max_examples=100, deadline=None)
@given(lists(COMMANDS, 5), some.none() | U32, some.data())
def test_any_commands_that_are_written_are_read(made, checksum, data):
    words = Cdo(made, checksum).write()
    assert Cdo.read(tuple(words)).commands == made and Cdo.read(tuple(words)).write() == words
    whole = Pdi("aie_image", (Cdo(made), Cdo(made)), data.draw(U32), data.draw(U32))
    assert Pdi.read(whole.write()) == whole


@pytest.mark.parametrize(
    ("code", "words", "line"),
    [
        (0x101, (1, 2, 3), "mask-poll 0x1 0x2 0x3"), (0x102, (0x1D000, 0xF, 5), "mask-write 0,0 DMA_BD0_0 = 0x5 where 0xf"),
        (0x103, (0x1D000, 5), "write 0,0 DMA_BD0_0 = 0x5"), (0x104, (9,), "delay 0x9"),
        (0x105, (0, 0x1D000, 5), "dma-write 0,0 DMA_BD0_0, 1 words"), (0x111, (), "nop"), (0, (), "command 0x0"),
    ],
)  # fmt: skip
def test_each_command_by_its_code(code, words, line):
    one = Command(code, words)
    assert one.line() == line and Cdo.read(tuple(Cdo((one,)).write())).commands == (one,)


def test_a_command_of_many_words_has_a_word_for_its_length():
    long = Command(DMA_WRITE, tuple(range(300)), long=True)
    words = Cdo((long,)).write()
    assert words[5:7] == [DMA_WRITE | 0xFF << 16, 300] and Cdo.read(tuple(words)).commands == (long,)
    with pytest.raises(ImageError, match=r"dma-write of 300 words; legal: 2 to 254, or long\."):
        Cdo((attrs.evolve(long, long=False),)).write()


def test_where_things_stand():
    """The layout that every xclbin of the vendor's has."""
    data = xclbin().write()
    assert data[:8] == b"xclbin2\0" and struct.unpack_from("<i", data, 8) == (-1,) and data[0x0C:0x128] == b"\xff" * 284
    assert struct.unpack_from("<QQQ", data, 0x128)[::2] == (0x1234, 0x1234) and struct.unpack_from("<Q", data, 0x130) == (len(data),)
    assert struct.unpack_from("<HBB", data, 0x148) == (75, 2, 21) and struct.unpack_from("<I", data, 0x1C0) == (7,)
    table = [struct.unpack_from("<I16s4xQQ", data, 0x1C8 + 40 * k) for k in range(7)]
    assert [kind for kind, *_ in table] == [6, 32, 2, 8, 7, 27, 26] and table[0][2:] == (736, 88)
    section = data[table[1][2] :][: table[1][3]]
    assert struct.unpack_from("<I", section, 8) == (2048,) and struct.unpack_from("<QQ", section, 16) == (0x5B7F, 0x3039)
    assert struct.unpack_from("<H", section, 32) == (8,) and struct.unpack_from("<I", section, 120) == (1,)
    assert data[table[-1][2] + table[-1][3] :].startswith(START) and data.endswith(END)
    image = pdi().write()
    assert image[:16] == SYNC and image[0x38:0x3C] == b"PPDI" and image[0xA0:0xA9] == b"aie_image" and image[0x154:0x157] == b"CDO"


def test_what_is_in_a_file(tmp_path):
    file = XclbinFile.read(xclbin().write())
    (kernel,) = file.kernels()
    assert (kernel.name, [one["offset"] for one in kernel.arguments]) == ("MLIR_AIE", ["0x00", "0x08", "0x10", "0x14"])
    assert [one.tag for one in file.rows("MEM_TOPOLOGY").rows] == ["HOST", "SRAM"]
    assert file.rows("IP_LAYOUT").rows[0].kernel_id == 0x901 and file.rows("CONNECTIVITY").rows[1] == Connection(3, 0, 0)
    part = file.partition()
    assert part == partition() and Pdi.read(part.pdis[0].image) == pdi()
    assert [one.line() for one in pdi().cdos[0].commands] == [
        "dma-write 0,2 Program+0x0, 4 words",
        "write 0,2 Stream_Switch+0x0 = 0x80000001",
        "mask-write 0,2 Core_Control = 0x1 where 0x1",
        "nop",
    ]
    path = tmp_path / "a.xclbin"
    path.write_bytes(file.write())
    assert Xclbin(path).kernels == ("MLIR_AIE",)


def read_all(data: bytes) -> None:
    """Everything that there is in a file."""
    file = XclbinFile.read(data)
    for name in KINDS:
        if name not in ("AIE_PARTITION", "EMBEDDED_METADATA"):
            file.rows(name)
    part = file.partition()
    for one in part.pdis if part else ():
        Pdi.read(one.image)
    file.kernels(), list(file.disagreements())


def test_a_file_that_is_cut_at_any_byte_is_refused():
    data = xclbin().write()
    for length in range(len(data)):
        with pytest.raises(ImageError, match=r"^byte 0x"):
            XclbinFile.read(data[:length])


def test_a_partition_a_pdi_and_a_list_that_are_cut_are_refused():
    for read, data in ((Partition.read, partition().write()), (Pdi.read, pdi().write()), (MemoryTopology.read, sections()[0].data)):
        for length in range(0, len(data), 4):
            with pytest.raises(ImageError):
                read(data[:length])


def put(at: int, code: str, *values: int) -> bytes:
    """A file with other numbers at a byte."""
    data = bytearray(xclbin().write())
    struct.pack_into(code, data, at, *values)
    return bytes(data)


TABLE = 0x1C8
PARTITION = 824


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x7fELF", "byte 0x0: it begins b'\\x7fELF'; legal: b'xclbin2\\x00'."),
        (put(0x130, "<Q", 1 << 63), "byte 0x130: the header says 9223372036854775808 bytes; legal: the file's "),
        (put(8, "<i", 64), "byte 0x8: a signature of 64 bytes; legal: -1, none."),
        (put(0x1C0, "<I", 0), "byte 0x1c0: 0 sections; legal: 1 to 65535."),
        (put(0x1C0, "<I", 65535), "byte 0x1c8: the table of 65535 sections is bytes 0x1c8 to 0x2801a0 of "),
        (put(0x1C0, "<I", 0x7FFFFFFF), "byte 0x1c0: 2147483647 sections; legal: 1 to 65535."),
        (put(0x1C4, "<I", 1), "byte 0x1c4: 01000000 behind the count of sections; legal: zeros."),
        (put(0x160, "<64s", b"x" * 64), "byte 0x160: the platform's name has no end: 64 bytes without a NUL; legal: at most 63 and a NUL."),
        (put(TABLE + 4, "<16s", b"x" * 16), "byte 0x1cc: a section's name has no end: 16 bytes without a NUL"),
        (put(TABLE + 4, "<16s", b"a\0b"), "byte 0x1cd: a section's name goes on behind its NUL; legal: zeros."),
        (put(TABLE + 4, "<16s", b"\xff\0"), "byte 0x1cc: a section's name is b'\\xff'; legal: UTF-8."),
        (put(TABLE + 24, "<Q", 1 << 62), "byte 0x1e0: section 0, MEM_TOPOLOGY, begins at 0x4000000000000000; legal: 0x2e0"),
        (put(TABLE + 32, "<Q", (1 << 64) - 8), "byte 0x1e8: section 0, MEM_TOPOLOGY, has 18446744073709551608 bytes; legal: at most "),
        (put(TABLE + 40, "<I", 6), "byte 0x1f0: section 1 is a second MEM_TOPOLOGY; legal: one of a kind."),
        (put(TABLE + 20, "<I", 5), "byte 0x1dc: section 0 has 05000000 behind its name; legal: zeros."),
        (attrs.evolve(xclbin(), mirror=None).write() + b"more", "byte 0x130: the header says "),
        (put(736, "<i", 3), "byte 0x2e0: a list of memories of 3 rows in 88 bytes; legal: 8 and 40 for each row."),
        (put(736, "<i", -1), "byte 0x2e0: a list of memories of -1 rows in 88 bytes"),
        (put(736 + 32, "<16s", b"x" * 16), "byte 0x300: a memory's tag has no end"),
        (put(PARTITION, "<B", 1), "byte 0x338: a partition of schema 1; legal: 0."),
        (put(PARTITION + 4, "<I", 1 << 31), "byte 0x338: the partition's name is at byte 0x80000000 of 0x33c; legal: inside."),
        (put(PARTITION + 120, "<I", 1 << 31), "byte 0x3f8: the list of PDIs has 206158430208 bytes, and "),
        (put(PARTITION + 124, "<I", 1 << 20), "byte 0x674: the list of PDIs is bytes 0x100000 to 0x100060 of 0x33c; legal: inside."),
    ],
)  # fmt: skip
def test_each_fault_is_one_line(data, said):
    """The byte, the rule, the value and what would be legal."""
    with pytest.raises(ImageError) as refused:
        read_all(data)
    assert str(refused.value).startswith(said) and str(refused.value).isprintable() and len(str(refused.value)) <= 300


def image(at: int, code: str, *values: int) -> bytes:
    data = bytearray(pdi().write())
    struct.pack_into(code, data, at, *values)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "byte 0x0: a PDI that begins with nothing; legal: dd00"),
        (image(0x14, "<I", 2), "byte 0x14: a PDI of 2 images; legal: 1."),
        (image(0x18, "<I", 0xFFFFFFFF), "byte 0x1a0: the header of a PDI's image is bytes 0x3fffffffc to 0x40000003c of 0x1a0"),
        (image(0x1C, "<I", 0xFFFFFFFF), "byte 0xd0: a PDI's table of partitions is bytes 0xd0 to "),
        (image(0x38, "<I", 5), "byte 0x38: a PDI identified by 0x00000005; legal: 0x49445050."),
        (image(0xD0 + 8, "<I", 1 << 30), "byte 0x150: partition 0 of a PDI is bytes 0x150 to "),
        (image(0x150, "<I", 3), "byte 0x150: a CDO that begins 3, 0x4f4443, 0x200; legal: 4, 0x4f4443, 0x200, version 2."),
        (image(0x15C, "<I", 99), "byte 0x15c: a CDO of 99 words behind its header; legal: at most 15, which there are."),
        (image(0x164, "<I", 0x01060105), "byte 0x164: a command that begins 0x01060105; legal: 0 in its high byte."),
        (image(0x164, "<I", 0x200105), "byte 0x164: dma-write of 32 words; legal: 2 to 14, which are left."),
        (image(0x164, "<I", 0x010103), "byte 0x164: write of 1 words; legal: 2 to 14, which are left."),
    ],
)  # fmt: skip
def test_each_fault_of_a_pdi_is_one_line(data, said):
    with pytest.raises(ImageError) as refused:
        Pdi.read(data)
    assert str(refused.value).startswith(said)


def test_arrays_of_a_partition_that_lie_over_one_another_are_refused():
    """Else a short file could ask for work without end."""
    data = bytearray(partition().write())
    at = struct.unpack_from("<I", data, 124)[0]
    size, place = struct.unpack_from("<II", data, at + 16)
    struct.pack_into("<II", data, at + 24, size // 96, place)  # groups where the PDI's file is
    with pytest.raises(ImageError, match=r"that have|are no other array's|legal"):
        Partition.read(bytes(data))


def test_a_mirror_that_agrees_says_nothing_and_one_that_is_missing_is_told():
    assert list(xclbin().disagreements()) == []
    assert list(attrs.evolve(xclbin(), mirror=None).disagreements()) == ["no mirror behind the sections"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"TimeStamp":"4660"', '"TimeStamp":"4661"', "TimeStamp is '4660', in the mirror '4661'"),
        ('"Version":"2.21.75"', '"V":"2.21.75"', "Version is '2.21.75', in the mirror nothing"),
        ('"Kind":"6"', '"Kind":"7"', "section 0: Kind is 0x6, in the mirror '7'"),
        ('"Offset":"0x2e0"', '"Offset":"0x2e8"', "section 0: Offset is 0x2e0, in the mirror '0x2e8'"),
        ('"Size":"0x58"', '"Size":"x"', "section 0: Size is 0x58, in the mirror 'x'"),
        ('"Name":"mem_topology"', '"Name":""', "section 0: Name is 'mem_topology', in the mirror ''"),
        ('"m_count":"2"', '"m_count":"3"', "section 0: 2 rows, in the mirror '3'"),
        ('"m_tag":"HOST"', '"m_tag":"HOLD"', "section 0, row 0: m_tag is 'HOST', in the mirror 'HOLD'"),
        ('"mem_data_index":"1"', '"mem_data_index":"0"', "section 4, row 0: mem_data_index is 1, in the mirror '0'"),
        ('"section_header":', '"other":', "7 sections, in the mirror 6"),
        ('{"schema_version"', '["schema_version"', "the mirror is no JSON: JSONDecodeError"),
        ('"header":{', '"head":{', "the mirror has no header"),
    ],
)  # fmt: skip
def test_a_mirror_that_disagrees_is_told(old, new, said):
    file = xclbin()
    assert old.encode() in file.mirror
    assert said in list(attrs.evolve(file, mirror=file.mirror.replace(old.encode(), new.encode(), 1)).disagreements())


@pytest.mark.parametrize("mirror", [b"[" * 100_000, b"\xff", b"1" * 5000, b"{}", b"[]", b'{"header":{},"section_header":5}'])
def test_a_mirror_that_is_anything_else_is_told_without_an_error(mirror):
    assert list(attrs.evolve(xclbin(), mirror=mirror).disagreements())


def test_bytes_behind_the_sections_that_are_no_mirror_are_refused():
    whole = bytearray(xclbin().write())
    whole[-1:] = b"X"
    with pytest.raises(ImageError, match="that are no mirror; legal: a mirror between its markers, or none"):
        XclbinFile.read(bytes(whole))


def test_a_kernels_tags_are_found_and_nothing_else():
    file = xclbin(xml=XML.replace('name="MLIR_AIE"', 'name="a&lt;b"') + '<kernel name="second">')
    assert [one.name for one in file.kernels()] == ["a&lt;b", "second"] and file.kernels()[1].arguments == ()


def test_what_a_build_draws_anew_is_taken_out_of_a_pdi():
    data = bytearray(pdi().write())
    data[0x98:0x9C], data[0xCC:0xD0] = b"abcd", b"efgh"
    assert bytes(data) != pdi().write() and without_build(bytes(data)) == without_build(pdi().write())
    assert without_build(image(0x170, "<I", 77)) != without_build(pdi().write()) and without_build(b"short") == b"short"


@pytest.mark.parametrize(
    "write",
    [
        lambda: attrs.evolve(xclbin(), sections=()).write(),
        lambda: attrs.evolve(xclbin(), header=XclbinHeader(unique_id=1 << 64)).write(),
        lambda: attrs.evolve(xclbin(), header=XclbinHeader(uuid=b"")).write(),
        lambda: attrs.evolve(xclbin(), header=XclbinHeader(vbnv="x" * 64)).write(),
        lambda: partition(uuid=b"").write(),
        lambda: attrs.evolve(partition(), name="a\0b").write(),
        lambda: attrs.evolve(partition(), columns=1 << 16).write(),
        lambda: Cdo((Command(WRITE, (1,)),)).write(),
        lambda: Cdo((Command(NOP, (1 << 32,)),)).write(),
        lambda: pdi(commands(), "a name of seventeen").write(),
        lambda: MemoryTopology((Bank("x", -1),)).write(),
    ],
)  # fmt: skip
def test_what_no_file_holds_is_not_written(write):
    with pytest.raises(ImageError):
        write()
