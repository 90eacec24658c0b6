"""Copies in graphs, on simulated arrays: views, states, offsets, bounds and gathers as a graph writes them."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.errors import UnsupportedError
from iron_ops_aie import Copy, Transpose

DEVICES = ("npu1", "npu2")


def bits(seed, *shape):
    """Any bfloat16 at all."""
    return np.random.default_rng(seed).integers(0, 1 << 16, shape, np.uint16).view(bfloat16)


class Columns(iron.Graph):
    """Some columns of x, turned into rows of their own."""

    def body(self, x):
        return Copy(x[:, 4:12])


class Picked(iron.Graph):
    """Rows known when the graph is traced."""

    def body(self, x):
        return Copy(x[np.array([3, 1, 1, -1, 7])])


class First(iron.Graph):
    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return Copy(x[:n])


class Stepped(iron.Graph):
    """Every third row from the second on, of every second block of four columns."""

    def body(self, x):
        return Copy(x.reshape(16, 8, 4)[1::3, ::2])


class FirstStepped(iron.Graph):
    """The first of every second row."""

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return Copy(x[1::2][: n // 2])


class Turned(iron.Graph):
    """Rows that a call bounds, in parts, the parts first."""

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return Copy(x[:n].reshape(16, 4, 8).transpose(1, 0, 2))


class One(iron.Graph):
    def body(self, x, *, at: iron.Scratchpad[np.int32]):
        return Copy(x[at])


class Embed(iron.Graph):
    """Rows of a table by ids that a call gives."""

    def __init__(self):
        self.rows = bits(9, 60, 32)
        self.table = iron.weight(self.rows)

    def body(self, ids):
        return Copy(self.table[ids])


class Remember(iron.Graph):
    """Puts x into a row of a state, and shows the state."""

    def __init__(self):
        self.cache = iron.state((16, 32))

    def body(self, x, *, at: iron.Scratchpad[np.int32]):
        Copy(x, self.cache[at])
        return Copy(self.cache)


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    ("graph", "calls"),
    [
        (Columns, [{}]),
        (Picked, [{}]),
        (Stepped, [{}]),
        (First, [{"n": n} for n in (16, 1, 7, 16, 2)]),
        (FirstStepped, [{"n": n} for n in (16, 2, 7)]),
        (Turned, [{"n": n} for n in (16, 1, 7)]),
        (One, [{"at": at} for at in (3, 0, 15)]),
    ],
)
def test_a_view_in_a_graph_is_what_numpy_says(graph, calls, dev):
    """One compile; every call its own bound or offset."""
    x = bits(1, 16, 32)
    compiled = graph().compile(x=(16, 32), backend="sim", dev=dev)
    for values in calls:
        got = np.asarray(compiled(x, **values))
        want = graph().reference(x, **values)
        assert got.shape == want.shape and got.tobytes() == np.asarray(want).tobytes()
    assert len(compiled.versions) == 1


@pytest.mark.parametrize("dev", DEVICES)
def test_rows_are_gathered_by_the_ids_of_a_call(dev):
    """Also from the table's end."""
    graph = Embed()
    compiled = graph.compile(ids=np.zeros(20, np.int32), backend="sim", dev=dev)
    for seed in range(3):
        ids = np.random.default_rng(seed).integers(-60, 60, 20).astype(np.int32)
        assert np.asarray(compiled(ids)).tobytes() == graph.rows[ids].tobytes()


@pytest.mark.parametrize("dev", DEVICES)
def test_a_state_is_written_at_a_calls_row(dev):
    """The other rows stay as they were, call after call."""
    compiled = Remember().compile(x=(32,), backend="sim", dev=dev)
    want = np.zeros((16, 32), bfloat16)
    for seed, at in enumerate((3, 15, 0, 3)):
        x = bits(seed, 32)
        want[at] = x
        assert np.asarray(compiled(x, at=at)).tobytes() == want.tobytes()


@pytest.mark.parametrize("dev", DEVICES)
def test_every_second_row_of_a_state_is_written(dev):
    """By rows that a call picks from a table; the others stay."""

    class Every(iron.Graph):
        def __init__(self):
            self.table, self.rows = iron.weight(bits(3, 20, 32)), iron.state((16, 32))

        def body(self, ids):
            Copy(self.table[ids], self.rows[1::2])
            return Copy(self.rows)

    graph = Every()
    compiled = graph.compile(ids=((8,), np.int32), backend="sim", dev=dev)
    ids = np.array([3, 19, 0, 0, 7, 11, -1, 5], np.int32)
    want = np.zeros((16, 32), bfloat16)
    want[1::2] = bits(3, 20, 32)[ids]
    assert np.asarray(compiled(ids)).tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("view", "rows"),
    [(lambda x: x.T, lambda t: t), (lambda x: x[:, ::2], lambda t: t[::2]), (lambda x: x[:, 3], lambda t: t[3])],
    ids=["transposed", "columns", "column"],
)
def test_a_view_across_rows_is_told_of_transpose(view, rows):
    """One bfloat16 is half a word. Transposed, it is rows, which move at any step; numbers of a word move as they are."""

    class Across(iron.Graph):
        def body(self, x):
            return Copy(view(x))

    class Rows(iron.Graph):
        def body(self, x):
            return Copy(rows(Transpose(x)))

    x = bits(1, 16, 32)
    with pytest.raises(UnsupportedError, match=r"Copy: src=.*: an innermost stride of \d+; .*Legal: Transpose, .* takes rows at any step"):
        Across().compile(x=(16, 32), backend="sim", dev="npu2")
    assert np.asarray(Rows().compile(x=(16, 32), backend="sim", dev="npu2")(x)).tobytes() == rows(x.T).tobytes()
    wide = np.arange(512, dtype=np.int32).reshape(16, 32)
    got = Across().compile(x=((16, 32), np.int32), backend="sim", dev="npu2")(wide)
    assert np.array_equal(got, view(wide))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (lambda x: x[:, 3:13], "offset 3 is 6 bytes; every offset must be whole 4-byte words"),
        (lambda x: x[:, 4:13], "run 9 is 18 bytes; every run must be whole 4-byte words"),
    ],
)
def test_a_view_from_the_middle_of_a_word_is_told_of_transpose(view, words):
    """One bfloat16 is half a word; columns that begin or end in one are rows of the transposed."""

    class Odd(iron.Graph):
        def body(self, x):
            return Copy(view(x))

    class There(iron.Graph):
        def body(self, x):
            return Copy(view(Transpose(x).T).T)

    with pytest.raises(UnsupportedError, match=rf"Copy: src=.*: {words}. Legal: Transpose, .* takes rows at any step"):
        Odd().compile(x=(16, 32), backend="sim", dev="npu2")
    x = bits(1, 16, 32)
    assert np.asarray(There().compile(x=(16, 32), backend="sim", dev="npu2")(x)).tobytes() == view(x).T.tobytes()
