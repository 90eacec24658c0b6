"""The flat byte arguments of a fused image, and where in them a plan's buffers lie."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from iron_core.errors import UnsupportedError
from iron_core.image.arena import BANK_BYTES, align
from iron_core.image.plan import Plan, Port, VersionPlan

#: A shim reads and writes whole words at addresses that are multiples of this many bytes.
GRANULE = 4


@attrs.frozen
class Argument:
    """A flat buffer the image is given: `name`, and its size in bytes."""

    name: str
    nbytes: int


@attrs.frozen
class Spot:
    """A byte offset into argument `argument`."""

    argument: int
    offset: int


@attrs.frozen
class Layout:
    """Inputs in one argument, outputs in the next, control words, then the banks: a plan's arena, its residents behind it."""

    arguments: tuple[Argument, ...]
    spots: tuple[tuple[tuple[str, int], Spot], ...]

    def find(self, space: str, index: int, offset: int = 0) -> Spot:
        """Where byte `offset` of a plan's buffer is. UnsupportedError if a shim cannot start there."""
        base = dict(self.spots)[space, index]
        spot = Spot(base.argument, base.offset + offset)
        if spot.offset % GRANULE:
            raise UnsupportedError(
                f"a buffer starts at byte {spot.offset} of {self.arguments[spot.argument].name}; a shim starts at multiples of {GRANULE}."
            )
        return spot


def layout(plan: Plan, version: VersionPlan, controls: Sequence[int] = ()) -> Layout:
    """The arguments of one version. Residents are at the same place for every version of the plan.

    controls: bytes of each tensor of control words that the host makes for a step; they are space "control".
    """
    arguments: list[Argument] = []
    spots: dict[tuple[str, int], Spot] = {}
    for space, ports in (("input", version.inputs), ("output", version.outputs)):
        if not ports:
            continue
        offsets, total = _packed(ports)
        for number, offset in enumerate(offsets):
            spots[space, number] = Spot(len(arguments), offset)
        arguments.append(Argument(space, total))
    if controls:
        total = 0
        for number, nbytes in enumerate(controls):
            spots["control", number] = Spot(len(arguments), total)
            total += align(nbytes)
        arguments.append(Argument("control", total))
    first = len(arguments)
    banks = [align(nbytes) for nbytes in plan.banks]
    for number in range(len(banks)):
        spots["arena", number] = Spot(first + number, 0)
    for number, resident in enumerate(plan.residents):
        need = align(resident.nbytes)
        bank = next((b for b, used in enumerate(banks) if used + need <= BANK_BYTES), len(banks))
        if bank == len(banks):
            banks.append(0)
        spots["resident", number] = Spot(first + bank, banks[bank])
        banks[bank] += need
    arguments += [Argument(f"bank{number}", nbytes) for number, nbytes in enumerate(banks)]
    return Layout(tuple(arguments), tuple(spots.items()))


def _packed(ports: Sequence[Port]) -> tuple[list[int], int]:
    offsets, total = [], 0
    for port in ports:
        offsets.append(total)
        total += align(port.format.nbytes(port.shape))
    return offsets, total
