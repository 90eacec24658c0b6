"""What a plan's version becomes on a device with an array: a design per step, grouped into entries as the packaging says."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from iron_core.array.design import ArrayDesign, Design
from iron_core.devices import WORD, Device, device
from iron_core.errors import CallError, UnsupportedError
from iron_core.graph.signature import Signature, describe_signature
from iron_core.image.array_step import ArrayStep, array_step
from iron_core.image.feedback import Program, emit_step, fed_words, next_words
from iron_core.image.folding import fold_steps
from iron_core.image.gathers import ADDRESS_WORDS, ControlTensors, with_control_words
from iron_core.image.packaging import CHAIN_DESIGNS, CONTEXTS, ELF
from iron_core.image.packs import Pack, packed
from iron_core.image.parameters import Parameter, check_count, parameters
from iron_core.image.plan import Plan, VersionPlan
from iron_core.image.reader import read


@attrs.frozen(eq=False)
class ArrayImage:
    """A version as data: it holds no operator and no kernel, and pickles.

    `version` has its ports, values, carried values and checks, and no steps; `steps` are those that run (folded ones are part
    of others). entries: runs of consecutive step indices that share one configuration of the array. resets: empty
    configurations an ELF ends with, so that its loads of the two empty images alternate from call to call. parameters: its
    per-call words. chains: where every step is a dispatch, the xclbins that hold their designs, each as the indices of its steps;
    each has at most `CHAIN_DESIGNS` designs. contexts: instead of chains, where every array is loaded once in a hardware context of
    its own, the indices of the steps of each. tensors: of a full ELF, those that gathers need beside the version's own. program: how it
    makes its next call's words and carried values, where it does (see `iron_core.image.feedback`); its last step does that. feeds: the
    version that call is of.
    """

    version: VersionPlan
    dev: str
    elf: bool
    steps: tuple[ArrayStep, ...]
    entries: tuple[tuple[int, ...], ...]
    resets: int
    parameters: tuple[Parameter, ...]
    chains: tuple[tuple[int, ...], ...] = ()
    tensors: ControlTensors = ControlTensors()  # noqa: RUF009 (frozen)
    program: Program | None = None
    contexts: tuple[tuple[int, ...], ...] = ()
    feeds: Signature | None = None

    @property
    def own(self) -> dict[str, tuple[int, ...]]:
        """The tensors that it is given beside its version's own, as bytes by space: "control" and "address" (see `ControlTensors`),
        "program", which the host writes once, and "feedback", the words that the device leaves for the next call."""
        found = {
            "control": tuple(WORD * control.gather.words for control in self.tensors.controls),
            "address": (WORD * ADDRESS_WORDS,) * len(self.tensors.addresses),
        }
        if self.program is not None:
            slots = len(self.program) - len(self.version.carry)
            found |= {"program": (WORD * sum(map(len, self.program)),), "feedback": (WORD * slots,)}
        return found

    @property
    def columns(self) -> int:
        """The most columns that one of its arrays takes."""
        return max((len({col for col, _ in step.placement.values()}) for step in self.steps), default=0)


def array_image(
    plan: Plan, signature: Signature, coresident: Iterable[Pack] = (), feeds: Signature | None = None
) -> ArrayImage:
    """A version's designs and how they are entered. coresident: arrays that share a configuration, see `iron_core.image.packs`. feeds:
    the version of the plan whose next call it makes; without, its own where it can.

    UnsupportedError where a step has no array, the words are too many, the arrays of a plan are more than the contexts, those of a
    pack do not fit together, or the version that it should feed cannot be fed by it. CallError for one that there is not.
    """
    dev = device(plan.dev)
    version = plan.version(signature)
    steps = tuple(array_step(step, dev) for step in fold_steps(version))
    elf = plan.packaging.image == ELF
    tensors, program = ControlTensors(), None
    if elf:
        steps, tensors = with_control_words(steps, dev)
    words = parameters(steps)
    if elf:
        check_count(words, dev.scratchpad_words, plan.name)
        program = next_words(version, words) if feeds is None else _fed(plan, version, feeds, dev)
    elif feeds is not None:
        why = "the host makes the words of every dispatch"
        raise UnsupportedError(f"{plan.name}: feeds= on {dev}: {why}. Legal: a full ELF, or no feeds=.")
    if program is not None:
        steps += (emit_step(version, program, dev),)
    steps = packed(steps, coresident, dev, elf)
    entries: list[list[int]] = []
    for index, step in enumerate(steps):
        if elf and entries and steps[entries[-1][-1]].design.array is step.design.array:
            entries[-1].append(index)
        else:
            entries.append([index])
    resets = len(entries) % 2 if elf else 0
    bare = attrs.evolve(version, steps=(), folds=())
    if program is not None and feeds is None:
        feeds = version.signature
    contexts = _contexts(plan, version, steps, dev) if plan.packaging.image == CONTEXTS else ()
    chains = () if elf or contexts else _chains([step.design for step in steps])
    return ArrayImage(bare, dev.name, elf, steps, tuple(map(tuple, entries)), resets, words, chains, tensors, program, contexts, feeds)


def _fed(plan: Plan, version: VersionPlan, feeds: Signature, dev: Device) -> Program:
    """How a version makes the next call of another."""
    known = {one.signature: one for one in plan.versions}
    if not isinstance(feeds, tuple) or feeds not in known:
        legal = "; ".join(describe_signature(signature) for signature in known)
        raise CallError(f"{plan.name}: feeds={feeds!r:.80}: no version of it. Legal: the signature of one that is compiled ({legal}).")
    words = parameters(with_control_words([array_step(step, dev) for step in fold_steps(known[feeds])], dev)[0])
    return fed_words(known[feeds], words, version, plan.name)


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


def _contexts(plan: Plan, version: VersionPlan, steps: Sequence[ArrayStep], dev: Device) -> tuple[tuple[int, ...], ...]:
    """The steps of each context, which are those of one array. UnsupportedError where the plan's versions, which share contexts, have
    more arrays together than there are."""
    own: dict[ArrayDesign, list[int]] = {}
    for index, step in enumerate(steps):
        own.setdefault(step.design.array, []).append(index)
    arrays = dict.fromkeys(own)
    for other in plan.versions:
        if other is not version:
            arrays |= dict.fromkeys(array_step(step, dev).design.array for step in fold_steps(other))
    if len(arrays) > dev.contexts:
        kinds = Counter(array.name for array in arrays)
        shown = ", ".join(name if n == 1 else f"{n} of {name}" for name, n in kinds.items())
        raise UnsupportedError(
            f"{plan.name}: image='contexts' with {len(arrays)} arrays, each of which takes a hardware context, and {dev} holds "
            f"{dev.contexts} at once ({shown}). Legal: operators that share arrays (`iron.array_key` says which do), or no image=, "
            "which loads them in turn."
        )
    return tuple(map(tuple, own.values()))


def freeze(image: ArrayImage) -> bytes:
    """The image as bytes, for the cache or another machine."""
    return pickle.dumps(image, protocol=5)


def thaw(content: bytes) -> ArrayImage | None:
    """The image that was frozen; None where the bytes hold none, or classes that are not there. Nothing in them is run."""
    image: ArrayImage | None = read(content, ArrayImage)
    return image
