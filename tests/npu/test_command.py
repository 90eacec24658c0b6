"""The command lines of the vendor's programs."""

from __future__ import annotations

from pathlib import Path

from iron_npu.image.image import Entry
from iron_npu.tools import command
from iron_npu.tools.command import Driver

DRIVER = Driver("/m/bin/aiecc", "/p", "/x/xclbinutil", 3)
SOURCE, OUT = Path("/w/design.mlir"), Path("/w/out")
ALWAYS = [
    "/m/bin/aiecc", "/w/design.mlir", "--peano=/p", "--no-xchesscc", "--no-xbridge", "-j3", "--dynamic-objFifos", "--tmpdir=/w",
    "--output-dir=/w/out", "--get-core-elfs",
]  # fmt: skip


def asked(line: list[str]) -> list[str]:
    """What is said beside what always is."""
    assert [word for word in line if word in ALWAYS] == ALWAYS
    return [word for word in line if word not in ALWAYS]


def test_a_full_elf():
    assert asked(command.full_elf(DRIVER, SOURCE, OUT)) == [
        "--get-full-elf", "--full-elf-name=design.elf", "--get-scratchpad-parameters", "--expand-load-pdis",
    ]  # fmt: skip


def test_an_xclbin_with_streams():
    line = command.xclbin(DRIVER, SOURCE, OUT, Entry(0, "gemv", 0x901, "gemv_i"))
    assert asked(line) == [
        "--get-npu-insts", "--npu-insts-name=insts_{0}.bin", "--get-xclbin", "--xclbin-name=final.xclbin", "--xclbin-kernel-name=gemv",
        "--xclbin-instance-name=gemv_i", "--xclbin-kernel-id=0x901", "--xclbinutil-path=/x/xclbinutil",
    ]  # fmt: skip


def test_a_link_of_a_chain_goes_onto_the_one_before():
    line = command.xclbin(DRIVER, SOURCE, OUT, Entry(1, "k", 0x902, "i"), before=Path("/v/final.xclbin"), device="main")
    assert asked(line)[-2:] == ["--xclbin-input=/v/final.xclbin", "--device-name=main"]


def test_sequences_with_scalars_ask_for_the_routed_module():
    said = asked(command.xclbin(DRIVER, SOURCE, OUT, Entry(0, "k", 0x901, "i"), dynamic=True))
    assert said[0] == "--get-input-with-addresses" and not any("npu-insts" in word for word in said)
    lowered = command.lower_dynamic("aie-opt", Path("a.mlir"), Path("l.mlir"))
    assert lowered == ["aie-opt", *(f"--{name}" for name in command.DYNAMIC), "a.mlir", "-o", "l.mlir"]
    translated = command.translate_dynamic("aie-translate", Path("l.mlir"), Path("s.h"))
    assert translated == ["aie-translate", "--aie-npu-to-cpp", "l.mlir", "-o", "s.h"]


def test_what_is_not_known_is_not_said():
    line = command.xclbin(Driver("aiecc", "/p"), SOURCE, OUT, Entry(0, "k", 0x901, "i"))
    assert not any(word.startswith(("-j", "--xclbinutil")) for word in line)


def test_a_streams_file_has_its_device_and_sequence():
    assert command.stream_file("main", "sequence") == "insts_main_sequence.bin"
