"""A whole graph as one module: a device per array, and a main device that configures them and runs their sequences."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import attrs

from iron_core.array.build import build
from iron_core.array.design import ArrayDesign, Design
from iron_core.array.sequence import Sequence, Word
from iron_core.devices import device
from iron_core.errors import UnsupportedError
from iron_core.image.parameters import Parameter as Shared
from iron_core.image.parameters import check_count, parameters
from iron_core.image.plan import Plan, PlanStep, VersionPlan
from iron_npu.device import print_device
from iron_npu.kernels import KernelObject
from iron_npu.layout import Layout, layout
from iron_npu.length import PATCH, Parameter
from iron_npu.printer import placed, print_array
from iron_npu.sequence import Scratchpad, print_sequence
from iron_npu.text import Writer, element

#: Bytes of the flat arguments.
BYTE = "i8"
#: The device that does nothing, entered last where the number of entries would be odd.
RESET = "reset"
MAIN = "main"

Placer = Callable[[ArrayDesign], Mapping[str, tuple[int, int]]]


@attrs.frozen(eq=False)
class Fused:
    """Text, what its cores link, the flat arguments, the scratchpad's words, and how often the array is configured.

    controls: (step, operand) of each tensor of control words, in the order of their space.
    """

    text: str
    objects: tuple[KernelObject, ...]
    layout: Layout
    words: tuple[Shared, ...]
    entries: int
    controls: tuple[tuple[int, str], ...] = ()


@attrs.frozen(eq=False)
class _Run:
    """One step: the sequence it runs on its array's device. packets: operands whose control words the host makes."""

    step: PlanStep
    design: Design
    device: str
    sequence: str
    packets: dict[str, int]


@attrs.define(eq=False)
class _Part:
    """An array's device and the sequences it holds: (sequence, each word's parameter) -> name."""

    array: ArrayDesign
    placement: Mapping[str, tuple[int, int]]
    sequences: dict[tuple[Sequence, tuple[tuple[Word, Parameter], ...]], str] = attrs.field(factory=dict)


def print_version(plan: Plan, version: VersionPlan, *, spelling: str = PATCH, placer: Placer = placed) -> Fused:
    """One version of a plan for a device with a full ELF. `placer` gives the (column, row) of an array's tiles."""
    dev = device(plan.dev)
    if not dev.full_elf:
        raise UnsupportedError(f"{dev} has no full ELF; print its steps one by one.")
    designs = [build(step.op, dev, (binding.member for binding in step.bindings)) for step in version.steps]
    controls = tuple((i, port) for i, d in enumerate(designs) for port in d.sequence.ports if port.control is not None)
    where = layout(plan, version, [4 * port.elements for _, port in controls])
    words = parameters(version.steps, designs)
    check_count(words, dev.scratchpad_words, plan.name)
    # A word's place in the scratchpad is its place among the declarations.
    held = {use: Parameter(word.symbol, index) for index, word in enumerate(words) for use in word.uses}
    parts: dict[str, _Part] = {}
    runs = []
    for index, (step, design) in enumerate(zip(version.steps, designs, strict=True)):
        given = tuple((word, held[index, word.name]) for word in design.sequence.words)
        packets = {port.operand: k for k, (at, port) in enumerate(controls) if at == index}
        runs.append(_run(step, design, given, packets, parts, placer))
    writer = Writer()
    objects: dict[str, KernelObject] = {}
    with writer.block("module"):
        for word in words:
            writer.line(f"aiex.scratchpad_parameter @{word.symbol} : i32")
        for name, part in parts.items():
            for item in print_device(writer, part.array, name, part.placement, _sequences(part, spelling)):
                _add(objects, item)
        entries = _main(writer, plan.dev, where, runs)
    return Fused(writer.text(), tuple(objects.values()), where, words, entries, tuple((i, port.operand) for i, port in controls))


def _run(
    step: PlanStep,
    design: Design,
    given: tuple[tuple[Word, Parameter], ...],
    packets: dict[str, int],
    parts: dict[str, _Part],
    placer: Placer,
) -> _Run:
    """Note a step's array and sequence, and name them."""
    placement = placer(design.array)
    name = device_name(design.array, placement)
    part = parts.setdefault(name, _Part(design.array, placement))
    sequence = part.sequences.setdefault((design.sequence, given), f"sequence{len(part.sequences)}")
    return _Run(step, design, name, sequence, packets)


def device_name(array: ArrayDesign, placement: Mapping[str, tuple[int, int]]) -> str:
    """A name that follows from what the device is, so that it is the same in every graph."""
    digest = hashlib.sha256(print_array(array, placement=placement).encode()).hexdigest()[:8]
    return f"{array.name}_{digest}"


def _sequences(part: _Part, spelling: str) -> Callable[[Writer, dict[str, str]], None]:
    def write(writer: Writer, names: dict[str, str]) -> None:
        for (sequence, given), name in part.sequences.items():
            words = Scratchpad(dict(given), spelling)
            print_sequence(writer, part.array, sequence, name, names, part.placement, words)

    return write


def _main(writer: Writer, dev: str, where: Layout, runs: list[_Run]) -> int:
    """The main device. One `configure` for each group of consecutive steps on one device; returns how many there are."""
    groups: list[tuple[str, list[_Run]]] = []
    for run in runs:
        if not groups or groups[-1][0] != run.device:
            groups.append((run.device, []))
        groups[-1][1].append(run)
    # Every load alternates between two empty images from a fixed start: an odd number would leave the next call on the wrong one.
    entries = len(groups) + len(groups) % 2
    if len(groups) % 2:
        writer.line(f"aie.device({dev}) @{RESET} {{")
        writer.line("}")
    with writer.block(f"aie.device({dev}) @{MAIN}"), writer.apart():
        arguments = [writer.fresh(argument.name) for argument in where.arguments]
        kinds = [f"memref<{argument.nbytes}x{BYTE}>" for argument in where.arguments]
        taken = ", ".join(f"{name} : {kind}" for name, kind in zip(arguments, kinds, strict=True))
        with writer.block(f"aie.runtime_sequence @sequence({taken})"):
            for name, group in groups:
                with writer.block(f"aiex.configure @{name}"):
                    for run in group:
                        _call(writer, run, where, arguments, kinds)
            if len(groups) % 2:
                writer.line(f"aiex.configure @{RESET} {{")
                writer.line("}")
    return entries


def _call(writer: Writer, run: _Run, where: Layout, arguments: list[str], kinds: list[str]) -> None:
    views, types = [], []
    for port in run.design.sequence.ports:
        if port.operand in run.packets:
            spot = where.find("control", run.packets[port.operand])
        else:
            ref = run.step.operands[port.operand]
            spot = where.find(ref.space, ref.index, ref.offset)
        kind = f"memref<{port.elements}x{element(port.dtype_name)}>"
        shift = writer.constant(spot.offset, "index")
        source = f"{arguments[spot.argument]}[{shift}][] : {kinds[spot.argument]} to {kind}"
        views.append(writer.once(port.operand, f"memref.view {source}"))
        types.append(kind)
    writer.line(f"aiex.run @{run.sequence}({', '.join(views)}) : ({', '.join(types)})")


def _add(objects: dict[str, KernelObject], item: KernelObject) -> None:
    known = objects.get(item.file)
    objects[item.file] = item if known is None else known.merged(item)
