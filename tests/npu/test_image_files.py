"""`iron image inspect` and `iron image diff`: what files hold, and the rung that each difference is on."""

from __future__ import annotations

import json
from importlib.metadata import entry_points

import attrs
import pytest

from iron_core.array.fit import fit
from iron_npu.errors import ImageError
from iron_npu.files.comparison import VERDICTS, compare, worst
from iron_npu.files.description import described
from iron_npu.files.opened import of, opened
from iron_npu.formats.instructions import Header, Stream
from iron_npu.formats.operations import BlockWrite, MaskPoll, Noop, Patch, Wait, Write
from iron_npu.formats.pdi import DMA_WRITE, NOP, WRITE, Cdo, Command, Pdi
from iron_npu.formats.sections import MemoryTopology
from iron_npu.formats.xclbin import Section, XclbinHeader
from iron_npu.image_command import STATUSES, main
from tests.npu.encoder import encoded
from tests.npu.xclbins import CORE, XML, commands, partition, pdi, xclbin

TABLE = b"2\na 0 i32 core\nb 1 i32 addr\n"
BD, QUEUE = 0x1D000, 0x1D214


def put(folder, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def stream(*operations, header=Header(4, 8)) -> bytes:  # noqa: B008
    return Stream(header, operations).write()


MOVES = (BlockWrite(BD, (64, 0, 0, 0, 0, 0, 0, 1 << 25)), Patch(BD + 4, 0, 64), Write(QUEUE, 0), Wait(0, 0, 1, 0))


def test_the_command_is_found_by_its_entry_point():
    (found,) = (one for one in entry_points(group="iron.commands.v1") if one.name == "image")
    assert found.load() is main


# -- inspect ---------------------------------------------------------------------------------------------


def test_an_xclbin_is_described():
    facts = described(of("a", xclbin().write()))
    assert facts["problems"] == [] and facts["kind"] == "xclbin" and facts["header"]["version"] == "2.21.75"
    assert [one["kind"] for one in facts["sections"]][:2] == ["MEM_TOPOLOGY", "AIE_PARTITION"]
    assert [one["tag"] for one in facts["memories"]] == ["HOST", "SRAM"]
    assert [one["name"] for one in facts["kernels"][0]["arguments"]] == ["opcode", "instr", "ninstr", "bo0"]
    (found,) = facts["partition"]["pdis"]
    assert found["commands"] == {"dma-write": 1, "write": 1, "mask-write": 1, "nop": 1} and found["groups"][0]["kernels"] == (0x901,)
    assert found["tiles"] == [{"tile": "0,2", "program": 16, "memory": 0, "registers": 2}]


def test_a_stream_is_described_by_its_steps(arrays):
    design = arrays.calls()
    facts = described(of("insts.bin", encoded(design, fit(design))))
    assert (facts["kind"], facts["family"], facts["arguments"]) == ("instruction stream", "npu2", [0, 1])
    assert [step.partition(" ")[2].partition(" ")[0] for step in facts["steps"]] == ["S2MM", "MM2S", "0,0"]


def test_inspect_prints_tables_and_exits_with_what_is_wrong(tmp_path, capsys):
    assert main(["inspect", put(tmp_path, "a.xclbin", xclbin().write())]) == 0
    said = capsys.readouterr().out
    assert "AIE_PARTITION" in said and "kernel MLIR_AIE: opcode uint64_t at 0x00" in said and "wrong" not in said
    assert main(["inspect", put(tmp_path, "b.xclbin", attrs.evolve(xclbin(), mirror=None).write())]) == 1
    assert capsys.readouterr().out.endswith("wrong: no mirror behind the sections\n")
    assert main(["inspect", put(tmp_path, "params.txt", TABLE)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["b", "1", "i32", "addr"]


def test_inspect_prints_a_streams_steps_or_its_operations(tmp_path, capsys):
    file = put(tmp_path, "insts.bin", stream(*MOVES))
    assert main(["inspect", file]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "   0 0,0 MM2S 0 descriptor 0, 64:1 words at argument 0 + 0x40", "   1 wait 0,0 MM2S 0"
    ]  # fmt: skip
    assert main(["inspect", "--operations", file]) == 0
    assert "0x00010 blockwrite 0,0 DMA_BD0_0 = 0x40" in capsys.readouterr().out


def test_an_offset_behind_the_fifth_argument_is_what_the_image_has_it_to_be(tmp_path, capsys):
    file = put(tmp_path, "insts.bin", stream(MOVES[0], Patch(BD + 4, 6, 0x80000040), *MOVES[2:]))
    for options, expected in (([], "argument 6 + 0x40"), (["--full-elf"], "argument 6 + 0x80000040")):
        main(["inspect", file, *options])
        assert expected in capsys.readouterr().out


def test_json_is_one_value(tmp_path, capsys):
    assert main(["inspect", "--json", put(tmp_path, "a.xclbin", xclbin().write())]) == 0
    assert json.loads(capsys.readouterr().out)["sections"][0]["offset"] == 736
    file = put(tmp_path, "insts.bin", stream(*MOVES))
    assert main(["inspect", "--json", "--operations", file]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["operations"] == {"blockwrite": 1, "patch": 1, "write": 1, "wait": 1} and len(found["lines"]) == 5
    assert main(["diff", "--json", file, put(tmp_path, "other.bin", stream(*MOVES[:3]))]) == 4
    assert json.loads(capsys.readouterr().out)["verdict"] == "KERNELS"


def test_names_in_a_file_do_not_reach_the_terminal_as_they_are(tmp_path, capsys):
    evil = xclbin(attrs.evolve(partition(), name="\x1b[2J\u202e"), xml=XML.replace("MLIR_AIE", "\x1b[31m"))
    main(["inspect", put(tmp_path, "a.xclbin", evil.write())])
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\u202e" not in said and "\\x1b[2J" in said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x7fELF", "a.bin: it begins b'\\x7fELF'; legal: an xclbin, an instruction stream of version 0.1, or a table of parameters."),
        (b"", "a.bin: it is empty; legal: "),
        (xclbin().write()[:-1], "a.bin: byte 0x130: the header says "),
        (stream(Noop())[:-1], "a.bin: byte 0x0: 19 bytes; legal: whole 4-byte words"),
        (b"1\n", "a.bin: line 1: 1 parameters; legal: 0"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused_by_name(tmp_path, data, said):
    with pytest.raises(ImageError) as refused:
        main(["inspect", put(tmp_path, "a.bin", data)])
    assert str(refused.value).startswith(said)


def test_what_is_no_file_is_refused_by_name(tmp_path):
    with pytest.raises(ImageError, match="nothing: No such file or directory"):
        opened(tmp_path / "nothing")
    with pytest.raises(ImageError, match=rf"{tmp_path.name}: not a file\.$"):
        opened(tmp_path)


# -- diff ------------------------------------------------------------------------------------------------


def other(**part) -> bytes:
    return xclbin(attrs.evolve(partition(), **part)).write()


def headed(**changed) -> bytes:
    return xclbin(header=XclbinHeader(**({"unique_id": 0x1234, "timestamp": 0x1234, "uuid": bytes(range(16))} | changed))).write()


def configured(*made: Command, name: str = "aie_image") -> bytes:
    return xclbin(partition(pdi(made, name).write())).write()


def program(*words: int) -> tuple[Command, ...]:
    return (Command(DMA_WRITE, (0, CORE | 0x20000, *words)), *commands()[1:])


def unset(data: bytes) -> bytes:
    """The word that no build sets is another one."""
    image = bytearray(pdi().write())
    image[0x98:0x9C] = b"abcd"
    return xclbin(partition(bytes(image))).write()


def resectioned(change) -> bytes:
    file = xclbin()
    return attrs.evolve(file, sections=tuple(change(list(file.sections)))).mirrored().write()


def unread() -> bytes:
    return attrs.evolve(xclbin(), sections=(*xclbin().sections[:-1], Section(26, b"??"))).write()


def bank(**changed) -> bytes:
    def change(sections):
        first, second = MemoryTopology.read(sections[0].data).rows
        sections[0] = attrs.evolve(sections[0], data=MemoryTopology((attrs.evolve(first, **changed), second)).write())
        return sections

    return resectioned(change)


BASE = xclbin().write()


@pytest.mark.parametrize(
    ("data", "verdict", "said"),
    [
        (BASE, "OK", None),
        (headed(unique_id=9, timestamp=9), "OK", "drawn anew by each build: unique_id, timestamp"),
        (xclbin(partition(uuid=bytes(16))).write(), "OK", "drawn anew by each build: the uuid of PDI 0"),
        (unset(BASE), "OK", "drawn anew by each build: a word that nobody sets in PDI 0"),
        (headed(version=(2, 20, 0)), "REVIEW", "the header's version differs"),
        (xclbin(xml=XML.replace("<platform/>", "")).write(), "REVIEW", "section EMBEDDED_METADATA differs"),
        (other(operations=4096), "REVIEW", "the partition's operations: 2048 and 4096"),
        (bank(size=5), "REVIEW", "section MEM_TOPOLOGY differs"),
        (attrs.evolve(xclbin(), mirror=None).write(), "REVIEW", "the mirror of the second says otherwise than its file"),
        (resectioned(lambda sections: sections[::-1]), "REVIEW", "the sections are in another order"),
        (configured(*commands()[1:], commands()[0]), "REVIEW", "PDI 0 is written otherwise, to the same effect"),
        (configured(*commands(), Command(NOP)), "REVIEW", "PDI 0 is written otherwise, to the same effect"),
        (configured(*program(1, 2, 3, 5)), "KERNELS", "PDI 0: program of 0,2 differs"),
        (configured(*commands(), Command(WRITE, (0x03200400, 7))), "KERNELS", "PDI 0: memory of 1,18 differs"),
        (configured(*commands()[:1], Command(WRITE, (0x0023F000, 5)), *commands()[2:]), "KERNELS", "PDI 0: registers of 0,2 differs"),
        (configured(*commands(), Command(0x101, (0, 0, 0))), "KERNELS", "PDI 0: commands that do not write differ"),
        (other(columns=4), "FORMAT", "columns: 8 and 4"),
        (other(starts=(0, 4)), "FORMAT", "starts: (0,) and (0, 4)"),
        (other(pdis=()), "FORMAT", "the PDIs are of other groups or kernels"),
        (xclbin(partition(b"no PDI at all")).write(), "FORMAT", "PDI 0 differs and is not read: byte 0x0: a PDI that begins "),
        (xclbin(xml=XML.replace('"0x14"', '"0x18"')).write(), "FORMAT", "the kernels or their arguments differ in the metadata"),
        (bank(tag="HOLD"), "FORMAT", "section MEM_TOPOLOGY differs"),
        (headed(mode=1), "FORMAT", "mode: 0 and 1"),
        (resectioned(lambda sections: sections[:-1]), "FORMAT", "section GROUP_TOPOLOGY is in one of them only"),
        (unread(), "FORMAT", "section GROUP_TOPOLOGY differs and is not read: byte "),
        (stream(*MOVES), "FORMAT", "files of two kinds, instruction stream and xclbin"),
    ],
)  # fmt: skip
def test_a_difference_of_xclbins_is_on_its_rung(data, verdict, said):
    """Alone, and from either side."""
    found = compare(of("a", BASE), of("b", data))
    assert worst(found) == verdict == worst(compare(of("b", data), of("a", BASE)))
    assert (not found) if said is None else any(one.what.startswith(said) and one.verdict == verdict for one in found)


PUSH = MOVES[2:]


@pytest.mark.parametrize(
    ("operations", "header", "verdict", "said"),
    [
        ((*MOVES, Noop()), None, "REVIEW", "the operations differ, to the same effect"),
        (
            (attrs.evolve(MOVES[0], address=BD + 32), attrs.evolve(MOVES[1], address=BD + 36), Write(QUEUE, 1), MOVES[3]),
            None, "REVIEW", "the operations differ, to the same effect",
        ),
        ((BlockWrite(BD, (32, *MOVES[0].data[1:])), *MOVES[1:]), None, "KERNELS", "step 0: 0,0 MM2S 0 descriptor 0, 64:1 words"),
        (MOVES[:3], None, "KERNELS", "transfers and waits: 2 and 1"),
        ((*MOVES, Write(CORE | 0x400, 1)), None, "KERNELS", "what is written besides, or waited for, differs"),
        ((*MOVES, MaskPoll(CORE | 0x400, 1, 1)), None, "KERNELS", "what is written besides, or waited for, differs"),
        (MOVES, Header(3, 8), "FORMAT", "the array: npu2, 8 x 6 and npu1, 8 x 6"),
        ((MOVES[0], attrs.evolve(MOVES[1], argument=3), *PUSH), None, "FORMAT", "arguments: [0] and [3]"),
    ],
)  # fmt: skip
def test_a_difference_of_streams_is_on_its_rung(operations, header, verdict, said):
    there = of("b", stream(*operations, header=header or Header(4, 8)))
    found = compare(of("a", stream(*MOVES)), there)
    assert worst(found) == verdict == worst(compare(there, of("a", stream(*MOVES))))
    assert any(one.what.startswith(said) and one.verdict == verdict for one in found)


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (TABLE, "OK"), (b"2\nb 1 i32 addr\na 0 i32 core\n", "REVIEW"), (b"1\na 0 i32 core\n", "FORMAT"),
        (b"2\na 2 i32 core\nb 1 i32 addr\n", "FORMAT"),
    ],
)  # fmt: skip
def test_a_difference_of_tables_is_on_its_rung(data, verdict):
    assert worst(compare(of("a", TABLE), of("b", data))) == verdict


def test_the_highest_rung_comes_first_and_is_the_exit_status(tmp_path, capsys):
    base = put(tmp_path, "a.xclbin", BASE)
    both = xclbin(attrs.evolve(partition(uuid=bytes(16)), columns=4)).write()
    files = {"OK": BASE, "REVIEW": other(operations=1), "KERNELS": configured(*program(9)), "FORMAT": both}
    assert list(files) == list(VERDICTS) and list(STATUSES.values()) == [0, 3, 4, 5]
    for verdict, data in files.items():
        assert main(["diff", base, put(tmp_path, "b.xclbin", data)]) == STATUSES[verdict]
        said = capsys.readouterr().out.splitlines()
        assert said[-1] == verdict
    assert [line.split()[0] for line in said[1:-2]] == ["FORMAT", "OK"]


def test_a_group_of_one_pdi_among_several_that_is_another_is_another_format():
    first, second = partition().pdis[0], attrs.evolve(partition().pdis[0], groups=())
    files = [of("a", other(pdis=pdis)) for pdis in ((first, first), (first, second))]
    (found,) = compare(*files)
    assert (found.verdict, found.what) == ("FORMAT", "the PDIs are of other groups or kernels")


def test_a_pdi_for_another_device_is_another_format():
    image = Pdi("aie_image", (Cdo(commands()),), id_code=5).write()
    assert worst(compare(of("a", BASE), of("b", xclbin(partition(image)).write()))) == "FORMAT"


