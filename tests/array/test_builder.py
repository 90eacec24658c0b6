"""Parts gathered while an array is built, and the data they freeze into."""

from __future__ import annotations

import subprocess
import sys

import attrs
import pytest

from iron_core.array import Buffer, Kernel, KernelContract, Lane, Lock, ObjectFifo, Tile, Worker, WorkerRuntimeBarrier
from iron_core.array.build import build
from iron_core.array.builder import building
from iron_core.array.design import LockData, TileData
from iron_core.errors import DeclarationError
from iron_ops_aie import SiLU

LINE = ((64,), "int32")


def nothing(*args):
    """A core function that does nothing."""


def frozen(make):
    """The design that `make()` builds."""
    with building() as parts:
        make()
    return parts.freeze("made", "npu2")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ObjectFifo(LINE),
        lambda: Buffer(4, "int32"),
        lambda: Lock(),
        lambda: WorkerRuntimeBarrier(),
        lambda: Worker(nothing, []),
    ],
)
def test_parts_are_made_while_an_array_is_built(make):
    with pytest.raises(DeclarationError, match=r"made in an operator's array\(\), while it is built"):
        make()


def test_names_count_up_where_none_is_given():
    with building() as parts:
        barriers = []
        for _ in range(2):
            ObjectFifo(LINE)
            Buffer(4, "int32")
            Lock()
            barriers.append(WorkerRuntimeBarrier())
            Worker(nothing, [])
        names = [[p.name for p in kind] for kind in (parts.fifos, parts.buffers, parts.locks, barriers, parts.workers)]
    assert names == [["of0", "of1"], ["buffer0", "buffer1"], ["lock0", "lock1"], ["barrier0", "barrier1"], ["core0", "core1"]]


def test_a_name_belongs_to_one_part():
    with building():
        ObjectFifo(LINE, name="a")
        with pytest.raises(DeclarationError, match="two parts of one array are named 'a'; give each its own name="):
            Buffer(4, "int32", name="a")


@pytest.mark.parametrize("name", ["a b", "1a", "", "a-b"])
def test_a_name_is_an_identifier(name):
    with building(), pytest.raises(DeclarationError, match=f"name={name!r}; legal: letters, digits and underscores"):
        ObjectFifo(LINE, name=name)


def test_builders_do_not_see_each_other():
    with building() as outer:
        ObjectFifo(LINE, name="a")
        with building() as inner:
            ObjectFifo(LINE, name="a")
        ObjectFifo(LINE, name="b")
    assert [f.name for f in outer.fifos] == ["a", "b"] and [f.name for f in inner.fifos] == ["a"]


def test_two_uses_of_one_tile_are_on_one_tile():
    def make():
        shim = Tile("shim", col=1)
        a, b = ObjectFifo(LINE, name="a"), ObjectFifo(LINE, name="b")
        a.prod(tile=Lane("a", 0, shim))
        b.prod(tile=Lane("b", 0, shim))
        Worker(nothing, [a.cons(), b.cons()], tile=Tile("core", 1, 3))

    design = frozen(make)
    assert design.tiles == (TileData("core0", "core", 1, 3), TileData("shim0", "shim", 1, 0))
    assert design.fifo("a").producer == design.fifo("b").producer == "shim0"


@pytest.mark.parametrize("rows", [(1, 1), (None, None), (1, None), (None, 1)])
def test_equal_places_are_one_tile(rows):
    """However many `Tile`s say so, with their one row or without; tiles that are free are each their own."""

    def make():
        a, b = ObjectFifo(LINE, name="a"), ObjectFifo(LINE, name="b")
        a.prod(tile=Tile("mem", 0, rows[0]))
        b.prod(tile=Tile("mem", 0, rows[1]))
        Worker(nothing, [a.cons()])
        Worker(nothing, [b.cons()])

    design = frozen(make)
    assert sorted(t.name for t in design.tiles) == ["core0", "core1", "mem0"]


def test_a_buffer_lies_on_the_tile_of_its_worker():
    def make():
        Worker(nothing, [Buffer((4, 2), "int32", name="kept", initial_value=range(8)), Buffer(2, "int32", use_write_rtp=True)])

    design = frozen(make)
    kept, words = design.buffers
    assert kept.tile == words.tile == "core0" and words.written and not kept.written
    assert kept.initial == tuple(range(8)) and kept.type.shape == (4, 2)


def test_a_buffer_of_nobody_is_nowhere():
    with pytest.raises(DeclarationError, match="Buffer lost is used by no worker, link or lane; it has no tile"):
        frozen(lambda: Buffer(4, "int32", name="lost"))


def test_a_buffer_belongs_to_one_tile():
    with building():
        buffer = Buffer(4, "int32", name="mine")
        Worker(nothing, [buffer])
        with pytest.raises(DeclarationError, match="Buffer mine is on another worker's tile; pin both with tile= to share"):
            Worker(nothing, [buffer])


@pytest.mark.parametrize("act", [lambda buffer: buffer[0], lambda buffer: buffer.__setitem__(0, 1)])
def test_a_buffer_is_used_by_the_worker_it_was_given_to(act):
    with building():
        other = Buffer(4, "int32", name="other")
        with pytest.raises(DeclarationError, match="worker core0 uses Buffer other, which is not among its args"):
            Worker(lambda: act(other), [])


def test_a_barrier_has_a_lock_on_every_worker_that_waits():
    def make():
        barrier = WorkerRuntimeBarrier(name="ready")
        for _ in range(2):
            Worker(nothing, [barrier])
        Lock(init=3, name="turn", tile=Tile("core", 0, 2))

    assert frozen(make).locks == (
        LockData("turn", "core2", 3),
        LockData("ready_core0", "core0", 0, "barrier"),
        LockData("ready_core1", "core1", 0, "barrier"),
    )


def test_a_lock_is_on_a_tile():
    with pytest.raises(DeclarationError, match="lock turn is used by no worker, link or lane; it has no tile"):
        frozen(lambda: Lock(name="turn"))


def test_arguments_may_be_nested():
    """Lists of ends, as deep as the core function likes."""

    def make():
        ends = [[ObjectFifo(LINE, name=f"a{i}{j}") for j in range(2)] for i in range(2)]
        for row in ends:
            for fifo in row:
                fifo.prod(tile=Tile("shim"))

        def core(all_ends):
            for row in all_ends:
                for end in row:
                    end.acquire()
                    end.release()

        Worker(core, [[[f.cons() for f in row] for row in ends]])

    assert {fifo.consumers for fifo in frozen(make).fifos} == {("core0",)}


def test_kernels_are_listed_once_by_symbol():
    kernels = [Kernel.inline(name, "", ["int32"], KernelContract(roles=("param",), reference=abs)) for name in ("g", "f")]

    def core(first, second):
        first(1)
        second(2)

    design = frozen(lambda: [Worker(core, kernels), Worker(core, kernels)])
    assert [k.symbol for k in design.kernels] == sorted(k.data.symbol for k in kernels)


def test_parts_are_found_by_name():
    design = build(SiLU(size=4096), "npu2").design.array
    assert design.fifo("x0").name == "x0" and design.tile("core3").kind == "core" and design.buffer("words_core0").written
    assert design.core_at("core3").name == "core3" and design.core_at("shim0") is None
    assert [lane.index for lane in design.lanes_of("x")] == list(range(8)) and design.lanes_of("nobody") == ()
    for ask in (design.fifo, design.tile, design.buffer):
        with pytest.raises(KeyError, match="nobody"):
            ask("nobody")


def test_a_design_is_data(monkeypatch):
    """Frozen, hashable, and equal to one that was built apart."""
    one = build(SiLU(size=4096), "npu2", {"valid"}).design
    monkeypatch.setattr("iron_core.array.build._arrays", {})
    monkeypatch.setattr("iron_core.array.build._designs", {})
    two = build(SiLU(size=4096), "npu2", {"valid"}).design
    assert one is not two and one == two and hash(one) == hash(two) and repr(one) == repr(two)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.array.name = "other"


CODE = """
import hashlib
from iron_core.array.build import build
from iron_ops_aie import SiLU
print(hashlib.sha256(repr(build(SiLU(size=4096), "npu2", {"valid"}).design).encode()).hexdigest())
"""


def test_a_design_prints_alike_in_every_process():
    """Whatever seed strings are hashed with."""
    seen = {
        subprocess.run(
            [sys.executable, "-c", CODE], env={"PYTHONHASHSEED": seed, "PATH": ""}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
