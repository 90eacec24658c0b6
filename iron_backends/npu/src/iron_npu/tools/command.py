"""The command lines of `aiecc`, as mlir-aie of August 2026 and later takes them (its tools/aiecc/README.md).

An input lies in the folder that is given as `--tmpdir` too: there the objects are looked for that cores link.
"""

from __future__ import annotations

from pathlib import Path

import attrs

from iron_npu.image.image import Entry

#: What the files of a build are called.
FILES = {"elf": "design.elf", "xclbin": "final.xclbin"}
PARAMETERS, ADDRESSED = "params.txt", "input_with_addresses.mlir"

#: What a sequence with scalars goes through to become C++ that makes a stream for a call.
DYNAMIC = (
    "aie-materialize-bd-chains",
    "aie-substitute-shim-dma-allocations",
    "aie-unroll-runtime-sequence-loops",
    "canonicalize",
    "aie-lower-dynamic-bd-pool",
    "canonicalize",
    "aie-assign-runtime-sequence-bd-ids",
    "aie-dma-tasks-to-npu",
    "aie-dma-to-npu",
    "aie-lower-set-lock",
)


@attrs.frozen
class Driver:
    """How `aiecc` is called whatever is asked of it. program, peano: where they are. xclbinutil: "" where no xclbin is asked for.

    threads: of its own; None for as many as it likes.
    """

    program: str
    peano: str
    xclbinutil: str = ""
    threads: int | None = None

    def line(self, source: Path, out: Path, *asked: str) -> list[str]:
        """A command that leaves what is asked for in `out`; its input is `source`."""
        # It takes the Chess compiler unless told otherwise.
        line = [self.program, str(source), f"--peano={self.peano}", "--no-xchesscc", "--no-xbridge"]
        if self.threads is not None:
            line.append(f"-j{self.threads}")
        return [*line, *asked, "--dynamic-objFifos", f"--tmpdir={source.parent}", f"--output-dir={out}", "--get-core-elfs"]


def full_elf(driver: Driver, source: Path, out: Path) -> list[str]:
    """The ELF of all devices and the table of its scratchpad's words. Loads of devices are written out as what they write: between two
    steps the firmware would load nothing that it thinks is loaded."""
    named = f"--full-elf-name={FILES['elf']}"
    return driver.line(source, out, "--get-full-elf", named, "--get-scratchpad-parameters", "--expand-load-pdis")


def xclbin(
    driver: Driver, source: Path, out: Path, entry: Entry, *, before: Path | None = None, device: str = "", dynamic: bool = False
) -> list[str]:
    """An xclbin of the module's device as a kernel by this name, behind those of the xclbin `before` if there is one; and a stream for each
    of its sequences, or where they are `dynamic` the routed module, which more is made of. device: of several in the module this one."""
    asked = ["--get-input-with-addresses"] if dynamic else ["--get-npu-insts", "--npu-insts-name=insts_{0}.bin"]
    asked += ["--get-xclbin", f"--xclbin-name={FILES['xclbin']}"]
    asked += [f"--xclbin-kernel-name={entry.name}", f"--xclbin-instance-name={entry.instance}", f"--xclbin-kernel-id={entry.id:#x}"]
    if driver.xclbinutil:
        asked.append(f"--xclbinutil-path={driver.xclbinutil}")
    if before is not None:
        asked.append(f"--xclbin-input={before}")
    if device:
        asked.append(f"--device-name={device}")
    return driver.line(source, out, *asked)


def lower_dynamic(program: str, addressed: Path, lowered: Path) -> list[str]:
    """`aie-opt` on a routed module whose sequences take scalars."""
    return [program, *(f"--{name}" for name in DYNAMIC), str(addressed), "-o", str(lowered)]


def translate_dynamic(program: str, lowered: Path, header: Path) -> list[str]:
    """`aie-translate` on what that gives: C++ with a function for each of its sequences, which makes its stream for a call."""
    return [program, "--aie-npu-to-cpp", str(lowered), "-o", str(header)]


def stream_file(device: str, sequence: str) -> str:
    """What aiecc calls the stream of a sequence."""
    return f"insts_{device}_{sequence}.bin"
