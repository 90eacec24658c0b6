"""What can be asked of a build, and what it gives: text of modules and the objects their cores link, to files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from iron_core.array.kernel import Kernel
from iron_core.errors import CallError
from iron_npu.mlir.kernels import KernelObject

#: Designs that one xclbin may hold: the kernels that a hardware context takes.
CHAIN = 32


@attrs.frozen(eq=False)
class Module:
    """A module that was printed. name: for messages, and of one in a chain what its streams are found by. objects: what its cores link.

    device, sequences: symbols in the text, as what is built of them is named by. dynamic: its sequences take scalars, so that each
    becomes C++ that makes a stream for a call, instead of a stream. kernels: by symbol the kernels as they are declared, where they
    are at hand: mlir-aie's are then compared with these in full.
    """

    name: str
    text: str
    objects: tuple[KernelObject, ...] = ()
    device: str = "main"
    sequences: tuple[str, ...] = ("sequence",)
    dynamic: bool = False
    kernels: Mapping[str, Kernel] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class FullElf:
    """One ELF of a module with all its devices; npu2's. Its kernel is "<device>:<sequence>"."""

    module: Module
    dev: str

    @property
    def modules(self) -> tuple[Module, ...]:
        return (self.module,)


@attrs.frozen(eq=False)
class OneXclbin:
    """An xclbin of a module's device, and a stream of instructions for each of its sequences."""

    module: Module
    dev: str

    @property
    def modules(self) -> tuple[Module, ...]:
        return (self.module,)


@attrs.frozen(eq=False)
class XclbinChain:
    """One xclbin that holds a kernel for each of its modules, up to `CHAIN`, and their streams. CallError for none, or more."""

    modules: tuple[Module, ...]
    dev: str

    def __attrs_post_init__(self) -> None:
        if not 1 <= len(self.modules) <= CHAIN:
            raise CallError(f"a chain of {len(self.modules)} designs; legal: 1 to {CHAIN}, the kernels of one hardware context.")


#: What a build takes.
Request = FullElf | OneXclbin | XclbinChain


@attrs.frozen
class Stream:
    """One sequence of a module, by their names: the instructions, or where `dynamic` the C++ that makes them for a call.

    kernel: what the module's kernel is called in the xclbin.
    """

    module: str
    sequence: str
    kernel: str
    path: Path
    dynamic: bool = False


@attrs.frozen
class Built:
    """What a request became: files of one entry of the cache, which must not be changed.

    image: the ELF or xclbin. streams: of an xclbin, in the order of modules and of their sequences. parameters: of an ELF, the table
    of scratchpad words (a line with their number, then "name index kind" of each); None where it has none. Bytes of the cores'
    programs: see `iron_npu.tools.program_size.program_sizes`.
    """

    folder: Path
    image: Path
    streams: tuple[Stream, ...] = ()
    parameters: Path | None = None

    def stream(self, module: str, sequence: str = "sequence") -> Stream:
        """That of a module's sequence. CallError where there is none."""
        for one in self.streams:
            if (one.module, one.sequence) == (module, sequence):
                return one
        known = ", ".join(f"{one.module}:{one.sequence}" for one in self.streams) or "none"
        raise CallError(f"no stream {module}:{sequence} was built; there are {known}.")
