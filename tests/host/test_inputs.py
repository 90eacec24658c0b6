"""What a caller gives as a tensor, to a call and to write(): converted once, checked as what it is, and refused in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.compiled.operator_image import OperatorImage
from iron_core.declare.formats import Q8_0, PackedArray, bfloat16
from iron_core.errors import BoundsError, CallError, FormatError, IronError, ShapeError
from iron_ops_aie import GEMV, Copy

BACKENDS = ("host", "reference")


class Whole(iron.Graph):
    def body(self, x: Any) -> Any:
        return Copy(x)


class Rows(iron.Graph):
    def body(self, x: Any, *, n: iron.Scratchpad[np.int32]) -> Any:
        return Copy(x[:n])


class Lookup(iron.Graph):
    def __init__(self) -> None:
        self.table = iron.weight(np.arange(12, dtype=np.float32).reshape(6, 2))

    def body(self, ids: Any) -> Any:
        return Copy(self.table[ids])


class Says:
    """An object that says it has a shape and a dtype, and makes the arrays it was given, one after another."""

    def __init__(self, shape: Any, dtype: Any, *arrays: Any) -> None:
        self.shape, self.dtype, self.arrays = shape, np.dtype(dtype), list(arrays)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.arrays.pop(0) if len(self.arrays) > 1 else self.arrays[0]


def compiled(graph: iron.Graph, backend: str, **shapes: Any) -> Any:
    return graph.compile(backend=backend, **shapes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_object_is_the_array_that_it_makes(backend, capsys):
    """Not the shape or the dtype that it says it has: rows beyond its array are never read."""
    graph = compiled(Whole(), backend, x=((64, 8), np.float32))
    ones = np.ones((64, 8), np.float32)
    graph(ones)
    assert (graph(Says((64, 8), np.float32, ones)) == 1).all()
    for array in (np.ones((1, 8), np.float32), np.ones((64, 8), np.int32), np.ones((0, 8), np.float32)):
        try:
            got = graph(Says((64, 8), np.float32, array))
        except IronError:
            continue
        assert got.shape == array.shape and (got == array).all(), "a version of what it is"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_so_it_is_under_a_bound(backend, rows):
    """What was cut to a bound has that many rows, or is refused."""
    graph = compiled(Rows(), backend, x=((4, 8), np.float32))
    given = Says((3, 8), np.float32, np.full((rows, 8), 7, np.float32))
    run = next(iter(graph.versions.values()))
    if rows == 3:
        assert (graph(given, n=3) == 7).all() and (run.call([given], {"n": 3})[0][0] == 7).all()
    else:
        with pytest.raises(ShapeError, match=r"input `x` has shape \(., 8\); it takes \(4, 8\) or, cut to this call's bound, \(3, 8\)"):
            run.call([given], {"n": 3})


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_object_is_asked_once(backend):
    """What was checked is what is used, though it makes another array the next time."""
    graph = compiled(Lookup(), backend, ids=((3,), np.int32))
    good, bad = np.array([0, 1, 5], np.int32), np.array([0, 1, 2**30], np.int32)
    want = np.array(graph(good))
    version = next(iter(graph.versions.values()))
    for call in (graph, lambda ids: version.call([ids], {})[0][0], graph.reference):
        assert np.array_equal(call(Says((3,), np.int32, good, bad)), want)
        with pytest.raises(BoundsError, match=r"ids holds id 1073741824; legal: -6 to 5"):
            call(Says((3,), np.int32, bad, good))


@pytest.mark.parametrize("backend", BACKENDS)
def test_arrays_may_lie_in_any_way(backend):
    """Strides of any kind, a subclass, an address that is no multiple of a number's size."""
    graph = compiled(Whole(), backend, x=((6, 4), np.float32))
    want = np.arange(24, dtype=np.float32).reshape(6, 4)
    odd = np.frombuffer(b"\0" + want.tobytes(), np.uint8)[1:].view(np.float32).reshape(6, 4)
    same = (
        np.asfortranarray(want),
        want[::-1][::-1],
        np.concatenate([want, want], 1)[:, :4],
        want.view(np.matrix),
        want.view(np.recarray),
        odd,
    )
    for array in same:
        assert np.array_equal(graph(array), want), repr(array.flags)
        assert np.array_equal(next(iter(graph.versions.values())).call([array], {})[0][0], want)
    with pytest.raises(CallError, match="input x is >f4; cast it"):
        graph(want.astype(">f4"))
    assert np.array_equal(graph(np.broadcast_to(np.float32(3), (6, 4))), np.full((6, 4), 3, np.float32))
    assert np.array_equal(graph(np.broadcast_to(want[:1], (6, 4))), np.repeat(want[:1], 6, 0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_whole_numbers_are_taken_in_any_dtype_of_whole_numbers(backend):
    """Where the input's own holds them; floats are refused, though each be whole."""
    graph = compiled(Lookup(), backend, ids=((3,), np.int32))
    version = next(iter(graph.versions.values()))
    want = version.call([np.array([0, 1, 5], np.int32)], {})[0][0]
    for dtype in (np.int64, np.int8, np.uint64):
        assert np.array_equal(version.call([np.array([0, 1, 5], dtype)], {})[0][0], want)
    for dtype in (np.float64, np.float32, np.float16, bfloat16):
        says = rf"input `ids` is int32; got {np.dtype(dtype)}\. Legal: whole numbers, as \.astype\(int32\) makes them"
        with pytest.raises(CallError, match=says):
            version.call([np.array([0, 1, 5], dtype)], {})


BAD = {
    "masked": (
        np.ma.masked_array(np.ones((4,), np.float32), mask=[0, 1, 0, 0]),
        "is a masked array.*legal: its numbers, as in array.filled",
    ),
    "complex": (np.ones(4, np.complex64), "complex64"),
    "text": (np.array(["a", "b", "c", "d"]), "<U1"),
    "bytes": (np.array([b"a"] * 4), "S1"),
    "objects": (np.array([1.0, None, 2.0, 3.0], object), r"object|'O'"),
    "dates": (np.array([0] * 4, "datetime64[s]"), r"datetime64|M8"),
    "records": (np.zeros(4, [("a", "f4")]), "a.*f4|void"),
    "ragged": ([[1.0], [1.0, 2.0]], r"is no array \(setting an array element .*\); legal: numbers of one shape\."),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", BAD)
def test_what_are_no_numbers_is_refused(backend, kind):
    """By a call, a reference run, a loaded version and an operator: one sentence that names the input and what would be legal."""
    bad, says = BAD[kind]
    graph = compiled(Whole(), backend, x=((4,), np.float32))
    version = next(iter(graph.versions.values()))
    operator = OperatorImage(GEMV(M=4, K=4, T=np.float32), backend=backend)
    calls = (graph, graph.reference, lambda x: version.call([x], {}), lambda x: operator(np.ones((4, 4), np.float32), x))
    for call in calls:
        with pytest.raises(IronError, match=says) as error:
            call(bad)
        assert "\n" not in str(error.value)


def test_a_masked_weight_is_refused():
    """Whether the graph holds it bare or wrapped."""
    masked = np.ma.masked_array(np.ones((4,), np.float32), mask=[0, 1, 0, 0])
    with pytest.raises(FormatError, match="masked array; legal: its numbers"):
        iron.weight(masked)

    class Holds(iron.Graph):
        def __init__(self) -> None:
            self.w = masked

        def body(self, x: Any) -> Any:
            return GEMV(x, self.w)

    with pytest.raises(FormatError, match="w of the graph: a masked array"):
        Holds().compile(backend="reference", x=((4, 4), np.float32))


class Holds(iron.Graph):
    """One state of every kind, and a weight."""

    def __init__(self) -> None:
        self.f, self.b = iron.state((3,), np.float32), iron.state((3,))
        self.i, self.u, self.c = (iron.state((3,), dtype) for dtype in (np.int32, np.uint32, np.int8))
        self.q = iron.weight(Q8_0.quantize(np.ones((2, 32), np.float32)))

    def body(self, x: Any) -> Any:
        return GEMV(self.q, x), *(Copy(state) for state in (self.f, self.b, self.i, self.u, self.c))


@pytest.fixture(params=BACKENDS)
def holds(request: Any) -> Any:
    graph = Holds().compile(backend=request.param, x=((32,), np.float32))
    for name in "fbiuc":
        graph.write(name, np.array([1, 2, 3]))
    return graph


@pytest.mark.parametrize("name", ["f", "b", "i", "u", "c"])
@pytest.mark.parametrize("kind", [kind for kind in BAD if kind != "ragged"])
def test_writing_what_are_no_numbers_is_refused(holds, name, kind):
    """Whatever the dtype; and what was there stays."""
    bad = BAD[kind][0]
    with pytest.raises(IronError, match=rf"^{name} is ") as error:
        holds.write(name, bad[:3])
    assert "\n" not in str(error.value) and holds.read(name).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("i", [1, np.nan, 3], "i is int32; got nan. Legal: -2147483648 to 2147483647"),
        ("i", [1, 2, np.inf], "i is int32; got inf"),
        ("u", [-np.inf, 2, 3], "u is uint32; got -inf. Legal: 0 to 4294967295"),
        ("i", [1, 2, 2**31], "i is int32; got 2147483648"),
        ("i", [1, 2, -(2**31) - 1], "i is int32; got -2147483649"),
        ("i", np.array([1, 2, 2**32 - 1], np.uint32), "i is int32; got 4294967295"),
        ("u", [1, -1, 3], "u is uint32; got -1"),
        ("c", [1, 128, 3], "c is int8; got 128. Legal: -128 to 127"),
        ("c", [1, 2, -128.6], "c is int8; got -128.6"),
        ("c", np.array([300, 1, 2], np.int16), "c is int8; got 300"),
        ("i", np.array([2**64 - 1, 1, 2], np.uint64), "i is int32; got 18446744073709551615"),
        ("i", [1, 2, 10**30], "i is int32; got object"),
        ("f", [1.0, 2.0], r"f is \[3\]; got \[2\]"),
        ("f", 1.0, r"f is \[3\]; got \[\]"),
        ("f", [[1.0], [2.0, 3.0]], "f is no array"),
        ("f", Q8_0.quantize(np.ones((1, 32), np.float32)), r"f is \[3\] float32; got a q8_0 PackedArray"),
        ("q", np.ones((2, 32), np.float32), "q.* is .*q8_0.*float32"),
        ("q", Q8_0.quantize(np.ones((1, 32), np.float32)), "q"),
    ],
)
def test_writing_what_does_not_fit_is_refused(holds, name, given, says):
    """The name, the rule, the number and what would be legal; and what was there stays."""
    before = holds.read(name)
    with pytest.raises((CallError, ShapeError), match=says) as error:
        holds.write(name, given)
    assert "\n" not in str(error.value)
    after = holds.read(name)
    if isinstance(before, PackedArray):
        before, after = before.data, after.data
    assert np.array_equal(before, after)


def test_writing_what_fits(holds):
    """Ends of a range, floats rounded once, numbers in any layout, and objects for what they make."""
    holds.write("i", [-(2**31), 2**31 - 1, 0])
    holds.write("u", np.array([0, 2**32 - 1, 5], np.int64))
    holds.write("c", [127.4, -128.4, 0.5])
    assert holds.read("i").tolist() == [-(2**31), 2**31 - 1, 0]
    assert holds.read("u").tolist() == [0, 2**32 - 1, 5]
    assert holds.read("c").tolist() == [127, -128, 0]
    holds.write("f", np.array([1, 2, 3], ">f8"))
    assert holds.read("f").tolist() == [1, 2, 3]
    holds.write("f", np.broadcast_to(np.float32(4), (3,)))
    assert holds.read("f").tolist() == [4, 4, 4]
    holds.write("f", Says((7,), np.int8, np.array([5.0, 6.0, np.nan])))
    assert holds.read("f").tolist()[:2] == [5, 6] and np.isnan(holds.read("f")[2])
    holds.write("b", [True, False, True])
    assert holds.read("b").astype(np.float32).tolist() == [1, 0, 1] and holds.read("b").dtype == bfloat16
