"""Gathers: rows of a table by ids that the caller passes, the graph made, or the trace fixed."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import BoundsError, ShapeError, TraceError
from iron_ops_aie import GEMV, Copy, SiLU

F32 = np.float32


class Lookup(iron.Graph):
    """Rows of a table by ids, the first n of them."""

    def __init__(self, table):
        self.table = iron.weight(table)

    def body(self, ids, *, n: iron.Scratchpad[np.int32]):
        return Copy(self.table[ids[:n]])


@pytest.fixture
def table():
    return np.random.default_rng(0).standard_normal((10, 4)).astype(F32)


def ids(*rows):
    return np.array(rows, np.int32)


def test_ids_of_the_caller_pick_rows(table):
    """Negative ids count from the end; the bound on the ids is the bound on the rows."""
    picked = ids(3, 0, -1, 3)
    assert Lookup(table).reference(picked, n=4).tolist() == table[picked].tolist()
    assert Lookup(table).reference(picked, n=2).tolist() == table[picked[:2]].tolist()


def test_ids_of_the_caller_are_checked_up_to_the_bound(table):
    """An id past the bound is no id."""
    graph = Lookup(table)
    assert graph.reference(ids(1, 2, 99), n=2).tolist() == table[[1, 2]].tolist()
    with pytest.raises(BoundsError, match="ids holds id 99; legal: -10 to 9"):
        graph.reference(ids(1, 2, 99), n=3)
    with pytest.raises(BoundsError, match="holds id -11"):
        graph.reference(ids(-11, 2, 3), n=1)


def test_the_first_and_the_last_row_are_legal_and_the_next_are_not(table):
    """A table of 10 rows has ids -10 to 9."""
    graph = Lookup(table)
    assert graph.reference(ids(9, -10, 0, -1), n=4).tolist() == table[[9, 0, 0, 9]].tolist()
    for bad in (10, -11):
        with pytest.raises(BoundsError, match=f"ids holds id {bad}; legal: -10 to 9"):
            graph.reference(ids(0, bad), n=2)


def test_only_the_ids_that_are_read_are_checked(table):
    """A slice of an input is ids; what is beside it may be anything."""

    class Part(iron.Graph):
        def __init__(self):
            self.table = iron.weight(table)

        def body(self, numbers):
            return Copy(self.table[numbers[2:4]])

    assert Part().reference(ids(77, 88, 1, 2, 99)).tolist() == table[[1, 2]].tolist()
    with pytest.raises(BoundsError, match="id 77"):
        Part().reference(ids(1, 2, 3, 77, 5))


def test_one_input_may_pick_from_two_tables(table):
    """Each table has its own limit, and both are checked."""

    class Both(iron.Graph):
        def __init__(self):
            self.large, self.small = iron.weight(table), iron.weight(table[:5].copy())

        def body(self, ids):
            return Copy(self.small[ids]), Copy(self.large[ids])

    assert Both().reference(ids(4))[1].tolist() == table[[4]].tolist()
    with pytest.raises(BoundsError, match="legal: -5 to 4"):
        Both().reference(ids(7))


def test_ids_the_graph_made_pick_rows(table):
    """They are known only on the device, so one out of range is clipped, not refused."""

    class Chain(iron.Graph):
        def __init__(self):
            self.next = iron.weight(np.array([[2], [0], [30]], np.int32))
            self.table = iron.weight(table)

        def body(self, ids):
            made = Copy(self.next[ids])
            return Copy(self.table[made.reshape(ids.shape[0])])

    assert Chain().reference(ids(0, 1, 2)).tolist() == table[[2, 0, 9]].tolist()


def test_a_state_is_a_table_too():
    """It is read as the steps before left it."""

    class Memory(iron.Graph):
        def __init__(self):
            self.rows = iron.state((3, 4), F32)

        def body(self, x, ids):
            Copy(x, self.rows[1])
            return Copy(self.rows[ids])

    x = np.arange(4, dtype=F32)
    assert Memory().reference(x, ids(1, 0)).tolist() == [x.tolist(), [0.0] * 4]


def test_rows_of_a_gather_go_into_a_view(table):
    """`Copy(table[ids], state[...])`, bounded as the ids are."""

    class Into(iron.Graph):
        def __init__(self):
            self.table, self.rows = iron.weight(table), iron.state((2, 3, 4), F32)

        def body(self, ids, *, n: iron.Scratchpad[np.int32], at: iron.Scratchpad[np.int32]):
            Copy(self.table[ids[:n]], self.rows[at])
            return Copy(self.rows)

    expected = np.zeros((2, 3, 4), F32)
    expected[1, :2] = table[[5, 6]]
    assert Into().reference(ids(5, 6, 7), n=2, at=1).tolist() == expected.tolist()


def test_rows_of_a_gather_go_into_every_second_row(table):
    """`Copy(table[ids], state[::2])`; the ids may be every second of an input's, copied."""

    class Into(iron.Graph):
        def __init__(self):
            self.table, self.rows = iron.weight(table), iron.state((6, 4), F32)

        def body(self, ids):
            Copy(self.table[Copy(ids[::2])], self.rows[1::2])
            return Copy(self.rows)

    expected = np.zeros((6, 4), F32)
    expected[1::2] = table[[5, 7, 9]]
    assert Into().reference(ids(5, 6, 7, 8, 9)).tolist() == expected.tolist()


def test_packed_rows_are_gathered_as_they_are(table):
    """A block table is looked up without making numbers of it."""
    packed = iron.Q8_0.quantize(np.random.default_rng(1).standard_normal((10, 32)).astype(F32))

    class Packed(iron.Graph):
        def __init__(self):
            self.table = iron.weight(packed)

        def body(self, ids, x):
            return GEMV(Copy(self.table[ids]), x)

    x = np.ones(32, F32)
    got = Packed().reference(ids(7, -1), x)
    assert np.allclose(got, packed.dequantize()[[7, 9]] @ x, atol=1e-4)


@pytest.mark.parametrize(
    ("pick", "error", "message"),
    [
        (lambda self, ids, x: x[ids], TraceError, "whole weight or state"),
        (lambda self, ids, x: self.table[2:][ids], TraceError, "whole weight or state"),
        (lambda self, ids, x: self.table[::2][ids], TraceError, "whole weight or state"),
        (lambda self, ids, x: self.table[ids.reshape(1, 2)], TraceError, "one dimension of whole integers"),
        (lambda self, ids, x: self.table[x.reshape(8)], TraceError, "one dimension of whole integers"),
        (lambda self, ids, x: self.table.reshape(40)[ids], TraceError, "whole rows"),
        (lambda self, ids, x: self.table[ids].T, TraceError, "before it is transposed"),
        (lambda self, ids, x: self.table[ids].reshape(8), TraceError, "is a view"),
    ],
)
def test_what_is_no_gather_is_refused(table, pick, error, message):
    """A gather takes whole rows of a whole weight or state."""

    def body(self, ids, x):
        return Copy(pick(self, ids, x))

    graph = type("Pick", (iron.Graph,), {"body": body})()
    graph.table = iron.weight(table)
    with pytest.raises(error, match=message):
        graph.trace(ids=((2,), np.int32), x=((2, 4), F32))


def test_only_copy_gathers(table):
    """Another operator asks for the copy."""

    class Direct(iron.Graph):
        def __init__(self):
            self.table = iron.weight(table)

        def body(self, ids):
            return SiLU(self.table[ids])

    with pytest.raises(TraceError, match="a gather; Copy it first"):
        Direct().trace(ids=((2,), np.int32))


def test_ids_are_int32(table):
    """Another integer dtype is refused by name."""
    with pytest.raises(ShapeError, match="ids is int32; got uint32"):
        Lookup(table).trace(ids=((2,), np.uint32))
