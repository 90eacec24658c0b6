"""The reference run: each step by its operator's `reference()`, rounded once where it is stored."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.identity import contract_key
from iron_core.declare.rounding import round_to
from iron_core.errors import CallError, DeclarationError, ShapeError
from iron_core.graph.reference import run
from iron_ops_aie import GELU, GEMM, GEMV, Copy, ElementwiseAdd, ElementwiseMul, RMSNorm, Sample, SiLU

F32 = np.float32
BF16 = ml_dtypes.bfloat16


class Block(iron.Graph):
    """x + SiLU(norm(x) w^T) v^T, of the first n rows."""

    def __init__(self, w, v):
        self.w, self.v = w, v

    def body(self, x, *, n: iron.Scratchpad[np.int32]):
        x = x[:n]
        h = SiLU(GEMM(RMSNorm(x), self.w, b_col_maj=True))
        return ElementwiseAdd(x, GEMM(h, self.v, b_col_maj=True))


@pytest.fixture
def block():
    rng = np.random.default_rng(0)
    return Block(rng.standard_normal((16, 8)).astype(BF16), rng.standard_normal((8, 16)).astype(BF16))


def test_every_step_rounds_once_to_what_it_stores(block):
    """The run equals the formula, step by step, with each result in bfloat16."""
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(BF16)
    f = lambda a: a.astype(np.float64)  # noqa: E731
    norm = round_to(f(x) / np.sqrt((f(x) ** 2).mean(-1, keepdims=True) + 1e-5), BF16)
    gate = round_to(f(norm) @ f(block.w).T, BF16)
    act = round_to(f(gate) / (1 + np.exp(-f(gate))), BF16)
    down = round_to(f(act) @ f(block.v).T, BF16)
    expected = round_to(f(x) + f(down), BF16)
    assert block.reference(x, n=4).tobytes() == expected.tobytes()
    assert block.reference(x, n=3).tobytes() == expected[:3].tobytes()


def test_each_step_can_be_watched(block):
    """With its operator at the call's bounds, what it read and its exact results: what gates compare."""
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(BF16)
    traced = block.trace(x=(4, 8))
    seen = []

    def watch(step, op, inputs, results):
        seen.append((step.name, contract_key(op), [i.shape for i in inputs if i is not None], results[0].dtype))

    run(traced, {"x": x}, {"n": 3}, {}, watch)
    assert [s[0] for s in seen] == ["rmsnorm0", "gemm0", "silu0", "gemm1", "elementwiseadd0"]
    assert seen[0][2] == [(3, 8)] and seen[2][2] == [(48,)]
    assert seen[1][3] == np.float64


def test_states_live_from_one_call_to_the_next():
    """In every version of the graph, until they are reset."""

    class Sum(iron.Graph):
        def __init__(self):
            self.total = iron.state((2, 4), F32)

        def body(self, x):
            rows = self.total[: x.shape[0]]
            Copy(ElementwiseAdd(rows, x), rows)
            return Copy(self.total)

    graph = Sum()
    graph.reference(np.ones((2, 4), F32))
    assert graph.reference(np.ones((1, 4), F32)).tolist() == [[2.0] * 4, [1.0] * 4]
    graph.reference_states["total"][1] = 7
    assert graph.reference(np.ones((1, 4), F32)).tolist() == [[3.0] * 4, [7.0] * 4]
    graph.reset_reference()
    assert graph.reference(np.ones((2, 4), F32)).tolist() == [[1.0] * 4] * 2


def test_states_can_be_set_before_the_first_call():
    """They are there as soon as the graph holds them."""

    class Read(iron.Graph):
        def __init__(self):
            self.kv = iron.state((2,), F32)

        def body(self):
            return Copy(self.kv)

    graph = Read()
    graph.reference_states["kv"][:] = [1, 2]
    assert graph.reference().tolist() == [1, 2]


def test_a_weight_changed_in_place_is_what_the_next_call_reads():
    """The array is the weight; nothing is copied."""
    w = np.eye(3, dtype=F32)

    class Product(iron.Graph):
        def __init__(self):
            self.w = w

        def body(self, x):
            return GEMV(self.w, x)

    graph, x = Product(), np.arange(3, dtype=F32)
    graph.reference(x)
    w *= 2
    assert graph.reference(x).tolist() == [0, 2, 4]


def test_arrays_made_in_a_body_belong_to_their_version():
    """Two versions invent the same name for two arrays and do not mix them up."""

    class Fresh(iron.Graph):
        def body(self, x):
            return ElementwiseAdd(x, np.full(x.shape, x.shape[0], F32))

    graph = Fresh()
    assert graph.reference(np.zeros(2, F32)).tolist() == [2, 2]
    assert graph.reference(np.zeros(3, F32)).tolist() == [3, 3, 3]


def test_what_nobody_wrote_is_not_a_number():
    """An intermediate's rows past a bound are NaN, so a step that reads them shows."""

    class Whole(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return SiLU(Copy(Copy(x[:n])[0:4]))

    traced = Whole().trace(x=((4,), F32))
    out, _ = run(traced, {"x": np.ones(4, F32)}, {"n": 4}, {})
    assert np.isfinite(out[0]).all()

    class Past(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32], i: iron.Scratchpad[np.int32]):
            return Copy(Copy(x[:n])[i])

    assert Past().reference(np.ones((4, 2), F32), n=2, i=1).tolist() == [1, 1]
    assert np.isnan(Past().reference(np.ones((4, 2), F32), n=2, i=3)).all()


@pytest.mark.parametrize("operator", [GELU, SiLU, RMSNorm, lambda x: ElementwiseMul(x, x)], ids=["GELU", "SiLU", "RMSNorm", "product"])
def test_infinities_and_nan_are_numbers_that_no_step_warns_of(operator):
    """What comes out is for who called to judge, as on every other backend."""

    class Applied(iron.Graph):
        def body(self, x):
            return operator(x)

    x = np.array([[np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, 0, 1]], F32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = Applied().compile(backend="reference", x=(x.shape, F32))(x)
    assert np.isnan(y[0, 2])


def test_an_operand_written_in_place_keeps_what_is_not_written():
    """`Sample` notes a token at one place of its record and returns it."""

    class Draw(iron.Graph):
        def __init__(self):
            self.draws, self.drawn = iron.state(3 * 4, np.int32), iron.state(3, np.int32)

        def body(self, logits, *, at: iron.Scratchpad[np.int32]):
            _, token = Sample(logits, self.draws, self.drawn, row=4 * at, at=at)
            return token

    graph = Draw()
    for at, best in ((0, 5), (2, 1)):
        logits = np.zeros(8, F32)
        logits[best] = 1
        assert graph.reference(logits, at=at).tolist() == [best]
    assert graph.reference_states["drawn"].tolist() == [5, 0, 1]


def test_a_packed_weight_is_bounded_by_rows():
    """A GEMV's M under a bound cuts packed rows."""
    packed = iron.Q4_0.quantize(np.random.default_rng(0).standard_normal((6, 32)).astype(F32))

    class Head(iron.Graph):
        def __init__(self):
            self.w = iron.weight(packed)

        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return GEMV(self.w[:n], x)

    x = np.ones(32, F32)
    got = Head().reference(x, n=4)
    assert got.shape == (4,) and np.allclose(got, (packed.dequantize() @ x)[:4], atol=1e-4)


# -- refusals ---------------------------------------------------------------------------------------


def test_the_values_of_a_call_are_exactly_the_bodys(block):
    """Missing and unknown ones are named, and what there is."""
    x = np.zeros((4, 8), BF16)
    with pytest.raises(CallError, match=r"needs n=\. Its per-call values: n"):
        block.reference(x)
    with pytest.raises(CallError, match="takes no m="):
        block.reference(x, n=1, m=2)


def test_tensors_are_those_of_the_body(block):
    """By count; None only for an optional one."""
    with pytest.raises(CallError, match=r"Block takes 1 tensors \(x\); got 0"):
        block.reference(n=1)
    with pytest.raises(CallError, match="input x is None"):
        block.reference(None, n=1)


def test_a_tensor_of_a_wrong_shape_is_refused(block):
    """By the operator that meets it, with both origins."""
    with pytest.raises(ShapeError, match="says K="):
        block.reference(np.zeros((4, 9), BF16), n=1)


def test_a_reference_of_a_wrong_shape_is_named():
    """The operator, the operand and both shapes."""

    class Wrong(iron.UnaryElementwise):
        def reference(self, x):
            return x[:-1]

    class Two(iron.UnaryElementwise):
        def reference(self, x):
            return x, x

    for operator, message in ((Wrong, r"returned \[3\] for y, which is \[4\]"), (Two, "returned 2 arrays; its outputs: y")):
        graph = type("One", (iron.Graph,), {"body": _call(operator)})()
        with pytest.raises(DeclarationError, match=message):
            graph.reference(np.zeros(4, F32))


def _call(operator):
    def body(self, x):
        return operator(x)

    return body


def test_an_absent_operand_that_would_be_written_in_place_is_none():
    """As any absent input."""

    class Counting(iron.Operator):
        n: int = iron.Param()
        counted: bool = iron.Param(default=False)
        x = iron.In(n, dtype=F32)
        count = iron.InOut(1, dtype=np.int32, when=counted)
        y = iron.Out(n, dtype=F32)

        def reference(self, x, count):
            return x + 1 if count is None else (count + 1, x + 1)

    class Counted(iron.Graph):
        def body(self, x):
            return Counting(x)

    assert Counted().reference(np.zeros(3, F32)).tolist() == [1, 1, 1]
