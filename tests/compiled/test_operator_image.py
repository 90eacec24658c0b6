"""OperatorImage: one operator alone as a callable, on the same road as a graph."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import iron_ops_aie as ops
from iron_core import OperatorImage, PackedArray, Pattern
from iron_core.declare.cases import cases
from iron_core.declare.rounding import round_to
from iron_core.errors import BoundsError, CallError, ShapeError
from tests.catalog import OPERATORS, named

F32 = np.float32


@pytest.fixture
def gemv():
    return OperatorImage(ops.GEMV(M=8, K=16, T=F32), bounds=("valid",), backend="reference")


@pytest.fixture
def operands():
    rng = np.random.default_rng(0)
    return rng.standard_normal((8, 16)).astype(F32), rng.standard_normal(16).astype(F32)


def test_it_is_called_on_its_inputs(gemv, operands):
    """In declaration order; one output comes back bare."""
    a, b = operands
    assert np.allclose(gemv(a, b), a @ b, rtol=1e-6)


def test_an_extent_named_in_bounds_is_per_call(gemv, operands):
    """Whole unless given; bounded inputs whole or cut, outputs cut."""
    a, b = operands
    assert np.array_equal(gemv(a, b, valid=3), gemv(a, b)[:3])
    assert np.array_equal(gemv(a[:3], b, valid=3), gemv(a, b)[:3])


def test_what_is_written_in_part_starts_as_given_or_as_zeros():
    """Copy's destination keeps what the copy does not write; the caller's array is left alone."""
    into = Pattern(2, (6,), (1,))
    copy = OperatorImage(ops.Copy(input_size=6, output_size=10, dst=into, X=F32), backend="reference")
    x, y = np.arange(1, 7, dtype=F32), np.full(10, 9, F32)
    assert copy(x).tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 0, 0]
    assert copy(x, y, out_offset=2).tolist() == [9, 9, 9, 9, 1, 2, 3, 4, 5, 6]
    assert y.tolist() == [9] * 10


def test_an_output_that_is_given_is_filled(gemv, operands):
    """And is what comes back; under a bound it is given as short as that."""
    a, b = operands
    into, short = np.full(8, 7, F32), np.full(3, 7, F32)
    assert gemv(a, b, into) is into and np.array_equal(into, gemv(a, b))
    assert gemv(a, b, short, valid=3) is short and np.array_equal(short, into[:3])


def test_flat_operands_take_any_shape():
    """Elementwise operators count elements."""
    silu = OperatorImage(ops.SiLU(size=12, T=F32), backend="reference")
    assert silu(np.ones((3, 4), F32)).shape == (12,)


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda g, a, b: g(a), CallError, r"takes 2 tensors: A, B \(and C\); got 1"),
        (lambda g, a, b: g(a, b, b, b), CallError, r"takes 2 tensors: A, B \(and C\); got 4"),
        (lambda g, a, b: g(a, b, np.zeros(9, F32)), ShapeError, r"C is \[8\] float32, to be filled; got \[9\] float32"),
        (lambda g, a, b: g(a, b, np.zeros(8)), ShapeError, r"C is \[8\] float32, to be filled; got \[8\] float64"),
        (lambda g, a, b: g(a, b, np.zeros(8, F32), valid=3), ShapeError, r"C is \[3\] float32, to be filled; got \[8\]"),
        (lambda g, a, b: g(a, b, np.broadcast_to(F32(0), 8)), ShapeError, r"to be filled; got \[8\] float32, read-only"),
        (lambda g, a, b: g(a, b, [0.0] * 8), ShapeError, "C is given to be filled: got list. Legal: a numpy array, or nothing"),
        (lambda g, a, b: g(a, b, rows=1), CallError, "takes no rows="),
        (lambda g, a, b: g(a, b, valid=9), BoundsError, r"GEMV: valid is 9 \(valid=9\); legal: 0 to 8"),
        (lambda g, a, b: g(a, b, valid=2.5), CallError, "valid=2.5: a per-call value is a whole number"),
        (lambda g, a, b: g(a, b, valid="3"), CallError, "valid='3': a per-call value is a whole number"),
        (lambda g, a, b: g(a.T, b), ShapeError, r"A is \[8, 16\] float32.*got \[16, 8\]"),
        (lambda g, a, b: g(a, b.astype(ml_dtypes.bfloat16)), ShapeError, r"B is \[16\] float32; got bfloat16"),
        (lambda g, a, b: g(a, b.astype(np.float64)), ShapeError, "B is float32.*not a dtype Iron carries"),
    ],
)
def test_wrong_calls_are_refused(gemv, operands, call, error, says):
    """Each names the operand, what it is and what was given."""
    with pytest.raises(error, match=says):
        call(gemv, *operands)


def test_two_outputs_that_are_given_are_two_arrays():
    """One would be written over by the other; an input may be overwritten, when it has been read."""
    image = OperatorImage(ops.QuantizeRows(rows=3, cols=8, T=F32), backend="reference")
    x = np.linspace(-1, 2, 24, dtype=F32).reshape(3, 8)
    values, scales = image(x)
    memory = np.zeros(64, np.int8)
    with pytest.raises(ShapeError, match="QuantizeRows: y and found are given to be filled and share memory; legal: two arrays"):
        image(x, memory[:24].reshape(3, 8), memory[20:32].view(F32))
    apart = memory[:24].reshape(3, 8), memory[32:44].view(F32)
    assert all(made is given for made, given in zip(image(x, *apart), apart, strict=True))
    np.testing.assert_array_equal(apart[0], values)
    np.testing.assert_array_equal(apart[1], scales)


def test_a_class_is_no_operator():
    """It has no fields yet."""
    with pytest.raises(CallError, match=r"OperatorImage\(\) of SiLU; legal: an operator with its fields"):
        OperatorImage(ops.SiLU, backend="reference")


@pytest.mark.parametrize("backend", ["reference", "host"])
def test_a_view_stays_in_its_operand(backend):
    """Moved or bounded per call it is checked as in a graph: a backend would write over what lies behind."""
    into = Pattern(2, (3, 2), (2, 1))
    op = ops.Copy(input_size=6, output_size=10, dst=into, dst_axis=0, src=Pattern.whole((3, 2)), src_axis=0, X=F32)
    copy = OperatorImage(op, backend=backend)
    x = np.ones(6, F32)
    assert copy(x, out_offset=2, src_valid=1, dst_valid=1).tolist() == [0] * 4 + [1, 1] + [0] * 4
    for members, says in (
        (dict(out_offset=3), "Copy: out_offset is 3 .*; legal: 0 to 2"),
        (dict(out_offset=-1), "Copy: out_offset is -1 .*; legal: 0 to 2"),
        (dict(in_offset=1), "Copy: in_offset is 1 .*; legal: 0 to 0"),
        (dict(src_valid=4, dst_valid=4), "Copy: src_valid is 4 .*; legal: 0 to 3"),
    ):
        with pytest.raises(BoundsError, match=says):
            copy(x, **members)
    pieces = OperatorImage(ops.Copy(input_size=12, src=(Pattern(6, (2,), (1,)), Pattern(0, (2,), (1,))), X=F32), backend=backend)
    assert pieces(np.arange(12, dtype=F32), in_offset=4).tolist() == [10, 11, 4, 5]
    with pytest.raises(BoundsError, match=r"Copy: in_offset is 5 .*; legal: 0 to 4"):
        pieces(np.arange(12, dtype=F32), in_offset=5)


@pytest.mark.parametrize(("backend", "dev"), [("reference", None), ("host", None), ("sim", "npu1"), ("sim", "npu2")])
def test_a_gather_runs_alone(backend, dev):
    """Negative ids count from the table's end and others are clipped to it; where its rows go may be a call's, not where that begins."""
    rng = np.random.default_rng(3)
    table, ids = rng.standard_normal((30, 12)).astype(F32), np.array([3, -1, 29, 0, 40], np.int32)
    want = table[[3, 29, 29, 0, 29]]
    op = ops.Copy(gather=True, table_rows=30, rows=5, input_size=30 * 12, X=F32)
    run = OperatorImage(op, backend=backend, dev=dev)
    assert np.asarray(run(table.reshape(-1), ids)).reshape(5, 12).tobytes() == want.tobytes()
    with pytest.raises(CallError, match=r"Copy takes no in_offset=\. Its numbers: out_offset\."):
        run(table.reshape(-1), ids, in_offset=0)
    into = Pattern(0, (5, 12), (12, 1))
    wide = ops.Copy(gather=True, table_rows=30, rows=5, input_size=360, output_size=120, dst=into, X=F32)
    placed = OperatorImage(wide, backend=backend, dev=dev)
    found = np.asarray(placed(table.reshape(-1), ids, out_offset=24)).reshape(10, 12)
    assert found[2:7].tobytes() == want.tobytes()


def test_a_bound_on_no_extent_is_refused():
    """The message lists the extents there are."""
    with pytest.raises(CallError, match=r"SiLU has no extent size. Its extents: valid"):
        OperatorImage(ops.SiLU(size=4), bounds=("size",), backend="reference")


def test_a_device_decides_its_packaging():
    """The same decision as for a graph."""
    assert OperatorImage(ops.SiLU(size=4), backend="null", dev="npu2").packaging.image == "elf"
    assert "npu1" in OperatorImage(ops.SiLU(size=4), backend="null", dev="npu1").explain()


def catalog():
    """One small case of every operator of the catalog."""
    for operator in OPERATORS:
        yield operator, next(case for _, case, _ in cases([operator], bench=False))


@pytest.mark.parametrize("operator, case", list(catalog()), ids=named)
def test_every_catalog_operator_runs_alone(operator, case):
    """Through plan, memory and interpreter the outputs are the reference's, rounded once."""
    op = operator(**case.fields)
    drawn = operator.test.draw(op, np.random.default_rng(0))
    got = OperatorImage(op, backend="reference")(*drawn.values())
    inputs = [np.array(drawn[o.name]) if o.written else drawn.get(o.name) for o in op.inputs]
    kept = {name: np.zeros(op.shape(name), op.format(name).dtype) for name in op.partial}
    want = op.reference(*inputs, **kept)
    got, want = (r if isinstance(r, tuple) else (r,) for r in (got, want))
    assert len(got) == len(want) > 0
    for one, exact in zip(got, want, strict=True):
        stored, exact = (one.data, exact.data) if isinstance(one, PackedArray) else (one, round_to(exact, one.dtype))
        assert stored.tobytes() == exact.reshape(stored.shape).tobytes()
