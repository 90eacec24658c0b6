"""A graph as xclbins whose steps are dispatches: a module per design, each a kernel of an xclbin, at most 32 of them in one.

What npu1 takes, and npu2 where every step is a dispatch of its own. An xclbin is linked design by design, each onto that of those
before it, so its kernels have ids in that order, and names that tell nothing of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import attrs

from iron_core.array.design import Design
from iron_core.errors import UnsupportedError
from iron_core.image.array_image import ArrayImage
from iron_core.image.packaging import CHAIN_DESIGNS
from iron_core.image.plan import Plan
from iron_npu.mlir.printer import ARGUMENTS, Printed, array_digest, print_design
from iron_npu.mlir.sequence import same_words

#: The id of an xclbin's first kernel, as mlir-aie numbers it.
FIRST_ID = 0x901
#: Characters that xclbinutil allows a kernel's name, a colon and its instance's name.
LONGEST = 64


@attrs.frozen(eq=False)
class Link:
    """A design in a chain. xclbin: in which; id: its kernel's there. name: of its kernel and of the one instance of that, the same in
    every graph. array: the digest of its array."""

    name: str
    xclbin: int
    id: int
    printed: Printed
    array: str


@attrs.frozen(eq=False)
class Chain:
    """Designs in the order they are linked, and per version of which of them each step is and its scalars, numbers of that version's
    words."""

    links: tuple[Link, ...]
    steps: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]


def print_chain(plan: Plan, images: Iterable[ArrayImage]) -> Chain:
    """Versions of a plan that was packaged as a chain. A design that several have is one; xclbins are filled in the order of versions.

    UnsupportedError for another packaging.
    """
    images = list(images)
    links: list[Link] = []
    known: dict[str, int] = {}
    numbers: dict[int, int] = {}
    designs: list[Design] = []  # kept, as they are known by identity
    steps = []
    for image in images:
        if not image.chains:
            was = f"{plan.name} on {image.dev} was packaged as {plan.packaging.image}"
            raise UnsupportedError(f"{was}. Legal: npu1, or boundaries=iron.each_step.")
        own = []
        scalars = word_numbers(image)
        for index, step in enumerate(image.steps):
            design = step.design
            if id(design) not in numbers:
                designs.append(design)
                printed = print_design(design, words=ARGUMENTS, placement=step.placement)
                name = kernel_name(design.array.name, printed.text)
                number = known.setdefault(name, len(links))
                if number == len(links):
                    digest = array_digest(design.array, step.placement)
                    links.append(Link(name, number // CHAIN_DESIGNS, FIRST_ID + number % CHAIN_DESIGNS, printed, digest))
                numbers[id(design)] = number
            own.append((numbers[id(design)], scalars[index]))
        steps.append(tuple(own))
    return Chain(tuple(links), tuple(steps))


def kernel_name(array: str, text: str) -> str:
    """A name that follows from a design alone, half of what a kernel's and its instance's may have together."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{array[: (LONGEST - 1) // 2 - len(digest) - 1]}_{digest}"


def word_numbers(image: ArrayImage) -> Sequence[tuple[int, ...]]:
    """Per step the scalars that its sequence takes behind its tensors, as numbers of the image's words."""
    numbers = {use: number for number, word in enumerate(image.parameters) for use in word.uses}
    return [
        tuple(numbers[index, word.name] for word, first in same_words(step.design.sequence).items() if word == first)
        for index, step in enumerate(image.steps)
    ]
