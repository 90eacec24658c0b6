"""Operators that move, unpack or look back, on the host: each against numpy at random shapes, views and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, bfloat16
from iron_core.declare.formats import SUPERBLOCKS
from iron_core.declare.rounding import round_to
from iron_host.backend import HostBackend
from iron_ops_aie import Copy, DepthwiseConv1d, Dequant, Repeat, Transpose
from iron_ops_aie.products.int4_tiles import int4_tiles

FLOATS = (np.dtype(np.float32), bfloat16, np.dtype(np.float16))
MOVED = (*FLOATS, np.dtype(np.int8), np.dtype(np.int32))
FORMATS = (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, *SUPERBLOCKS, int4_tiles(64))


class One(iron.Graph):
    """An operator on a view of x; how many rows of it is a per-call value."""

    def __init__(self, step: Any, *weights: Any) -> None:
        self._step, self.weights = step, [iron.weight(w) for w in weights]

    def body(self, x: Any = None, *, count: iron.Scratchpad[np.int32]) -> Any:
        return self._step(self.weights[0] if x is None else x, count, *self.weights)


def ran(graph: One, x: Any, counts: set[int]) -> Any:
    """Per count what the host gives, and the operator."""
    shapes = {} if x is None else {"x": (x.shape, x.dtype)}
    compiled = graph.compile(backend=HostBackend(threads=2, strict=True), **shapes)
    (step,) = graph.trace(**shapes).steps
    inputs = () if x is None else (x,)
    return step.op, {n: np.asarray(compiled(*inputs, count=n)) for n in counts}


def slices(draw: Any, n: int) -> slice:
    """One that leaves at least an element of n, at any step."""
    start = draw(st.integers(0, n - 1))
    return slice(start, draw(st.integers(start + 1, n + 3)), draw(st.sampled_from((None, 1, 2, 3, n))))


def drawn(data: Any, dtypes: Any, most: int = 40) -> Any:
    """A tensor of three axes, any bits that are numbers."""
    dtype, shape = data.draw(st.sampled_from(dtypes)), [data.draw(st.integers(1, n)) for n in (3, 9, most)]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    return round_to(rng.uniform(-100, 100, shape), dtype)


def same(got: Any, want: Any) -> bool:
    return got.shape == want.shape and got.tobytes() == np.ascontiguousarray(want).tobytes()


def rows(data: Any, n: int) -> set[int]:
    return {n, data.draw(st.integers(0, n))}


MANY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@MANY
@given(st.data())
def test_a_copy_of_a_stepped_view_is_numpys(data):
    """Slices of every axis at any step, in any order of the axes, the first of them bounded."""
    x = drawn(data, MOVED)
    cut, order = tuple(slices(data.draw, n) for n in x.shape), data.draw(st.permutations(range(3)))
    n = x[cut].transpose(order).shape[0]
    _, found = ran(One(lambda x, count: Copy(x[cut].transpose(order)[:count])), x, rows(data, n))
    for count, got in found.items():
        assert same(got, x[cut].transpose(order)[:count])


@pytest.mark.slow
@MANY
@given(st.data())
def test_a_copy_into_a_stepped_view_leaves_the_rest(data):
    """What the view does not cover stays; of what it covers as many rows are written as a call says."""
    x = drawn(data, MOVED)
    shape = tuple(data.draw(st.integers(2 * n, 3 * n)) for n in x.shape)
    cut = tuple(slice(data.draw(st.integers(0, room - 2 * n)), None, 2) for n, room in zip(x.shape, shape, strict=True))
    cut = tuple(slice(c.start, c.start + 2 * n, 2) for c, n in zip(cut, x.shape, strict=True))
    state = iron.state(shape, x.dtype)

    class Into(iron.Graph):
        def __init__(self) -> None:
            self.state = state

        def body(self, x: Any, *, count: iron.Scratchpad[np.int32]) -> Any:
            Copy(x[:count], self.state[cut])
            return Copy(self.state)

    compiled = Into().compile(backend=HostBackend(threads=2, strict=True), x=(x.shape, x.dtype))
    want = np.zeros(shape, x.dtype)
    for count in sorted(rows(data, len(x))):
        want[cut][:count] = x[:count]
        assert same(np.asarray(compiled(x, count=count)), want)


@pytest.mark.slow
@MANY
@given(st.data())
def test_rows_are_repeated_as_numpy_repeats_them(data):
    """Of a part of a tensor, as many as a call says."""
    x, times = drawn(data, MOVED), data.draw(st.integers(1, 4))
    part = data.draw(st.integers(0, len(x) - 1))
    _, found = ran(One(lambda x, count: Repeat(x[part, :count], repeat=times)), x, rows(data, x.shape[1]))
    for count, got in found.items():
        assert same(got, np.repeat(x[part, :count], times, 0))


@pytest.mark.slow
@MANY
@given(st.data())
def test_matrices_are_transposed_as_numpy_transposes_them(data):
    """One, or each of several."""
    x = drawn(data, MOVED, 70)
    first, one = data.draw(st.integers(0, len(x) - 1)), data.draw(st.booleans())
    which = (lambda a: a[first]) if one or len(x) - first == 1 else (lambda a: a[first:])
    _, found = ran(One(lambda x, count: Transpose(which(x))), x, {0})
    assert same(found[0], np.swapaxes(which(x), -1, -2))


@pytest.mark.slow
@MANY
@given(st.data())
def test_packed_rows_are_made_numbers(data):
    """Of every kind of block, within the contract: as many rows of a part as a call says."""
    format, dtype = data.draw(st.sampled_from(FORMATS)), data.draw(st.sampled_from(FLOATS))
    parts, high, wide = (data.draw(st.integers(1, n)) for n in (3, 9, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weight = format.drawn(rng, (parts, high, wide * format.block[1]), spread=4)
    part = data.draw(st.integers(0, parts - 1))
    op, found = ran(One(lambda w, count, _: Dequant(w[part, :count], T=dtype), weight), None, rows(data, high))
    for count, got in found.items():
        short, read = op.bounded(rows=count), weight[part][:count]
        assert got.shape == (count, wide * format.block[1])
        assert short.check(got, short.reference(read), read).compared == got.size


@pytest.mark.slow
@MANY
@given(st.data())
def test_channels_are_convolved(data):
    """Of a part of a tensor by any number of taps, within the contract: as many rows as a call says."""
    x = drawn(data, FLOATS, 70)
    taps, other, part = data.draw(st.integers(1, 6)), data.draw(st.sampled_from(FLOATS)), data.draw(st.integers(0, len(x) - 1))
    weight = round_to(np.random.default_rng(taps).uniform(-4, 4, (taps, x.shape[2])), other)
    op, found = ran(One(lambda x, count, w: DepthwiseConv1d(x[part, :count], w), weight), x, rows(data, x.shape[1]))
    for count, got in found.items():
        short, read = op.bounded(rows=count), x[part, :count]
        assert got.shape == read.shape
        assert short.check(got, short.reference(read, weight), read, weight).compared == got.size
