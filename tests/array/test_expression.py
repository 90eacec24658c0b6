"""Integer expressions of a core: folded where known, printed as written, one meaning for Python and the simulator."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from iron_core.array.expression import (
    ARITHMETIC,
    CHOICE,
    COMPARISON,
    Binary,
    Const,
    Var,
    apply,
    binary,
    evaluate,
    expr,
    maximum,
    minimum,
    variables,
)
from iron_core.errors import DeclarationError

X, Y = Var("x"), Var("y")
OPERATIONS = (*ARITHMETIC, *COMPARISON, *CHOICE)


@pytest.mark.parametrize(
    ("made", "number", "text"),
    [
        (X + 3, 10, "(x + 3)"),
        (3 + X, 10, "(3 + x)"),
        (X - Y, 5, "(x - y)"),
        (9 - X, 2, "(9 - x)"),
        (X * Y, 14, "(x * y)"),
        (2 * X, 14, "(x * 2)"),
        (X // 2, 3, "(x // 2)"),
        (X % 4, 3, "(x % 4)"),
        (X < Y, 0, "(x < y)"),
        (X <= 7, 1, "(x <= 7)"),
        (X > Y, 1, "(x > y)"),
        (X >= 8, 0, "(x >= 8)"),
        (X.equals(7), 1, "(x == 7)"),
        (X.differs(7), 0, "(x != 7)"),
        (minimum(X, Y), 2, "min(x, y)"),
        (maximum(X, Y), 7, "max(x, y)"),
        (5 < X, 1, "(x > 5)"),
    ],
)
def test_an_expression_has_a_number_and_a_text(made, number, text):
    """Under x = 7 and y = 2."""
    assert evaluate(made, {"x": 7, "y": 2}) == number
    assert str(made) == text


def test_two_constants_become_one():
    """What is known while recording is computed while recording."""
    assert expr(6) + 4 == Const(10)
    assert minimum(3, 5) == Const(3)
    assert (expr(3) < 5) == Const(1)


@pytest.mark.parametrize("made", [X + 0, 0 + X, X - 0, X * 1, 1 * X, X // 1])
def test_what_changes_nothing_is_left_out(made):
    assert made is X


def test_numbers_of_numpy_are_numbers():
    assert expr(np.int32(4)) == Const(4) and type(expr(np.int32(4)).value) is int


def test_equal_expressions_are_equal_data():
    """`==` compares the data, so that designs compare and hash; `equals` is the comparison a core makes."""
    assert X + 1 == Var("x") + 1 and hash(X + 1) == hash(Var("x") + 1)
    assert X + 1 != X + 2


def test_variables_are_all_that_are_read():
    assert variables((X + 1) * minimum(Y, 3)) == {"x", "y"}
    assert variables(Const(3)) == frozenset()


def test_a_python_branch_is_refused():
    """It would be decided once, while recording; the message names what to write instead."""
    with pytest.raises(DeclarationError, match=r"branches on \(x > 3\) in Python.*if_\(\.\.\.\)"):
        if X > 3:
            pass


def test_a_chained_comparison_is_a_python_branch():
    with pytest.raises(DeclarationError, match="branches on"):
        0 < X < 4  # noqa: B015


@pytest.mark.parametrize("use", [lambda: list(range(X)), lambda: [1, 2, 3][X], lambda: int(X + 1)])
def test_python_loops_and_shapes_cannot_follow_a_core(use):
    with pytest.raises(DeclarationError, match="known on the core only"):
        use()


@pytest.mark.parametrize("value", [1.5, "n", None, True, np.float32(2)])
def test_what_is_no_integer_is_refused(value):
    with pytest.raises(DeclarationError, match="legal: whole numbers, loop variables, loaded words"):
        X + value


def test_an_operation_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="no operation xor"):
        apply("xor", 1, 2)


@st.composite
def trees(draw, depth=3):
    """Expressions of numbers that are not negative, which is what cores' words are."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from((X, Y)) | st.integers(0, 9).map(Const))
    op = draw(st.sampled_from(OPERATIONS))
    left, right = draw(trees(depth=depth - 1)), draw(trees(depth=depth - 1))
    if op in ("div", "rem"):
        right = Const(draw(st.integers(1, 9)))
    return Binary(op, left, right)


def divides_negative(tree, numbers):
    """Is a number below zero divided anywhere in it?"""
    if not isinstance(tree, Binary):
        return False
    own = tree.op in ("div", "rem") and evaluate(tree.left, numbers) < 0
    return own or any(divides_negative(side, numbers) for side in (tree.left, tree.right))


@given(trees(), st.integers(0, 50), st.integers(0, 50))
def test_an_expression_as_a_core_runs_it_is_what_it_evaluates_to(tree, x, y):
    """What a simulated core runs and `evaluate` agree on every expression, folded or not; but a core divides no negative
    number, which C++ would round the other way."""
    from types import SimpleNamespace

    from iron_sim.core import _divided, _Source
    from iron_sim.errors import SimulationError

    numbers = {"x": x, "y": y}
    want = evaluate(tree, numbers)
    core = SimpleNamespace(name="core0")
    names = {"min": min, "max": max, "divided": _divided, "core": core}
    written = _Source(core).number(tree)  # type: ignore[arg-type]
    if divides_negative(tree, numbers):
        with pytest.raises(SimulationError, match=r"core0 divides -\d+ by \d+; legal: numbers that are not negative"):
            eval(written, names, numbers)
        return
    assert int(eval(written, names, numbers)) == want

    def folded(e):
        return binary(e.op, folded(e.left), folded(e.right)) if isinstance(e, Binary) else e

    assert evaluate(folded(tree), numbers) == want
