"""What can be wrong with a file of an NPU's image, and where the vendor's programs are asked."""

from __future__ import annotations

from pathlib import Path

from iron_core.errors import LONGEST, BackendUnavailable, IronError, printable


class ImageError(IronError, ValueError):
    """A file of an NPU's image that is cut short or breaks a rule of its format, or values that no such file holds.

    The message is one printable line of at most `LONGEST` characters: the byte, the rule, the value and what would be legal.

    Raises:  iron image inspect half-a-copy.xclbin
    Fix:     copy the file again, or build it again
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(message, LONGEST))


class MissingTool(BackendUnavailable):
    """A build needs programs that are not here: every one that is missing, and what to do about it.

    Raises:  compile(x=(4, 8), backend="npu", dev="npu2")  # neither aiecc nor Peano is installed
    Fix:     MLIR_AIE_INSTALL_DIR=... PEANO_INSTALL_DIR=...; `iron doctor --npu` says what is found
    """


class ToolError(IronError, RuntimeError):
    """A program of the vendor's did not build what it was given. `tool`, `design`: which, of what; `said`: its words; `folder`: what it
    worked on, kept with its log.

    Raises:  compile(x=(4, 8), backend="npu", dev="npu2")  # aiecc places no core of a design
    Fix:     read the log in the folder that the error names
    """

    def __init__(self, tool: str, design: str, said: str, folder: Path | None = None) -> None:
        self.tool, self.design, self.said, self.folder = tool, design, said, folder
        where = "" if folder is None else f" Kept, with its log: {printable(folder)}."
        super().__init__(f"{tool} on {design}: {printable(said, 600).rstrip('.')}.{where}")


class KernelMismatch(IronError, ValueError):
    """What a kernel promises here and what mlir-aie's says differ; both are named.

    Raises:  compile(x=(4, 8), backend="npu", dev="npu2")  # of an mlir-aie whose kernel takes other arguments
    Fix:     use the mlir-aie that this version was written for, or declare the kernel as that has it
    """
