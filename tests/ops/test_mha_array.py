"""`MHA`'s array: the numbers a simulated array gives, what it moves under bounds, and what it refuses."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core import bfloat16
from iron_core.array.build import build, build_array
from iron_core.array.expression import evaluate, expr
from iron_core.array.fit import memory
from iron_core.array.pools import fifo_pools
from iron_core.devices import device
from iron_core.errors import DeviationError, Unresolvable
from iron_ops_aie import MHA
from iron_ops_aie.attention import mha_sequence
from iron_ops_aie.attention.kernels_mha import MICRO_TILES, AttentionKernels, exponent_scale
from iron_ops_aie.attention.kernels_scores import HIDDEN, hide
from iron_ops_aie.attention.mha_cores import Walk
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")
INTERLEAVED = dict(heads_interleaved=True, kv_interleaved=True)
#: A prompt over a cache, and one query, each with grouped heads in the layout of the models.
PROMPT = dict(num_heads=4, num_KV_heads=2, seq_len=64, kv_len=192, **INTERLEAVED)
QUERY = dict(num_heads=9, num_KV_heads=3, seq_len=1, kv_len=208, **INTERLEAVED)


def named(fields):
    return "-".join(f"{k}{int(v) if isinstance(v, bool) else v}" for k, v in fields.items())


def bits(array):
    return np.ascontiguousarray(array).view(np.uint16)


def run(op, dev="npu2", inputs=None, **bounds):
    """The simulated output of the valid queries and its poison, and what composed() says it is; the inputs; the statistics."""
    inputs = inputs or op.test.draw(op, np.random.default_rng(2))
    outputs, masks, stats = simulate(op, dev, inputs, bounds)
    axis, n = (0 if op.heads_interleaved else 1), bounds.get("valid", op.seq_len)
    got, poison = (np.moveaxis(np.moveaxis(x["O"], axis, 0)[:n], 0, axis) for x in (outputs, masks))
    assert not poison.any()
    return got, op.composed(*inputs.values(), **bounds), inputs, stats


def exact(op, inputs, valid=None, kv_valid=None):
    """reference() under bounds."""
    bias = inputs.get("bias")
    n, m = op.seq_len if valid is None else valid, op.kv_len if kv_valid is None else kv_valid
    q, k, v = inputs["Q"], inputs["K"], inputs["V"]
    q = q[:n] if op.heads_interleaved else q[:, :n]
    k, v = (x[:m] if op.kv_interleaved else x[:, :m] for x in (k, v))
    return op.bounded(seq_len=n, kv_len=m).reference(q, k, v, None if bias is None else bias[:, :n, :m])


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    "fields",
    [
        dict(num_heads=2, seq_len=64),
        dict(num_heads=2, seq_len=64, causal=False),
        dict(num_heads=6, num_KV_heads=2, seq_len=128, kv_len=256, **INTERLEAVED),
        dict(num_heads=2, seq_len=32, kv_len=48, heads_interleaved=True, scale=0.5),
        dict(num_heads=4, num_KV_heads=1, seq_len=48, d=128, kv_interleaved=True),
        dict(num_heads=1, seq_len=64, B_q=64),
        dict(num_heads=1, seq_len=16, kv_len=64, d=256),
        dict(num_heads=3, num_KV_heads=1, seq_len=64, kv_len=96, B_q=16, num_pipelines=4),
        dict(num_heads=2, seq_len=64, window=9),
        dict(num_heads=2, seq_len=64, window=40, causal=False, B_q=16),
        QUERY,
        dict(num_heads=4, num_KV_heads=1, seq_len=1, kv_len=256, d=128),
        dict(num_heads=3, num_KV_heads=3, seq_len=1, kv_len=64),
        dict(num_heads=20, num_KV_heads=1, seq_len=1, kv_len=96, window=50),
        dict(num_heads=16, num_KV_heads=1, seq_len=1, kv_len=96),
    ],
    ids=named,
)
def test_a_simulated_array_gives_the_composed_bits(dev, fields):
    """Every bit, and within the gate of the reference; far within, in float32 arithmetic."""
    op = MHA(**fields).resolved(device(dev))
    got, want, inputs, _ = run(op, dev)
    assert np.array_equal(bits(got), bits(want))
    reference = exact(op, inputs)
    op.array_check(got, reference, *inputs.values())
    assert np.abs(got.astype(np.float64) - reference).max() < 0.05


@pytest.mark.parametrize("fields", [dict(num_pipelines=8), dict(num_pipelines=8, **INTERLEAVED), dict(num_pipelines=6)], ids=named)
def test_many_pipelines_share_one_stream_of_keys(fields):
    """More than six take their queries, and give their outputs, over two shims."""
    op = MHA(num_heads=4, num_KV_heads=2, seq_len=384, B_q=16, **fields).resolved(device("npu2"))
    got, want, _, stats = run(op)
    assert op.q_lanes == (2 if op.num_pipelines == 8 else 1)
    assert np.array_equal(bits(got), bits(want))
    assert stats.elements("K") == stats.elements("V") == 4 * (384 // (16 * op.num_pipelines)) * 384 * 64


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("context", [1, 15, 16, 17, 100, 208])
def test_a_query_reads_the_blocks_its_context_covers(dev, context):
    """And no byte more; what lies behind the context need not be a number."""
    op = MHA(**QUERY).resolved(device(dev))
    inputs = op.test.draw(op, np.random.default_rng(4))
    want = op.composed(*inputs.values(), kv_valid=context)
    for name in ("K", "V"):
        inputs[name][context:] = np.nan
    got, _, _, stats = run(op, dev, inputs, kv_valid=context)
    assert np.array_equal(bits(got), bits(want))
    op.array_check(got, exact(op, inputs, kv_valid=context), *inputs.values())
    read = op.num_KV_heads * -(-context // op.B_q) * op.B_q * op.d
    assert (stats.elements("K"), stats.elements("V"), stats.elements("O")) == (read, read, 9 * 64)
    assert stats.elements("Q") == op.num_KV_heads * op.B_q * op.d


@pytest.mark.parametrize(("heads", "kv_heads"), [(32, 8), (16, 8), (12, 4), (64, 8), (48, 16)])
@pytest.mark.parametrize("dev", DEVICES)
def test_a_short_context_outruns_no_transfer(dev, heads, kv_heads):
    """Heads in several passes whose keys and values are through before the last queries are: those are freed last."""
    op = MHA(num_heads=heads, num_KV_heads=kv_heads, seq_len=1, kv_len=64, **INTERLEAVED).resolved(device(dev))
    for context in (1, 17):
        got, want, _, _ = run(op, dev, kv_valid=context)
        assert np.array_equal(bits(got), bits(want))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "bounds",
    [
        dict(kv_valid=192), dict(kv_valid=100), dict(valid=33, kv_valid=70), dict(valid=40, kv_valid=40), dict(valid=10),
        dict(valid=1, kv_valid=37), dict(valid=20, kv_valid=10), dict(valid=17, kv_valid=1), dict(valid=5, kv_valid=0),
        dict(valid=0, kv_valid=50),
    ],
    ids=named,
)  # fmt: skip
def test_a_prompt_under_bounds(causal, bounds):
    """Queries are the last of the keys that count, wherever blocks begin; those before the first key are zero."""
    op = MHA(**PROMPT, causal=causal).resolved(device("npu2"))
    got, want, inputs, stats = run(op, **bounds)
    assert np.array_equal(bits(got), bits(want))
    op.array_check(got, exact(op, inputs, **bounds), *inputs.values())
    keys = bounds.get("kv_valid", op.kv_len)
    rounds = op.seq_len // (op.B_q * op.num_pipelines)
    read = op.num_heads * rounds * max(1, -(-keys // op.B_q)) * op.B_q * op.d
    assert (stats.elements("K"), stats.elements("V")) == (read, read)
    assert stats.elements("Q") == stats.elements("O") == op.num_heads * op.seq_len * op.d
    if causal and bounds.get("valid", op.seq_len) > keys:
        assert not got[: bounds["valid"] - keys].any()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 20, 70])
@pytest.mark.parametrize("fields", [PROMPT, QUERY], ids=["prompt", "query"])
def test_windows_under_bounds(causal, window, fields):
    """Blocks before a window pass unread by the cores."""
    op = MHA(**fields, causal=causal, window=window).resolved(device("npu2"))
    bounds = dict(kv_valid=77) | (dict(valid=30) if op.seq_len > 1 else {})
    got, want, inputs, _ = run(op, **bounds)
    assert np.array_equal(bits(got), bits(want))
    op.array_check(got, exact(op, inputs, **bounds), *inputs.values())


@pytest.mark.parametrize(("limit", "number"), [("REPEATS", 2), ("ITERATIONS", 1)])
def test_long_repeats_are_cut_to_what_a_descriptor_holds(limit, number, monkeypatch):
    """More readings of the keys, or more heads, than one descriptor takes: several, in order."""
    monkeypatch.setattr(mha_sequence, limit, number)
    op = MHA(num_heads=10, num_KV_heads=2, seq_len=32, kv_len=80, B_q=16, num_pipelines=1, **INTERLEAVED).resolved(device("npu2"))
    got, want, _, stats = run(op, kv_valid=50)
    assert np.array_equal(bits(got), bits(want))
    assert stats.elements("K") == 10 * 2 * 64 * 64


@given(
    n=st.integers(0, 70), m=st.integers(0, 90), block=st.integers(0, 4), packed=st.booleans(), causal=st.booleans(),
    window=st.none() | st.integers(1, 40),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_the_cores_walk_the_blocks_that_are_seen(n, m, block, packed, causal, window):
    """First and last block by position, and the rows that see nothing, as a mask written out says."""
    b = 16
    if packed:
        n, block = min(n, 1), 0
    walk = Walk(b, 1, 0, packed, causal, window)
    first, last, sent, blind = (
        evaluate(expr(x), {}) for x in (*walk.seen(block, n, m), walk.sent(m), walk.blind(block, n, m))
    )
    at = m - n + block * b + np.arange(b)[:, None] * (not packed)
    key = np.arange(96)[None]
    seen = (key < m) & ((key <= at) | (not causal)) & (np.abs(key - at) <= (99 if window is None else window))
    seen &= np.full((b, 1), block * b < n)
    valid = seen[: max(0, min(b, n - block * b))] if not packed else seen
    blocks = np.flatnonzero(seen.reshape(b, -1, b).any((0, 2)))
    assert sent == max(1, -(-m // b)) and 0 <= first <= last <= sent
    if len(blocks):
        assert first <= blocks[0] and last >= blocks[-1] + 1
        # Rows behind the last query may widen the walk, no others.
        assert last == blocks[-1] + 1 and (first == blocks[0] or valid.any())
    else:
        assert first == last
    assert np.array_equal(np.arange(len(valid)) < blind, ~valid.any(1))


def test_one_array_serves_every_extent():
    """Heads, lengths and layouts are the sequence's affair."""
    fields = [
        dict(num_heads=2, seq_len=64, kv_len=64), dict(num_heads=6, num_KV_heads=2, seq_len=128, kv_len=256, **INTERLEAVED)
    ]  # fmt: skip
    first, second = (build_array(MHA(**f, B_q=32, num_pipelines=2).resolved(device("npu2")), "npu2").array for f in fields)
    assert first is second


@pytest.mark.parametrize(
    ("fields", "blocks", "pipelines"),
    [(dict(seq_len=64), 32, 2), (dict(seq_len=128), 32, 4), (dict(seq_len=256), 32, 8), (dict(seq_len=512), 64, 8),
     (dict(seq_len=16), 16, 1), (dict(seq_len=1, kv_len=2048), 16, 2), (dict(seq_len=80, kv_len=160), 16, 5)],
    ids=lambda x: named(x) if isinstance(x, dict) else None,
)  # fmt: skip
def test_blocks_and_pipelines_are_chosen(fields, blocks, pipelines):
    op = MHA(num_heads=2, **fields).resolved(device("npu2"))
    assert (op.B_q, op.num_pipelines) == (blocks, pipelines)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(T=np.float32), "T=float32; its array computes on bfloat16"),
        (dict(C=np.float16), "C=float16"),
        (dict(d=24), "d=24 is not whole steps of its kernels, 16 in all. Nearest legal d: 16 or 32"),
        (dict(d=48, pv_cores=2), "d=48 is not whole steps of its kernels, 32 in all. Nearest legal d: 32 or 64"),
        (dict(seq_len=70, kv_len=96), r"seq_len=70 is not whole blocks of B_q=16 .* Nearest legal seq_len: 64 or 80"),
        (dict(kv_len=200), "kv_len=200 is not whole blocks of B_q=16 keys, 16 in all. Nearest legal kv_len: 192 or 208"),
        (dict(B_q=48), "B_q=48; legal: 16, 32, 64"),
        (dict(num_pipelines=7), "num_pipelines=7; legal: 1 to 6, and 8"),
        (dict(num_pipelines=3), r"seq_len=64 .* num_pipelines=3, 48 in all. Nearest legal seq_len: 48 or 96"),
        (dict(d=1024), r"core qk0 needs \d+ bytes of its 65536 .* Nearest legal d: 608\."),
        (dict(d=512, pv_cores=1), r"core \w+ needs \d+ bytes of its 65536 .* Nearest legal d: 368; or give pv_cores=2"),
        (dict(d=128, B_q=64, pv_cores=1), r"core pv0 needs \d+ bytes .* Nearest legal d: 64; or give a smaller B_q=; or give pv_cores=2"),
        (dict(pv_cores=3), "pv_cores=3; legal: 1, 2"),
        (dict(placement="near"), "placement='near' is not declared. Legal: tiles, memtiles, columns"),
        (dict(soft_cap=2.0**99), r"soft_cap=6.3\d+e\+29; its array caps .* scale=0.125. Legal: 7.888609052210118e-31 to 1.547\d+e\+26"),
        (dict(scale=0.0), "scale=0.0; its array hides keys by very low scores"),
        (dict(seq_len=1, kv_len=64, num_pipelines=2, num_heads=9, num_KV_heads=3), "num_KV_heads=3 do not divide over num_pipelines=2"),
        (dict(seq_len=1, kv_len=64, num_heads=40, num_KV_heads=1, B_q=32), "40 heads share a key head"),
    ],
    ids=lambda x: named(x) if isinstance(x, dict) else "",
)  # fmt: skip
def test_what_the_array_does_not_take_is_refused_in_words(fields, message):
    """The number used, the number there is, and what to change."""
    with pytest.raises(Unresolvable, match=message):
        build(MHA(**dict(num_heads=2, seq_len=64) | fields), "npu2")


@pytest.mark.parametrize(
    ("fields", "dev"),
    [
        (dict(seq_len=128, num_pipelines=8, B_q=16), "npu1"),
        (dict(seq_len=64), "npu2_1col"),
        (dict(seq_len=1, kv_len=64, num_heads=4, num_pipelines=4), "npu1"),
    ],
    ids=str,
)
def test_streams_that_find_no_room_are_refused(fields, dev):
    """A column has two shim channels each way, a memory tile six."""
    with pytest.raises(Unresolvable, match=r"num_pipelines=\d and their streams do not fit the \d columns of npu"):
        build(MHA(**dict(num_heads=2) | fields), dev)


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("fields", [PROMPT, QUERY, dict(num_heads=1, seq_len=64, B_q=64), dict(num_heads=1, seq_len=32, d=128)], ids=named)
def test_cores_hold_what_was_counted(dev, fields):
    """Objects, buffers and stack of every core."""
    op = MHA(**fields).resolved(device(dev))
    array = build_array(op, dev).array
    counted = {held.worker: held for held in memory(op, dev)}
    for core in array.cores:
        held = core.stack + sum(b.type.nbytes for b in array.buffers if b.tile == core.tile)
        held += sum(pool.depth * pool.type.nbytes for pool in fifo_pools(array).pools if pool.tile == core.tile)
        # In a core's memory a part begins at a multiple of 32 bytes.
        parts = len(counted[core.name].parts)
        assert held <= counted[core.name].used < held + 32 * parts and counted[core.name].fits


def test_the_gate_lets_few_numbers_be_far_off():
    """One in 200, and none that is no number."""
    op = MHA(num_heads=1, seq_len=16)
    want = np.zeros((1, 16, 64))
    got = want.astype(bfloat16)
    got.flat[:5] = 9
    assert op.array_check(got, want).ratio == 0
    got.flat[5] = 9
    with pytest.raises(DeviationError, match=r"6 of 1024 are off by more than 4% and 0\.15"):
        op.array_check(got, want)
    got.flat[:6] = 0
    got.flat[0] = np.nan
    with pytest.raises(DeviationError, match="got nan"):
        op.array_check(got, want)


def compiled(kernel, folder):
    """A kernel's source as a function of this machine."""
    from iron_host.compiler import find

    data = kernel.data
    defines = "".join(f"#define {name} {value}\n" for name, value in (*data.defines, ("KERNEL", data.symbol)))
    source, library = folder / f"{data.symbol}.cpp", folder / f"{data.symbol}.so"
    source.write_text(defines + data.source)
    find().run(source, library)
    return getattr(ctypes.CDLL(str(library)), data.symbol)


def address(array):
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("window", "step"), [(None, 1), (None, 0), (3, 1), (20, 0), (20, 1)])
def test_the_masks_source_does_what_its_reference_says(causal, window, step, rng, tmp_path):
    """Compiled for this machine, for every place of a block."""
    kernel = hide(16, causal, window, step)
    function = compiled(kernel, tmp_path)
    scores = rng.standard_normal((16, 16)).astype(bfloat16)
    for ahead in range(-40, 41, 3):
        for keys in (-20, 0, 1, 7, 16, 40):
            got = scores.copy()
            function(address(got), ctypes.c_int32(ahead), ctypes.c_int32(keys))
            assert np.array_equal(bits(got), bits(kernel.reference(scores, ahead, keys).astype(bfloat16)))
            assert ((got == scores) | (got == HIDDEN)).all()


@pytest.mark.parametrize("arch", MICRO_TILES)
def test_the_row_kernels_sources_do_what_their_references_say(arch, rng, tmp_path):
    """Rows of a tile in micro tiles: cleared, and the first ones given out."""
    k = AttentionKernels(16, 64, arch=arch)
    tile = rng.standard_normal((16, 64)).astype(bfloat16)
    for name in ("v", "out"):
        kernel = k.clear(name)
        function = compiled(kernel, tmp_path)
        for first, last in ((0, 0), (3, 16), (-5, 2), (-9, -4), (4, 99), (20, 30), (0, 16)):
            got, want = k.hold(name, tile).copy(), tile.copy()
            want[max(first, 0) : max(last, 0)] = 0
            function(address(got), ctypes.c_int32(first), ctypes.c_int32(last))
            assert np.array_equal(bits(k.rows(name, got)), bits(want))
            assert np.array_equal(bits(got), bits(kernel.reference(k.hold(name, tile), first, last).astype(bfloat16)))
    kernel, held, got = k.first_rows(3), k.hold("out", tile), np.zeros((3, 64), bfloat16)
    compiled(kernel, tmp_path)(address(held), address(got))
    assert np.array_equal(bits(got), bits(tile[:3])) and np.array_equal(bits(got), bits(kernel.reference(held).astype(bfloat16)))


def test_scores_are_scaled_to_powers_of_two():
    """By scale * log2 e in bfloat16: 1.4453125 for a scale of 1."""
    assert exponent_scale(1.0) == 1.4453125
