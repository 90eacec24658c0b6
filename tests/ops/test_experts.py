"""Products whose matrices ids pick: each row's own product with its own matrix, on every backend that has them."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core import Q4_1
from iron_core.array.build import build
from iron_core.errors import ParamError, Unresolvable
from iron_host.backend import HostBackend
from iron_ops_aie import GEMM, GEMV, CombineExperts, ElementwiseMul, GatedExperts, SiLU

RNG = np.random.default_rng(5)
HOST = HostBackend(threads=2, strict=True)
E, M, K, ROWS = 5, 24, 64, 9
STACK = RNG.standard_normal((E, M, K)).astype(np.float32)
X = RNG.standard_normal((ROWS, K)).astype(np.float32)
IDS = np.array([0, 4, 4, -1, 7, -9, 2, 1, 0], np.int32)
PLACES = [0, 4, 4, 4, 4, 0, 2, 1, 0]
#: As they are stored, and with which arithmetic.
STORED = {"dense": (STACK, {}), **{a: (Q4_1.quantize(STACK), dict(activations=a)) for a in ("exact", "int8_block")}}


def whole(stack):
    return stack if isinstance(stack, np.ndarray) else stack.dequantize()


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("backend", ["reference", HOST])
def test_each_row_meets_the_matrix_that_its_id_picks(stored, backend):
    """By hand: negative ids count from the end, others are clipped; GEMV's and GEMM's are one answer, to the bit on the CPU."""
    stack, more = STORED[stored]
    fields = dict(num_matrices=E, experts=True, T=np.float32, W=iron.declare.formats.format_of(stack), **more)
    gemv = iron.OperatorImage(GEMV(M=M, K=K, num_batches=ROWS, **fields), backend=backend)(stack, X, IDS)
    gemm = iron.OperatorImage(GEMM(M=ROWS, K=K, N=M, b_col_maj=True, **fields), backend=backend)(X, stack, IDS)
    want = np.stack([whole(stack)[e] @ x for e, x in zip(PLACES, X, strict=True)])
    near = 0.05 if stored == "int8_block" else 1e-4
    assert np.abs(gemv - want).max() < near * np.abs(want).max() and np.array_equal(gemv, gemm)
    single = iron.OperatorImage(GEMV(M=M, K=K, T=np.float32, W=fields["W"], **more), backend=backend)
    alone = [single(stack[e], x) for e, x in zip(PLACES, X, strict=True)]
    assert np.allclose(gemv, alone, rtol=0, atol=1e-5) and (backend == "reference" or np.array_equal(gemv, alone))


@pytest.mark.parametrize("stored", STORED)
def test_gate_up_and_what_lies_between_are_one_step_to_the_bit(stored):
    """On the CPU in float32: SiLU of one product times another, as the steps by themselves."""
    stack, more = STORED[stored]
    other = STACK[::-1].copy() if stored == "dense" else Q4_1.quantize(STACK[::-1].copy())
    fields = dict(num_matrices=E, experts=True, T=np.float32, W=iron.declare.formats.format_of(stack), **more)
    product = iron.OperatorImage(GEMV(M=M, K=K, num_batches=ROWS, **fields), backend=HOST)
    size = ROWS * M
    gate = iron.OperatorImage(SiLU(size=size, T=np.float32), backend=HOST)(product(stack, X, IDS).reshape(-1))
    want = iron.OperatorImage(ElementwiseMul(size=size, T=np.float32), backend=HOST)(gate, product(other, X, IDS).reshape(-1))
    op = GatedExperts(rows=ROWS, experts=E, hidden=K, inner=M, k=1, T=np.float32, W=fields["W"], **more)
    got = iron.OperatorImage(op, backend=HOST)(X, stack, other, IDS.reshape(-1, 1))
    assert np.array_equal(got.reshape(-1), want)


def test_what_experts_make_is_added_in_the_order_of_its_columns():
    """Weighted; what is shared comes last, opened by its gate."""
    down, x = RNG.standard_normal((E, K, M)).astype(np.float32), RNG.standard_normal((2, 3, M)).astype(np.float32)
    ids, weights = np.array([[1, 3, 1], [4, 0, 2]], np.int32), np.array([[0.5, 0.25, 2], [1, 0, -1]], np.float32)
    shared, gate = RNG.standard_normal((2, K)).astype(np.float32), np.array([[0.0], [2.0]], np.float32)
    want = np.stack([sum(w * (down[e] @ v) for e, w, v in zip(*row, strict=True)) for row in zip(ids, weights, x, strict=True)])
    sizes = dict(rows=2, experts=E, hidden=K, inner=M, k=3, T=np.float32)
    for backend in ("reference", HOST):
        plain = iron.OperatorImage(CombineExperts(**sizes), backend=backend)(x, down, ids, weights)
        added = iron.OperatorImage(CombineExperts(**sizes, shares=True), backend=backend)(x, down, ids, weights, shared)
        opened = iron.OperatorImage(CombineExperts(**sizes, shares=True, gates=True), backend=backend)(x, down, ids, weights, shared, gate)
        assert np.allclose(plain, want, atol=1e-4) and np.allclose(added, want + shared, atol=1e-4)
        assert np.allclose(opened, want + shared / (1 + np.exp(-gate)), atol=1e-4)


def test_arrays_say_that_all_experts_go_by():
    """In `explain()` of a graph on a simulator and of the operator; on the CPU, which reads what ids pick, nothing."""

    class Chosen(iron.Graph):
        def body(self, x, gate, up, ids):
            return GatedExperts(x, gate, up, ids)

    shapes = dict(x=(4, 32), gate=(8, 16, 32), up=(8, 16, 32), ids=((4, 2), np.int32))
    dense = "dense: all 8 experts go by for every 4 rows, 8 at most multiply"
    assert dense in Chosen().compile(backend="sim", dev="npu1", **shapes).explain()
    assert "dense" not in Chosen().compile(backend=HOST, **shapes).explain()
    alone = CombineExperts(rows=1, experts=8, hidden=32, inner=16, k=2).explain("npu2")
    assert "remark     dense: all 8 experts go by for every row, 2 at most multiply" in alone


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: GEMV(M=8, K=8, num_batches=4, repeat=2, num_matrices=3, experts=True), ParamError, "repeat=2 with ids=.* Legal: repeat=1"),
        (lambda: GEMV(M=8, K=8, num_matrices=3, experts=True, T=np.int8, O=np.int32), ParamError, "T=int8; legal: float32"),
        (lambda: GEMM(M=8, K=8, N=8, num_matrices=3, experts=True), ParamError, "Legal: b_col_maj=True"),
        (lambda: GEMM(M=8, K=8, N=8, num_matrices=3), ParamError, "num_matrices=3 and no ids=.* Legal: num_matrices=1"),
        (lambda: build(GEMV(M=64, K=64, num_matrices=3, experts=True), "npu2"), Unresolvable, "experts=True; .* run on the CPU"),
        (lambda: build(GEMM(M=64, K=64, N=64, b_col_maj=True, num_matrices=3, experts=True), "npu1"), Unresolvable, "on the CPU"),
        (lambda: CombineExperts(rows=1, experts=2, hidden=8, inner=8, k=1, gates=True), ParamError, "shared_gate= is given"),
        (lambda: GatedExperts(rows=1, experts=2, hidden=8, inner=8, k=1, T=np.int8), ParamError, "T=int8; legal: float32"),
        (lambda: GatedExperts(rows=1, experts=2, hidden=32, inner=8, k=1, activations="int8"), ParamError, "Legal: exact"),
    ],
)  # fmt: skip
def test_what_cannot_be_picked_is_refused(make, error, message):
    """With what would be legal."""
    with pytest.raises(error, match=message):
        make()
