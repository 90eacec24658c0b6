"""The image of a graph on an NPU, as data: modules of MLIR text, the binaries that are built of them, and what a call of each version
dispatches. It holds no operator and no weight, and pickles.

Three kinds, as the packaging has it (`iron_core.image.packaging`):

* "elf": a binary is a full ELF of one module, and each of its kernels a version, `main:sequence`, which one dispatch runs.
* "xclbin": a binary is a chain, linked module by module (one of each design), each a kernel. Every step is a dispatch.
* "contexts": a binary is an xclbin of one module (one of each array), loaded once in a hardware context of its own. Every step is a
  dispatch; it says which of the module's sequences.

Whatever the kind, a version's memory is flat regions (`VersionImage.regions`) in which each buffer has a place. Residents are at the
same bytes in every version.
"""

from __future__ import annotations

import pickle
from typing import Any

import attrs

from iron_core.declare.row import Row
from iron_core.graph.signature import Signature
from iron_core.image.feedback import Program
from iron_core.image.gathers import Control, ControlTensors
from iron_core.image.parameters import Parameter
from iron_core.image.plan import BufferRef, Resident, VersionPlan
from iron_core.image.reader import read
from iron_npu.mlir.address_map import AddressMap
from iron_npu.mlir.kernels import KernelObject

#: Tensors of an xclbin's run that the firmware moves into the NPU's window of memory.
APERTURE = 5


@attrs.frozen(eq=False)
class Module:
    """One module of text. name: its file's, without an ending; it follows from what the module is. device: the one whose sequences
    become streams; "" of a full ELF, all of whose devices are built. sequences: their names, in order.

    dynamic: a sequence takes scalars, so its stream is built anew for each call (`aie-translate --aie-npu-to-cpp`). objects: what its
    cores link. arrays: by the name of a device with cores, the digest of its array (`iron_npu.mlir.printer.array_digest`).
    """

    name: str
    text: str
    objects: tuple[KernelObject, ...]
    device: str
    sequences: tuple[str, ...]
    dynamic: bool = False
    arrays: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class Entry:
    """What a binary is entered by. module: the number of the module it is built of.

    name: for pyxrt; of a full ELF `device:sequence`. id, instance: of an xclbin's kernel, which the tools are told; 0 and "" of an ELF's.
    """

    module: int
    name: str
    id: int = 0
    instance: str = ""


@attrs.frozen
class Binary:
    """A file that the tools build. format: "elf" or "xclbin". An xclbin's kernels are linked in this order, each onto what those before
    it made (`--xclbin-input`)."""

    name: str
    format: str
    kernels: tuple[Entry, ...]


@attrs.frozen
class Place:
    """Bytes of a version's region of this number."""

    region: int
    offset: int
    nbytes: int


@attrs.frozen(eq=False)
class Dispatch:
    """One run of a kernel. step: what messages call it; of a full ELF the version's name. sequence: of its module.

    buffers: the kernel's tensors, in order. words: the scalars behind them, each a number of the version's words; none of a full ELF,
    whose words are in its scratchpad. control: tensors that the host makes of ids just before, by their positions (see
    `iron_core.array.gather.Gather`): it hands over those words in place of the ids, which are at the buffer's place.
    """

    step: str
    binary: int
    kernel: int
    sequence: str
    buffers: tuple[Place, ...]
    words: tuple[int, ...] = ()
    control: tuple[tuple[int, Control], ...] = ()

    @property
    def beyond(self) -> tuple[int, ...]:
        """Positions of tensors whose addresses the firmware does not move into the NPU's window of memory, as it does the first
        `APERTURE` of an xclbin's run: the stream does (`--fold-ddr-addr-offset`, mlir-aie's default for a static stream)."""
        return tuple(range(APERTURE, len(self.buffers)))


@attrs.frozen(eq=False)
class VersionImage:
    """What a call of one version needs. version: its ports, values, carried values and checks, without steps.

    name: in messages and, of a full ELF, of its main device. addresses: its regions, and where in them a plan's buffers are. words: the
    numbers that a call makes of its values, `table` how, a `Row` of int32 each, of the values in the version's order. Of a full
    ELF they are its module's scratchpad, in order, and rows of words that other versions have are zeros.
    tensors: what the host writes beside a plan's buffers. program: rows that the host writes once, by which the last step makes
    the words and carried values of the next call, which is of the version `feeds`; None: the host makes them.
    entries: how often a full ELF configures an array.
    """

    version: VersionPlan
    name: str
    addresses: AddressMap
    words: tuple[Parameter, ...]
    table: Program
    dispatches: tuple[Dispatch, ...]
    tensors: ControlTensors = ControlTensors()  # noqa: RUF009 (frozen)
    program: Program | None = None
    feeds: Signature | None = None
    entries: int = 0

    @property
    def signature(self) -> Signature:
        return self.version.signature

    @property
    def regions(self) -> tuple[tuple[str, int], ...]:
        """Name and bytes of each region, by which places count."""
        return tuple((argument.name, argument.nbytes) for argument in self.addresses.arguments)

    def place(self, ref: BufferRef) -> Place:
        """Where a buffer is. UnsupportedError where no transfer can start there."""
        return place(self.addresses, ref)


@attrs.frozen(eq=False)
class Image:
    """Everything of a graph on a device: all its versions together. kind: "elf", "xclbin" or "contexts". residents: weights and
    states with their places, without data; `banks`, `resident_banks` as in `iron_core.image.plan.Plan`."""

    graph: str
    dev: str
    kind: str
    modules: tuple[Module, ...]
    binaries: tuple[Binary, ...]
    versions: tuple[VersionImage, ...]
    residents: tuple[Resident, ...]
    banks: tuple[int, ...]
    resident_banks: tuple[int, ...]

    def version(self, signature: Signature) -> VersionImage:
        """KeyError for one that it does not hold."""
        for version in self.versions:
            if version.signature == signature:
                return version
        raise KeyError(signature)

    def record(self) -> dict[str, Any]:
        """The image without its texts, as plain data that can be written as JSON."""
        return {
            "graph": self.graph,
            "dev": self.dev,
            "kind": self.kind,
            "modules": [_module(module) for module in self.modules],
            "kernels": _kernels(self.modules),
            "binaries": [
                {
                    "file": f"{binary.name}.{binary.format}",
                    "kernels": [attrs.asdict(k) | {"module": self.modules[k.module].name} for k in binary.kernels],
                }
                for binary in self.binaries
            ],
            "versions": [self._version(version) for version in self.versions],
            "banks": list(self.banks),
            "resident_banks": list(self.resident_banks),
            "residents": {r.name: [r.spot.bank, r.spot.offset, r.nbytes] for r in self.residents if r.spot is not None},
        }

    def _version(self, version: VersionImage) -> dict[str, Any]:
        return {
            "name": version.name,
            "signature": [[name, list(shape), kind] for name, shape, kind in version.signature],
            "regions": [list(region) for region in version.regions],
            "words": [
                {"symbol": word.symbol, "kind": word.kind, "row": dict(zip(Row._fields, row, strict=True))}
                for word, row in zip(version.words, version.table, strict=True)
            ],
            "values": [value.name for value in version.version.values],
            "program": None if version.program is None else [list(row) for row in version.program],
            "feeds": None if version.feeds is None else self.version(version.feeds).name,
            "entries": version.entries,
            "steps": [
                {
                    "step": one.step,
                    "binary": one.binary,
                    "kernel": self.binaries[one.binary].kernels[one.kernel].name,
                    "sequence": one.sequence,
                    "buffers": [list(attrs.astuple(buffer)) for buffer in one.buffers],
                    "words": list(one.words),
                    "control": [position for position, _ in one.control],
                }
                for one in version.dispatches
            ],
        }


def _module(module: Module) -> dict[str, Any]:
    objects = [
        {"file": one.file, "kernels": [kernel.symbol for kernel in one.kernels], "functions": list(one.functions)}
        for one in module.objects
    ]
    return {
        "file": f"{module.name}.mlir",
        "device": module.device,
        "sequences": list(module.sequences),
        "dynamic": module.dynamic,
        "objects": objects,
    }


def _kernels(modules: tuple[Module, ...]) -> dict[str, Any]:
    """What the modules' objects are built of, by symbol: mlir-aie's factory with its keywords, or C++ with its macros."""
    found = {kernel.symbol: kernel for module in modules for one in module.objects for kernel in one.kernels}
    return {
        symbol: {"factory": kernel.factory, "keywords": {name: str(given) for name, given in kernel.keywords}}
        if kernel.factory
        else {"source": kernel.source, "defines": dict(kernel.defines)}
        for symbol, kernel in sorted(found.items())
    }


def place(addresses: AddressMap, ref: BufferRef) -> Place:
    """Where a buffer is in the regions of a map. UnsupportedError where no transfer can start there."""
    found = addresses.find(ref.space, ref.index, ref.offset)
    return Place(found.argument, found.offset, ref.nbytes)


def freeze(image: Image) -> bytes:
    """The image as bytes, for the cache or another machine."""
    return pickle.dumps(image, protocol=5)


def thaw(content: bytes) -> Image | None:
    """The image that was frozen; None where the bytes hold none. Nothing in them is run."""
    image: Image | None = read(content, Image)
    return image
