"""A version as modules of one array each, and the dispatches that its steps are: what xclbins that stay loaded are built from.

Each module is one xclbin, loaded in a hardware context of its own. It has a sequence for every distinct one of its array's steps;
each becomes a stream of instructions, which a dispatch is given beside its buffers.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from iron_core.array.design import ArrayDesign
from iron_core.array.sequence import Sequence
from iron_core.errors import UnsupportedError
from iron_core.graph.signature import Signature
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.array_step import ArrayStep
from iron_core.image.parameters import Parameter
from iron_core.image.plan import BufferRef, Plan
from iron_npu.mlir.chain import word_numbers
from iron_npu.mlir.device import print_device
from iron_npu.mlir.graph import device_name
from iron_npu.mlir.printer import SEQUENCE, Printed, array_digest
from iron_npu.mlir.sequence import ArgumentWords, print_sequence
from iron_npu.mlir.text import Writer


@attrs.frozen(eq=False)
class Context:
    """An array's module. name: of its device, which follows from what the array is: equal names of two versions are one xclbin.
    sequences: the names of its own. array: the digest of it."""

    name: str
    printed: Printed
    sequences: tuple[str, ...]
    array: str


@attrs.frozen(eq=False)
class Dispatch:
    """A step as it runs: a sequence of a context.

    buffers: where the sequence's tensors are, in its order; of control words, where the ids are that the host makes them of (see
    `iron_core.array.sequence.SequenceArgument`). words: its scalars, behind them, each a number of `Contexts.words`.
    """

    step: str
    context: int
    sequence: str
    buffers: tuple[BufferRef, ...]
    words: tuple[int, ...]


@attrs.frozen(eq=False)
class Contexts:
    """All that a version loads, and what a call dispatches, in order. words: the numbers that a call makes of its values."""

    contexts: tuple[Context, ...]
    dispatches: tuple[Dispatch, ...]
    words: tuple[Parameter, ...]


def print_contexts(plan: Plan, signature: Signature) -> Contexts:
    """One version of a plan that was packaged with `image=iron.CONTEXTS`. UnsupportedError for another packaging."""
    image = array_image(plan, signature)
    contexts, (dispatches,) = contexts_of(plan, [image])
    return Contexts(contexts, dispatches, image.parameters)


def contexts_of(plan: Plan, images: Iterable[ArrayImage]) -> tuple[tuple[Context, ...], tuple[tuple[Dispatch, ...], ...]]:
    """The contexts of several versions, which share those of equal arrays, and the dispatches of each version. UnsupportedError for
    another packaging."""
    held: dict[ArrayDesign, tuple[ArrayStep, dict[Sequence, str]]] = {}
    numbers: dict[ArrayDesign, int] = {}
    versions = []
    for image in images:
        if not image.contexts:
            raise UnsupportedError(f"{plan.name} on {image.dev} was packaged as {plan.packaging.image}. Legal: image=iron.CONTEXTS.")
        scalars = word_numbers(image)
        dispatches = []
        for index, step in enumerate(image.steps):
            array, sequence = step.design.array, step.design.sequence
            _, names = held.setdefault(array, (step, {}))
            context = numbers.setdefault(array, len(numbers))
            name = names.setdefault(sequence, f"{SEQUENCE}{len(names)}")
            buffers = tuple(step.operands[argument.operand] for argument in sequence.arguments)
            dispatches.append(Dispatch(step.name, context, name, buffers, scalars[index]))
        versions.append(tuple(dispatches))
    return tuple(_context(step, names) for step, names in held.values()), tuple(versions)


def _context(first: ArrayStep, sequences: dict[Sequence, str]) -> Context:
    """The module of the array of a step, with the sequences of all that are of it."""
    array, placement = first.design.array, first.placement
    device, writer = device_name(array, placement), Writer()

    def write(inner: Writer, names: dict[str, str]) -> None:
        for sequence, name in sequences.items():
            print_sequence(inner, array, sequence, name, names, placement, ArgumentWords())

    with writer.block("module"):
        objects = print_device(writer, array, device, placement, write)
    printed = Printed(writer.text(), objects, any(sequence.words for sequence in sequences))
    return Context(device, printed, tuple(sequences.values()), array_digest(array, placement))
