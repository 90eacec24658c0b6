"""Small arrays that the tests print: made with the vocabulary, without an operator. The fixture `arrays` gives them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from iron_core.array import Buffer, Kernel, KernelContract, ObjectFifo, Worker, WorkerRuntimeBarrier, range_
from iron_core.array.builder import Builder, building
from iron_core.array.descriptors import Descriptor
from iron_core.array.design import ArrayDesign, Design
from iron_core.array.sequence import Await, Free, Sequence, SequenceArgument, SetBarrier, Sync, Transfer, Word
from iron_core.array.tile import Lane, Tile
from iron_core.declare.affine import Affine
from iron_core.declare.objects import ObjectType
from iron_core.declare.operand import In, Out

TILE = ObjectType.of(64, "int32")
ROWS = Word("rows", "length", Affine("rows"))
COUNT = Word("count", "core", Affine("rows").ceildiv(3))
START = Word("start", "offset", Affine("start"))


def linear(offset: int, n: int) -> Descriptor:
    return Descriptor.of(offset, ((n, 1),))


def frozen(make: Callable[[Builder], None], dev: str = "npu2") -> ArrayDesign:
    with building() as parts:
        make(parts)
    return parts.freeze("Small", dev)


def copier(name: str = "copy64", size: int = 64) -> Kernel:
    contract = KernelContract(roles=(In, Out), reference=lambda x: x)
    kind = ObjectType.of(size, "int32")
    return Kernel.inline(name, 'extern "C" void KERNEL(int *a, int *b) {}', (kind, kind), contract)


def through(dev: str = "npu2", body: Any = None) -> ArrayDesign:
    """x -> one core -> y, as many tiles as its word says."""

    def core(x: Any, y: Any, kernel: Any, words: Any, ready: Any) -> None:
        ready.wait_for_value(1)
        n = words[0]
        ready.release_with_value(1)
        for _ in range_(n):
            a, b = x.acquire(), y.acquire()
            kernel(a, b)
            x.release()
            y.release()

    def make(parts: Builder) -> None:
        x, y = ObjectFifo(TILE, name="x0"), ObjectFifo(TILE, name="y0")
        shim = Tile("shim", 0)
        x.prod(tile=Lane("x", 0, shim))
        y.cons(tile=Lane("y", 0, shim))
        words = Buffer(1, "int32", name="words", use_write_rtp=True)
        ready = WorkerRuntimeBarrier(name="ready")
        Worker(body or core, [x.cons(), y.prod(), copier(), words, ready], tile=Tile("core", 0, 2), name="worker")
        parts.bind("count", "words", 0)

    return frozen(make, dev)


def calls(dev: str = "npu2") -> Design:
    """`through` driven by per-call words: a count, a length and a start."""
    x = Transfer(1, "fill", "x", "x0", (linear(0, 1024),), False, START, ROWS, 64)
    y = Transfer(0, "drain", "y", "y0", (linear(0, 1024),), True, None, ROWS, 64)
    steps = (Sync((("words", 0, COUNT),)), SetBarrier("ready_worker", 1), y, x, Await(0), Free(1))
    arguments = (SequenceArgument("x", "int32", 4096), SequenceArgument("y", "int32", 1024))
    return Design(through(dev), Sequence(arguments, (COUNT, ROWS, START), steps))



@pytest.fixture(scope="session")
def arrays() -> SimpleNamespace:
    """What this file makes."""
    return SimpleNamespace(frozen=frozen, linear=linear, copier=copier, through=through, calls=calls)


@pytest.fixture
def builder(tmp_path, monkeypatch) -> Any:
    """In the place of the vendor's tools: see `tests.npu.simulated_device`."""
    if find_spec("iron_sim") is None:
        pytest.skip("iron-sim, which is the device here, is not installed")
    from iron_npu import building
    from tests.npu.simulated_device import Builder, stream

    made = Builder(tmp_path)
    monkeypatch.setattr(building, "files", made.files)
    monkeypatch.setattr(building, "stream", stream)
    return made


@pytest.fixture
def device(monkeypatch, builder) -> Iterator[Callable[..., Any]]:
    """Makes a simulated device and puts it in pyxrt's place."""
    from iron_core.backends.protocol import Available
    from iron_npu.backend import NpuBackend
    from iron_npu.runtime.device import _opened
    from tests.npu.simulated_device import Xrt

    made = []

    def put(**given: Any) -> Any:
        made.append(Xrt(**given))
        monkeypatch.setitem(sys.modules, "pyxrt", made[-1])
        return made[-1]

    monkeypatch.setattr(NpuBackend, "probe", lambda self: Available("simulated"))
    yield put
    for one in made:
        _opened.pop(id(one), None)


@pytest.fixture
def xrt(device) -> Any:
    """An npu2."""
    return device()
