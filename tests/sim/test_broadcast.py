"""A product whose eight cores share A: each has an eighth of C's columns, so each needs every K tile of A.

Right: one fifo that all of them read, whose every object goes to every one of its ends. Wrong, as a generator of designs once had
it: the objects are dealt out in turn, and each core sees an eighth of K.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from iron_core import Case, In, ObjectFifo, ObjectType, Operator, Out, Param, Pattern, Testing, Tile, Worker, range_
from iron_core.array.build import build
from iron_core.array.micro_tiles import row_dims
from iron_core.devices import device
from iron_npu.mlir.printer import print_design
from iron_ops_aie.products.kernels_mm import MatrixKernels
from iron_sim.catalog import outcome
from iron_sim.run import simulate
from tests.npu.structural import require

CORES, M, TILE_K, TILE_N = 8, 16, 32, 16
KERNELS = MatrixKernels("AIE2P", M, TILE_K, TILE_N, accumulator=np.dtype(np.int32), mode="int8")
A_TYPE, B_TYPE, C_TYPE = ObjectType.of(M * TILE_K, np.int8), ObjectType.of(TILE_K * TILE_N, np.int8), ObjectType.of(M * TILE_N, np.int32)


def drawn(name: str) -> Any:
    """All numbers that int8 has."""
    return lambda op, rng: rng.integers(-128, 128, op.shape(name), np.int8)


DRAW = {"A": drawn("A"), "B": drawn("B")}


class Product(Operator):
    """C = A B of int8, exactly. order: which DMA of the memory tile puts A's tiles in the order of the cores' micro tiles: the one
    that sends them on ("to stream") or the one that takes them ("from stream")."""

    K: int = Param(array=True)
    order: str = Param(default="to stream", array=True)
    lanes: int = Param(default=1, array=True)
    A = In(M, K, dtype=np.int8, tile=M * TILE_K, per=(lanes,))
    B = In(K, CORES * TILE_N, dtype=np.int8, tile=TILE_K * TILE_N, per=(CORES,))
    C = Out(M, CORES * TILE_N, dtype=np.int32, tile=M * TILE_N, per=(CORES,))

    test = Testing(Case(K=256), Case(K=1024), Case(K=1024, order="from stream"), draw=DRAW)

    def reference(self, A, B):
        return A.astype(np.int64) @ B.astype(np.int64)

    def composed(self, A, B):
        return self.reference(A, B).astype(np.int32)

    def shared(self, memory: list[Tile]) -> list[Any]:
        """An end of A for each core: of one fifo, whose every object goes to all of them."""
        (r, s, _), before = KERNELS.micro, self.order == "from stream"
        a = ObjectFifo(A_TYPE, name="A_L3L2")
        a.prod(tile=self.A.lane(0, Tile("shim", 0, 0)))
        taken = a.cons(dims_from_stream=row_dims((M, TILE_K), r, s) if before else ())
        onward = taken.forward(tile=memory[0], name="A_L2L1", dims_to_stream=() if before else KERNELS.held_a())
        return [onward.cons() for _ in range(CORES)]

    def array(self, target: Any) -> None:
        tiles, mm, zero = self.K // TILE_K, KERNELS.mm(), KERNELS.zero()

        def core(a: Any, b: Any, c: Any) -> None:
            first, right, total = a.acquire(), b.acquire(), c.acquire()
            zero(total)
            mm(first, right, total)
            a.release()
            b.release()
            for _ in range_(tiles - 1):
                mm(a.acquire(), b.acquire(), total)
                a.release()
                b.release()
            c.release()

        memory = [Tile("mem", column, 1) for column in range(CORES)]
        for column, a in enumerate(self.shared(memory)):
            shim = Tile("shim", column, 0) if column else None
            b, c = ObjectFifo(B_TYPE, name=f"B{column}"), ObjectFifo(C_TYPE, name=f"C{column}_L1L2")
            b.prod(tile=self.B.lane(column, shim))
            to_core = b.cons().forward(tile=memory[column], name=f"B{column}_L2L1", dims_to_stream=KERNELS.held_b())
            out = c.cons().forward(tile=memory[column], name=f"C{column}", dims_to_stream=KERNELS.given_c())
            out.cons(tile=self.C.lane(column, shim))
            Worker(core, [a, to_core.cons(), c.prod()], tile=Tile("core", column, 2), name=f"core{column}")

    def fill(self, rt: Any) -> None:
        """A, K tile by K tile."""
        rt.fill("A", 0, Pattern(0, (self.K // TILE_K, M, TILE_K), (TILE_K, self.K, 1)))

    def sequence(self, rt: Any) -> None:
        wide = CORES * TILE_N
        for column in range(CORES):
            rt.drain("C", column, Pattern(column * TILE_N, (M, TILE_N), (wide, 1)), wait=True)
        for column in range(CORES):
            rt.fill("B", column, Pattern(column * TILE_N, (self.K, TILE_N), (wide, 1)))
        self.fill(rt)


class Dealt(Product):
    """The mutant: A's tiles are dealt out to the cores in turn, a half of the cores by each of two memory tiles, for one has not
    channels for eight. times: how often a call sends A."""

    times: int = Param(default=1)
    lanes: int = Param(default=2, array=True)
    test = Testing(Case(K=1024, times=1), Case(K=1024, times=CORES), draw=DRAW)

    def shared(self, memory: list[Tile]) -> list[Any]:
        each = CORES // self.lanes
        offsets, ends = [core * M * TILE_K for core in range(each)], []
        for lane in range(self.lanes):
            a = ObjectFifo(ObjectType.of(each * M * TILE_K, np.int8), name=f"A_L3L2_{lane}")
            a.prod(tile=self.A.lane(lane, Tile("shim", lane, 0)))
            names = [f"A_L2L1_{lane * each + core}" for core in range(each)]
            parts = a.cons().split(offsets, [A_TYPE] * each, tile=memory[lane], names=names, dims_to_stream=KERNELS.held_a())
            ends += [part.cons() for part in parts]
        return ends

    def fill(self, rt: Any) -> None:
        each, rounds = CORES // self.lanes, self.K // (CORES * TILE_K)
        sizes, strides = (rounds, each, M, TILE_K), (CORES * TILE_K, TILE_K, self.K, 1)
        for _ in range(self.times):
            for lane in range(self.lanes):
                rt.fill("A", lane, Pattern(lane * each * TILE_K, sizes, strides), managed=False)


def cases(cls: Any) -> list[Any]:
    return [pytest.param(cls, case, id=f"{cls.__name__}-{case.id}") for case in cls.test.cases(cls)]


@pytest.mark.parametrize("cls, case", cases(Product))
def test_every_core_reads_all_of_a_fifo_that_it_shares(cls, case):
    """The product is exact, whichever end puts A's tiles in order. A crosses the shim once."""
    found = outcome(cls, case, "npu2")
    assert (found.failure, found.refused, found.bits, found.cores) == ("", "", 0, CORES) and found.compared == M * CORES * TILE_N
    op = cls(**case.fields)
    given = cls.test.draw(op, np.random.default_rng(0))
    outputs, _, stats = simulate(op, "npu2", given)
    assert (outputs["C"] == op.reference(**given)).all() and stats.elements("A") == M * op.K


@pytest.mark.parametrize("order, named", [("to stream", "dimensionsToStream"), ("from stream", "dimensionsFromStream")])
def test_it_is_printed_as_one_fifo_with_eight_consumers(order, named):
    """Its order stands at the fifo whose DMA it is of."""
    text = print_design(build(Product(K=256, order=order).resolved(device("npu2")), "npu2").design).text
    require(text)
    taken, shared = (next(line for line in text.splitlines() if f"aie.objectfifo @A_{name}(" in line) for name in ("L3L2", "L2L1"))
    assert shared.count("%tile_") == 1 + CORES and taken.count("%tile_") == 2
    assert named in (shared if order == "to stream" else taken)


@pytest.mark.parametrize("cls, case", cases(Dealt))
def test_tiles_that_are_dealt_out_are_caught(cls, case):
    """Sent once they leave cores waiting, who say what for. Sent until all have enough they are another product."""
    found = outcome(cls, case, "npu2")
    assert not found.refused, "nothing but a run tells"
    if case.fields["times"] == 1:
        assert re.search(r"cannot go on.*core0.*A_L2L1_0.*core7.*A_L2L1_7", found.failure, re.DOTALL)
    else:
        assert found.bits > 0.99 * found.compared and "C" in found.failure


def test_what_dealing_out_costs(capsys):
    """Each core multiplies an eighth of K's tiles of A, again and again, with all of B: as wrong as another matrix. On random
    numbers C is off by 139 % of its norm, and an element by 399 % of itself on average."""
    op = Dealt(K=1024, times=CORES)
    given = Dealt.test.draw(op, np.random.default_rng(0))
    outputs, poison, _ = simulate(op, "npu2", given)
    got, want = outputs["C"].astype(np.float64), op.reference(**given).astype(np.float64)
    a, b = given["A"].astype(np.float64).reshape(M, -1, TILE_K), given["B"].astype(np.float64)
    for core in range(CORES):
        seen = np.tile(a[:, core::CORES], (1, CORES, 1)).reshape(M, -1)
        columns = slice(core * TILE_N, (core + 1) * TILE_N)
        assert (got[:, columns] == seen @ b[:, columns]).all()
    assert not poison["C"].any()
    of_norm, of_element = np.linalg.norm(got - want) / np.linalg.norm(want), (np.abs(got - want) / np.abs(want)).mean()
    with capsys.disabled():
        print(f"\neach of {CORES} cores sees 1/{CORES} of K: off by {of_norm:.0%} of C's norm, {of_element:.0%} of an element on average")
    assert 1.3 < of_norm < 1.5 and of_element > 2
