"""The fixture `lab`: arrays made by hand with the vocabulary, and sequences written step by step, on the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core import In, InOut, Out
from iron_core.array import Kernel, KernelContract, Lane, ObjectFifo, ObjectType, Worker
from iron_core.array.builder import building
from iron_core.array.descriptors import Descriptor
from iron_core.array.design import ArrayDesign, Design
from iron_core.array.sequence import Await, Free, Sequence, SequenceArgument, Transfer, Word
from iron_sim.machine import Machine, Stats
from iron_sim.run import regions_of


@attrs.frozen
class Result:
    """Tensors after a run by operand, which of their numbers nobody wrote, and what was done."""

    tensors: dict[str, np.ndarray]
    masks: dict[str, np.ndarray]
    stats: Stats

    def __getitem__(self, operand: str) -> np.ndarray:
        return self.tensors[operand]


#: By symbol, the kernels of arrays made here; the latest one where several have one symbol.
KERNELS: dict[str, Kernel] = {}


def frozen(make: Callable[[], Any], dev: str = "npu2") -> ArrayDesign:
    """The array that `make()` builds. Its kernels are kept for `machine`."""
    with building() as parts:
        make()
    KERNELS.update(parts.kernels())
    return parts.freeze("Made", dev)


def machine(array: ArrayDesign) -> Machine:
    """A fresh machine of an array made by `frozen`."""
    return Machine(array, {kernel.symbol: KERNELS[kernel.symbol] for kernel in array.kernels})


def line(elements: int, dtype: Any = "int32") -> ObjectType:
    return ObjectType.of(elements, dtype)


def kernel(name: str, reference: Callable[..., Any], *types: Any, roles: Any = None, **contract: Any) -> Kernel:
    """Inputs of all types but the last, which is the output; `roles` says otherwise. Scalars are dtype names."""
    if roles is None:
        roles = ["param" if isinstance(t, str) else In for t in types[:-1]] + [Out]
    return Kernel.inline(name, f"void KERNEL() {{}} // {name}", types, KernelContract(roles=tuple(roles), reference=reference, **contract))


def copier(type: ObjectType, reference: Callable[[Any], Any] = lambda x: x) -> Kernel:
    return kernel("copy", reference, type, type)


def relay(a: Any, y: Any, copy: Any) -> None:
    """A core that passes objects from `a` to `y`."""
    x, out = a.acquire(), y.acquire()
    copy(x, out)
    a.release()
    y.release()


def through(type: ObjectType, core: Callable[..., None] = relay, *extra: Callable[[], Any], reference: Any = None, **worker: Any) -> Any:
    """make(): fifo `a` (operand x) to one core to fifo `y` (operand y). The core gets both ends, a copying kernel, extras."""

    def make() -> None:
        a, y = ObjectFifo(type, name="a"), ObjectFifo(type, name="y")
        a.prod(tile=Lane("x", 0))
        y.cons(tile=Lane("y", 0))
        copy = copier(type, reference or (lambda x: x))
        Worker(core, [a.cons(), y.prod(), copy, *[one() for one in extra]], **{"name": "core0", **worker})

    return make


def descriptor(offset: int, n: int) -> Descriptor:
    return Descriptor.of(offset, ((n, 1),))


def fill(task: int, operand: str, fifo: str, n: int, offset: int = 0, **options: Any) -> Transfer:
    """A task that sends n elements of an operand from `offset` on into a fifo."""
    return Transfer(task, "fill", operand, fifo, (descriptor(offset, n),), **options)


def drain(task: int, operand: str, fifo: str, n: int, offset: int = 0, token: bool = True, **options: Any) -> Transfer:
    """A task that writes n elements of what leaves a fifo."""
    return Transfer(task, "drain", operand, fifo, (descriptor(offset, n),), token, **options)


def moved(*transfers: Transfer) -> list[Any]:
    """Drains, then fills, then an await for every drain and a free for every fill."""
    drains = [t for t in transfers if t.way == "drain"]
    fills = [t for t in transfers if t.way == "fill"]
    return [*drains, *fills, *(Await(t.task) for t in drains), *(Free(t.task) for t in fills)]


def run(
    array: ArrayDesign | Machine,
    steps: Any,
    numbers: Mapping[str, int] | None = None,
    *,
    unwritten: Mapping[str, Any] | None = None,
    **tensors: Any,
) -> Result:
    """Run steps on a fresh machine, or on one that ran before. tensors: arrays, or a number of elements nobody wrote yet.

    numbers: per-call words. unwritten: operand -> indices of given arrays that count as never written.
    """
    made = array if isinstance(array, Machine) else machine(array)
    words: dict[str, Word] = {}
    arguments = []
    for operand, given in tensors.items():
        if isinstance(given, int):
            fifo = made.array.fifo(made.array.lanes_of(operand)[0].fifo)
            arguments.append(SequenceArgument(operand, fifo.type.dtype_name, given))
        else:
            arguments.append(SequenceArgument(operand, np.asarray(given).dtype.name, np.asarray(given).size))
    for step in steps:
        for word in (getattr(step, "offset_by", None), getattr(step, "length_by", None)):
            if word is not None:
                words[word.name] = word
    sequence = Sequence(tuple(arguments), tuple(words.values()), tuple(steps))
    regions = regions_of(
        Design(made.array, sequence), {k: v for k, v in tensors.items() if not isinstance(v, int)}
    )
    for operand, at in (unwritten or {}).items():
        regions[operand].mask[at] = True
        if regions[operand].data.dtype.kind not in "iub":
            regions[operand].data[at] = np.nan
    stats = made.run(sequence, regions, numbers or {})
    return Result({k: r.data for k, r in regions.items()}, {k: r.mask for k, r in regions.items()}, stats)


@pytest.fixture(scope="session")
def lab() -> SimpleNamespace:
    """What this file makes."""
    return SimpleNamespace(
        frozen=frozen, machine=machine, line=line, kernel=kernel, copier=copier, relay=relay, through=through, descriptor=descriptor,
        fill=fill, drain=drain, moved=moved, run=run, InOut=InOut,
    )  # fmt: skip
