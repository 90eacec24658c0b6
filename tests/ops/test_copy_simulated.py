"""A simulated `Copy` leaves the reference's bytes in y, those that it does not write too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.array.build import build
from iron_core.declare.formats import Q4_1, PackedArray
from iron_core.declare.pattern import Pattern
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import Copy
from iron_sim.run import simulate
from tests.ops.copies import DTYPES, copies, refused

NPU2 = device("npu2")


def numbers(size, dtype, seed):
    """Any bits at all."""
    raw = np.random.default_rng(seed).integers(0, 256, size * np.dtype(dtype).itemsize, np.uint8)
    return raw.view(dtype)


def simulated(op, x, y, members=None):
    """What the simulated array leaves in y, as bytes, and whether every element of y is data."""
    outputs, masks, stats = simulate(op, NPU2, {"x": x, "y": y}, members)
    assert not masks["y"].any()
    assert stats.elements("x") == stats.elements("y")
    return outputs["y"].tobytes()


@pytest.mark.parametrize("wild", [False, True], ids=["aligned", "wild"])
@given(st.data())
@settings(max_examples=100)
def test_a_simulated_view_is_the_reference(wild, data):
    """Every byte of y, those outside of dst too."""
    fields = data.draw(copies(wild))
    try:
        op = Copy(**fields).resolved(NPU2)
        build(op, NPU2)
    except Unresolvable as error:
        assert refused(error), str(error)
        return
    x, y = numbers(op.input_size, op.X, 1), numbers(op.output_size, op.X, 2)
    assert simulated(op, x, y) == op.composed(x, y=y.copy()).tobytes()


@given(st.data())
@settings(max_examples=60)
def test_simulated_rows_in_any_order_are_the_reference(data):
    """More of them than a channel's queue holds, on both sides."""
    dtype = data.draw(st.sampled_from(DTYPES))
    width = max(1, 8 // np.dtype(dtype).itemsize) * data.draw(st.integers(1, 3))
    count = data.draw(st.integers(1, 24))
    rows = data.draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    places = data.draw(st.permutations(range(count)))
    src, dst = (tuple(Pattern(r * width, (width,), (1,)) for r in side) for side in (rows, places))
    fields = dict(input_size=13 * width, output_size=count * width, src=src, dst=dst, X=dtype)
    op = Copy(**fields, num_channels=data.draw(st.sampled_from((1, 2)))).resolved(NPU2)
    x, y = numbers(op.input_size, dtype, 1), numbers(op.output_size, dtype, 2)
    assert simulated(op, x, y) == op.composed(x, y=y.copy()).tobytes()


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_simulated_calls_of_one_design_follow_their_numbers(dtype, channels):
    """Offsets and bounds that go up and down; the rest of y stays as it was."""
    shape = (6, 2, 64)
    src, dst = Pattern(16, shape, (400, 100, 1)), Pattern(8, shape, (160, 72, 1))
    op = Copy(
        input_size=3000, output_size=1200, src=src, dst=dst, src_axis=0, dst_axis=0, X=dtype, num_channels=channels
    ).resolved(NPU2)
    x, y = numbers(3000, dtype, 1), numbers(1200, dtype, 2)
    for n, into, out in ((6, 0, 0), (1, 64, 128), (4, 400, 8), (2, 8, 0)):
        members = dict(in_offset=into, out_offset=out, src_valid=n, dst_valid=n)
        assert simulated(op, x, y, members) == op.composed(x, y=y.copy(), **members).tobytes()


def test_simulated_packed_rows_are_the_reference(rng):
    """Columns of blocks into rows that start at an offset."""
    x = Q4_1.quantize(rng.standard_normal((5, 96)).astype(np.float32))
    y = PackedArray(np.zeros((4, Q4_1.row_bytes(160)), np.uint8), (4, 160), Q4_1)
    op = Copy(input_size=480, output_size=640, src=Pattern(32, (5, 32), (96, 1)), dst=Pattern.whole((160,)), X=Q4_1)
    op = op.resolved(NPU2)
    got = simulated(op, x, y, {"out_offset": 320})
    assert got == op.composed(x, y=PackedArray(y.data.copy(), y.shape, Q4_1), out_offset=320).data.tobytes()
