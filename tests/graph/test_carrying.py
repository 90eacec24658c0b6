"""`iron.carry`: the per-call values a graph computes for its own next call."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import TraceError
from iron_ops_aie import Copy, SiLU


class Walk(iron.Graph):
    """From node to node along `successor`."""

    def __init__(self, successor):
        self.successor = iron.weight(successor)

    def body(self, *, node: iron.Carried[np.int32], steps: iron.Carried[np.int32]):
        following = Copy(self.successor[node], dtype=np.int32)
        return iron.carry(node=following, steps=steps + 1)


def test_a_walk_goes_on_from_what_it_carried():
    """A handle of one element is read back; an expression is evaluated."""
    graph = Walk(np.array([3, 0, 1, 2], np.int32))
    node, steps, seen = 0, 0, []
    for _ in range(5):
        (carried,) = graph.reference(node=node, steps=steps)
        node, steps = carried.node, carried.steps
        seen.append(node)
    assert seen == [3, 2, 1, 0, 3] and steps == 5


def test_carried_values_come_behind_the_outputs():
    """As a namespace."""

    class Both(iron.Graph):
        def body(self, x, *, i: iron.Carried[np.int32]):
            return SiLU(x), iron.carry(i=2 * i + 1)

    y, carried = Both().reference(np.zeros(3, np.float32), i=4)
    assert y.tolist() == [0, 0, 0] and carried.i == 9


def test_a_state_of_one_element_may_be_carried():
    """It is read when the call is over."""

    class Counter(iron.Graph):
        def __init__(self):
            self.one = iron.state((1,), np.int32)

        def body(self, fresh, *, i: iron.Carried[np.int32]):
            Copy(fresh, self.one)
            return iron.carry(i=Copy(self.one))

    assert Counter().reference(np.array([7], np.int32), i=0)[0].i == 7


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda y, x, i, w: (iron.carry(i=i), y), "returned last"),
        (lambda y, x, i, w: (y, iron.carry(j=i)), "names j, which no Carried parameter is. Carried: i"),
        (lambda y, x, i, w: (y, iron.carry()), "lacks i"),
        (lambda y, x, i, w: y, "lacks i"),
        (lambda y, x, i, w: (y, iron.carry(i=x)), "one-element tensor that the graph made"),
        (lambda y, x, i, w: (y, iron.carry(i=y)), "one-element tensor that the graph made"),
        (lambda y, x, i, w: (y, iron.carry(i=y[0:1])), "one-element tensor that the graph made"),
        (lambda y, x, i, w: (y, iron.carry(i=Copy(x[0:1]))), "carried as int32; copy_y0.* is float32"),
        (lambda y, x, i, w: (y, iron.carry(i="next")), "got str"),
        (lambda y, x, i, w: (y, iron.carry(i=True)), "got bool"),
    ],
)
def test_what_cannot_be_carried_is_refused(result, message):
    """Unknown and missing names, a carry that is not last, tensors that are not one fresh number of the value's dtype."""

    class Wrong(iron.Graph):
        def body(self, x, *, i: iron.Carried[np.int32]):
            return result(SiLU(x), x, i, None)

    with pytest.raises(TraceError, match=message):
        Wrong().trace(x=((4,), np.float32))


def test_only_the_outermost_graph_carries():
    """A graph called in another's body has no next call of its own."""
    walk = Walk(np.array([1, 0], np.int32))

    class Outer(iron.Graph):
        def __init__(self):
            self.walk = walk

        def body(self, *, node: iron.Carried[np.int32]):
            return self.walk(node=node, steps=node)

    with pytest.raises(TraceError, match="only the outermost graph carries"):
        Outer().trace()
