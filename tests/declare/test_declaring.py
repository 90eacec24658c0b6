"""A class body becomes an operator: members, order, and the rules checked when the body finishes."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.identity import contract_key
from iron_core.errors import CallError, DeclarationError, FormatError, ParamError


class Product(iron.Operator):
    """C = A @ B of one matrix or several, with a bias where there is one."""

    M: int = iron.Param()
    K: int = iron.Param()
    batches: int = iron.Param(default=1)
    groups: int = iron.Param(default=lambda op: op.batches // op.share)
    share: int = iron.Param(default=1)
    biased: bool = iron.Param(default=False)
    T: object = iron.DType()
    W: object = iron.DType(default=lambda op: op.T, blocks=True)
    A = iron.In(iron.OptionalDim(groups), M, K, dtype=W)
    B = iron.In(iron.OptionalDim(batches), K, dtype=T)
    bias = iron.In(M, dtype=T, when=biased)
    C = iron.Out(iron.OptionalDim(batches), M, dtype=T)
    valid = iron.Extent(M)
    row = iron.Scratchpad(np.int32)

    def reference(self, A, B, bias=None, *, row=0):
        return A @ B

    def validate(self):
        if self.groups * self.share != self.batches:
            raise ParamError(f"Product: groups={self.groups} times share={self.share} is not batches={self.batches}.")


def test_members_are_collected_by_name_and_kind():
    """The class knows its fields in order, inputs before outputs, extents and per-call members."""
    assert list(Product.fields) == ["M", "K", "batches", "groups", "share", "biased", "T", "W"]
    assert [o.name for o in Product.inputs] == ["A", "B", "bias"]
    assert [o.name for o in Product.outputs] == ["C"]
    assert Product.extents["valid"].field == "M"
    assert list(Product.scratchpads) == ["row"]


def test_an_inout_is_given_and_written():
    """InOut counts as an input a call gives and as an output the operator writes."""

    class Append(iron.Operator):
        n: int = iron.Param()
        x = iron.In(n)
        log = iron.InOut(n)
        count = iron.Out(1, dtype=np.int32)

        def reference(self, x, log):
            return log, 0

    assert [o.name for o in Append.inputs] == ["x", "log"]
    assert [o.name for o in Append.outputs] == ["log", "count"]


def test_construction_by_keyword_fills_defaults_then_rules():
    """A rule may read any plain default, also one declared after it."""
    op = Product(M=4, K=8, batches=6, share=3)
    assert (op.groups, op.T, op.W) == (2, iron.bfloat16, iron.bfloat16)
    assert Product(M=4, K=8, T=np.float32).W == np.float32
    assert Product(M=4, K=8, W=iron.Q4_1).T == iron.bfloat16


def test_none_leaves_a_rule_open_and_is_a_value_elsewhere():
    """Passing None on is how a wrapper leaves a computed field to its rule."""

    class Window(iron.Operator):
        n: int = iron.Param()
        width: int = iron.Param(default=lambda op: op.n)
        limit: object = iron.Param(default=7)
        y = iron.Out(n)

        def reference(self):
            return 0

    op = Window(n=3, width=None, limit=None)
    assert (op.width, op.limit) == (3, None)


def test_operands_of_an_instance_have_shape_format_and_presence():
    """Reading an operand gives its shape and format; an absent one says which flag brings it."""
    op = Product(M=4, K=32, batches=2, W=iron.Q8_0, T=np.float32)
    assert op.A.shape == (2, 4, 32) and op.A.format == iron.Q8_0 and op.A.dtype is iron.Q8_0
    assert op.C.shape == (2, 4) and op.C.dtype == np.float32 and op.C.size == 8
    assert Product(M=4, K=32).B.shape == (32,)
    assert op.present == ("A", "B", "C")
    with pytest.raises(AttributeError, match="biased=True"):
        op.bias  # noqa: B018


def test_a_layout_flag_transposes_a_shape():
    """Select picks one run of dimensions by a bool field."""

    class Weights(iron.Operator):
        K: int = iron.Param()
        N: int = iron.Param()
        columns: bool = iron.Param(default=False)
        B = iron.In(iron.Select(columns, (N, K), (K, N)))
        y = iron.Out(K)

        def reference(self, B):
            return B.sum(0 if self.columns else 1)

    assert Weights(K=2, N=3).B.shape == (2, 3)
    assert Weights(K=2, N=3, columns=True).B.shape == (3, 2)


def test_a_subclass_inherits_and_may_give_another_default():
    """Operands of the base read the subclass's field of that name."""

    class Single(Product):
        T: object = iron.DType(default=np.float32)

    op = Single(M=4, K=8)
    assert op.B.dtype == np.float32
    assert list(Single.fields) == list(Product.fields)


def test_instances_compare_by_identity():
    """Two equal operators are two steps; contract_key says they compute the same."""
    one, other = Product(M=4, K=8), Product(M=4, K=8)
    assert one != other and len({one, other}) == 2
    assert contract_key(one) == contract_key(other)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (dict(M=4), CallError, "needs K"),
        (dict(M=4, K=8, batch=2), CallError, "no field batch. Did you mean batches?"),
        (dict(M=4, K=8, A=1), CallError, "A is a tensor"),
        (dict(M=0, K=8), ParamError, "M=0"),
        (dict(M=4, K=2.5), ParamError, "K=2.5"),
        (dict(M=4, K=True), ParamError, "K=True"),
        (dict(M=4, K=8, batches=3, share=2), ParamError, "is not batches=3"),
        (dict(M=4, K=8, T="float8"), FormatError, "Legal: bfloat16, float32"),
        (dict(M=4, K=8, T=iron.Q4_0), FormatError, "block format where only a dense dtype"),
    ],
)
def test_a_wrong_keyword_is_refused_in_one_sentence(given, error, says):
    """The message names the keyword, the value and what would be legal."""
    with pytest.raises(error) as caught:
        Product(**given)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_positional_operands_need_a_graph_body():
    """Outside a trace the class is constructed by keyword, and the error says so."""
    with pytest.raises(CallError, match="by keyword"):
        Product(np.zeros((4, 8)), np.zeros(8))
    with pytest.raises(CallError, match="by keyword"):
        Product(M=4, K=8)(np.zeros((4, 8)), np.zeros(8))


def test_dtypes_are_given_by_name_type_or_format():
    """A dtype variable takes what numpy takes, a name, and where blocks are legal a block format's name."""
    assert Product(M=1, K=32, T="float16").T == np.float16
    assert Product(M=1, K=32, T=iron.Dense(np.float32)).T == np.float32
    assert Product(M=1, K=32, W="q4_0").W is iron.Q4_0


def test_check_derived_refuses_a_value_its_rule_contradicts():
    """For validate(): a given value of a computed field must be what the other fields make it."""

    class Halves(iron.Operator):
        n: int = iron.Param()
        half: int = iron.Param(default=lambda op: op.n // 2)
        x = iron.InOut(n)

        def reference(self, x):
            return x

        def validate(self):
            self.check_derived("half")

    assert Halves(n=6, half=3).half == 3
    with pytest.raises(ParamError, match="half=4, and the other fields make it 3"):
        Halves(n=6, half=4)


def test_a_bounded_operator_is_smaller_and_not_validated():
    """bounded() replaces an extent, runs the rules again and accepts what validate() would refuse."""

    class Even(iron.Operator):
        n: int = iron.Param()
        half: int = iron.Param(default=lambda op: op.n // 2)
        x = iron.InOut(n)
        valid = iron.Extent(n)

        def reference(self, x):
            return x

        def validate(self):
            if self.n % 2:
                raise ParamError(f"Even: n={self.n} is odd.")

    op = Even(n=8)
    small = op.bounded(n=5)
    assert (small.n, small.half, small.x.shape) == (5, 2, (5,))
    assert op.n == 8


def _declare(**members):
    return type(iron.Operator)("Wrong", (iron.Operator,), members)


n = iron.Param()


@pytest.mark.parametrize(
    ("members", "says"),
    [
        (dict(x=iron.In(n)), "not a field of the class"),
        (dict(n=n, x=iron.In(n, 0)), "dimension 0"),
        (dict(n=n, x=iron.In(n, "n")), "dimension 'n'"),
        (dict(n=n, x=iron.In(3, iron.OptionalDim(n))), "leading dimension only"),
        (dict(n=n, x=iron.In(n, tile=n, per=n, broadcast=True)), "choose one"),
        (dict(n=n, x=iron.In(n, tile=n, replicate=True)), "replicate= needs per="),
        (dict(n=n, x=iron.In(n, finish=True)), "finish= belongs on an output"),
        (dict(n=n, y=iron.Out(n, tile=(n, n), finish=True)), "one-dimensional tile"),
        (dict(n=n, y=iron.Out(n, tile=n, prepare=True)), "prepare= belongs on an input"),
        (dict(n=n, x=iron.In(n, feed=True)), "feed= belongs on an input with tile="),
        (dict(n=n, x=iron.In(n), limit=iron.Extent(iron.Param())), "not a field of the class"),
        (dict(shape=n), "Operator's own"),
    ],
)
def test_a_declaration_that_breaks_a_rule_is_refused_with_the_class(members, says):
    """The error comes when the class body finishes and names the class and the member."""
    with pytest.raises(DeclarationError, match="Wrong") as caught:
        _declare(**members)
    assert says in str(caught.value)


def test_a_plain_value_cannot_hide_a_field():
    """A subclass that fixes a field gives it a default."""
    with pytest.raises(DeclarationError, match="hides a field"):
        type(Product)("Fixed", (Product,), {"share": 2})


def test_a_rule_that_gives_none_is_a_mistake_of_the_class():
    """None from a computed default is refused: it would look like a value."""

    class Bad(iron.Operator):
        n: int = iron.Param()
        m: int = iron.Param(default=lambda op: None)
        x = iron.InOut(n)

        def reference(self, x):
            return x

    with pytest.raises(DeclarationError, match=r"Bad\.m: its rule gave None"):
        Bad(n=1)
