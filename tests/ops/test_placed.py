"""Operators whose result calls place in a larger tensor: every drain begins where the call says."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core import Pattern, bfloat16
from iron_core.array.build import build
from iron_core.array.spec import check
from iron_core.declare.chained import fold, place, prefold
from iron_core.declare.identity import array_key, contract_key, design_key, label
from iron_core.devices import device
from iron_core.errors import BoundsError, CallError, Unresolvable
from iron_ops_aie import GEMM, GEMV, MHA, Copy, ElementwiseAdd, RMSNorm, RoPE, Sample, SiLU, Transpose
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")
#: Derived sequences and their own; several lanes, batches, row blocks and chains.
OPERATORS = {
    "SiLU": SiLU(size=512),
    "RMSNorm": RMSNorm(rows=8, cols=64, weighted=True),
    "RoPE": RoPE(rows=4, cols=64, angle_rows=1),
    "Transpose": Transpose(M=64, N=96),
    "GEMV": GEMV(M=128, K=96),
    "GEMV of batches, float32": GEMV(M=64, K=64, num_batches=3, O=np.float32),
    "GEMM": GEMM(M=256, K=64, N=128),
    "MHA": MHA(num_heads=4, num_KV_heads=1, seq_len=1, kv_len=64, d=64, heads_interleaved=True, kv_interleaved=True),
    "chains": prefold(fold(GEMV(M=128, K=64), ElementwiseAdd(size=128)), RMSNorm(rows=1, cols=64)),
}


def drawn(op):
    return {k: v for k, v in op.test.draw(op, np.random.default_rng(3)).items() if v is not None}


def result(op):
    return next(operand.name for operand in op.outputs if operand.present(op))


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_result_lies_where_the_call_says(dev, name):
    """Its bits are those it has by itself, and around it the tensor stays as it was."""
    op = OPERATORS[name]
    tensors, out = drawn(op), result(op)
    plain = simulate(op, dev, tensors)[0][out].reshape(-1)
    placed = place(op, plain.size + 96)
    check(build(placed, dev, (f"{out}_offset",)).design)
    before = np.arange(plain.size + 96).astype(plain.dtype)
    for at in (0, 32, 96):
        got = simulate(placed, dev, {**tensors, out: before}, {f"{out}_offset": at})[0][out].reshape(-1)
        want = before.copy()
        want[at : at + plain.size] = plain
        assert got.tobytes() == want.tobytes()


def test_a_place_is_inside_the_tensor_and_on_a_word():
    """Both are told before anything runs."""
    op = place(SiLU(size=64), 160)
    tensors = {**drawn(SiLU(size=64)), "y": np.zeros(160, bfloat16)}
    with pytest.raises(BoundsError, match=r"SiLU: y_offset is 98 \(y_offset=98\); legal: 0 to 96"):
        simulate(op, "npu2", tensors, {"y_offset": 98})
    with pytest.raises(BoundsError, match=r"SiLU: y_offset is 5; .* whole 4-byte word.* Nearest legal: 4 or 6"):
        simulate(op, "npu2", tensors, {"y_offset": 5})
    with pytest.raises(CallError, match=r"SiLU: y is bfloat16 of shape \(160,\)"):
        simulate(op, "npu2", {**tensors, "y": np.zeros(64, bfloat16)}, {"y_offset": 0})


def test_what_cannot_be_placed_is_refused_in_words():
    """Several results, a tensor too small, a sequence that moves its result itself, transfers of several descriptors."""
    with pytest.raises(Unresolvable, match=r"SiLU: y of 64 elements in a tensor of 60. Legal: 64 or more"):
        place(SiLU(size=64), 60)
    with pytest.raises(Unresolvable, match=r"Sample has \d results; one is placed"):
        place(Sample(vocab=512, steps=4), 1 << 20)
    copy = place(Copy(input_size=64, output_size=128, dst=Pattern(0, (64,), (1,))), 256)
    with pytest.raises(Unresolvable, match=r"Copy.y, lane 0: its own sequence moves it per call, so no call can place it"):
        build(copy, "npu2", ("out_offset", "y_offset"))
    turned = place(Copy(input_size=720, dst=Pattern(0, (2, 3, 4, 5, 6), (6, 12, 36, 144, 1)), tile_size=720), 1024)
    with pytest.raises(Unresolvable, match=r"Copy.y, lane 0: 2 descriptors, of which a call moves one. Legal: the copy by itself"):
        build(turned, "npu2", ("y_offset",))


def test_keys_know_the_tensor():
    """The design's, not the array's or the contract's."""
    dev = device("npu1")
    plain = fold(GEMV(M=64, K=64), ElementwiseAdd(size=64)).resolved(dev)
    one, other = (place(plain, n).resolved(dev) for n in (256, 512))
    assert len({design_key(op) for op in (plain, one, other)}) == len({label(op) for op in (plain, one, other)}) == 3
    assert len({array_key(op) for op in (plain, one, other)}) == len({contract_key(op) for op in (plain, one, other)}) == 1
    assert "C placed in 256 elements" in repr(one)
    assert fold(one, SiLU(size=64)).placed == prefold(one, SiLU(size=64)).placed == (("C", 256),)
