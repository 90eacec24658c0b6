"""The flat byte arguments of a fused image, and where in them a plan's buffers lie."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import attrs

from iron_core.errors import UnsupportedError
from iron_core.image.arena import align
from iron_core.image.array_image import ArrayImage
from iron_core.image.plan import Plan, Port

#: A shim reads and writes whole words at addresses that are multiples of this many bytes.
GRANULE = 4
#: Tensors that a kernel may be given.
ARGUMENTS = 16


@attrs.frozen
class Argument:
    """A flat buffer the image is given: `name`, and its size in bytes."""

    name: str
    nbytes: int


@attrs.frozen
class Address:
    """A byte offset into argument `argument`."""

    argument: int
    offset: int


@attrs.frozen
class AddressMap:
    """Inputs in one argument, outputs in the next, then what the host writes beside them (see `ArrayImage.own`), then a plan's
    banks: of the arena, then of the residents."""

    arguments: tuple[Argument, ...]
    addresses: tuple[tuple[tuple[str, int], Address], ...]

    def find(self, space: str, index: int, offset: int = 0) -> Address:
        """Where byte `offset` of a plan's buffer is. UnsupportedError if a shim cannot start there."""
        base = dict(self.addresses)[space, index]
        address = Address(base.argument, base.offset + offset)
        if address.offset % GRANULE:
            argument = self.arguments[address.argument].name
            raise UnsupportedError(f"a buffer starts at byte {address.offset} of {argument}; a shim starts at multiples of {GRANULE}.")
        return address


def address_map(plan: Plan, image: ArrayImage) -> AddressMap:
    """The arguments of one version. Residents are where the plan has them, at the same bytes in every version."""
    arguments: list[Argument] = []
    addresses: dict[tuple[str, int], Address] = {}
    for space, ports in (("input", image.version.inputs), ("output", image.version.outputs)):
        if not ports:
            continue
        offsets, total = _packed(ports)
        for number, offset in enumerate(offsets):
            addresses[space, number] = Address(len(arguments), offset)
        arguments.append(Argument(space, total))
    for space, sizes in image.own.items():
        total = 0
        for number, nbytes in enumerate(sizes):
            addresses[space, number] = Address(len(arguments), total)
            total += align(nbytes)
        if sizes:
            arguments.append(Argument(space, total))
    for number, nbytes in enumerate(plan.banks):
        addresses["arena", number] = Address(len(arguments), 0)
        arguments.append(Argument(f"bank{number}", align(nbytes)))
    first = len(arguments)
    for number, resident in enumerate(plan.residents):
        assert resident.spot is not None, "a plan for an NPU places every resident"
        addresses["resident", number] = Address(first + resident.spot.bank, resident.spot.offset)
    arguments += [Argument(f"residents{number}", nbytes) for number, nbytes in enumerate(plan.resident_banks)]
    return AddressMap(tuple(arguments), tuple(addresses.items()))


@contextlib.contextmanager
def named(step: str, operand: str) -> Iterator[None]:
    """What is refused of a buffer says whose it is."""
    try:
        yield
    except UnsupportedError as error:
        raise UnsupportedError(f"step {step}: its {operand}: {error}") from None


def check_arguments(count: int, what: str, legal: str) -> None:
    """UnsupportedError for more tensors than a kernel is given: a run of more crashes."""
    if count > ARGUMENTS:
        raise UnsupportedError(f"{what}: {count} buffers, and a kernel is given at most {ARGUMENTS}. Legal: {legal}.")


def _packed(ports: Sequence[Port]) -> tuple[list[int], int]:
    offsets, total = [], 0
    for port in ports:
        offsets.append(total)
        total += align(port.format.nbytes(port.shape))
    return offsets, total
