"""Folds: which steps may run inside another, by what operators declare and what a trace reads and writes between."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.graph.fold import choose_folds, find_folds
from iron_ops_aie import GEMV, Copy, ElementwiseAdd, ElementwiseMul, RMSNorm, SiLU

F32 = np.float32
D = 8


class Net(iron.Graph):
    def __init__(self):
        self.w = np.ones((D, D), F32)
        self.v = np.ones((D, D), F32)
        self.g = np.ones(D, F32)
        self.kv = iron.state((4, D), F32)
        self.one = iron.state((D,), F32)


def trace(body, **values):
    """The trace of a body of x."""
    return type("Net", (Net,), {"body": body})().trace(x=((D,), F32))


def folds(body):
    """What may fold, as (kind, producer, consumers)."""
    return [(f.kind, f.producer, *f.consumers) for f in find_folds(trace(body))]


def test_an_elementwise_step_folds_into_its_producer():
    """SiLU of a GEMV's result."""
    assert folds(lambda self, x: SiLU(GEMV(self.w, x))) == [("finish", "gemv0", "silu0")]


def test_a_fold_says_what_it_joins():
    """The operand that is not stored any more, on both sides, and the operators."""
    (fold,) = find_folds(trace(lambda self, x: ElementwiseAdd(x, GEMV(self.w, x))))
    assert (fold.kind, fold.source, fold.at, fold.runs_at) == ("finish", "C", ("b",), "gemv0")
    assert [type(op).__name__ for op in fold.operators] == ["GEMV", "ElementwiseAdd"]
    assert str(fold) == "elementwiseadd0 into the finish of gemv0"


def test_a_normalisation_folds_into_every_product_that_reads_it():
    """Each is linear in the operand that takes it."""

    def body(self, x):
        h = RMSNorm(x.reshape(1, D), weight=self.g).reshape(D)
        return GEMV(self.w, h), GEMV(self.v, h)

    assert folds(body) == [("prologue", "rmsnorm0", "gemv0", "gemv1")]


def test_a_copy_into_a_state_folds_into_the_store():
    """Also where the place follows a per-call value."""

    def body(self, x, *, pos: iron.Scratchpad[np.int32]):
        Copy(GEMV(self.w, x), self.kv[pos])
        return SiLU(x)

    assert folds(body) == [("placed", "gemv0", "copy0")]


@pytest.mark.parametrize(
    "body",
    [
        lambda self, x: (SiLU(h := GEMV(self.w, x)), SiLU(h)),
        lambda self, x: (h := GEMV(self.w, x), SiLU(h)),
        lambda self, x: SiLU(GEMV(self.w, x)[: D // 2]),
        lambda self, x: SiLU(SiLU(x, self.one)),
        lambda self, x: ElementwiseMul(h := GEMV(self.w, x), h),
    ],
    ids=["two readers", "returned", "read in part", "kept in a state", "read twice"],
)
def test_a_result_that_others_need_is_stored(body):
    """Folding it away would lose it."""
    assert folds(body) == []


def test_a_finish_has_no_other_inputs_than_tensors_like_its_result():
    """A weighted norm over several rows reads a line that is not one."""

    def body(self, x):
        return RMSNorm(SiLU(x.reshape(2, D // 2)), weight=self.half)

    graph = type("Net", (Net,), {"body": body})()
    graph.half = np.ones(D // 2, F32)
    assert find_folds(graph.trace(x=((D,), F32))) == []


def test_a_copy_out_of_order_is_not_the_store():
    """Strided writes and reads of a part stay copies; so does a copy from a state."""

    def body(self, x):
        h = SiLU(x)
        Copy(h, self.kv.reshape(D, 4)[:, 1])
        g = SiLU(x)
        Copy(g[: D // 2], self.one[: D // 2])
        return Copy(self.kv[1])

    assert folds(body) == []


def test_a_result_is_not_stored_over_what_it_is_made_of():
    """Neither the product's own vector, nor what a step behind it reads."""

    def over(self, x):
        Copy(GEMV(self.w, self.one), self.one)
        return SiLU(x)

    def behind(self, x):
        Copy(ElementwiseAdd(GEMV(self.w, x), self.one), self.one)
        return SiLU(x)

    assert folds(over) == []
    assert folds(behind) == [("finish", "gemv0", "elementwiseadd0")]

    def chain(self, x):
        Copy(SiLU(ElementwiseAdd(GEMV(self.w, x), self.one)), self.one)
        return SiLU(x)

    assert ("placed", "silu0", "copy0") in folds(chain)
    assert [f[:3] for f in chosen(chain)] == [("finish", "gemv0", "elementwiseadd0"), ("finish", "elementwiseadd0", "silu0")]


def test_a_state_written_between_keeps_the_steps_apart():
    """What the second step reads is written after the first, and the first reads what is written too."""

    def body(self, x):
        h = ElementwiseAdd(x, self.one)
        Copy(x, self.one)
        return ElementwiseMul(h, self.one)

    assert folds(body) == []


def test_a_fold_runs_where_everything_it_reads_is_there():
    """At the consumer's place where the extra input comes later."""

    def body(self, x):
        h = GEMV(self.w, x)
        other = RMSNorm(GEMV(self.v, x).reshape(1, D), weight=self.g)
        return ElementwiseMul(h, other.reshape(D))

    places = {(f.producer, f.consumers[0]): f.runs_at for f in find_folds(trace(body)) if f.kind == "finish"}
    assert places["gemv0", "elementwisemul0"] == "elementwisemul0"


def test_bounds_fold_where_they_agree():
    """A SiLU of the n rows a product has; not an addition of rows bounded otherwise."""
    from iron_ops_aie import GEMM

    class Rows(Net):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return SiLU(GEMM(x[:n], self.w, b_col_maj=True))

    class Other(Net):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return ElementwiseAdd(GEMM(x, self.w, b_col_maj=True), x[:n])

    assert [f.kind for f in find_folds(Rows().trace(x=((4, D), F32)))] == ["finish"]
    assert find_folds(Other().trace(x=((4, D), F32))) == []


def test_an_operator_called_twice_stays_as_it_is():
    """Its other call would change with it."""
    silu = SiLU(size=D, T=F32)
    assert folds(lambda self, x: (silu(GEMV(self.w, x)), silu(x))) == []


# -- together ---------------------------------------------------------------------------------------


def chosen(body, accepts=lambda fold: True):
    return [(f.kind, f.producer, *f.consumers, f.runs_at) for f in choose_folds(trace(body), accepts)]


def test_a_chain_runs_at_one_place():
    """SiLU and the product with `up` follow the gate; the chain waits for `up`."""

    def body(self, x):
        return ElementwiseMul(SiLU(GEMV(self.w, x)), GEMV(self.v, x))

    assert chosen(body) == [
        ("finish", "gemv0", "silu0", "elementwisemul0"),
        ("finish", "silu0", "elementwisemul0", "elementwisemul0"),
    ]


def test_a_step_is_folded_away_once():
    """The sum joins the first product's finish, and not the second's as well."""
    body = lambda self, x: ElementwiseAdd(GEMV(self.w, x), GEMV(self.v, x))  # noqa: E731
    assert [f[:3] for f in chosen(body)] == [("finish", "gemv0", "elementwiseadd0")]


def test_a_backend_takes_only_what_it_accepts():
    """The rest is as if it were not legal."""

    def body(self, x):
        h = RMSNorm(x.reshape(1, D)).reshape(D)
        return SiLU(GEMV(self.w, h))

    assert [f[0] for f in chosen(body)] == ["finish", "prologue"]
    assert [f[0] for f in chosen(body, lambda fold: fold.kind == "prologue")] == ["prologue"]


def test_a_backend_judges_the_whole_chain():
    """It is asked with the chain's first step and all behind it, this fold's last; what it accepted before stays."""
    asked = []

    def body(self, x):
        return ElementwiseMul(SiLU(ElementwiseAdd(GEMV(self.w, x), x)), x)

    def accepts(fold):
        (joined,) = fold.joined
        asked.append((joined.step.name, [(part.step.name, part.at) for part in joined.finish]))
        return len(joined.finish) < 3

    assert [f[1:3] for f in chosen(body, accepts)] == [("gemv0", "elementwiseadd0"), ("elementwiseadd0", "silu0")]
    add, silu, mul = ("elementwiseadd0", "a"), ("silu0", "x"), ("elementwisemul0", "a")
    assert asked == [("gemv0", [add]), ("gemv0", [add, silu]), ("gemv0", [add, silu, mul])]


def test_a_backend_judges_every_reader_of_a_prologue():
    """Each with what is folded into it already; a copy is the last of a chain."""
    asked = []

    def body(self, x):
        h = RMSNorm(x.reshape(1, D), weight=self.g).reshape(D)
        Copy(SiLU(GEMV(self.w, h)), self.one)
        return GEMV(self.v, h)

    def accepts(fold):
        found = [(j.step.name, [p.step.name for p in j.prepare], [p.step.name for p in j.finish], j.placed) for j in fold.joined]
        asked.append([(*one, placed and placed.step.name) for *one, placed in found])
        return True

    assert [f[0] for f in chosen(body, accepts)] == ["finish", "placed", "prologue"]
    assert asked == [
        [("gemv0", [], ["silu0"], None)],
        [("gemv0", [], ["silu0"], "copy0")],
        [("gemv0", ["rmsnorm0"], ["silu0"], "copy0"), ("gemv1", ["rmsnorm0"], [], None)],
    ]
    assert all(fold.joined == () for fold in choose_folds(trace(body), accepts))


def test_folds_do_not_cross():
    """The sum, which reads a state, waits for `other`; the copy that writes the state must not come before it."""

    def body(self, x):
        late = ElementwiseAdd(x, self.one)
        new = GEMV(self.w, x)
        other = GEMV(self.v, x)
        y = ElementwiseMul(late, other)
        Copy(new, self.one)
        return y, other

    alone = {f.kind: f.runs_at for f in find_folds(trace(body))}
    assert alone == {"finish": "elementwisemul0", "placed": "gemv0"}
    together = {f.kind: f.runs_at for f in choose_folds(trace(body), lambda fold: True)}
    assert together == {"finish": "elementwisemul0", "placed": "copy0"}
