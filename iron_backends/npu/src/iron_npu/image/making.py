"""From a plan to its image: every version's arrays, printed and put together as the packaging says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from iron_core.backends.pricing import Pricing
from iron_core.graph.signature import Signature
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.array_step import ArrayStep
from iron_core.image.feedback import Program
from iron_core.image.gathers import Control
from iron_core.image.packaging import CONTEXTS, ELF, XCLBIN
from iron_core.image.parameters import rows
from iron_core.image.plan import Plan
from iron_npu.image.core_memory import Linked, check_images
from iron_npu.image.image import Binary, Dispatch, Entry, Image, Module, Place, VersionImage, place
from iron_npu.image.watchdog import check_time
from iron_npu.mlir.address_map import AddressMap, address_map, check_arguments, named
from iron_npu.mlir.chain import FIRST_ID, kernel_name, print_chain
from iron_npu.mlir.contexts import contexts_of
from iron_npu.mlir.graph import groups, print_graph, version_names
from iron_npu.mlir.length import PATCH
from iron_npu.mlir.printer import SEQUENCE


def image_of(
    plan: Plan,
    images: Mapping[Signature, ArrayImage] | None = None,
    *,
    spelling: str = PATCH,
    pricing: Pricing | None = None,
    linked: Linked | None = None,
) -> Image:
    """All versions of a plan for an NPU as one image. images: what is made of each already, where that is (as with packs).

    spelling: of lengths set per call on a full ELF, see `iron_npu.mlir.length`. pricing: who says what a call takes. linked: who knows
    how large cores' programs were when aiecc linked them; without, all are estimated. UnsupportedError where a step has no array, the whole
    has no room (words, arguments of a kernel, contexts, memory of a core), or a run is estimated past the driver's watchdog.
    """
    made = [(images or {}).get(version.signature) or array_image(plan, version.signature) for version in plan.versions]
    check_images(made, linked)
    if pricing is not None:
        for image in made:
            check_time(plan.name, image, pricing)
    kind = plan.packaging.image
    build = {ELF: lambda: _elf(plan, made, spelling), XCLBIN: lambda: _chain(plan, made), CONTEXTS: lambda: _contexts(plan, made)}[kind]
    modules, binaries, versions = build()
    residents = tuple(attrs.evolve(resident, data=None, key=None) for resident in plan.residents)
    return Image(plan.name, plan.dev, kind, modules, binaries, versions, residents, plan.banks, plan.resident_banks)


Parts = tuple[tuple[Module, ...], tuple[Binary, ...], tuple[VersionImage, ...]]


def _elf(plan: Plan, images: Sequence[ArrayImage], spelling: str) -> Parts:
    """One module for all versions, or for as many as have room in one."""
    modules: list[Module] = []
    binaries: list[Binary] = []
    versions: dict[int, VersionImage] = {}
    for number, group in enumerate(groups(plan, images)):
        printed = print_graph(plan, [images[i] for i in group], spelling=spelling)
        name = plan.name if number == 0 else f"{plan.name}_{number}"
        names = tuple(main.name for main in printed.versions)
        modules.append(Module(name, printed.text, printed.objects, "", names, arrays=printed.arrays))
        binaries.append(Binary(name, "elf", tuple(Entry(number, f"{main.name}:{SEQUENCE}") for main in printed.versions)))
        for kernel, (index, main) in enumerate(zip(group, printed.versions, strict=True)):
            image = images[index]
            arguments = tuple(Place(i, 0, argument.nbytes) for i, argument in enumerate(main.addresses.arguments))
            run = Dispatch(main.name, number, kernel, SEQUENCE, arguments)
            versions[index] = VersionImage(
                image.version, main.name, main.addresses, printed.words, _rows(main.table), (run,),
                image.tensors, image.program, image.feeds, main.entries,
            )  # fmt: skip
    return tuple(modules), tuple(binaries), tuple(versions[index] for index in range(len(images)))


def _chain(plan: Plan, images: Sequence[ArrayImage]) -> Parts:
    chain = print_chain(plan, images)
    modules = tuple(
        Module(link.name, link.printed.text, link.printed.objects, "main", (SEQUENCE,), link.printed.dynamic, (("main", link.array),))
        for link in chain.links
    )
    binaries: list[Binary] = []
    where: list[tuple[int, int]] = []
    for number, link in enumerate(chain.links):
        if link.xclbin == len(binaries):
            binaries.append(Binary(f"{plan.name}_{link.xclbin}", "xclbin", ()))
        known = binaries[link.xclbin]
        where.append((link.xclbin, len(known.kernels)))
        binaries[link.xclbin] = attrs.evolve(known, kernels=(*known.kernels, Entry(number, link.name, link.id, link.name)))
    runs = [[(*where[link], SEQUENCE, words) for link, words in steps] for steps in chain.steps]
    return modules, tuple(binaries), _stepwise(plan, images, runs)


def _contexts(plan: Plan, images: Sequence[ArrayImage]) -> Parts:
    contexts, dispatches = contexts_of(plan, images)
    modules, binaries = [], []
    for number, context in enumerate(contexts):
        printed = context.printed
        arrays = ((context.name, context.array),)
        modules.append(Module(context.name, printed.text, printed.objects, context.name, context.sequences, printed.dynamic, arrays))
        kernel = kernel_name(context.name, context.name)
        binaries.append(Binary(context.name, "xclbin", (Entry(number, kernel, FIRST_ID, kernel),)))
    runs = [[(one.context, 0, one.sequence, one.words) for one in own] for own in dispatches]
    return tuple(modules), tuple(binaries), _stepwise(plan, images, runs)


#: A step's binary, kernel, sequence and words.
Run = tuple[int, int, str, tuple[int, ...]]


def _stepwise(plan: Plan, images: Sequence[ArrayImage], runs: Sequence[Sequence[Run]]) -> tuple[VersionImage, ...]:
    """Versions whose every step is a dispatch."""
    versions = []
    for name, image, own in zip(version_names([image.version.signature for image in images]), images, runs, strict=True):
        addresses = address_map(plan, image)
        dispatches = tuple(_dispatch(addresses, step, *run) for step, run in zip(image.steps, own, strict=True))
        table = _rows(rows(image.parameters, [value.name for value in image.version.values]))
        versions.append(VersionImage(image.version, name, addresses, image.parameters, table, dispatches))
    return tuple(versions)


def _dispatch(addresses: AddressMap, step: ArrayStep, binary: int, kernel: int, sequence: str, words: tuple[int, ...]) -> Dispatch:
    arguments = step.design.sequence.arguments
    check_arguments(len(arguments), f"step {step.name}", "an operator with fewer tensors")
    buffers = []
    for one in arguments:
        with named(step.name, one.operand):
            buffers.append(place(addresses, step.operands[one.operand]))
    return Dispatch(step.name, binary, kernel, sequence, tuple(buffers), words, _control(step))


def _rows(table: np.ndarray) -> Program:
    return tuple(map(tuple, table.tolist()))


def _control(step: ArrayStep) -> tuple[tuple[int, Control], ...]:
    """A step's tensors of control words, which the host makes of ids."""
    return tuple(
        (position, Control(one.control, step.operands[one.control.table], step.operands[one.operand]))
        for position, one in enumerate(step.design.sequence.arguments)
        if one.control is not None
    )
