"""What a core's memories hold, as aiecc will lay it out: data in its four banks behind the stack, and the program.

Data: the stack is at the bottom; buffers go, the largest first, each into the next bank in turn that has room. Where one finds none, all
go one behind another, across the banks' borders: that fits more, and two accesses of one cycle meet in a bank more often.

Program: bytes are known once aiecc has linked a core (`iron_npu.tools.program_size`), and kept by what its array is. Before that they are
estimated, by the bytes that kernels say of themselves (`KernelContract.program`) and those of a core's own loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from iron_core.array.build import kernels_of
from iron_core.array.design import ArrayDesign, CoreData
from iron_core.array.kernel import Kernel
from iron_core.array.pools import Place, TilePlacement, fifo_pools
from iron_core.array.program import Call, walk
from iron_core.devices import BUFFER_ALIGNMENT, device
from iron_core.errors import UnsupportedError
from iron_core.image.array_image import ArrayImage

#: Of an array on a device, by place, the bytes of the programs that aiecc linked for its cores; none where it has not.
Linked = Callable[[ArrayDesign, TilePlacement], Mapping[Place, int]]
#: Banks of a core's data memory.
BANKS = 4
#: Bytes of a core's own loop: what IRON's calibrations leave of an elementwise core beside its kernel.
LOOP = 1100
#: Buffers and kernels that a message lists.
_SHOWN = 4


@attrs.frozen
class CoreRoom:
    """One core. buffers: (name, address, bytes), by address. banked: does each lie within one bank? gap: bytes of the largest run that
    nothing has, into which the linker puts constants. program: bytes of it, as aiecc linked it where they are `measured`, else estimated;
    parts: what an estimate is made of, the largest first."""

    worker: str
    buffers: tuple[tuple[str, int, int], ...]
    banked: bool
    gap: int
    program: int
    parts: tuple[tuple[str, int], ...]
    measured: bool = False


def cores_of(
    array: ArrayDesign, placement: TilePlacement, kernels: Mapping[str, Kernel], linked: Linked | None = None
) -> tuple[CoreRoom, ...]:
    """Every core of an array. UnsupportedError for one whose buffers or program, measured or else estimated, it has no room for."""
    dev = device(array.dev)
    assert dev.core is not None
    pools = fifo_pools(array, placement)
    measured = {} if linked is None else linked(array, placement)
    found = []
    for core in array.cores:
        place = placement[core.tile]
        own = [pool for pool in pools.pools if placement[pool.tile] == place]
        held = [(f"{pool.name} object {i}", pool.type.nbytes) for pool in own for i in range(pool.depth)]
        held += [(buffer.name, buffer.type.nbytes) for buffer in array.buffers if placement[buffer.tile] == place]
        where = f"{array.name} on {dev}: core {core.name}"
        laid, banked = lay_out(held, core.stack, dev.core.memory, where)
        parts, told = _program(core, kernels), place in measured
        program = measured[place] if told else sum(size for _, size in parts)
        check_program(program, dev.program_memory, where, parts, told)
        found.append(CoreRoom(core.name, laid, banked, _gap(laid, core.stack, dev.core.memory), program, parts, told))
    return tuple(found)


def check_images(images: Iterable[ArrayImage], linked: Linked | None = None) -> None:
    """`cores_of` every array of these images, each once."""
    seen: set[int] = set()
    for image in images:
        for step in image.steps:
            if id(step.design.array) not in seen:
                seen.add(id(step.design.array))
                cores_of(step.design.array, step.placement, kernels_of(step.configured, image.dev), linked)


# -- data ------------------------------------------------------------------------------------------------


def lay_out(buffers: Iterable[tuple[str, int]], stack: int, memory: int, where: str) -> tuple[tuple[tuple[str, int, int], ...], bool]:
    """(name, address, bytes) of each buffer, by address, and whether each lies in one bank. UnsupportedError names the largest where they
    do not fit behind the stack."""
    held = list(buffers)
    banked = _in_banks(held, stack, memory)
    if banked is not None:
        return tuple(sorted(banked, key=lambda one: one[1])), True
    laid, end = [], stack
    for name, nbytes in held:
        at = _aligned(end)
        laid.append((name, at, nbytes))
        end = at + nbytes
    if end > memory:
        largest = sorted(held, key=lambda one: -one[1])
        shown = ", ".join(f"{name}: {nbytes}" for name, nbytes in largest[:_SHOWN]) + (", ..." if len(largest) > _SHOWN else "")
        raise UnsupportedError(
            f"{where}: its stack of {stack} bytes and its buffers ({shown}) end at byte {end} of its {memory}. Legal: smaller objects (a "
            "tile= or tile_size), a smaller depth=, or a smaller stack_size=."
        )
    return tuple(laid), False


def _in_banks(held: list[tuple[str, int]], stack: int, memory: int) -> list[tuple[str, int, int]] | None:
    """Each in one bank; None where one finds none."""
    bank = memory // BANKS
    ends = [max(stack - n * bank, 0) for n in range(BANKS)]
    laid, turn = [], 0
    for name, nbytes in sorted(held, key=lambda one: -one[1]):
        for step in range(BANKS):
            number = (turn + step) % BANKS
            at = _aligned(ends[number])
            if at + nbytes <= bank:
                ends[number] = at + nbytes
                laid.append((name, number * bank + at, nbytes))
                turn = number + 1
                break
        else:
            return None
    return laid


def _aligned(at: int) -> int:
    return -(-at // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT


def _gap(laid: Iterable[tuple[str, int, int]], stack: int, memory: int) -> int:
    free, end = 0, stack
    for _, at, nbytes in sorted(laid, key=lambda one: one[1]):
        free, end = max(free, at - end), max(end, at + nbytes)
    return max(free, memory - end)


# -- programs --------------------------------------------------------------------------------------------


def _program(core: CoreData, kernels: Mapping[str, Kernel]) -> tuple[tuple[str, int], ...]:
    """A core's kernels and its loop with their bytes, the largest first."""
    called = sorted({statement.kernel for statement in walk(core.program) if isinstance(statement, Call)})
    parts = [(symbol, kernels[symbol].contract.program) for symbol in called] + [("its loop", LOOP)]
    return tuple(sorted(parts, key=lambda part: -part[1]))


def check_program(nbytes: int, there: int, where: str, parts: Iterable[tuple[str, int]], measured: bool) -> None:
    """UnsupportedError for a program that a core does not hold: the linker lets it pass. parts: what an estimate is made of, if that is
    known. measured: did aiecc link it?"""
    if nbytes <= there:
        return
    shown = list(parts)[:_SHOWN]
    if measured:
        of = f" of {', '.join(name for name, _ in shown)}" if shown else ""
        how = f"{nbytes} bytes of program, as aiecc linked it{of},"
    else:
        how = f"an estimated {nbytes} bytes of program ({', '.join(f'{name}: {size}' for name, size in shown)})"
    raise UnsupportedError(
        f"{where} has {how} and holds {there}. Legal: fewer kernels on the core (steps that are not folded into it, `fold=False`), or an "
        "operator's tunables that unroll less."
    )


def check_linked(sizes: Mapping[str, int], name: str, dev: str) -> None:
    """`check_program` of cores that aiecc linked: bytes by the core, as `iron_npu.tools.program_size` has them. name: the image's."""
    for core, nbytes in sizes.items():
        check_program(nbytes, device(dev).program_memory, f"{name} on {dev}: core {core}", (), True)
