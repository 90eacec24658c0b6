"""Weights and states: named by attribute path, one tensor for one object, whatever holds it."""

from __future__ import annotations

import dataclasses
from collections import deque
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import FormatError, ShapeError, TraceError
from iron_core.graph.held import names
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, ElementwiseMul, SiLU

F32 = np.float32


@dataclasses.dataclass
class Data:
    q: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    q: Any


@attrs.frozen
class Attrs:
    q: Any


class Layer:
    """An ordinary class."""

    def __init__(self, q):
        self.q = q

    def __call__(self, x):
        return ElementwiseAdd(x, self.q)


class Slots:
    __slots__ = ("q",)

    def __init__(self, q):
        self.q = q


class Unset:
    """A slot of it is empty, and asking for that goes wrong."""

    __slots__ = ("empty", "q")

    def __init__(self, q):
        self.q = q

    def __getattr__(self, name):
        raise RuntimeError(name) if name == "empty" else AttributeError(name)


class Pair(NamedTuple):
    a: Any
    b: Any


class Holder(iron.Graph):
    """Adds everything that `parts` finds in what it holds."""

    def __init__(self, held, parts):
        self.held = held
        self._parts = parts

    def body(self, x):
        for part in self._parts(self.held):
            x = ElementwiseAdd(x, part)
        return x


def array(k=0):
    return np.full(4, k, F32)


@pytest.mark.parametrize(
    ("held", "parts", "expected"),
    [
        (array(), lambda h: [h], ["held"]),
        ([array(), array()], lambda h: h, ["held.0", "held.1"]),
        ((array(), [array()]), lambda h: [h[0], h[1][0]], ["held.0", "held.1.0"]),
        ({"q": array(), 3: array()}, lambda h: h.values(), ["held.q", "held.3"]),
        (SimpleNamespace(q=array()), lambda h: [h.q], ["held.q"]),
        (Data(array()), lambda h: [h.q], ["held.q"]),
        (Slotted(array()), lambda h: [h.q], ["held.q"]),
        (Attrs(array()), lambda h: [h.q], ["held.q"]),
        (Layer(array()), lambda h: [h.q], ["held.q"]),
        ([Layer(array()), Layer(iron.state(4, F32))], lambda h: [h[0].q, h[1].q], ["held.0.q", "held.1.q"]),
        (Slots(Layer(array())), lambda h: [h.q.q], ["held.q.q"]),
        (Unset(array()), lambda h: [h.q], ["held.q"]),
        (Pair(array(), array()), lambda h: [h.b], ["held.1"]),
        ([SimpleNamespace(q=Data({"w": iron.weight(array())}))], lambda h: [h[0].q.q["w"]], ["held.0.q.q.w"]),
        (iron.weight(array(), name="mine"), lambda h: [h], ["mine"]),
        (iron.state(4, F32), lambda h: [h], ["held"]),
        (iron.state(4, F32, name="kv"), lambda h: [h], ["kv"]),
    ],
)
def test_names_are_attribute_paths(held, parts, expected):
    """Through lists, tuples, dicts, namespaces, dataclasses, attrs classes and ordinary ones."""
    traced = Holder(held, parts).trace(x=((4,), F32))
    assert [b.name for b in (*traced.weights, *traced.states)] == expected


def test_a_layer_of_an_ordinary_class_may_be_called_in_a_body():
    """Its weight keeps its name, and is not to be put in another's place once the graph is compiled."""

    class Model(iron.Graph):
        def __init__(self):
            self.layers = [Layer(array(1)), Layer(array(2))]
            self.note = Layer(None)

        def body(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    model = Model()
    compiled = model.compile(x=((4,), F32), backend="reference")
    assert compiled(array())[0] == 3
    assert [b.name for b in model.trace(x=((4,), F32)).weights] == ["layers.0.q", "layers.1.q"]
    model.note = Layer("nothing that a body computes with")
    with pytest.raises(TraceError, match=r"Model\.note: the graph is compiled"):
        model.note = Layer(array())


def objects(*held):
    made = np.empty(len(held), object)
    made[:] = held
    return made


def closing_over(w):
    """A function that has an array, as those have which are made by others."""
    return lambda x: ElementwiseAdd(x, w)


class Shared:
    """A class that has an array for all its instances."""

    table = array(7)


@pytest.mark.parametrize(
    ("held", "parts", "expected"),
    [
        (deque([array(), Layer(array())]), lambda h: [h[0], h[1].q], ["held.0", "held.1.q"]),
        (objects(array(), Layer(array())), lambda h: [h[0], h[1].q], ["held.0", "held.1.q"]),
        (objects(*map(array, range(4))).reshape(2, 2), lambda h: [h[1, 0]], ["held.1.0"]),
        (MappingProxyType({"w": array()}), lambda h: [h["w"]], ["held.w"]),
        (Shared(), lambda h: [h.table], ["held.table"]),
        (closing_over(array()), lambda h: [h.__closure__[0].cell_contents], ["held.w"]),
        ([closing_over(Layer(array()))], lambda h: [h[0].__closure__[0].cell_contents.q], ["held.0.w.q"]),
        (partial(ElementwiseAdd, array()), lambda h: [h.args[0]], ["held.0"]),
        (partial(closing_over, w=array()), lambda h: [h.keywords["w"]], ["held.w"]),
        (Layer(array()).__call__, lambda h: [h.__self__.q], ["held.q"]),
        ({iron.weight(array(), name="mine")}, list, ["mine"]),
    ],
    ids=["deque", "objects", "objects in rows", "proxy", "class", "closure", "closure in a list", "partial", "by name", "method", "set"],
)
def test_whatever_has_an_order_is_walked(held, parts, expected):
    """Deques, arrays of objects, what a class has for its instances, what a function closes over."""
    assert [b.name for b in Holder(held, parts).trace(x=((4,), F32)).weights] == expected


def test_what_an_instance_holds_is_named_before_what_its_class_has():
    """The class's own array, and what its body closes over, have names too; a graph there is called by its class."""
    shared, closed, inner = array(1), array(2), Scale(array(3))

    class Model(iron.Graph):
        table = shared
        last = array(4)

        def __init__(self):
            self.mine = shared

        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return inner(ElementwiseAdd(ElementwiseAdd(ElementwiseAdd(x, self.table), self.last), closed), n=n)

    assert [b.name for b in Model().trace(x=((4,), F32)).weights] == ["mine", "last", "body.closed", "Scale.w"]


@pytest.mark.parametrize("held", [{iron.weight(array())}, frozenset({Layer(array())}), [{iron.state(4, F32)}]], ids=["set", "frozen", "in"])
def test_a_set_has_no_order_to_name_weights_by(held):
    """Nor two runs the same one; what another path names, and what is no weight, may be in it."""
    with pytest.raises(TraceError, match=r"^Holder\.held(\.0)? is a set, .* no order to be named by; legal: a list, or weights with name="):
        Holder(held, lambda h: []).trace(x=((4,), F32))
    shared = iron.weight(array())
    assert list(names(Holder([{shared, "a", Layer(None)}, shared], list)).values()) == ["held.1"]


class Listed(list):
    """Has attributes beside its elements."""


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_what_lies_where_nobody_looks_is_a_tensor_all_the_same(backend):
    """Numbered as bodies take it; of two such, each version has its own, whatever the order it takes them in."""
    one, ten = np.full((4, 8), 1, F32), np.full((4, 8), 10, F32)
    beside = Listed()
    beside.one = one

    def default(tensor=ten):
        return tensor

    class Elsewhere(iron.Graph):
        def body(self, x, y=None):
            if y is None:
                return ElementwiseAdd(ElementwiseAdd(x, beside.one), default())
            return ElementwiseAdd(ElementwiseAdd(x, default()), ElementwiseMul(y, beside.one))

    graph, x = Elsewhere(), np.zeros((4, 8), F32)
    assert [weight.name for weight in graph.trace(x=((4, 8), F32)).weights] == ["w0", "w1"]
    graph.compile(backend=backend, x=((4, 8), F32))
    both = graph.compile(backend=backend, x=((4, 8), F32), y=((4, 8), F32))
    assert (both(x) == 11).all() and (both(x, x + 5) == 15).all() and (both(x) == 11).all()


def test_private_attributes_are_not_walked():
    """What a graph keeps for itself has no name; used, it gets an invented one."""

    class Hidden(iron.Graph):
        def __init__(self):
            self._w = array()

        def body(self, x):
            return ElementwiseAdd(x, self._w)

    assert names(Hidden()) == {}
    assert [b.name for b in Hidden().trace(x=((4,), F32)).weights] == ["w0"]


def test_what_holds_itself_is_walked_once():
    """A cycle ends."""
    held = {"q": array()}
    held["again"] = held
    assert list(names(Holder(held, lambda h: [])).values()) == ["held.q"]


def test_one_object_is_one_tensor():
    """The first path names it, and a wrapped array is the array."""
    shared = array(1)
    traced = Holder([shared, shared, iron.weight(shared)], lambda h: h).trace(x=((4,), F32))
    assert [b.name for b in traced.weights] == ["held.0"]
    equal = Holder([array(1), array(1)], lambda h: h).trace(x=((4,), F32))
    assert len(equal.weights) == 2


def test_the_same_object_has_the_same_key_in_every_trace():
    """So that versions store it once."""
    graph = Holder([array(), iron.state(4, F32)], lambda h: h)
    one, two = graph.trace(x=((4,), F32)), graph.trace(x=((4,), F32))
    assert [b.key for b in one.weights] == [b.key for b in two.weights]
    assert [b.key for b in one.states] == [b.key for b in two.states]


def test_only_what_a_body_uses_is_in_its_trace():
    """A graph may hold more."""
    assert Holder([array(), array()], lambda h: h[1:]).trace(x=((4,), F32)).weights[0].name == "held.1"


def test_two_tensors_of_one_name_are_refused():
    """A name is how a compiled graph reads and writes them."""
    graph = Holder([iron.state(4, F32, name="kv"), iron.state(4, F32, name="kv")], lambda h: h)
    with pytest.raises(TraceError, match="two tensors are named `kv`"):
        graph.trace(x=((4,), F32))


def test_an_input_does_not_take_the_name_of_a_weight():
    """The error says to rename one."""
    graph = Holder(array(), lambda h: [h])
    graph.x = array()
    with pytest.raises(TraceError, match="`x` has the name of a weight"):
        graph.trace(x=((4,), F32))


def test_an_array_of_a_dtype_that_is_not_carried_is_named():
    """By its path, with what is legal."""
    with pytest.raises(FormatError, match=r"held of the graph: dtype=.*float64.*Legal: bfloat16"):
        Holder(np.zeros(4), lambda h: [h]).trace(x=((4,), F32))
    with pytest.raises(FormatError, match=r"weight\(\) of what numpy makes no array of .*legal: rows of one length"):
        iron.weight([[1, 2], [3]])


@pytest.mark.parametrize("nothing", [np.ones((0, 3), F32), [], iron.PackedArray(np.zeros(0, np.uint8), (0, 32), iron.Q8_0)])
def test_a_weight_is_not_empty(nothing):
    """As a state is not: it is told where it is made, not by the operator that takes it."""
    with pytest.raises(ShapeError, match=r"weight\(\) of shape \(0.*, which has no numbers; legal: 1 or more along each axis"):
        iron.weight(nothing)


def test_a_weight_looks_like_a_handle():
    """Shape, dtype and size are those of its array, in a body and outside."""
    w = iron.weight(np.zeros((2, 3), np.float16))
    assert (w.shape, w.ndim, w.size, str(w.format)) == ((2, 3), 2, 6, "float16")
    assert w.dtype == np.float16
    with pytest.raises(TraceError, match="outside a graph body"):
        w[0]


def test_a_state_is_dense_and_not_empty():
    """Zero at first, bfloat16 unless told otherwise."""
    assert str(iron.state((2, 3)).format) == "bfloat16"
    with pytest.raises(ShapeError, match="every dimension is a whole number of at least 1"):
        iron.state((2, 0))
    with pytest.raises(ShapeError, match="dense"):
        iron.state((2, 32), iron.Q4_0)


def test_packed_arrays_are_weights_like_any():
    """Bare or wrapped."""
    packed = iron.Q4_1.quantize(np.ones((3, 32), F32))

    class Packed(iron.Graph):
        def __init__(self):
            self.bare, self.view = packed, iron.weight(packed)

        def body(self, x):
            return GEMV(self.bare, x), GEMV(Copy(self.view[1:]), x)

    traced = Packed().trace(x=((32,), F32))
    assert [(b.name, str(b.format)) for b in traced.weights] == [("bare", "q4_1")]


# -- graphs in graphs -------------------------------------------------------------------------------


class Scale(iron.Graph):
    """x + w, and what it saw last in a state."""

    def __init__(self, w):
        self.w = iron.weight(w)
        self.last = iron.state(4, F32)

    def body(self, x, y=None, *, n: iron.Scratchpad[np.int32]):
        Copy(x, self.last)
        y = x if y is None else y
        return ElementwiseAdd(y, self.w)


class Outer(iron.Graph):
    def __init__(self):
        self.blocks = [Scale(array(1)), Scale(array(10))]

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        for block in self.blocks:
            x = block(x, n=n)
        return SiLU(x)


def test_a_graph_in_a_body_traces_into_the_caller():
    """Its steps, weights and states are the caller's, under the caller's paths."""
    traced = Outer().trace(x=((4,), F32))
    assert [type(s.op).__name__ for s in traced.steps] == ["Copy", "ElementwiseAdd"] * 2 + ["SiLU"]
    assert [b.name for b in traced.weights] == ["blocks.0.w", "blocks.1.w"]
    assert [b.name for b in traced.states] == ["blocks.0.last", "blocks.1.last"]


def test_its_states_are_the_callers():
    """One reference run of the outer graph keeps both."""
    graph = Outer()
    graph.reference(array(5), n=0)
    assert {k: v.tolist() for k, v in graph.reference_states.items()} == {
        "blocks.0.last": [5.0] * 4,
        "blocks.1.last": [6.0] * 4,
    }


def test_a_graph_made_in_a_body_is_named_by_its_class():
    """A second one gets a number; a second call of one does not."""
    made = [Scale(array(1)), Scale(array(2))]

    class Inline(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            for block in (*made, made[0]):
                x = block(x, n=n)
            return x

    traced = Inline().trace(x=((4,), F32))
    assert [b.name for b in traced.weights] == ["Scale.w", "Scale1.w"]


def test_it_is_called_as_it_declares():
    """Tensors by position, arrays of the caller's too; values by name, an int where the caller knows it."""

    class Caller(iron.Graph):
        def __init__(self, call):
            self._call = call
            self.block = Scale(array())
            self.w = array(3)

        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return self._call(self.block, x, self.w, n)

    def run(call):
        return Caller(call).reference(array(1), n=2)

    assert run(lambda block, x, w, n: block(x, w, n=n)).tolist() == [3.0] * 4
    assert run(lambda block, x, w, n: block(x, None, n=3)).tolist() == [1.0] * 4
    with pytest.raises(TypeError, match="Scale takes 1 to 2 tensors"):
        run(lambda block, x, w, n: block(n=n))
    with pytest.raises(TypeError, match="its per-call values: n"):
        run(lambda block, x, w, n: block(x))
