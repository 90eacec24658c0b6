"""What the device said, as the error that it is."""

from __future__ import annotations

import errno
import re

from iron_core.errors import LONGEST, printable
from iron_npu.errors import DeviceLost, FirmwareMismatch, NpuError, WatchdogTimeout
from iron_npu.runtime.pyxrt import UNDER_WAY

#: An errno in a message of XRT's, as "IOCTL failed (err=-22)".
_ERRNO = re.compile(r"\berr(?:no)?\s*[=:]?\s*\(?-?(\d+)")
#: The device is not there.
_GONE = (errno.ENODEV, errno.ENXIO)
#: A run cannot start, for its context is gone or not what it was.
_CONTEXT = (errno.ENOENT, errno.EINVAL, errno.ECANCELED)


def number(error: BaseException) -> int | None:
    """The errno that an exception has or tells."""
    found = getattr(error, "errno", None)
    if isinstance(found, int):
        return found
    told = _ERRNO.search(str(error))
    return int(told[1]) if told else None


def gone(error: BaseException) -> bool:
    """Does it say that there is no device any more?"""
    return number(error) in _GONE or "No such device" in str(error)


def context_gone(error: BaseException) -> bool:
    """Does it say that there is no context any more?"""
    return number(error) in _CONTEXT


def said(error: BaseException) -> str:
    """Its first line."""
    return printable((str(error).splitlines() or [type(error).__name__])[0], LONGEST)


def lost(what: str, error: BaseException) -> DeviceLost:
    return DeviceLost(
        f"{what}: the NPU is gone ({said(error)}). What states held is gone with it. See `dmesg | grep amdxdna`, load the driver "
        "again where it was unloaded, and start the process anew."
    )


def raised(what: str, error: BaseException) -> NpuError:
    """What an exception of XRT's is."""
    if isinstance(error, NpuError):
        return error
    return lost(what, error) if gone(error) else NpuError(f"{what}: XRT said {said(error)}. `dmesg | grep amdxdna` may say more.")


def ended(what: str, state: str, waited_s: float) -> NpuError:
    """A run that is not completed. state: its own, without prefix, after a wait of so many seconds."""
    if state in UNDER_WAY:
        return WatchdogTimeout(
            f"{what}: no answer from the NPU within {waited_s:g} s (the run is {state}). Raise wait_s= of the backend where it needs "
            "longer; `dmesg | grep amdxdna` says whether the device hangs."
        )
    if state == "TIMEOUT":
        return WatchdogTimeout(
            f"{what}: the driver's watchdog stopped it (ERT_CMD_STATE_TIMEOUT): the array made no progress, or one dispatch took longer "
            "than amdxdna's tdr_timeout_ms (2000 by default). Give it fewer rows per call, pass boundaries=iron.each_step, or set `options "
            "amdxdna tdr_timeout_ms=10000` in /etc/modprobe.d."
        )
    if state == "ABORT":
        return FirmwareMismatch(
            f"{what}: the firmware aborted it (ERT_CMD_STATE_ABORT), as it does where firmware, driver and XRT are not of one release. "
            "`xrt-smi examine` shows the three versions; install one release's."
        )
    return NpuError(f"{what}: it ended in ERT_CMD_STATE_{state}. `dmesg | grep amdxdna` may say more.")


