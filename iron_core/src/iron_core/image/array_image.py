"""What a plan's version becomes on a device with an array: a design per step, grouped into entries as the packaging says."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.array.build import build
from iron_core.array.design import Design
from iron_core.array.fit import fit
from iron_core.array.pools import Placement
from iron_core.devices import device
from iron_core.image.folding import fold_steps
from iron_core.image.packaging import ELF
from iron_core.image.parameters import Parameter, check_count, parameters
from iron_core.image.plan import Plan, Signature, VersionPlan


@attrs.frozen(eq=False)
class ArrayImage:
    """`version` holds the steps as they run (folded ones are part of others); `ops`, `designs` and where their tiles
    are (`placements`) are theirs, in order.

    entries: runs of consecutive step indices that share one configuration of the array. resets: empty configurations an
    ELF ends with, so that its loads of the two empty images alternate from call to call. parameters: its per-call words.
    """

    version: VersionPlan
    dev: str
    elf: bool
    ops: tuple[Any, ...]
    designs: tuple[Design, ...]
    placements: tuple[Placement, ...]
    entries: tuple[tuple[int, ...], ...]
    resets: int
    parameters: tuple[Parameter, ...]

    @property
    def columns(self) -> int:
        """The most columns that one of its arrays takes."""
        return max((len({col for col, _ in places.values()}) for places in self.placements), default=0)


def array_image(plan: Plan, signature: Signature) -> ArrayImage:
    """A version's designs and how they are entered. UnsupportedError, Unresolvable."""
    dev = device(plan.dev)
    version = plan.version(signature)
    version = attrs.evolve(version, steps=fold_steps(version, dev))
    ops = tuple(step.op.resolved(dev) for step in version.steps)
    designs = tuple(
        build(op, dev, (b.member for b in step.bindings)).design for op, step in zip(ops, version.steps, strict=True)
    )
    placements = tuple(map(fit, designs))
    elf = plan.packaging.image == ELF
    entries: list[list[int]] = []
    for index, design in enumerate(designs):
        if elf and entries and designs[entries[-1][-1]].array is design.array:
            entries[-1].append(index)
        else:
            entries.append([index])
    words = parameters(version.steps, designs)
    if elf:
        check_count(words, dev.scratchpad_words, plan.name)
    resets = len(entries) % 2 if elf else 0
    return ArrayImage(version, dev.name, elf, ops, designs, placements, tuple(map(tuple, entries)), resets, words)
