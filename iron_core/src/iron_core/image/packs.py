"""Packs: arrays of a version that share one configuration, so that going from one to the other enters nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from iron_core.devices import Device
from iron_core.errors import CallError, Unresolvable, UnsupportedError
from iron_core.image.array_step import ArrayStep

if TYPE_CHECKING:
    from iron_core.array.joint import Joint

#: Arrays by their keys, see `iron_core.declare.identity.array_key`.
Pack = Collection[tuple[Any, ...]]


def packed(steps: Sequence[ArrayStep], packs: Any, dev: Device, elf: bool) -> tuple[ArrayStep, ...]:
    """The steps, those of a pack as designs of the one array that its members make. CallError for what are no packs of these steps'
    arrays; UnsupportedError where they do not fit together, or the image configures an array per dispatch."""
    found = _checked(packs, {step.array_key for step in steps})
    if found and not elf:
        raise UnsupportedError(
            f"coresident= of {len(found)} packs on {dev}: arrays share a configuration in a full ELF; here each step is a dispatch of its "
            "own array. Legal: no packs."
        )
    made = {key: (pack, joint) for pack in found for joint in [_joined(pack, dev)] for key in pack}
    return tuple(_step(step, *made[step.array_key], dev) if step.array_key in made else step for step in steps)


def _checked(packs: Any, known: Collection[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], ...]]:
    """Packs of at least two arrays, each in an order of its own."""
    legal = "legal: collections of array keys (iron.array_key) of its steps, each in one pack"
    try:
        found = [tuple(sorted(set(pack), key=repr)) for pack in packs]
    except TypeError:
        raise CallError(f"coresident={packs!r:.80}; {legal}.") from None
    for key, times in Counter(key for pack in found for key in pack).items():
        if key not in known or times > 1:
            raise CallError(f"coresident=: {key!r:.120} {'is in two packs' if key in known else 'is the array of no step'}; {legal}.")
    return [pack for pack in found if len(pack) > 1]


def joint(pack: Pack, dev: Device) -> Joint:
    """The arrays of a pack as one, whatever order they are given in. Unresolvable as `join`."""
    from iron_core.array.build import array_of  # here: on a CPU nothing is packed
    from iron_core.array.joint import join

    return join(tuple(array_of(key, dev).array for key in sorted(set(pack), key=repr)))


def _joined(pack: tuple[tuple[Any, ...], ...], dev: Device) -> Joint:
    try:
        return joint(pack, dev)
    except Unresolvable as error:
        raise _refused(pack, dev, error) from error


def _step(step: ArrayStep, pack: tuple[tuple[Any, ...], ...], together: Joint, dev: Device) -> ArrayStep:
    from iron_core.array.joint import fit_joint

    design = together.design(step.design)
    try:
        return attrs.evolve(step, design=design, placement=fit_joint(design), pack=pack)
    except Unresolvable as error:
        raise _refused(pack, dev, error) from error


def _refused(pack: tuple[tuple[Any, ...], ...], dev: Device, error: Unresolvable) -> UnsupportedError:
    return UnsupportedError(f"pack of {', '.join(map(short_name, pack))} on {dev}: {error}")


def short_name(key: tuple[Any, ...]) -> str:
    """The operator of an array key, as people call it."""
    return str(key[0].rpartition(".")[2])
