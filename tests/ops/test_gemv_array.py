"""`GEMV`'s array: how rows are shared out, what rides ahead of them, and the numbers a simulated array gives."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.array.build import build
from iron_core.array.fit import memory
from iron_core.array.spec import check
from iron_core.declare.domain import domains
from iron_core.declare.formats import bfloat16
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import GEMV
from iron_ops_aie.products.kernels_mv import products
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")


def drawn(op):
    return {k: v for k, v in op.test.draw(op, np.random.default_rng(3)).items() if v is not None}


def bits(array):
    return np.ascontiguousarray(array).view(np.uint8)


def run(op, dev, **bounds):
    """The simulated C, what composed() says it is, whether anything of it was never written, and the statistics."""
    op = op.resolved(device(dev))
    inputs = drawn(op)
    outputs, poison, stats = simulate(op, dev, inputs, bounds)
    return outputs["C"], op.composed(**inputs), poison["C"].reshape(outputs["C"].shape), stats


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    "fields",
    [
        dict(M=64, K=64),
        dict(M=64, K=48, num_batches=2, num_channels=2, num_aie_columns=2),
        dict(M=64, K=96, num_batches=4, repeat=2),
        dict(M=96, K=128, num_batches=3),
        dict(M=32, K=32, num_batches=24, repeat=3),
        dict(M=48, K=64, tile_size_input=2, tile_size_output=12, num_aie_columns=2),
        dict(M=34, K=32),
        dict(M=32, K=32, num_batches=70, num_channels=2, num_aie_columns=2),
        dict(M=576, K=576),
        dict(M=192, K=576),
        dict(M=1536, K=576),
        dict(M=576, K=1536),
        dict(M=64, K=8192, num_aie_columns=2),
        dict(M=96, K=160, O="float32"),
        dict(M=48, K=576, num_batches=2, O="float32"),
    ],
    ids=lambda fields: "-".join(f"{k}{v}" for k, v in fields.items()),
)
def test_a_simulated_array_gives_the_composed_bits(dev, fields):
    """Every bit, and within the contract of the reference."""
    op = GEMV(**fields).resolved(device(dev))
    check(build(op, dev).design)
    got, want, poison, _ = run(op, dev)
    assert not poison.any()
    assert np.array_equal(bits(got), bits(want))
    inputs = drawn(op)
    op.check(got, op.reference(**inputs), *inputs.values())


@pytest.mark.parametrize("valid", [1, 63, 64, 65, 200, 256])
@pytest.mark.parametrize("dev", DEVICES)
def test_a_bound_on_m_shortens_what_is_moved(dev, valid):
    """Every lane makes its share of the whole tiles that hold the first `valid` rows of every batch; no other row of A moves."""
    op = GEMV(M=256, K=64, num_batches=4, repeat=2, tile_size_output=8).resolved(device(dev))
    check(build(op, dev, ("valid",)).design)
    got, want, poison, stats = run(op, dev, valid=valid)
    assert not poison[:, :valid].any()
    assert np.array_equal(bits(got[:, :valid]), bits(want[:, :valid]))
    whole = op.lanes * op.tile_size_output
    rows = -(-valid // whole) * whole
    assert stats.elements("A") == 4 * rows * 64
    assert stats.elements("C") == 4 * rows
    assert poison[:, rows:].all()


def test_tiles_that_a_bound_cannot_count_are_refused_in_words():
    """A per-call length counts 16 bytes; 12 numbers of C are 24."""
    with pytest.raises(Unresolvable, match=r"tile_size_output=12 of 12 rows .* a multiple of 8"):
        build(GEMV(M=48, K=64, num_aie_columns=4, tile_size_output=12), "npu1", ("valid",))


@pytest.mark.parametrize("rows", [2, 3, 12, 16])
def test_a_row_does_not_depend_on_what_shares_its_tile(rows):
    """Its float32 sum, of any length, is that of the row by itself."""
    rng = np.random.default_rng(0)
    for k in (64, 576, 2048):
        matrix, line = rng.standard_normal((48, k)).astype(bfloat16), rng.standard_normal(k).astype(bfloat16)
        alone = np.concatenate([products(matrix[i : i + 1], line) for i in range(48)])
        together = np.concatenate([products(matrix[i : i + rows], line) for i in range(0, 48, rows)])
        assert np.array_equal(together, alone)


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(("m", "k"), [(576, 576), (192, 576), (1536, 576), (576, 1536), (49152, 576)])
def test_a_language_models_projections_use_every_column(dev, m, k):
    """All columns, tiles of several rows, and room in a core's memory."""
    op = GEMV(M=m, K=k).resolved(device(dev))
    assert op.num_aie_columns == device(dev).columns
    assert op.tile_size_input >= 4
    assert all(held.fits for held in memory(op, dev))


def test_npu1_feeds_two_cores_of_a_column():
    """Where the rows divide over them; npu2 has columns enough."""
    lanes = [(GEMV(M=m, K=64).resolved(device(dev)).num_aie_columns, GEMV(M=m, K=64).resolved(device(dev)).num_channels)
             for m, dev in ((576, "npu1"), (8, "npu1"), (576, "npu2"))]  # fmt: skip
    assert lanes == [(4, 2), (4, 1), (8, 1)]


def test_an_array_knows_no_extent():
    """M, batches and repeat are the sequence's: one array serves all that resolve to the same tiles."""
    tiles = dict(K=64, tile_size_input=4, tile_size_output=8, num_aie_columns=2)
    one = build(GEMV(M=32, **tiles), "npu1").design
    other = build(GEMV(M=64, num_batches=6, repeat=3, **tiles), "npu1", ("valid",)).design
    assert one.array is other.array
    assert one.sequence != other.sequence


def test_b_rides_ahead_of_the_rows_and_drains_go_first():
    """Per batch and lane B, repeated over one tile of A, then the lane's rows of the batch's matrix; no lane is B's own."""
    design = build(GEMV(M=32, K=64, num_batches=4, repeat=2, num_aie_columns=2, tile_size_input=4), "npu2").design
    assert not design.array.lanes_of("B")
    moves = design.sequence.transfers()
    assert [t.way for t in moves] == ["drain"] * 2 + ["fill"] * 16
    feed = [t for t in moves if t.fifo == "A1"]
    assert [t.operand for t in feed] == ["B", "A"] * 4
    assert [t.descriptors[0].offset for t in feed[0::2]] == [0, 64, 128, 192]
    assert all((t.descriptors[0].sizes[0], t.descriptors[0].strides[0]) == (4, 0) for t in feed[0::2])
    assert [t.descriptors[0].offset // 64 for t in feed[1::2]] == [16, 16, 48, 48]


def test_both_channels_of_a_column_are_one_shim_tile():
    """num_channels=2: two lanes of A per shim."""
    array = build(GEMV(M=64, K=64, num_aie_columns=2, num_channels=2), "npu1").design.array
    shims = [array.fifo(lane.fifo).producer for lane in array.lanes_of("A")]
    assert len(shims) == 4
    assert shims[0] == shims[1] != shims[2] == shims[3]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (dict(M=33, K=64), r"M=33 .* Nearest legal M: 32 or 34"),
        (dict(M=100, K=64, num_aie_columns=4, tile_size_output=8), r"M=100 .* Nearest legal M: 96 or 128"),
        (dict(M=64, K=40), r"K=40; rows are two whole vectors of 16 or more. Nearest legal K: 32 or 48"),
        (dict(M=64, K=96, kernel_vector_size=64), r"kernel_vector_size=64; rows of K=96 split into other vectors. Legal: 32 or 16"),
        (dict(M=64, K=64, W="q4_1"), r"W=q4_1, .* Legal: T=W=bfloat16"),
        (dict(M=64, K=64, O="float16"), r"O=float16; .* Legal: .*O=bfloat16, .*O=float32"),
        (dict(M=64, K=64, tile_size_input=4, tile_size_output=6), r"tile_size_output=6; .* tile_size_input=4 with tile_size_output=8"),
        (dict(M=64, K=64, num_aie_columns=5), r"num_aie_columns=5; npu1 has 4"),
        (dict(M=64, K=64, num_channels=3), r"num_channels=3; a column has 2 channels. Legal: 1, 2"),
        (dict(M=64, K=16384), r"core core0 needs \d+ bytes of its 65536 \(fifo A0_cons, .*: 65536; .* Legal: K=10736"),
        (dict(M=64, K=2048, tile_size_input=8), r"70752 bytes of its 65536 .* a smaller tile_size_input"),
    ],
)
def test_what_no_array_takes_is_refused_in_words(fields, words):
    """The number used, the number there is, and what to change."""
    with pytest.raises(Unresolvable, match=words):
        GEMV(**fields).resolved(device("npu1"))


def test_a_tuner_is_offered_its_own_tiles_and_others():
    """Domains around the resolved numbers; what is pinned is not searched."""
    dev = device("npu2")
    op = GEMV(M=576, K=576, num_channels=1).resolved(dev)
    found = domains(op, dev)
    assert set(found) == {"tile_size_input", "tile_size_output", "kernel_vector_size", "num_aie_columns"}
    assert found["tile_size_input"] == (24, 12, 6, 3)
    assert found["tile_size_output"] == (24, 12)
    assert found["kernel_vector_size"] == (64, 32, 16)
