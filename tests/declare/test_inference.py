"""Shape and dtype inference: what a call's operands say about an operator's fields."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.formats import Dense
from iron_core.declare.infer import infer
from iron_core.errors import CallError, ShapeError

BF16 = Dense(iron.bfloat16)
F32 = Dense(np.float32)
I32 = Dense(np.int32)


class Linear(iron.Operator):
    """y = x @ w, plus a bias and a scale that come together."""

    M: int = iron.Param()
    K: int = iron.Param()
    N: int = iron.Param()
    batches: int = iron.Param(default=1)
    transposed: bool = iron.Param(default=False)
    affine: bool = iron.Param(default=False)
    T: Any = iron.DType()
    W: Any = iron.DType(default=lambda op: op.T, blocks=True)
    x = iron.In(iron.OptionalDim(batches), M, K, dtype=T)
    w = iron.In(iron.Select(transposed, (N, K), (K, N)), dtype=W)
    bias = iron.In(N, dtype=T, when=affine)
    scale = iron.In(N, dtype=T, when=affine)
    y = iron.Out(iron.OptionalDim(batches), M, N, dtype=T)

    def reference(self, x, w, bias=None, scale=None):
        return x @ (w.T if self.transposed else w)


class Scale(iron.Operator):
    size: int = iron.Param()
    T: Any = iron.DType()
    x = iron.In(size, dtype=T)
    ids = iron.In(4, dtype=np.int32)
    y = iron.Out(size, dtype=T)

    def reference(self, x, ids):
        return x


def test_dimensions_bind_fields():
    """Each declared dimension binds its field; dtypes bind their variables."""
    found = infer(Linear, {"x": ((3, 8), F32), "w": ((8, 5), BF16)}, {})
    assert Linear(**found).y.shape == (3, 5)
    assert found["W"] == iron.bfloat16 and found["T"] == np.float32


def test_an_optional_dimension_may_be_there_or_not():
    """With it the field is bound to its length, without it to 1."""
    assert infer(Linear, {"x": ((3, 8), F32), "w": ((8, 5), F32)}, {})["batches"] == 1
    assert infer(Linear, {"x": ((2, 3, 8), F32), "w": ((8, 5), F32)}, {})["batches"] == 2


def test_a_layout_flag_is_given_and_read_first():
    """The call's own keywords decide which of two shapes is expected."""
    assert infer(Linear, {"x": ((3, 8), F32), "w": ((5, 8), F32)}, {"transposed": True})["N"] == 5


def test_a_flat_operand_takes_any_rank():
    """One declared dimension is an element count."""
    ids = ((4,), I32)
    assert infer(Scale, {"x": ((2, 3, 4), F32), "ids": ids}, {})["size"] == 24
    assert infer(Scale, {"x": ((), F32), "ids": ids}, {})["size"] == 1


def test_optional_inputs_set_their_flag():
    """Inputs of one flag come together and turn it on; without them it is off."""
    operands = {"x": ((3, 8), F32), "w": ((8, 5), F32)}
    vector = ((5,), F32)
    assert infer(Linear, operands, {})["affine"] is False
    assert infer(Linear, {**operands, "bias": vector, "scale": vector}, {})["affine"] is True


def test_a_block_format_binds_where_it_is_legal():
    """A weight's Format is a value of its dtype variable."""
    assert infer(Linear, {"x": ((3, 32), F32), "w": ((32, 64), iron.Q8_0)}, {})["W"] is iron.Q8_0


def test_an_output_given_by_the_caller_is_checked_too():
    """An output a call writes into binds the same fields."""
    operands = {"x": ((3, 8), F32), "w": ((8, 5), F32)}
    assert infer(Linear, {**operands, "y": ((3, 5), F32)}, {})["N"] == 5
    with pytest.raises(ShapeError, match=r"y \(3, 6\) says N=6, w \(8, 5\) says N=5"):
        infer(Linear, {**operands, "y": ((3, 6), F32)}, {})


@pytest.mark.parametrize(
    ("operands", "given", "error", "says"),
    [
        ({"x": ((3, 8), F32), "w": ((9, 5), F32)}, {}, ShapeError, "w (9, 5) says K=9, x (3, 8) says K=8"),
        ({"x": ((3, 8), F32), "w": ((8, 5), F32)}, {"K": 4}, ShapeError, "x (3, 8) says K=8, the call says K=4"),
        ({"x": ((3, 8), F32), "w": ((8,), F32)}, {}, ShapeError, "w is (K, N), 2 dimensions; got (8,)"),
        ({"x": ((8,), F32), "w": ((8, 5), F32)}, {}, ShapeError, "([batches], M, K), 2 or 3 dimensions; got (8,)"),
        ({"x": ((3, 32), iron.Q4_0), "w": ((32, 5), F32)}, {}, ShapeError, "Dequant makes them"),
        ({"x": ((3, 8), F32), "w": ((8, 5), F32)}, {"affine": True}, CallError, "affine=True needs bias="),
        ({"x": ((3, 8), F32), "w": ((8, 5), F32), "bias": ((5,), F32)}, {}, CallError, "given together or not at all"),
        (
            {"x": ((3, 8), F32), "w": ((8, 5), F32), "bias": ((5,), F32), "scale": ((5,), F32)},
            {"affine": False},
            CallError,
            "must not be given with bias=",
        ),
    ],
)
def test_disagreement_names_both_origins(operands, given, error, says):
    """One sentence says which two operands, or which operand and keyword, disagree."""
    with pytest.raises(error) as caught:
        infer(Linear, operands, given)
    assert says in str(caught.value)


def test_fixed_dtypes_and_lengths_are_exact():
    """A literal dimension and a literal dtype admit nothing else."""
    with pytest.raises(ShapeError, match="declared 4 is 5"):
        infer(Scale, {"x": ((3,), F32), "ids": ((5,), I32)}, {})
    with pytest.raises(ShapeError, match="ids is int32; got float32"):
        infer(Scale, {"x": ((3,), F32), "ids": ((4,), F32)}, {})


# -- any declaration ---------------------------------------------------------------------------------


@attrs.frozen
class Declared:
    """An operator class, the field values a call stands for, and the operands such a call gives."""

    cls: Any
    values: dict[str, Any]
    operands: dict[str, tuple[tuple[int, ...], Any]]
    flags: dict[str, bool]


@st.composite
def declarations(draw: st.DrawFn) -> Declared:
    """Random operators: 1 to 5 extents, 1 to 4 operands over them with optional dims, layout flags, literals, dtypes."""
    names = [f"d{i}" for i in range(draw(st.integers(1, 5)))]
    sizes = {name: draw(st.integers(1, 9)) for name in names}
    fields: dict[str, Any] = {name: iron.Param() for name in names}
    flag, layout = draw(st.booleans()), iron.Param(default=False)
    kinds = {"T": draw(st.sampled_from([np.float32, iron.bfloat16, np.float16]))}
    members: dict[str, Any] = {**fields, "flag": layout, "T": iron.DType()}
    operands: dict[str, Any] = {}
    bound: set[str] = set()
    for i in range(draw(st.integers(1, 4))):
        dims: list[Any] = []
        shape: list[int] = []
        chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        if draw(st.booleans()):
            extra = f"o{i}"
            sizes[extra] = draw(st.integers(1, 4))
            members[extra] = iron.Param(default=1)
            dims.append(iron.OptionalDim(members[extra]))
            bound.add(extra)
            if sizes[extra] != 1:
                shape.append(sizes[extra])
        shape += [sizes[name] for name in (chosen[::-1] if flag and len(chosen) > 1 else chosen)]
        run = tuple(fields[name] for name in chosen)
        dims += [iron.Select(layout, run[::-1], run)] if len(run) > 1 else run
        if draw(st.booleans()):
            literal = draw(st.integers(1, 4))
            dims.append(literal)
            shape.append(literal)
        if len(dims) == 1 and len(shape) == 1 and draw(st.booleans()):
            shape = [1, *shape]  # a flat operand under another rank
        members[f"x{i}"] = iron.In(*dims, dtype=members["T"])
        operands[f"x{i}"] = (tuple(shape), Dense(kinds["T"]))
        bound.update(chosen)
    members |= {"y": iron.Out(1), "reference": lambda self, *inputs: np.zeros(1)}
    cls = type(iron.Operator)("Drawn", (iron.Operator,), members)
    values = {name: size for name, size in sizes.items() if name in bound}
    return Declared(cls, values | {"T": np.dtype(kinds["T"])}, operands, {"flag": flag})


@settings(max_examples=200, deadline=None)
@given(declarations())
def test_inference_recovers_the_fields_of_any_declaration(declared):
    """Whatever the declaration, the operands of a call give back the values they were made from."""
    found = infer(declared.cls, declared.operands, declared.flags)
    assert {name: found[name] for name in declared.values} == declared.values


@settings(max_examples=200, deadline=None)
@given(declarations(), st.data())
def test_inferred_operators_have_the_operands_shapes(declared, data):
    """Constructed from what a call says, an operator declares the shapes of that call, up to a flat operand's rank."""
    missing = {n: 1 for n, f in declared.cls.fields.items() if f.required and n not in declared.values}
    op = declared.cls(**missing, **infer(declared.cls, declared.operands, declared.flags))
    for name, (shape, format) in declared.operands.items():
        assert op.format(name) == format
        assert op.shape(name) == shape or op.shape(name) == (math.prod(shape),)


@settings(max_examples=200, deadline=None)
@given(declarations(), st.data())
def test_a_shape_that_contradicts_another_is_refused(declared, data):
    """An operand one longer along any axis either binds something else or is a ShapeError; it is never ignored."""
    name = data.draw(st.sampled_from(sorted(declared.operands)))
    shape, format = declared.operands[name]
    axis = data.draw(st.integers(0, len(shape) - 1))
    longer = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
    try:
        found = infer(declared.cls, {**declared.operands, name: (longer, format)}, declared.flags)
    except ShapeError as error:
        assert "Drawn" in str(error)
    else:
        assert {n: found[n] for n in declared.values} != declared.values
