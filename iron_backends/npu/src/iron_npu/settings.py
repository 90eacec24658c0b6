"""What may be set of the NPU backend: one object, a field for each environment variable that iron_npu reads.

What the program gives comes first, then the environment, then the default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import attrs

from iron_core.errors import UsageError, printable


def _text(name: str, given: str) -> str:
    return given


def _folder(name: str, given: str) -> Path:
    """An absolute path; it is looked at where it is used."""
    try:
        return Path(os.path.abspath(Path(given).expanduser()))
    except RuntimeError:
        raise UsageError(f"{name}={printable(given)}: there is no such user here.") from None


def _count(name: str, given: str) -> int:
    if not (given.isascii() and given.isdigit()) or int(given) < 1:
        raise UsageError(f"{name}={printable(given)}; legal: a number, at least 1.")
    return int(given)


def _seconds(name: str, given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"{name}={printable(given)}; legal: seconds, as in 600; 0 for no limit.")
    return seconds


def _of(variable: str, says: str, read: Callable[[str, str], Any]) -> dict[str, Any]:
    return {"variable": variable, "says": says, "read": read}


@attrs.frozen(kw_only=True)
class Settings:
    """What an object of this class does not say is looked for where it usually is. `Settings()` has the defaults; see `read`."""

    path: str = attrs.field(default=os.defpath, metadata=_of("PATH", "folders that programs are looked for in", _text))
    cache_home: Path | None = attrs.field(default=None, metadata=_of("NPU_CACHE_HOME", "the folder of the cache", _folder))
    mlir_aie: Path | None = attrs.field(default=None, metadata=_of("MLIR_AIE_INSTALL_DIR", "mlir-aie's folder, `bin/aiecc` in it", _folder))
    peano: Path | None = attrs.field(default=None, metadata=_of("PEANO_INSTALL_DIR", "Peano's folder, `bin/clang++` in it", _folder))
    xclbinutil: Path | None = attrs.field(default=None, metadata=_of("AIE_XCLBINUTIL", "the program `xclbinutil`", _folder))
    xrt: Path | None = attrs.field(default=None, metadata=_of("XILINX_XRT", "XRT's folder, `bin` and `python` in it", _folder))
    cxx: str = attrs.field(default="", metadata=_of("CXX", "this machine's C++ compiler", _text))
    kernel_sources: Path | None = attrs.field(
        default=None, metadata=_of("MLIR_AIE_KERNEL_SOURCES", "kernels' sources that mlir-aie takes instead of its own", _folder)
    )
    contexts: int | None = attrs.field(default=None, metadata=_of("XRT_CONTEXT_CACHE_SIZE", "hardware contexts kept open at once", _count))
    threads: int | None = attrs.field(default=None, metadata=_of("AIECC_JOBS", "threads of one `aiecc`", _count))
    jobs: int | None = attrs.field(default=None, metadata=_of("IRON_NPU_JOBS", "programs of a build that run at once", _count))
    seconds: float = attrs.field(
        default=3600.0, metadata=_of("IRON_NPU_SECONDS", "the longest that a program of a build may take; 0: any time", _seconds)
    )
    keep: Path | None = attrs.field(
        default=None, metadata=_of("IRON_NPU_KEEP", "a folder that what a build works on is kept in, with its logs", _folder)
    )

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Those of the environment (this process's own), with what is `given` before it. UsageError for a value that is none."""
        where = os.environ if environment is None else environment
        found = {}
        for field in settings():
            text = where.get(field.metadata["variable"], "").strip()
            if text and field.name not in given:
                found[field.name] = field.metadata["read"](field.metadata["variable"], text)
        return cls(**found, **given)


def settings() -> Iterator[Any]:
    """The fields of `Settings`; the metadata of each has its `variable` and what that `says`."""
    yield from attrs.fields(Settings)


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return str(getattr(attrs.fields(Settings), name).metadata["variable"])
