"""Buffers on a simulated device: what is given once, what is synced, what grows, and what versions of a graph share."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_npu.backend import NpuBackend
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, SiLU

PACKAGINGS = {"elf": {}, "chain": {"boundaries": iron.each_step}, "contexts": {"image": iron.CONTEXTS}}


class Net(iron.Graph):
    """Weights, a state that a row is written to, and a second version that is larger in everything."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.w = (rng.standard_normal((64, 64)) / 8).astype(bfloat16)
        self.v = (rng.standard_normal((64, 64)) / 8).astype(bfloat16)
        self.rows = iron.state((8, 64))

    def body(self, x, y=None, *, at: iron.Scratchpad[np.int32]):
        made = GEMV(self.w, x)
        Copy(made, self.rows[at])
        if y is None:
            return SiLU(made)
        return SiLU(GEMV(self.v, made)), ElementwiseAdd(SiLU(y), y)


def net(dev="npu2", **packaging):
    return Net().compile(backend=NpuBackend(), dev=dev, x=(64,), **packaging)


def vector(seed, n=64):
    return np.random.default_rng(seed).standard_normal(n).astype(bfloat16)


def executable(run, index=-1):
    return [*run.versions.values()][index].load()


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_a_call_gives_the_device_what_is_new_and_takes_what_it_made(xrt, packaging):
    """Weights once; from then on an input, room for an output, words, and back the output."""
    run = net(**PACKAGINGS[packaging])
    run(vector(0), at=0)
    assert xrt.synced["TO_DEVICE"] >= 64 * 64 * 2
    for at in (1, 2):
        before = dict(xrt.synced)
        run(vector(at), at=at)
        # In a chain the word is part of a stream, of a few kilobytes here.
        assert xrt.synced["TO_DEVICE"] - before["TO_DEVICE"] <= 128 + 128 + (4 if packaging == "elf" else 1 << 14)
        assert xrt.synced["FROM_DEVICE"] - before["FROM_DEVICE"] == 128
    assert [row.any() for row in run.read("rows")] == [True] * 3 + [False] * 5


def test_a_state_written_in_part_keeps_what_the_device_wrote_beside(xrt):
    """Rows that share a cache line with those that the host writes."""

    class Narrow(iron.Graph):
        def __init__(self):
            self.rows = iron.state((8, 4), np.float32)

        def body(self, x, *, at: iron.Scratchpad[np.int32]):
            Copy(x, self.rows[at])
            return Copy(self.rows[:])

    run = Narrow().compile(backend=NpuBackend(), dev="npu2", x=((4,), np.float32))
    run(np.full(4, 5, np.float32), at=2)
    run.write("rows", np.ones((2, 4), np.float32), 2)
    assert run(np.full(4, 6, np.float32), at=3)[:, 0].tolist() == [1, 1, 5, 6, 0, 0, 0, 0]


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_a_version_added_later_grows_the_arena_and_keeps_what_is_in_it(xrt, packaging):
    run = net(**PACKAGINGS[packaging])
    want = Net().compile(backend="sim", dev="npu2", x=(64,), **PACKAGINGS[packaging])
    both = [run, want]
    first = [np.asarray(one(vector(0), at=3)).tobytes() for one in both]
    bank = executable(run).memory.banks[0]
    more = [[np.asarray(part).tobytes() for part in one(vector(1), vector(2, 4096), at=4)] for one in both]
    assert executable(run).memory.banks[0] is not bank
    assert first[0] == first[1] and more[0] == more[1]
    assert run.read("rows").tobytes() == want.read("rows").tobytes()
    assert np.asarray(run(vector(0), at=3)).tobytes() == first[0]


def test_a_state_written_whole_is_what_the_device_reads(xrt):
    """The second time too, when the device has what was there before."""
    run = net()
    for value in (1, 2):
        rows = np.full((8, 64), value, bfloat16)
        run.write("rows", rows)
        assert run.read("rows").tobytes() == rows.tobytes()
        run(vector(0), at=0)
        assert np.array_equal(run.read("rows")[1:], rows[1:])


def test_what_nobody_wrote_reads_as_no_number(xrt):
    """Of intermediate tensors, and of what an arena grows by; what it held stays."""
    run = net()
    run.load()
    memory = executable(run).memory
    (small,) = memory.banks
    assert (small.get(0, small.nbytes) == 0xFF).all() and (small.bo.device != 0xFF).all()
    small.flush()
    assert (small.bo.device == 0xFF).all()
    small.put(0, np.arange(8, dtype=np.uint8))
    large = memory.bank(small.nbytes + 100, small)
    assert large.get(0, 8).tolist() == [*range(8)] and (large.get(8, large.nbytes - 8) == 0xFF).all()


def test_versions_are_one_elf_in_one_context(xrt, builder):
    """What was loaded before goes on in the ELF that has both; the other one's context goes."""
    run = net()
    run(vector(0), at=0)
    run(vector(1), vector(2, 4096), at=1)
    run(vector(0), at=2)
    gc.collect()
    assert builder.builds == 2 and len(xrt.alive) == 1 and xrt.made == 2
    assert executable(run, 0).elf is executable(run, 1).elf


def test_versions_compiled_before_the_first_call_are_built_once(xrt, builder):
    run = net()
    run.add(x=(64,), y=(4096,))
    assert builder.builds == 0, "compiling builds nothing"
    run(vector(0), at=0)
    run(vector(1), vector(2, 4096), at=1)
    assert builder.builds == xrt.made == 1


def test_buffers_go_with_their_graph(xrt):
    """And its contexts with them."""
    run = net()
    run(vector(0), at=0)
    held = weakref.ref(executable(run).memory.held[0])
    del run
    gc.collect()
    assert held() is None and not xrt.alive


def test_parts_are_of_the_whole(xrt):
    """One for every place, kept."""
    run = net(**PACKAGINGS["chain"])
    for at in range(3):
        run(vector(at), at=at)
    (bank,) = executable(run).memory.held
    assert 1 <= len(bank._parts) <= 3
