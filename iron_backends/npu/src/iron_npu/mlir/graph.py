"""A graph as one module: a device per array, whatever versions it is of, and a main device per version that configures them and runs
their sequences.

Versions of a full ELF have arrays in common, and the words of its scratchpad, of which there are so many for the whole module.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from iron_core.array.design import ArrayDesign
from iron_core.array.pools import TilePlacement
from iron_core.array.sequence import Sequence as Transfers
from iron_core.array.sequence import Word
from iron_core.devices import device
from iron_core.graph.signature import NUMBER, Signature
from iron_core.image.array_image import ArrayImage
from iron_core.image.array_step import ArrayStep
from iron_core.image.parameters import Parameter, check_count, rows
from iron_core.image.plan import Plan
from iron_npu.mlir.address_map import AddressMap, address_map, check_arguments, named
from iron_npu.mlir.device import print_device
from iron_npu.mlir.kernels import KernelObject
from iron_npu.mlir.length import PATCH, ScratchpadParameter
from iron_npu.mlir.printer import SEQUENCE, array_digest
from iron_npu.mlir.sequence import ScratchpadWords, print_sequence
from iron_npu.mlir.text import Writer, element

#: Bytes of the flat arguments.
BYTE = "i8"
#: The device that does nothing, entered last where the number of entries would be odd.
RESET = "reset"
#: The main device of the version that takes no tensor; of others their tensors follow.
MAIN = "main"
#: Characters of a version's name; a longer one ends in a digest.
_LONGEST = 48


@attrs.frozen(eq=False)
class Main:
    """A version in a module: its main device, the flat arguments its sequence takes, and how often it configures an array.

    table: (words of the module, 9) int32, how each is made of a call's values (see `iron_core.image.parameters.rows`); zeros for a word
    that the version does not have.
    """

    name: str
    addresses: AddressMap
    table: np.ndarray
    entries: int


@attrs.frozen(eq=False)
class PrintedGraph:
    """Text, what its cores link, the scratchpad's words in order, its versions, and the digest of each device's array."""

    text: str
    objects: tuple[KernelObject, ...]
    words: tuple[Parameter, ...]
    versions: tuple[Main, ...]
    arrays: tuple[tuple[str, str], ...]


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
    sequences: dict[tuple[Transfers, tuple[tuple[Word, ScratchpadParameter], ...]], str] = attrs.field(factory=dict)


def print_graph(plan: Plan, images: Sequence[ArrayImage], *, spelling: str = PATCH) -> PrintedGraph:
    """Versions of a plan for a device with a full ELF, as one module. spelling: see `iron_npu.mlir.length`.

    UnsupportedError where they need more words than a scratchpad has, arguments than a kernel takes, or a buffer starts where no shim
    does; `groups` says which versions have room in one module.
    """
    words, places = shared_words(images)
    check_count(words, device(plan.dev).scratchpad_words, plan.name)
    parts: dict[ArrayDesign, _Part] = {}
    maps = [address_map(plan, image) for image in images]
    for where in maps:
        listed = ", ".join(argument.name for argument in where.arguments)
        check_arguments(len(where.arguments), f"{plan.name} ({listed})", "fewer banks: a shorter context, smaller weights, or two graphs")
    runs = [_runs(image, held, words, parts) for image, held in zip(images, places, strict=True)]
    names = version_names([image.version.signature for image in images])
    writer = Writer()
    objects: dict[str, KernelObject] = {}
    with writer.block("module"):
        for word in words:
            writer.line(f"aiex.scratchpad_parameter @{word.symbol} : i32")
        for part in parts.values():
            for item in print_device(writer, part.array, part.name, part.placement, _sequences(part, spelling)):
                known = objects.get(item.file)
                objects[item.file] = item if known is None else known.merged(item)
        if any(image.resets for image in images):
            writer.line(f"aie.device({plan.dev}) @{RESET} {{")
            writer.line("}")
        for name, image, where, own in zip(names, images, maps, runs, strict=True):
            _main(writer, name, image, where, own)
    mains = tuple(
        Main(name, where, _table(image, held, len(words)), len(image.entries) + image.resets)
        for name, image, where, held in zip(names, images, maps, places, strict=True)
    )
    arrays = tuple((part.name, array_digest(part.array, part.placement)) for part in parts.values())
    return PrintedGraph(writer.text(), tuple(objects.values()), words, mains, arrays)


def version_names(signatures: Sequence[Signature]) -> list[str]:
    """A symbol for each version: `main` where it takes no tensor, else what it takes, as `main_ids_64_int32`."""
    return [_version_name(signature) for signature in signatures]


def _version_name(signature: Signature) -> str:
    each = (
        f"{name}{shape[0]}" if kind == NUMBER else "_".join([name, "x".join(map(str, shape))] + ([kind] if kind != "bfloat16" else []))
        for name, shape, kind in signature
    )
    name = "_".join([MAIN, *each]).replace("-", "m")
    if len(name) <= _LONGEST and name.replace("_", "a").isalnum():
        return name
    kept = "".join(c if c.isalnum() else "_" for c in name[: _LONGEST - 9])
    return f"{kept}_{hashlib.sha256(repr(signature).encode()).hexdigest()[:8]}"


# -- words -----------------------------------------------------------------------------------------------


def shared_words(images: Sequence[ArrayImage]) -> tuple[tuple[Parameter, ...], list[list[int]]]:
    """The words of all images, one for equal forms of a kind, and per image where in them its own lie. Those of the first come first."""
    words: list[Parameter] = []
    known: dict[tuple[object, ...], int] = {}
    taken: set[str] = set()
    places = []
    for image in images:
        held = []
        for word in image.parameters:
            place = known.setdefault((word.kind, word.form.key), len(words))
            if place == len(words):
                symbol, number = word.symbol, 2
                while symbol in taken:
                    number, symbol = number + 1, f"{word.symbol}_v{number}"
                taken.add(symbol)
                words.append(attrs.evolve(word, symbol=symbol, uses=()))
            held.append(place)
        places.append(held)
    return tuple(words), places


def groups(plan: Plan, images: Sequence[ArrayImage]) -> list[list[int]]:
    """Which images have room in one module each: their words together are at most a scratchpad's, and those of one that is fed come
    first, for what is left for its next call is the front of its scratchpad. Most graphs are one module."""
    most = device(plan.dev).scratchpad_words
    fed = {image.feeds for image in images if image.feeds is not None}
    order = sorted(range(len(images)), key=lambda i: images[i].version.signature not in fed)
    found: list[list[int]] = []
    for index in order:
        needs_front = images[index].version.signature in fed
        for group in found:
            words, places = shared_words([images[i] for i in (*group, index)])
            if len(words) <= most and (not needs_front or places[-1] == list(range(len(places[-1])))):
                group.append(index)
                break
        else:
            found.append([index])
    return found


def _table(image: ArrayImage, held: Sequence[int], count: int) -> np.ndarray:
    own = rows(image.parameters, [value.name for value in image.version.values])
    table = np.zeros((count, own.shape[1]), np.int32)
    table[list(held)] = own
    return table


# -- devices ---------------------------------------------------------------------------------------------


def _runs(image: ArrayImage, places: Sequence[int], words: Sequence[Parameter], parts: dict[ArrayDesign, _Part]) -> list[_Run]:
    """Each step's device and sequence; the devices are gathered in `parts`."""
    # A word's place in the scratchpad is its place among the declarations.
    held = {
        use: ScratchpadParameter(words[place].symbol, place)
        for word, place in zip(image.parameters, places, strict=True)
        for use in word.uses
    }
    runs = []
    for index, step in enumerate(image.steps):
        design, placement = step.design, step.placement
        if design.array not in parts:
            parts[design.array] = _Part(device_name(design.array, placement), design.array, placement)
        part = parts[design.array]
        given = tuple((word, held[index, word.name]) for word in design.sequence.words)
        sequence = part.sequences.setdefault((design.sequence, given), f"{SEQUENCE}{len(part.sequences)}")
        runs.append(_Run(step, part.name, sequence))
    return runs


def device_name(array: ArrayDesign, placement: TilePlacement) -> str:
    """A name that follows from what the device is, so that it is the same in every graph."""
    return f"{array.name}_{array_digest(array, placement)[:8]}"


def _sequences(part: _Part, spelling: str) -> Callable[[Writer, dict[str, str]], None]:
    def write(writer: Writer, names: dict[str, str]) -> None:
        for (sequence, given), name in part.sequences.items():
            words = ScratchpadWords(dict(given), spelling)
            print_sequence(writer, part.array, sequence, name, names, part.placement, words)

    return write


def _main(writer: Writer, name: str, image: ArrayImage, where: AddressMap, runs: list[_Run]) -> None:
    """A version's main device: one `configure` for each entry, and the empty ones behind them.

    Loads alternate between two empty images from a fixed start: an odd number would leave the next call on the wrong one.
    """
    with writer.block(f"aie.device({image.dev}) @{name}"), writer.apart():
        arguments = [writer.fresh(argument.name) for argument in where.arguments]
        kinds = [f"memref<{argument.nbytes}x{BYTE}>" for argument in where.arguments]
        taken = ", ".join(f"{argument} : {kind}" for argument, kind in zip(arguments, kinds, strict=True))
        with writer.block(f"aie.runtime_sequence @{SEQUENCE}({taken})"):
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
        with named(run.step.name, argument.operand):
            address = where.find(ref.space, ref.index, ref.offset)
        kind = f"memref<{argument.elements}x{element(argument.dtype_name)}>"
        shift = writer.constant(address.offset, "index")
        source = f"{arguments[address.argument]}[{shift}][] : {kinds[address.argument]} to {kind}"
        views.append(writer.once(argument.operand, f"memref.view {source}"))
        types.append(kind)
    writer.line(f"aiex.run @{run.sequence}({', '.join(views)}) : ({', '.join(types)})")
