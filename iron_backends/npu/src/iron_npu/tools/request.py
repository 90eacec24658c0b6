"""What can be asked of a build, and what it gives: a binary of an image's modules, to files."""

from __future__ import annotations

from pathlib import Path

import attrs

from iron_core.errors import CallError
from iron_npu.image.image import Binary, Entry, Image, Module

ELF, XCLBIN = "elf", "xclbin"


@attrs.frozen(eq=False)
class Request:
    """One file to build for a device. format: "elf" (a full ELF of one module) or "xclbin". links: each module with the name of its
    kernel; those of an xclbin are linked one after the other. CallError for none, or another format."""

    name: str
    dev: str
    format: str
    links: tuple[tuple[Module, Entry], ...]

    def __attrs_post_init__(self) -> None:
        if self.format not in (ELF, XCLBIN):
            raise CallError(f"{self.name}: format {self.format!r}; legal: {ELF}, {XCLBIN}.")
        if not self.links or (self.format == ELF and len(self.links) > 1):
            legal = "1" if self.format == ELF else "at least 1"
            raise CallError(f"{self.name}: {len(self.links)} modules for one {self.format}; legal: {legal}.")

    @property
    def modules(self) -> tuple[Module, ...]:
        return tuple(module for module, _ in self.links)


def requests(image: Image) -> tuple[Request, ...]:
    """Everything that an image is built of, a request for each of its binaries."""
    return tuple(_request(image, binary) for binary in image.binaries)


def _request(image: Image, binary: Binary) -> Request:
    entries = binary.kernels[:1] if binary.format == ELF else binary.kernels  # an ELF's are versions of one module
    return Request(binary.name, image.dev, binary.format, tuple((image.modules[entry.module], entry) for entry in entries))


@attrs.frozen
class Stream:
    """The instructions of one sequence, or where `dynamic` the C++ that makes those of all its module's for a call.

    kernel: the number of its module in the request, and of the kernel in an image's binary.
    """

    kernel: int
    sequence: str
    path: Path
    dynamic: bool = False


@attrs.frozen
class Built:
    """What a request became: files of one entry of the cache, which must not be changed.

    file: the ELF or xclbin. streams: of an xclbin, in the order of kernels and of their sequences. parameters: of an ELF, the table of
    its scratchpad's words (a line with their number, then "name index type kind" of each); None where it has none. Bytes of the cores'
    programs: see `iron_npu.tools.program_size.program_sizes`.
    """

    folder: Path
    file: Path
    streams: tuple[Stream, ...] = ()
    parameters: Path | None = None

    def stream(self, kernel: int, sequence: str) -> Stream:
        """That of a kernel's sequence. CallError where there is none."""
        for one in self.streams:
            if (one.kernel, one.sequence) == (kernel, sequence):
                return one
        known = ", ".join(f"{one.sequence} of kernel {one.kernel}" for one in self.streams) or "none"
        raise CallError(f"no stream {sequence} of kernel {kernel} was built; there are {known}.")
