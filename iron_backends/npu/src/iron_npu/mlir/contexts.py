"""A version as modules of one array each, and the dispatches that its steps are: what xclbins that stay loaded are built from.

Each module is one xclbin, loaded in a hardware context of its own. It has a sequence for every distinct one of its array's steps;
each becomes a stream of instructions, which a dispatch is given beside its buffers.
"""

from __future__ import annotations

import attrs

from iron_core.array.sequence import Sequence
from iron_core.errors import UnsupportedError
from iron_core.graph.signature import Signature
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.parameters import Parameter
from iron_core.image.plan import BufferRef, Plan
from iron_npu.mlir.device import print_device
from iron_npu.mlir.fused import device_name
from iron_npu.mlir.printer import Printed
from iron_npu.mlir.sequence import ArgumentWords, print_sequence, same_words
from iron_npu.mlir.text import Writer


@attrs.frozen(eq=False)
class Context:
    """An array's module. name: of its device, which follows from what the array is: equal names of two versions are one xclbin."""

    name: str
    printed: Printed


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
    if not image.contexts:
        raise UnsupportedError(f"{plan.name} on {image.dev} was packaged as {plan.packaging.image}. Legal: image=iron.CONTEXTS.")
    names: dict[int, dict[Sequence, str]] = {}
    dispatches: dict[int, Dispatch] = {}
    numbers = {use: number for number, word in enumerate(image.parameters) for use in word.uses}
    for context, steps in enumerate(image.contexts):
        sequences = names.setdefault(context, {})
        for index in steps:
            step = image.steps[index]
            sequence = step.design.sequence
            name = sequences.setdefault(sequence, f"sequence{len(sequences)}")
            buffers = tuple(step.operands[argument.operand] for argument in sequence.arguments)
            scalars = tuple(numbers[index, word.name] for word, first in same_words(sequence).items() if word == first)
            dispatches[index] = Dispatch(step.name, context, name, buffers, scalars)
    contexts = tuple(_context(image, steps, names[number]) for number, steps in enumerate(image.contexts))
    return Contexts(contexts, tuple(dispatches[index] for index in sorted(dispatches)), image.parameters)


def _context(image: ArrayImage, steps: tuple[int, ...], sequences: dict[Sequence, str]) -> Context:
    """The module of the array of these steps."""
    first = image.steps[steps[0]]
    array, placement = first.design.array, first.placement
    device, writer = device_name(array, placement), Writer()

    def write(inner: Writer, names: dict[str, str]) -> None:
        for sequence, name in sequences.items():
            print_sequence(inner, array, sequence, name, names, placement, ArgumentWords())

    with writer.block("module"):
        objects = print_device(writer, array, device, placement, write)
    return Context(device, Printed(writer.text(), objects, any(sequence.words for sequence in sequences)))
