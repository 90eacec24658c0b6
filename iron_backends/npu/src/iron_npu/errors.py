"""What can be wrong with a file of an NPU's image, where the vendor's programs are asked, and of a run: there each message names what ran,
what the device said, and what to do about it."""

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


class NpuError(IronError, RuntimeError):
    """The device ended a run in a way that is no result.

    Raises:  a run that ends in ERT_CMD_STATE_ERROR
    Fix:     `dmesg | grep amdxdna` says more; the next call starts in a new hardware context
    """


class NpuMissing(BackendUnavailable):
    """No pyxrt, or no device that it opens.

    Raises:  a call with backend="npu" where pyxrt is not installed
    Fix:     install XRT and the amdxdna driver, or backend="host"
    """


class ContextRefused(NpuError):
    """The device gives no further hardware context, and this process has none left to give back.

    Raises:  a call while other processes hold every context
    Fix:     end one of them; `xrt-smi examine -r aie-partitions` lists them
    """


class ContextLost(NpuError):
    """A hardware context was gone when a run was to start, and so was the one made in its place.

    Raises:  a call while the device is reset again and again
    Fix:     `dmesg | grep amdxdna` says why; weights and states are kept, so the call may be made again
    """


class WatchdogTimeout(NpuError):
    """The driver stopped a run that took too long, or no answer came at all.

    Raises:  one dispatch of more than `tdr_timeout_ms`, which is 2000 unless the driver was told otherwise
    Fix:     fewer rows per call, or `options amdxdna tdr_timeout_ms=10000` in /etc/modprobe.d
    """


class FirmwareMismatch(NpuError):
    """The firmware aborted a run before it began.

    Raises:  a run that ends in ERT_CMD_STATE_ABORT
    Fix:     a firmware, driver and XRT of one release
    """


class DeviceLost(NpuError):
    """The device went away: unbound, reset or asleep for good.

    Raises:  a call after `rmmod amdxdna`
    Fix:     load the driver again and start the process anew; what states held is gone
    """


class UnwrittenOutput(NpuError):
    """A run ended well and left numbers of an output, as far as the call's bounds go, as nobody wrote them.

    Raises:  a run of an image whose buffers are not the ones it was built for
    Fix:     build the image again; a context that was evicted under a run leaves such outputs too
    """


class ArtifactError(IronError, ValueError):
    """What was built for a graph lacks something that its record names.

    Raises:  a table of scratchpad parameters without one of the image's words
    Fix:     empty the cache (`iron cache clean`) and build again
    """
