"""Residents and arena on the host: weights are pointers, states start as zeros, versions share both."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.formats import Q4_1, Dense, PackedArray, bfloat16
from iron_core.errors import OutOfMemory, ShapeError, UnknownName
from iron_core.image.plan import Packaging, Plan, Resident
from iron_host import large_pages
from iron_host.anonymous import address, anonymous
from iron_host.memory import HostMemory
from iron_ops_aie import Copy


def plan_of(*residents: Resident, banks: tuple[int, ...] = ()) -> Plan:
    return Plan("g", "host", "host", Packaging("host", "run list", ()), (), residents, banks)


def weight(name: str, data) -> Resident:
    format = data.format if isinstance(data, PackedArray) else Dense(data.dtype)
    return Resident(name, "weight", tuple(data.shape), format, data)


def state(name: str, *shape: int) -> Resident:
    return Resident(name, "state", shape, Dense(bfloat16))


def test_a_weight_is_a_pointer_into_the_array_given():
    """No byte of a weight is copied, whether it is an array or packed rows of a mapped file."""
    dense = np.arange(12, dtype=np.float32).reshape(3, 4)
    packed = Q4_1.quantize(np.ones((2, 64), np.float32))
    memory = HostMemory(plan_of(weight("a", dense), weight("b", packed)))
    assert address(memory.view("resident", 0)) == address(dense)
    assert address(memory.view("resident", 1)) == address(packed.data)


def test_what_is_read_of_weights_is_their_own_bytes_until_there_are_tiles():
    """States are not among them."""
    a, b = np.arange(6, dtype=np.float32), np.ones(3, np.float32)
    memory = HostMemory(plan_of(weight("a", a), state("s", 4), weight("b", b)))
    assert [address(raw) for raw in memory.weights()] == [address(a), address(b)]


def test_a_weight_of_a_read_only_file_is_taken_as_it_is(tmp_path):
    """A mapped file need not be writable."""
    np.arange(8, dtype=np.float32).tofile(tmp_path / "w")
    mapped = np.memmap(tmp_path / "w", np.float32, "r")
    memory = HostMemory(plan_of(weight("w", mapped)))
    assert address(memory.view("resident", 0)) == address(mapped)


def test_a_state_starts_as_zeros_and_can_be_written_and_read():
    """Reading gives a copy; writing replaces the content in place."""
    memory = HostMemory(plan_of(state("s", 2, 3)))
    where = address(memory.view("resident", 0))
    assert not memory.read("s").any()
    memory.write("s", np.full((2, 3), 5, bfloat16))
    copy = memory.read("s")
    copy[:] = 0
    assert (memory.read("s") == 5).all()
    assert address(memory.view("resident", 0)) == where


def test_first_rows_take_no_pages_of_the_others():
    """Of a state of 64 MB one page is there once 4 kB were written."""
    memory = HostMemory(plan_of(state("s", 1 << 14, 1 << 11)))
    memory.write("s", np.ones((1, 1 << 11), bfloat16), rows=1)
    there = np.zeros(memory.places[0].size // mmap.PAGESIZE, np.uint8)
    mincore = large_pages._mincore()
    if mincore is None:
        pytest.skip("the system does not say which pages are there")
    assert mincore(address(memory.places[0]), memory.places[0].size, address(there)) == 0
    assert (there & 1).sum() == 1 and (memory.read("s", 1) == 1).all()


def test_writing_a_weight_leaves_the_array_it_was_given_alone():
    """The new content is memory's own; a file behind the old one is not touched."""
    given = np.zeros(4, np.float32)
    memory = HostMemory(plan_of(weight("w", given)))
    before = memory.epoch
    memory.write("w", np.ones(4, np.float32))
    assert not given.any()
    assert (memory.read("w") == 1).all()
    assert memory.epoch > before, "executables must learn of the new address"


def test_writing_another_shape_or_dtype_is_refused():
    """The message names the resident, what it is and what came."""
    memory = HostMemory(plan_of(state("s", 4)))
    with pytest.raises(ShapeError, match=r"`s` is bfloat16 of shape \(4,\); got bfloat16 of shape \(5,\)"):
        memory.write("s", np.zeros(5, bfloat16))
    with pytest.raises(ShapeError, match="got float32"):
        memory.write("s", np.zeros(4, np.float32))


def test_an_unknown_name_lists_the_known_ones():
    """A misspelt weight is answered with what there is."""
    with pytest.raises(UnknownName, match=r"`x` is no weight or state of this graph\. It has: s\."):
        HostMemory(plan_of(state("s", 4))).read("x")


def test_growing_keeps_places_and_contents():
    """A later version adds residents and a larger bank; what was there stays, byte for byte."""
    memory = HostMemory(plan_of(state("s", 4), banks=(128,)))
    memory.write("s", np.arange(4).astype(bfloat16))
    memory.banks[0][:128] = 7
    where, bank, epoch = address(memory.view("resident", 0)), memory.banks[0], memory.epoch
    memory.grow(plan_of(state("s", 4), state("t", 2), banks=(256, 64)))
    assert address(memory.view("arena", 0)) != address(bank) and memory.epoch > epoch, "executables must learn of the new address"
    assert address(memory.view("resident", 0)) == where
    assert memory.read("s").astype(int).tolist() == [0, 1, 2, 3]
    assert not memory.read("t").any()
    assert (memory.banks[0][:128] == 7).all() and not memory.banks[0][128:].any()
    assert len(memory.banks) == 2


def test_what_there_is_no_memory_for_is_said_and_can_be_tried_again():
    """OutOfMemory names it and its bytes; what there was stays, and a smaller plan is placed."""
    memory = HostMemory(plan_of(state("s", 4), banks=(128,)))
    memory.write("s", np.arange(4).astype(bfloat16))
    for plan, what in (
        (plan_of(state("s", 4), state("huge", 1 << 49), banks=(128,)), "g: state huge"),
        (plan_of(state("s", 4), banks=(1 << 50,)), "g: intermediate results"),
        (plan_of(state("s", 4), banks=(128, 1 << 50)), "g: intermediate results"),
    ):
        for _ in range(2):
            with pytest.raises(OutOfMemory, match=rf"no memory for {what} \({1 << 50} bytes\)") as caught:
                memory.grow(plan)
            assert isinstance(caught.value, MemoryError) and (caught.value.what, caught.value.nbytes) == (what, 1 << 50)
        assert len(memory.banks) == 1 and memory.banks[0].size == 128
        assert memory.read("s").astype(int).tolist() == [0, 1, 2, 3]
    memory.grow(plan_of(state("s", 4), state("t", 2), banks=(256,)))
    assert not memory.read("t").any() and memory.read("s").astype(int).tolist() == [0, 1, 2, 3]


@pytest.mark.skipif("IRON_SANITIZER" in os.environ, reason="a sanitizer keeps memory of its own beside a process's")
def test_large_states_take_no_memory_before_they_are_touched():
    """A cache for a long context costs what was written, not what was declared."""
    resource = pytest.importorskip("resource", reason="this platform has no way to read a process's memory")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    block = anonymous(1 << 30)
    block[: 1 << 20] = 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


class Large(iron.Graph):
    """Its state of `rows` rows of a MiB each is read at a row."""

    def __init__(self, rows):
        self.table = iron.state((rows, 1 << 19))

    def body(self, *, at: iron.Scratchpad[np.int32]):
        return Copy(self.table[at])


def test_a_resident_may_be_larger_than_a_bank():
    """It is pointed at and lies in no bank, so any size will do; a row beyond 4 GiB is found."""
    compiled = Large(5000).compile(dev="host", backend="host")
    assert compiled.plan.resident_banks == () and compiled.plan.residents[0].spot is None
    row = compiled(at=4999)
    assert row.shape == (1 << 19,) and not row.any()
