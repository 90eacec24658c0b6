"""What a user gets wrong at first: one clear error each, and nothing taken in silence."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import CallError, DeclarationError, ShapeError, TraceError
from iron_core.graph.held import held
from iron_ops_aie import Copy, ElementwiseAdd, Scale, SiLU

F32 = np.float32


class First(iron.Graph):
    """SiLU of the first n rows, plus a bias."""

    def __init__(self, rows=4):
        self.bias = iron.weight(np.zeros((rows, 8), F32))
        self.kv = iron.state((4, 8), F32)

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return SiLU(x[:n])


@pytest.fixture
def first():
    return First().compile(backend="reference", x=((4, 8), F32))


X = np.ones((4, 8), F32)


@pytest.mark.parametrize("n", [1.0, 2.5, "3", None, np.array([3])])
def test_a_per_call_value_is_a_whole_number(first, n):
    """Refused before anything runs, compiled and in the reference, given whole or cut."""
    for call in (first, first.reference):
        for x in (X, X[:3]):
            with pytest.raises(CallError, match=r"n=.*is a whole number"):
                call(x, n=n)


@pytest.mark.parametrize("n", [3, np.int8(3), np.uint64(3), np.array(3)])
def test_any_integer_is_a_per_call_value(first, n):
    """numpy's too."""
    assert first(X, n=n).shape == first.reference(X, n=n).shape == (3, 8)


def test_a_per_call_value_fits_its_word(first):
    """32 bits: what does not fit would be another number on a device."""
    with pytest.raises(CallError, match=r"n=4294967296 does not fit int32; legal: -2147483648 to 2147483647"):
        first(X, n=1 << 32)


@pytest.mark.parametrize("bad", [X.astype(np.float64), X.tolist(), X.astype(">f4"), np.array([None]), "x"])
def test_a_tensor_of_another_dtype_is_refused_by_name(first, bad):
    """Nothing is cast in silence; the message has the input, its dtype and what is legal."""
    for call in (first, first.reference):
        with pytest.raises(CallError, match=r"First: input x is .*Legal: bfloat16, float32"):
            call(bad, n=1)


def test_inputs_may_be_given_by_name(first):
    """Compiled and in the reference; one given twice or left out is refused."""
    for call in (first, first.reference):
        assert call(x=X, n=2).shape == (2, 8)
        with pytest.raises(CallError, match=r"x is given twice|takes 1 tensors"):
            call(X, x=X, n=2)
        with pytest.raises(CallError, match="input x is None or left out"):
            call(None, n=2)


def test_order_in_memory_does_not_matter(first):
    """Strided, Fortran-ordered and read-only arrays hold the same numbers."""
    x = np.arange(32, dtype=F32).reshape(4, 8)
    frozen = x.copy()
    frozen.flags.writeable = False
    for same in (np.repeat(x, 2, axis=0)[::2], np.asfortranarray(x), frozen):
        assert np.array_equal(first(same, n=4), first(x, n=4))


@pytest.mark.parametrize("shape", [(4, -1), (0, 8), (4.0, 8), (True, 8), "48", ((4, 8),)])
def test_a_shape_is_whole_numbers(shape):
    """The message names the input and the two ways to write a tensor."""
    with pytest.raises(ShapeError, match=r"x=.*whole number of at least 1\. A tensor is \(dims\) or \(\(dims\), dtype\)"):
        First().compile(backend="null", x=shape)
    assert First().compile(backend="null", x=(np.int64(4), 8)).versions


@pytest.mark.parametrize("shape", [(10**20,), (1 << 29, 1 << 28), (2, 1 << 56)])
def test_no_tensor_is_larger_than_memory_can_be(shape):
    """What no address reaches is refused by the input's name, before a backend counts with it."""
    with pytest.raises(ShapeError, match=r"x=.*: a tensor has at most 2\*\*56 elements\. A tensor is \(dims\)"):
        First().compile(backend="null", x=shape)
    with pytest.raises(ShapeError, match=r"state\(shape=.*: a tensor has at most 2\*\*56 elements"):
        iron.state(shape)


@pytest.mark.parametrize("shape", [-1, 1.5, "abc", (4, 0)])
def test_so_is_a_states(shape):
    """And nothing is cut to a whole number."""
    with pytest.raises(ShapeError, match=r"state\(shape=.*whole number"):
        iron.state(shape)


def graph_of(body):
    return type("G", (iron.Graph,), {"body": body})()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda self, x: SiLU(x) if x == 0 else x, "branches on or compares"),
        (lambda self, x: SiLU(x) if x > 0 else x, "branches on or compares"),
        (lambda self, x: x + 1, "no arithmetic; call an operator"),
        (lambda self, x: 2 * x @ x, "no arithmetic; call an operator"),
        (lambda self, x: SiLU(x[: len(x)]), r"`\.shape\[0\]` counts its rows"),
        (lambda self, x: float(x), "used as a number"),
        (lambda self, x: np.exp(x), "numpy cannot read x"),
        (lambda self, x: First().reference(x, n=1), "a reference run take"),
        (lambda self, x: self(x), "calls its own graph"),
        (lambda self, x: [SiLU(x)][1:][0:] or None, "returns list|returns nothing"),
        (lambda self, x: SiLU(x) and None, "branches"),
        (lambda self, x: print(SiLU(x)), "returns nothing and writes no state"),
    ],
)
def test_a_body_is_told_what_tensors_cannot_do(body, message):
    """Each is a TraceError that says what would do; `==` is never False in silence."""
    with pytest.raises(TraceError, match=message):
        graph_of(body).trace(x=((4, 8), F32))


def test_a_body_may_write_states_and_return_nothing():
    """Then there is something to do."""

    class Fill(iron.Graph):
        def __init__(self):
            self.kv = iron.state((4, 8), F32)

        def body(self, x):
            Copy(x, self.kv)

    filled = Fill().compile(backend="reference", x=((4, 8), F32))
    assert filled(X) == ()
    assert np.array_equal(filled.read("kv"), X)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda n: n * 1.5, "only whole numbers multiply one"),
        (lambda n: n / 2, "meets 2 in / or %"),
        (lambda n: n % 2, "meets 2 in / or %"),
        (lambda n: n // 0, "only positive integers"),
    ],
)
def test_per_call_arithmetic_that_is_not_affine(expression, message):
    """The message has what is legal."""

    class Cut(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            print(f"{n:3d}")  # a body may print; it shows the name
            return SiLU(x[: expression(n)])

    with pytest.raises(TraceError, match=message):
        Cut().trace(x=((4, 8), F32))


def test_a_per_call_value_has_no_default():
    """It would never be used: every call gives it."""

    class Default(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32] = 3):
            return SiLU(x[:n])

    with pytest.raises(DeclarationError, match="n=3: a per-call value has no default"):
        Default().trace(x=(4, 8))


def test_a_graph_without_a_body_says_so():
    """Whatever it is asked for."""
    with pytest.raises(DeclarationError, match="Empty defines no body"):
        type("Empty", (iron.Graph,), {})()(X)


def test_a_tensor_set_after_compiling_is_refused():
    """Versions would go on with the old one; plain attributes may change."""
    graph = First()
    graph.bias = iron.weight(X)
    compiled = graph.compile(backend="reference", x=((4, 8), F32))
    graph.note = "anything"
    with pytest.raises(TraceError, match=r"First\.bias: the graph is compiled.*compiled\.write\('bias', array\)"):
        graph.bias = iron.weight(X)
    assert compiled.graph is graph


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_a_copied_graph_starts_anew(again):
    """It shares no compiled version and no state with the one it came from, whether that ran or not."""
    graph = Kept()
    assert graph.compile(backend="reference", x=((4, 8), F32))(X)[0, 0] == 1
    assert graph.reference(X)[0, 0] == 1
    twin = again(graph)
    assert twin.reference(X)[0, 0] == 1
    assert twin.compile(backend="reference", x=((4, 8), F32))(X)[0, 0] == 1


class Kept(iron.Graph):
    """Adds x to a state and returns the sum."""

    def __init__(self):
        self.sum = iron.state((4, 8), F32)

    def body(self, x):
        y = ElementwiseAdd(x, self.sum)
        Copy(y, self.sum)
        return y


def test_a_compiled_graph_is_not_copied(first):
    """It is code and memory of its process."""
    for again in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(CallError, match="copy or pickle its graph"):
            again(first)


def test_a_loop_takes_no_tensor(first):
    """Its message names the tensors."""
    with pytest.raises(CallError, match="takes no tensor; First takes x"):
        first.loop(3, n=1)


def test_attributes_may_be_nested_deep_and_in_circles():
    """What a graph holds is found however it is kept."""
    graph = First()
    graph.me, inner = graph, graph.__dict__
    for _ in range(5000):
        inner["down"] = {}
        inner = inner["down"]
    inner["last"] = np.ones(3, F32)
    names = [name for name, _ in held(graph).values()]
    assert names[:2] == ["bias", "kv"] and names[2].endswith("down.last")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (lambda self, x: 0.22 * x, r"has no arithmetic; .*ElementwiseMul\(a, b\), Scale\(a, factor=2\.0\)"),
        (lambda self, x: Scale(x, 0.22), r"called on float; .*A setting goes by its name: Scale\(x, factor=2\.0\)"),
    ],
    ids=["arithmetic", "a setting by position"],
)
def test_a_number_times_a_tensor_is_an_operator(body, says):
    """Whoever writes it otherwise is told which."""
    with pytest.raises(TraceError, match=says):
        type("Scaled", (iron.Graph,), {"body": body})().trace(x=((4, 8), F32))
