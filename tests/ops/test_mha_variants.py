"""`MHA`'s array in its variants: a cap or a bias on scores, heads shared by two cores, other arithmetic, other placements."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.declare.domain import domains
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import MHA
from iron_ops_aie.attention.kernels_mha import AttentionKernels, fast_exp2
from iron_ops_aie.attention.mha_array import GATES
from tests.ops.test_mha_array import DEVICES, INTERLEAVED, PROMPT, QUERY, bits, exact, named, run

WIDE = dict(num_heads=2, num_KV_heads=1, d=512)


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    "fields",
    [
        PROMPT | dict(soft_cap=1.5),
        QUERY | dict(soft_cap=0.5),
        PROMPT | dict(biased=True),
        QUERY | dict(biased=True),
        dict(num_heads=2, seq_len=96, biased=True, B_q=16, soft_cap=4.0),
        dict(num_heads=2, seq_len=48, kv_len=64, biased=True, window=11, causal=False),
        dict(num_heads=4, num_KV_heads=4, seq_len=1, kv_len=48, biased=True, num_pipelines=2, soft_cap=2.0),
        dict(num_heads=2, seq_len=64, pv_cores=2),
        WIDE | dict(seq_len=32, kv_len=48),
        WIDE | dict(seq_len=1, kv_len=48),
        dict(num_heads=4, num_KV_heads=2, seq_len=1, kv_len=64, d=256, pv_cores=2, biased=True, **INTERLEAVED),
        dict(num_heads=1, seq_len=32, kv_len=64, d=384, biased=True, heads_interleaved=True),
        PROMPT | dict(state="bfloat16"),
        QUERY | dict(state="bfloat16", pv_cores=2),
        PROMPT | dict(placement="memtiles"),
        PROMPT | dict(placement="columns"),
        QUERY | dict(placement="columns", biased=True),
        WIDE | dict(seq_len=16, kv_len=48, placement="memtiles"),
    ],
    ids=named,
)
def test_a_simulated_array_gives_the_composed_bits(dev, fields):
    """Every bit, under bounds too, and within the gate of the reference."""
    op = MHA(**fields).resolved(device(dev))
    for bounds in ({}, dict(kv_valid=37) | (dict(valid=21) if op.seq_len > 21 else {})):
        got, want, inputs, _ = run(op, dev, **bounds)
        assert np.array_equal(bits(got), bits(want))
        assert op.array_check(got, exact(op, inputs, **bounds), *inputs.values()).compared


@pytest.mark.parametrize("fields", [PROMPT, QUERY], ids=["prompt", "query"])
def test_a_bias_streams_the_blocks_that_hold_keys(fields):
    """And no byte more; what lies behind the bounds need not be a number."""
    op = MHA(**fields, biased=True).resolved(device("npu2"))
    inputs = op.test.draw(op, np.random.default_rng(3))
    bounds = dict(kv_valid=37)
    want = op.composed(*inputs.values(), **bounds)
    inputs["bias"][:, :, 37:] = np.nan
    got, _, _, stats = run(op, "npu2", inputs, **bounds)
    assert np.array_equal(bits(got), bits(want))
    assert stats.elements("bias") == op.num_heads * op.seq_len * -(-37 // op.B_q) * op.B_q


def test_a_bias_moves_weight():
    """Far above the scores it picks its key, and a cap holds it."""
    fields = dict(num_heads=2, seq_len=32, causal=False, biased=True)
    op = MHA(**fields).resolved(device("npu2"))
    inputs = op.test.draw(op, np.random.default_rng(0))
    picked = np.random.default_rng(1).permutation(32)
    inputs["bias"][:] = 0
    inputs["bias"][:, np.arange(32), picked] = 100
    got = run(op, inputs=inputs)[0]
    assert np.array_equal(bits(got), bits(inputs["V"][:, picked]))
    capped = MHA(**fields, soft_cap=0.01).resolved(device("npu2"))
    mean = inputs["V"].astype(np.float64).mean(1, keepdims=True)
    assert np.abs(run(capped, inputs=inputs)[0].astype(np.float64) - mean).max() < 0.02


@pytest.mark.parametrize(("fields", "cores", "block"), [
    (dict(d=64), 1, 32), (dict(d=256), 1, 16), (dict(d=256, B_q=32), 2, 32), (dict(d=320), 1, 16), (dict(d=512), 2, 16),
    (dict(d=512, seq_len=1, kv_len=64), 2, 16), (dict(d=64, pv_cores=2), 2, 32),
], ids=lambda x: named(x) if isinstance(x, dict) else None)  # fmt: skip
def test_a_head_is_shared_where_one_core_has_no_room(fields, cores, block):
    """One core that adds up values where it holds a block, else two."""
    op = MHA(**dict(num_heads=2, seq_len=64) | fields).resolved(device("npu2"))
    assert (op.pv_cores, op.B_q, op.pv_width) == (cores, block, op.d // cores)


def test_tuners_choose_cores_and_placements():
    """Both are tunables with a domain, and any choice that builds gives the same bits."""
    op = MHA(num_heads=2, seq_len=64).resolved(device("npu2"))
    found = domains(op, "npu2")
    assert found["pv_cores"] == (1, 2) and found["placement"] == ("tiles", "memtiles", "columns")
    want = bits(run(op)[0])
    for placement in found["placement"]:
        assert np.array_equal(bits(run(op.evolve(placement=placement))[0]), want)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("dev", DEVICES)
def test_what_finds_places_is_routed(dev, cores, biased, packed):
    """However many pipelines: what `resolve()` may choose fits the device."""
    fitted = 0
    for p in (1, 2, 4, 8):
        shape = dict(num_heads=p, seq_len=1, kv_len=32) if packed else dict(num_heads=1, seq_len=16 * p)
        op = MHA(**shape, B_q=16, num_pipelines=p, pv_cores=cores, biased=biased)
        try:
            design = build(op, dev).design
        except Unresolvable as error:
            assert "do not fit the" in str(error) or "do not divide" in str(error)
            continue
        fit(design)
        fitted += 1
    assert fitted


@pytest.mark.parametrize(
    ("fields", "rule", "legal"),
    [
        (dict(seq_len=16, d=1024), r"Nearest legal d: 608\.", dict(d=608)),
        (dict(seq_len=16, d=512, pv_cores=1), "Nearest legal d: 368; or give pv_cores=2", dict(d=368)),
        (dict(seq_len=16, d=512, pv_cores=1), "or give pv_cores=2", dict(pv_cores=2)),
        (dict(seq_len=128, B_q=16, num_pipelines=8, biased=True, pv_cores=2), "Nearest legal num_pipelines: 4", dict(num_pipelines=4)),
        (dict(seq_len=16, soft_cap=2.0**99), "to 1.5474250491067253e\\+26", dict(soft_cap=1.5474250491067253e26)),
        (dict(seq_len=16, soft_cap=1e-30, scale=2.0), "Legal: 1.5777218104420236e-30 to", dict(soft_cap=1.5777218104420236e-30)),
    ],
    ids=str,
)
def test_the_legal_value_that_a_refusal_names_is_taken(fields, rule, legal):
    """Where there is one."""
    with pytest.raises(Unresolvable, match=rule):
        build(MHA(num_heads=1, **fields), "npu2")
    fit(build(MHA(**dict(num_heads=1) | fields | legal), "npu2").design)


def test_the_fast_power_of_two_is_high_between_whole_numbers():
    """A straight line from each power of two to the next, of a bfloat16: exact at both, at most 6.2 % above."""
    x = np.arange(-12, 0.001, 1 / 16, dtype=np.float32)
    high = fast_exp2(x) / np.exp2(x.astype(np.float64)) - 1
    assert not high[x == np.floor(x)].any() and (high > -0.004).all() and 0.055 < high.max() < 0.065
    assert fast_exp2(np.float32([-200, -1e30, -126.5])).tolist() == [0, 0, 0] and fast_exp2(np.float32([0, 3])).tolist() == [1, 8]


def test_variants_have_gates_of_their_own():
    """What rounds less is further within; none is as near as the accurate one with a float32 state."""
    errors = {}
    for exp2, state in GATES:
        op = MHA(num_heads=2, seq_len=64, kv_len=512, d=64, causal=False, exp2=exp2, state=state).resolved(device("npu2"))
        got, want, inputs, _ = run(op)
        assert np.array_equal(bits(got), bits(want))
        assert op.array_check(got, exact(op, inputs), *inputs.values()).ratio < 1
        errors[exp2, state] = np.abs(got.astype(np.float64) - exact(op, inputs)).mean()
    best = errors.pop(("accurate", "float32"))
    assert best < min(errors.values()) and min(GATES.values()) == GATES["accurate", "float32"]


def test_the_fast_power_is_an_instruction_of_aie2p():
    """AIE2 has none."""
    with pytest.raises(Unresolvable, match=r"exp2='fast' on npu1; that is an instruction of AIE2P alone. Legal: exp2='accurate'"):
        build(MHA(num_heads=1, seq_len=16, exp2="fast"), "npu1")


def test_a_bfloat16_state_rounds_what_a_float32_one_keeps(rng):
    """Maximum, sum of weights, factor and sums of values, in either dtype as it keeps them."""
    for state in ("float32", "bfloat16"):
        k = AttentionKernels(16, 64, scale=1.4453125, state=state)
        scores = rng.standard_normal((16, 16)).astype(bfloat16)
        _, after = k.softmax().reference(scores, k.init_state().reference(), (0, 1))
        rounded = np.array_equal(after[:16], after[:16].astype(bfloat16).astype(np.float32))
        assert rounded == (state == "bfloat16") and k.rows_state.dtype_name == k.sums.dtype_name == state
        first = k.init_state().reference().astype(k.state_dtype)
        assert np.isfinite(first.astype(np.float64)).all()


def test_variants_are_other_objects_of_mlir_aie():
    """Each is compiled with what it is."""
    symbols = set()
    for exp2, state in GATES:
        data = AttentionKernels(16, 64, exp2=exp2, state=state).softmax().data
        keywords = dict(data.keywords)
        assert (keywords["accurate_exp2"], keywords["state_dtype"]) == (exp2 == "accurate", state)
        symbols.add(data.symbol)
    assert len(symbols) == len(GATES)
