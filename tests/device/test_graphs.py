"""Whole graphs on a device, call after call: numbers that each call gives, carried values, states, gathers and bounds.

Each step is near the reference run, and the same call gives the same bits whatever ran before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, RMSNorm, SiLU

pytestmark = pytest.mark.supported_devices("npu1", "npu2")
#: How far a graph in bfloat16 may be from its reference run, as a part of that.
NEAR = 0.03


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(bfloat16)


def near(got: Any, want: Any) -> bool:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return got.shape == want.shape and got.size > 0 and bool(np.linalg.norm(got - want) <= NEAR * np.linalg.norm(want))


def bits(tensor: Any) -> bytes:
    return np.ascontiguousarray(tensor).tobytes()


class Project(iron.Graph):
    """The first `n` rows of `x` projected by `w`."""

    def body(self, x, w, *, n: iron.Scratchpad[np.int32]):
        return GEMM(x[:n], w, b_col_maj=True)


def test_one_compile_serves_every_bound(npu):
    """Bounds that grow and shrink: each call is right, and none leaves a word behind."""
    x, w = drawn(0, 512, 128), drawn(1, 64, 128)
    project = npu.take(Project().compile(x=x.shape, w=w.shape, **npu.options))
    whole = project(x, w, n=512)
    for n in (1, 300, 64, 65, 512, 17):
        got = project(x, w, n=n)
        assert near(got, Project().reference(x, w, n=n))
        assert bits(got) == bits(whole[:n])
    assert len(project.versions) == 1


class Attend(iron.Graph):
    """One query of six heads over the first `n` rows of a cache of three."""

    def body(self, q, k, v, *, n: iron.Scratchpad[np.int32]):
        return MHA(q, k[:n], v[:n], heads_interleaved=True, kv_interleaved=True)


def test_attention_follows_its_context(npu):
    q, k, v = drawn(0, 1, 6, 64), drawn(1, 128, 3, 64), drawn(2, 128, 3, 64)
    attend = npu.take(Attend().compile(q=q.shape, k=k.shape, v=v.shape, **npu.options))
    first = {n: bits(attend(q, k, v, n=n)) for n in (128, 1, 17, 100)}
    for n in (100, 128, 17, 1):
        got = attend(q, k, v, n=n)
        assert near(got, Attend().reference(q, k, v, n=n))
        assert bits(got) == first[n]


class Counter(iron.Graph):
    """Adds a row of a table to a running sum and gives it; the row is carried."""

    def __init__(self):
        self.total = iron.state((64,), name="total")
        self.table = iron.weight(drawn(3, 16, 64))

    def body(self, *, at: iron.Carried[np.int32]):
        ElementwiseAdd(self.total, Copy(self.table[at]), self.total)
        return iron.carry(at=at + 1)


def test_a_loop_carries_and_states_are_kept(npu):
    """A sum in bfloat16, row by row, is exact: a loop's, a call's behind it, and what was written between."""
    counter = Counter()
    compiled = npu.take(counter.compile(**npu.options))

    def added(total: np.ndarray, rows: Any) -> np.ndarray:
        for row in rows:
            total = (total.astype(np.float32) + row.astype(np.float32)).astype(bfloat16)
        return total

    assert compiled.loop(3, at=5) == {"at": 8}
    want = added(np.zeros(64, bfloat16), counter.table.data[5:8])
    assert bits(compiled.read("total")) == bits(want)
    assert compiled.loop(1, at=0) == {"at": 1}
    assert bits(compiled.read("total")) == bits(added(want, counter.table.data[:1]))
    compiled.write("total", np.ones(64, bfloat16))
    compiled.loop(2, at=14)
    assert bits(compiled.read("total")) == bits(added(np.ones(64, bfloat16), counter.table.data[14:]))


class Lookup(iron.Graph):
    """Rows of a table, by ids."""

    def __init__(self):
        self.table = iron.weight(drawn(4, 96, 128))

    def body(self, ids):
        return Copy(self.table[ids])


def test_a_gather_is_exact(npu):
    lookup = Lookup()
    compiled = npu.take(lookup.compile(ids=((8,), np.int32), **npu.options))
    for ids in ([0, 95, 1, 1, 50, 7, 64, 0], [3] * 8, [*range(8)]):
        assert bits(compiled(np.array(ids, np.int32))) == bits(lookup.table.data[ids])


class Caches(iron.Graph):
    """A product behind a norm into a row of a cache, another's activation into a half of a state; then what they hold."""

    def __init__(self):
        self.w, self.v, self.g = drawn(5, 128, 64), drawn(6, 64, 64), drawn(7, 64)
        self.rows = iron.state((6, 128), name="rows")
        self.half = iron.state((128,), name="half")

    def body(self, x, *, at: iron.Scratchpad[np.int32]):
        h = RMSNorm(x.reshape(1, 64), weight=self.g).reshape(64)
        Copy(GEMV(self.w, h), self.rows[at])
        Copy(SiLU(GEMV(self.v, h)), self.half[64:])
        return ElementwiseAdd(self.rows.reshape(768), self.rows.reshape(768)), SiLU(self.half)


@pytest.mark.parametrize("boundaries", [None, iron.each_step], ids=["whole", "each_step"])
def test_folded_equals_unfolded(npu, boundaries):
    """With copies into states where their producers write, and with each step a dispatch of its own: the same bits in every output
    and state."""
    plain, folded = (Caches().compile(x=(64,), fold=fold, boundaries=boundaries, **npu.options) for fold in (False, True))
    npu.take(plain), npu.take(folded)
    for at in (0, 5, 2, 5):
        x = drawn(at, 64)
        for got, want in zip(folded(x, at=at), plain(x, at=at), strict=True):
            assert bits(got) == bits(want)
        for state in ("rows", "half"):
            assert bits(folded.read(state)) == bits(plain.read(state))


@pytest.mark.parametrize("image", [None, iron.CONTEXTS], ids=["image", "contexts"])
def test_five_operators_and_a_carried_value(npu, five, image):
    """Every kind of array in one call, each at the position that is carried; the same from the start again."""
    graph, x, prompt = five()
    compiled = npu.take(graph.compile(x=x.shape, prompt=prompt.shape, image=image, **npu.options))

    def walked() -> list[bytes]:
        made, at = [], 0
        for _ in range(4):
            out, carried = compiled(x, prompt, at=at)
            want, _ = graph.reference(x, prompt, at=at)
            assert near(out, want)
            made.append(bits(out))
            at = carried.at
        assert at == 4
        return made

    assert walked() == walked()
