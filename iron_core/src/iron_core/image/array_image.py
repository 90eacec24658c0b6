"""What a plan's version becomes on a device with an array: a design per step, grouped into entries as the packaging says."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import attrs

from iron_core.array.build import build
from iron_core.array.design import Design
from iron_core.array.fit import fit
from iron_core.array.pools import TilePlacement
from iron_core.declare.identity import array_key
from iron_core.devices import Device, device
from iron_core.errors import Unresolvable, UnsupportedError
from iron_core.graph.signature import Signature
from iron_core.graph.traced import Binding
from iron_core.image.folding import fold_steps
from iron_core.image.packaging import CHAIN_DESIGNS, ELF
from iron_core.image.parameters import Parameter, check_count, parameters
from iron_core.image.plan import BufferRef, Plan, PlanStep, VersionPlan
from iron_core.image.reader import read


@attrs.frozen(eq=False)
class ArrayStep:
    """A step as it runs: its design, where that design's tiles are, and where its operands lie.

    `written`: names of the operands it writes. `array_key`: says which kernels its cores call (see
    `iron_core.array.build.array_of`). `operator`: what messages call it.
    """

    name: str
    operator: str
    array_key: tuple[Any, ...]
    design: Design
    placement: TilePlacement
    operands: dict[str, BufferRef]
    written: frozenset[str]
    bindings: tuple[Binding, ...]


@attrs.frozen(eq=False)
class ArrayImage:
    """A version as data: it holds no operator and no kernel, and pickles.

    `version` has its ports, values, carried values and checks, and no steps; `steps` are those that run (folded ones are part
    of others). entries: runs of consecutive step indices that share one configuration of the array. resets: empty
    configurations an ELF ends with, so that its loads of the two empty images alternate from call to call. parameters: its
    per-call words. chains: where every step is a dispatch, the xclbins that hold their designs, each as the indices of its steps;
    each has at most `CHAIN_DESIGNS` designs.
    """

    version: VersionPlan
    dev: str
    elf: bool
    steps: tuple[ArrayStep, ...]
    entries: tuple[tuple[int, ...], ...]
    resets: int
    parameters: tuple[Parameter, ...]
    chains: tuple[tuple[int, ...], ...] = ()

    @property
    def columns(self) -> int:
        """The most columns that one of its arrays takes."""
        return max((len({col for col, _ in step.placement.values()}) for step in self.steps), default=0)


def array_image(plan: Plan, signature: Signature) -> ArrayImage:
    """A version's designs and how they are entered. UnsupportedError where a step has no array, or the words are too many."""
    dev = device(plan.dev)
    version = plan.version(signature)
    planned = fold_steps(version, dev)
    steps = tuple(_step(step, dev) for step in planned)
    elf = plan.packaging.image == ELF
    entries: list[list[int]] = []
    for index, step in enumerate(steps):
        if elf and entries and steps[entries[-1][-1]].design.array is step.design.array:
            entries[-1].append(index)
        else:
            entries.append([index])
    words = parameters(planned, [step.design for step in steps])
    if elf:
        check_count(words, dev.scratchpad_words, plan.name)
    resets = len(entries) % 2 if elf else 0
    bare = attrs.evolve(version, steps=(), folds=())
    chains = () if elf else _chains([step.design for step in steps])
    return ArrayImage(bare, dev.name, elf, steps, tuple(map(tuple, entries)), resets, words, chains)


def _step(step: PlanStep, dev: Device) -> ArrayStep:
    name = type(step.op.base).__name__
    try:
        op = step.op.resolved(dev)
        design = build(op, dev, (binding.member for binding in step.bindings)).design
        placement = fit(design)
    except Unresolvable as error:
        raise UnsupportedError(f"{name} (step {step.name}) on {dev}: {error}") from error
    written = frozenset(name for name in step.operands if op.operands[name].written)
    return ArrayStep(step.name, name, array_key(op), design, placement, step.operands, written, step.bindings)


def _chains(designs: Sequence[Design]) -> tuple[tuple[int, ...], ...]:
    """The steps of each chain. A design lies in one of them; a chain is begun where the one before is full."""
    places: dict[int, int] = {}
    chains: list[list[int]] = []
    for index, design in enumerate(designs):
        chain = places.setdefault(id(design), len(places)) // CHAIN_DESIGNS  # equal designs are one object, see `build`
        if chain == len(chains):
            chains.append([])
        chains[chain].append(index)
    return tuple(map(tuple, chains))


def freeze(image: ArrayImage) -> bytes:
    """The image as bytes, for the cache or another machine."""
    return pickle.dumps(image, protocol=5)


def thaw(content: bytes) -> ArrayImage | None:
    """The image that was frozen; None where the bytes hold none, or classes that are not there. Nothing in them is run."""
    image: ArrayImage | None = read(content, ArrayImage)
    return image
