"""Tracing a body: steps in order, tensors by role, signatures, and the parameters a body may have."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.errors import CallError, DeclarationError, ShapeError, TraceError
from iron_core.graph.graph import tensor_spec
from iron_ops_aie import GEMM, GEMV, Copy, ElementwiseAdd, RMSNorm, Sample, SiLU

F32 = np.float32


class Project(iron.Graph):
    """SiLU of the first n rows of x, projected by w."""

    def __init__(self, w):
        self.w = iron.weight(w)

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return SiLU(GEMM(x[:n], self.w, b_col_maj=True))


def body_graph(body, **held):
    """A graph made of one function and what it holds."""
    graph = type("Body", (iron.Graph,), {"body": body})()
    for name, item in held.items():
        setattr(graph, name, item)
    return graph


@pytest.fixture
def w():
    return np.ones((6, 8), F32)


# -- what a trace is --------------------------------------------------------------------------------


def test_a_trace_is_steps_over_tensors_in_the_order_written(w):
    """One step per operator call; every tensor has a role, every operand a region."""
    traced = Project(w).trace(x=((16, 8), F32))
    assert [type(s.op).__name__ for s in traced.steps] == ["GEMM", "SiLU"]
    gemm, silu = traced.steps
    assert {name: r.tensor.role for name, r in gemm.operands.items()} == {"A": "input", "B": "weight", "C": "intermediate"}
    assert silu.operands["x"].tensor is gemm.operands["C"].tensor
    assert [b.name for b in traced.inputs] == ["x"]
    assert [b.name for b in traced.weights] == ["w"]
    assert traced.outputs[0].tensor is silu.operands["y"].tensor
    assert traced.outputs[0].shape == (16, 6)
    assert traced.single


def test_per_call_numbers_are_bound_to_the_members_they_follow(w):
    """A bound on rows is the extent M of the GEMM and, times the row's length, the flat extent of the SiLU."""
    gemm, silu = Project(w).trace(x=((16, 8), F32)).steps
    assert [(b.member, repr(b.expression)) for b in gemm.bindings] == [("valid", "n")]
    assert [(b.member, repr(b.expression)) for b in silu.bindings] == [("valid", "6*n")]


def test_a_bare_shape_is_bfloat16():
    """`(shape, dtype)` names another; anything with a shape and a dtype is taken as it is."""
    assert str(tensor_spec((4, 5))[1]) == "bfloat16"
    assert tensor_spec(7)[0] == (7,)
    assert tensor_spec(((4, 5), F32))[0] == (4, 5)
    assert str(tensor_spec(((4, 5), "float16"))[1]) == "float16"
    assert str(tensor_spec(np.zeros((2, 3), np.int32))[1]) == "int32"


def test_a_signature_names_inputs_shapes_and_formats(w):
    """It is the key of a version."""
    traced = Project(w).trace(x=((16, 8), F32))
    assert traced.signature == (("x", (16, 8), "float32"),)


def test_an_optional_input_left_out_is_a_version_without_it():
    """It is None in the body, and in no signature."""

    def body(self, x, y=None):
        return SiLU(x) if y is None else ElementwiseAdd(x, y)

    graph = body_graph(body)
    assert [b.name for b in graph.trace(x=(4, 4)).inputs] == ["x"]
    assert [b.name for b in graph.trace(x=(4, 4), y=(4, 4)).inputs] == ["x", "y"]


def test_outputs_come_as_the_body_returns_them():
    """A tuple of one stays a tuple; several keep their order."""
    one = body_graph(lambda self, x: (SiLU(x),)).trace(x=(4, 4))
    assert not one.single and len(one.outputs) == 1
    two = body_graph(lambda self, x: (SiLU(x), Copy(x))).trace(x=(4, 4))
    assert [r.tensor.name for r in two.outputs] == ["silu_y0", "copy_y0"]


def test_an_output_may_be_returned_under_another_shape():
    """A reshape moves no data, so the whole is still whole."""
    traced = body_graph(lambda self, x: SiLU(x).reshape(2, 8)).trace(x=(4, 4))
    assert traced.outputs[0].shape == (2, 8)


def test_a_flat_operator_keeps_the_shape_it_was_given():
    """An elementwise operator declares one dimension and returns the shape of its operand."""
    traced = body_graph(lambda self, x: RMSNorm(SiLU(x))).trace(x=((3, 16), F32))
    assert traced.outputs[0].shape == (3, 16)


def test_an_operator_made_beforehand_may_be_called():
    """Its fields hold; the operands must be of its shapes."""
    gemv = GEMV(M=6, K=8, T=F32)
    graph = body_graph(lambda self, x: gemv(self.w, x), w=np.ones((6, 8), F32))
    assert graph.trace(x=((8,), F32)).steps[0].op is gemv
    with pytest.raises(ShapeError, match=r"GEMV: A is \[6, 8\]"):
        body_graph(lambda self, x: gemv(self.w, x), w=np.ones((6, 9), F32)).trace(x=((9,), F32))


def test_an_optional_operand_is_given_by_its_name():
    """`weight=` sets the flag that it exists by."""
    graph = body_graph(lambda self, x: RMSNorm(x, weight=self.g), g=np.ones(8, F32))
    (step,) = graph.trace(x=((2, 8), F32)).steps
    assert step.op.weighted and step.operands["weight"].tensor.name == "g"


def test_an_output_may_be_given_behind_the_inputs():
    """A contiguous part of a state or an intermediate takes the result."""

    def body(self, x):
        SiLU(x, self.rows[2])
        return Copy(self.rows)

    traced = body_graph(body, rows=iron.state((4, 8), F32)).trace(x=((8,), F32))
    region = traced.steps[0].operands["y"]
    assert (region.tensor.name, region.start, region.shape) == ("rows", 16, (8,))


def test_dtype_names_the_dtype_of_what_is_made():
    """It is the output's dtype variable, whatever the operator calls it."""
    (step,) = body_graph(lambda self, x: Copy(x, dtype=np.float16)).trace(x=((8,), F32)).steps
    assert str(step.operands["y"].format) == "float16"


def test_names_of_steps_and_tensors_are_unique(w):
    """Whatever the graph holds is called, an invented name is another one."""
    graph = body_graph(lambda self, x: SiLU(SiLU(x, ), ), silu_y0=iron.state(3), silu0=np.ones(3, F32))
    traced = graph.trace(x=(4,))
    assert [b.name for b in traced.intermediates] == ["silu_y1", "silu_y2"]
    assert [s.name for s in traced.steps] == ["silu1", "silu2"]


def test_a_trace_prints_its_steps(w):
    """One line a step, with the tensors and the per-call numbers."""
    text = str(Project(w).trace(x=((16, 8), F32)))
    assert "gemm0: GEMM(A=x[16, 8], B=w[6, 8]" in text and "valid=n" in text


# -- the parameters of a body -----------------------------------------------------------------------


def test_star_arguments_cannot_be_traced():
    """Each input has a name."""
    with pytest.raises(DeclarationError, match="name each input"):
        body_graph(lambda self, *x: SiLU(x[0])).trace()


def test_an_input_defaults_to_none_or_nothing():
    """Another default could not be told from a tensor that was given."""
    with pytest.raises(DeclarationError, match="defaults to None"):
        body_graph(lambda self, x=3: SiLU(x)).trace(x=(4,))


def test_a_keyword_of_a_body_is_annotated_as_a_per_call_value():
    """Scratchpad, Carried or DispatchTime."""

    def body(self, x, *, n):
        return SiLU(x[:n])

    with pytest.raises(DeclarationError, match="Scratchpad"):
        body_graph(body).trace(x=(4, 4))


def test_the_three_kinds_are_kept_apart():
    """Downstream decides by kind; of what is given at dispatch, a trace is of one number."""

    def body(self, x, *, a: iron.Scratchpad[np.int32], b: iron.Carried[np.int32], c: iron.DispatchTime[np.uint32]):
        return SiLU(x), iron.carry(b=b + c)

    graph = body_graph(body)
    assert [(v.name, v.kind, v.dtype) for v in graph.parameters().values] == [
        ("a", "scratchpad", "int32"),
        ("b", "carried", "int32"),
        ("c", "dispatch", "uint32"),
    ]
    traced = graph.trace(x=(4, 4), c=5)
    assert [(v.name, v.kind, v.dtype) for v in traced.values] == [("a", "scratchpad", "int32"), ("b", "carried", "int32")]
    assert repr(traced.carry[0].source) == "b + 5" and ("c", (5,), "number") in traced.signature


def test_shapes_are_given_for_every_input_and_no_other(w):
    """Missing and unknown names are refused by name."""
    with pytest.raises(CallError, match="needs the shape of x"):
        Project(w).trace()
    with pytest.raises(CallError, match="has no input y"):
        Project(w).trace(x=(16, 8), y=(1,))
    with pytest.raises(ShapeError, match=r"x=\(0, 8\): every dimension"):
        Project(w).trace(x=(0, 8))


# -- what a body cannot do --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda self, x: x, r"returns x\[4, 8\], an input"),
        (lambda self, x: self.w, "returns a weight or state"),
        (lambda self, x: self.bare, "returns a weight or state"),
        (lambda self, x: self.kv, "returns a weight or state"),
        (lambda self, x: self.w.reshape(8, 4), "a weight of the graph"),
        (lambda self, x: SiLU(x)[1], "a part of silu_y0"),
        (lambda self, x: SiLU(x).T, "a part of silu_y0"),
        (lambda self, x: [SiLU(x)], "returns list"),
        (lambda self, x: 3, "returns int"),
        (lambda self, x: SiLU(x) if x else x, "branches on or compares the tensor"),
        (lambda self, x: [SiLU(row) for row in x], "no elements while tracing"),
        (lambda self, x: SiLU(np.asarray(x)), "numpy cannot read x"),
        (lambda self, x: SiLU(3), "called on int"),
        (lambda self, x: SiLU(x, self.w), "writes y, but w.* is a weight"),
        (lambda self, x: SiLU(SiLU(x), x), "writes y, but x.* is an input"),
        (lambda self, x: SiLU(x.T), "Copy it first"),
    ],
)
def test_what_a_body_cannot_do(body, message):
    """Each is a TraceError of one sentence that says what would do."""
    graph = body_graph(body, w=iron.weight(np.ones((4, 8), F32)), bare=np.ones(3, F32), kv=iron.state((4, 8), F32))
    with pytest.raises(TraceError, match=message):
        graph.trace(x=((4, 8), F32))


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (lambda self, x: GEMM(x), CallError, r"GEMM takes 2 to 3 \(outputs last\) tensors \(A, B, C\); got 1"),
        (lambda self, x: GEMM(x, self.w), ShapeError, "says K="),
        (lambda self, x: SiLU(x, x=x), CallError, "x is given twice"),
        (lambda self, x: SiLU(x, sizes=3), CallError, "no field sizes"),
        (lambda self, x: SiLU(x, valid=3), CallError, "slice the operand"),
        (lambda self, x: Copy(x, in_offset=3), CallError, "index or bound the tensor"),
        (lambda self, x: RMSNorm(x, weighted=True), CallError, "weight"),
        (lambda self, x: SiLU(x)(x), TypeError, "not callable"),
    ],
)
def test_a_call_with_wrong_operands_is_refused(body, error, message):
    """By count, shape, name or kind."""
    with pytest.raises(error, match=message):
        body_graph(body, w=np.ones((6, 8), F32)).trace(x=((4, 8), F32))


def test_an_operator_is_called_on_tensors_only_in_a_body(w):
    """Outside, it is constructed by keyword."""
    with pytest.raises(CallError, match="outside a graph body"):
        GEMV(w, np.ones(8, F32))


def test_a_field_cannot_follow_a_per_call_value():
    """It is fixed when the graph is traced; the message lists what can follow one."""

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return RMSNorm(x, epsilon=n)

    with pytest.raises(TraceError, match=r"epsilon=n: a field is fixed.*valid"):
        body_graph(body).trace(x=(4, 4))


def test_a_handle_lives_only_in_its_trace():
    """One kept from another trace is refused."""
    kept = []

    def body(self, x):
        kept.append(x)
        return SiLU(kept[0])

    graph = body_graph(body)
    graph.trace(x=(4,))
    with pytest.raises(TraceError, match="belongs to another trace"):
        graph.trace(x=(4,))


def test_an_instance_binds_one_expression_to_a_member():
    """Two are two instances, since each has its own word on a device."""
    silu = SiLU(size=32)

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return silu(x[:n]), silu(x[: n + 1])

    with pytest.raises(ShapeError, match="use two instances"):
        body_graph(body).trace(x=(4, 8))


@pytest.mark.parametrize(
    "body",
    [
        lambda self, x: GEMV(self.m, self.s, self.s),
        lambda self, x: RMSNorm(self.s.reshape(2, 4), self.s.reshape(2, 4)),
        lambda self, x: SiLU(self.s[:4], self.s[2:6]),
        lambda self, x: Copy(self.s[:4], self.s[2:6]),
        lambda self, x: Copy(self.s.reshape(2, 4)[:, 1], self.s.reshape(2, 4)[1, :2]),
        lambda self, x: Copy(self.s.reshape(2, 4).T, self.s),
    ],
)
def test_a_step_does_not_write_over_what_it_reads(body):
    """What it would read then depends on the order that a backend works in."""
    with pytest.raises(TraceError, match=r"over .*, which it reads; Copy one of them first"):
        body_graph(body, s=iron.state(8, F32), m=np.ones((8, 8), F32)).trace(x=((4,), F32))


@pytest.mark.parametrize(
    "body",
    [
        lambda self, x: ElementwiseAdd(self.s, self.s, self.s),
        lambda self, x: SiLU(self.s[:4], self.s[4:]),
        lambda self, x: Copy(self.s.reshape(2, 4)[:, 1], self.s.reshape(2, 4)[:, 2]),
        lambda self, x: GEMV(self.m, self.s[:4], self.s[4:]),
    ],
)
def test_a_step_may_write_beside_or_elementwise_in_place(body):
    """Parts of one state are apart; an elementwise step reads each number before it writes it."""

    def returning(self, x):
        body(self, x)
        return Copy(self.s)

    graph = body_graph(returning, s=iron.state(8, F32), m=np.ones((4, 4), F32))
    assert len(graph.trace(x=((4,), F32)).steps) == 2


# -- numbers given by keyword -----------------------------------------------------------------------


def test_a_number_that_indexes_an_operand_is_checked_against_it():
    """`Sample`'s row and record place are conditions of every call."""

    def body(self, logits, *, at: iron.Scratchpad[np.int32]):
        return Sample(logits, self.draws, self.drawn, row=4 * at, at=at)[1]

    graph = body_graph(body, draws=iron.state(5 * 4, np.int32), drawn=iron.state(5, np.int32))
    checks = graph.trace(logits=((10,), F32)).checks
    assert {(repr(c.expression), c.extent, c.limit) for c in checks} == {("4*at", 4, 20), ("at", 1, 5)}


def test_an_extent_may_be_bounded_by_keyword():
    """It is checked against the extent, and bounds the output where it is whole rows of it."""

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        return SiLU(x, valid=8 * n)

    traced = body_graph(body).trace(x=((4, 8), F32))
    assert [(repr(c.expression), c.extent, c.limit) for c in traced.checks] == [("8*n", 0, 32)]
    assert [(a, repr(e)) for a, e in traced.outputs[0].bounds] == [(0, "n")]
