"""A whole graph as one module: a device per array, and a main device that configures them and runs their sequences."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import attrs
import numpy as np

from iron_core.array.design import ArrayDesign
from iron_core.array.pools import TilePlacement
from iron_core.array.sequence import Sequence, Word
from iron_core.errors import UnsupportedError
from iron_core.graph.signature import Signature
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.array_step import ArrayStep
from iron_core.image.feedback import Program
from iron_core.image.gathers import ControlTensors
from iron_core.image.packs import Pack
from iron_core.image.parameters import Parameter, rows
from iron_core.image.plan import Plan
from iron_npu.mlir.address_map import AddressMap, address_map
from iron_npu.mlir.device import print_device
from iron_npu.mlir.kernels import KernelObject
from iron_npu.mlir.length import PATCH, ScratchpadParameter
from iron_npu.mlir.printer import print_array
from iron_npu.mlir.sequence import ScratchpadWords, print_sequence
from iron_npu.mlir.text import Writer, element

#: Bytes of the flat arguments.
BYTE = "i8"
#: The device that does nothing, entered last where the number of entries would be odd.
RESET = "reset"
MAIN = "main"


@attrs.frozen(eq=False)
class Fused:
    """Text, what its cores link, the flat arguments, the scratchpad's words, and how often the array is configured.

    program: (words, 9) int32, how each word is made of a call's values (see `iron_core.image.parameters.rows`). tensors, feedback:
    what the host writes beside a plan's buffers: see `ControlTensors`, and the rows of `iron_core.image.feedback.next_words`.
    """

    text: str
    objects: tuple[KernelObject, ...]
    addresses: AddressMap
    words: tuple[Parameter, ...]
    program: np.ndarray
    entries: int
    tensors: ControlTensors
    feedback: Program | None


@attrs.frozen(eq=False)
class _Run:
    """One step: the sequence it runs on its array's device."""

    step: ArrayStep
    device: str
    sequence: str


@attrs.define(eq=False)
class _Part:
    """An array's device and the sequences it holds: (sequence, each word's parameter) -> name."""

    name: str
    array: ArrayDesign
    placement: TilePlacement
    sequences: dict[tuple[Sequence, tuple[tuple[Word, ScratchpadParameter], ...]], str] = attrs.field(factory=dict)


def print_version(plan: Plan, signature: Signature, *, spelling: str = PATCH, coresident: Iterable[Pack] = ()) -> Fused:
    """One version of a plan for a device with a full ELF. spelling: of lengths set per call; see `iron_npu.mlir.length`. coresident: arrays
    that share a device, see `iron_core.image.packs`.

    CallError for a spelling that there is not, UnsupportedError for a device without full ELFs.
    """
    image = array_image(plan, signature, coresident)
    if not image.elf:
        chain = "a chain of dispatches; print its designs one by one"
        is_what = "an xclbin per array; print_contexts() prints them" if image.contexts else chain
        raise UnsupportedError(f"{plan.name} on {image.dev} is no full ELF but {is_what}.")
    where = address_map(plan, image)
    parts: dict[ArrayDesign, _Part] = {}
    runs = _runs(image, parts)
    writer = Writer()
    objects: dict[str, KernelObject] = {}
    with writer.block("module"):
        for word in image.parameters:
            writer.line(f"aiex.scratchpad_parameter @{word.symbol} : i32")
        for part in parts.values():
            for item in print_device(writer, part.array, part.name, part.placement, _sequences(part, spelling)):
                known = objects.get(item.file)
                objects[item.file] = item if known is None else known.merged(item)
        _main(writer, image, where, runs)
    entries = len(image.entries) + image.resets
    table = rows(image.parameters, [value.name for value in image.version.values])
    return Fused(writer.text(), tuple(objects.values()), where, image.parameters, table, entries, image.tensors, image.program)


def _runs(image: ArrayImage, parts: dict[ArrayDesign, _Part]) -> list[_Run]:
    """Each step's device and sequence; the devices are gathered in `parts`."""
    # A word's place in the scratchpad is its place among the declarations.
    held = {use: ScratchpadParameter(word.symbol, n) for n, word in enumerate(image.parameters) for use in word.uses}
    runs = []
    for index, step in enumerate(image.steps):
        design, placement = step.design, step.placement
        if design.array not in parts:
            parts[design.array] = _Part(device_name(design.array, placement), design.array, placement)
        part = parts[design.array]
        given = tuple((word, held[index, word.name]) for word in design.sequence.words)
        sequence = part.sequences.setdefault((design.sequence, given), f"sequence{len(part.sequences)}")
        runs.append(_Run(step, part.name, sequence))
    return runs


def device_name(array: ArrayDesign, placement: TilePlacement) -> str:
    """A name that follows from what the device is, so that it is the same in every graph."""
    digest = hashlib.sha256(print_array(array, placement=placement).encode()).hexdigest()[:8]
    return f"{array.name}_{digest}"


def _sequences(part: _Part, spelling: str) -> Callable[[Writer, dict[str, str]], None]:
    def write(writer: Writer, names: dict[str, str]) -> None:
        for (sequence, given), name in part.sequences.items():
            words = ScratchpadWords(dict(given), spelling)
            print_sequence(writer, part.array, sequence, name, names, part.placement, words)

    return write


def _main(writer: Writer, image: ArrayImage, where: AddressMap, runs: list[_Run]) -> None:
    """The main device: one `configure` for each entry, and the empty ones behind them.

    Loads alternate between two empty images from a fixed start: an odd number would leave the next call on the wrong one.
    """
    if image.resets:
        writer.line(f"aie.device({image.dev}) @{RESET} {{")
        writer.line("}")
    with writer.block(f"aie.device({image.dev}) @{MAIN}"), writer.apart():
        arguments = [writer.fresh(argument.name) for argument in where.arguments]
        kinds = [f"memref<{argument.nbytes}x{BYTE}>" for argument in where.arguments]
        taken = ", ".join(f"{name} : {kind}" for name, kind in zip(arguments, kinds, strict=True))
        with writer.block(f"aie.runtime_sequence @sequence({taken})"):
            for entry in image.entries:
                with writer.block(f"aiex.configure @{runs[entry[0]].device}"):
                    for index in entry:
                        _call(writer, runs[index], where, arguments, kinds)
            for _ in range(image.resets):
                writer.line(f"aiex.configure @{RESET} {{")
                writer.line("}")


def _call(writer: Writer, run: _Run, where: AddressMap, arguments: list[str], kinds: list[str]) -> None:
    views, types = [], []
    for argument in run.step.design.sequence.arguments:
        ref = run.step.operands[argument.operand]
        address = where.find(ref.space, ref.index, ref.offset)
        kind = f"memref<{argument.elements}x{element(argument.dtype_name)}>"
        shift = writer.constant(address.offset, "index")
        source = f"{arguments[address.argument]}[{shift}][] : {kinds[address.argument]} to {kind}"
        views.append(writer.once(argument.operand, f"memref.view {source}"))
        types.append(kind)
    writer.line(f"aiex.run @{run.sequence}({', '.join(views)}) : ({', '.join(types)})")
