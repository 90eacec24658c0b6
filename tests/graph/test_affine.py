"""Per-call expressions: integer arithmetic in one value, and what it refuses."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.declare.affine import Affine, evaluate
from iron_core.errors import TraceError

n = Affine("n")


def numbers(expression):
    return [evaluate(expression, {"n": k}) for k in range(20)]


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        (n + 1, lambda k: k + 1),
        (1 + n, lambda k: 1 + k),
        (7 - n, lambda k: 7 - k),
        (-n, lambda k: -k),
        (3 * n - 2, lambda k: 3 * k - 2),
        ((n + 1) * 64, lambda k: (k + 1) * 64),
        (n + 2 * n, lambda k: 3 * k),
        ((6 * n + 4) // 2, lambda k: 3 * k + 2),
        ((6 * n + 9) // 3, lambda k: 2 * k + 3),
        (n // 4, lambda k: k // 4),
        ((n + 3) // 4 * 4, lambda k: (k + 3) // 4 * 4),
        (n // 4 // 2, lambda k: k // 4 // 2),
        (n // 4 * 3 + 5, lambda k: k // 4 * 3 + 5),
        (n.ceildiv(8), lambda k: -(-k // 8)),
        (n // 3, lambda k: k // 3),
        (-(-n // 192), lambda k: -(-k // 192)),
        (-(-n // 3) * 5 - 4, lambda k: -(-k // 3) * 5 - 4),
        (n // 3 // 4, lambda k: k // 3 // 4),
        (n // 4 * 6 // 3 + 1, lambda k: k // 4 * 6 // 3 + 1),
        ((n // 4 * 3 + 5) // 6, lambda k: (k // 4 * 3 + 5) // 6),
        ((7 - 5 * n) // 3 * -2 + 1, lambda k: (7 - 5 * k) // 3 * -2 + 1),
        ((6 * n + 10) // 4, lambda k: (6 * k + 10) // 4),
    ],
)
def test_an_expression_is_the_arithmetic_it_was_written_as(expression, rule):
    """Sums, products by constants and floor divisions."""
    assert numbers(expression) == [rule(k) for k in range(20)]


def test_where_the_value_cancels_a_plain_int_is_left():
    """n - n is 0 and (4n) // n is 4."""
    assert n - n == 0
    assert (n + 5) - n == 5
    assert (4 * n) // n == 4
    assert n * 0 == 0


def test_two_spellings_of_one_linear_form_are_equal_data():
    """(p + 1) * 64 and 64 * p + 64 have one key, so they share a word."""
    assert ((n + 1) * 64).key == (64 * n + 64).key
    assert (n + 1).key != (n + 2).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (-(-n // 192), (n + 191) // 192),
        (n // 3 // 4, n // 12),
        (6 * n // 4, 3 * n // 2),
        ((6 * n + 10) // 4, (3 * n + 5) // 2),
        (n // 2 * 4 // 4, n // 2),
        (-(n // 5), (4 - n) // 5),
    ],
)
def test_two_spellings_of_one_quotient_are_equal_data(one, other):
    """Rounded up by negation or by addition, in one division or in two."""
    assert one.key == other.key and repr(one) == repr(other)


@given(st.integers(-100, 100), st.data())
@settings(max_examples=300, deadline=None)
def test_any_chain_of_operations_is_integer_arithmetic(value, data):
    """What is accepted is exact for every value, negative ones too; an expression in place of the value likewise."""
    expression, want = n, value
    for _ in range(data.draw(st.integers(1, 6))):
        k = data.draw(st.integers(-20, 20).filter(bool))
        operation = data.draw(st.sampled_from([operator.add, operator.sub, operator.mul, operator.floordiv]))
        try:
            expression = operation(expression, abs(k) if operation is operator.floordiv else k)
        except TraceError:
            continue
        want = operation(want, abs(k) if operation is operator.floordiv else k)
    assert expression.at({"n": value}) == want == expression.row(1, 2).at([[], [0, 0, value]])
    assert expression.of(value) == want and evaluate(expression.of(Affine("m") + 3), {"m": value - 3}) == want


def test_a_quotient_is_exact_only_where_it_is_whole_for_every_value():
    """What bounds through a reshape rest on: a floor would drop rows silently."""
    assert (6 * n).exactly(3).key == (2 * n).key
    assert n.exactly(4) is None
    assert (4 * n + 2).exactly(4) is None
    assert ((n // 4) * 4).exactly(2).key == ((n // 4) * 2).key


def test_records_that_hold_expressions_compare_as_data():
    """Though a body may not compare the expressions themselves."""
    from iron_core.graph.traced import Binding

    assert Binding("valid", n + 1) == Binding("valid", n + 1)
    assert Binding("valid", n + 1) != Binding("valid", n)
    assert len({Binding("valid", n), Binding("valid", 1 * n)}) == 1


@pytest.mark.parametrize(
    "branch",
    [
        lambda: bool(n),
        lambda: n == 3,
        lambda: n != 3,
        lambda: n < 3,
        lambda: n >= 3,
    ],
)
def test_a_body_cannot_branch_on_a_per_call_value(branch):
    """Its number is unknown while tracing."""
    with pytest.raises(TraceError, match="branches on the per-call value `n`"):
        branch()


@pytest.mark.parametrize("use", [lambda: int(n), lambda: range(n), lambda: [1, 2][n], lambda: float(n)])
def test_a_per_call_value_is_no_number(use):
    """An array is indexed by it as a weight; the message says so."""
    with pytest.raises(TraceError, match=r"iron\.weight"):
        use()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: n + Affine("m"), "`n` and `m` meet in one expression"),
        (lambda: n * n, "product of two per-call values"),
        (lambda: n // 4 * 3 // 5, r"divided by 5; .* multiplied by 3 divides again by what divides 3, or by a multiple"),
        (lambda: n // 0, "only positive integers"),
        (lambda: n // (n + 1), "quotient is constant"),
        (lambda: n // 4 + n, "only linear"),
    ],
)
def test_what_is_not_affine_is_refused(build, message):
    """Each refusal names the rule."""
    with pytest.raises(TraceError, match=message):
        build()
