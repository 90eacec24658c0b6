"""`Transpose`'s array: who takes which part of the matrix, who turns what, and the bits a simulated array gives."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.array.program import Call
from iron_core.declare.domain import domains
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import Transpose
from iron_ops_aie.moving import kernels
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    "fields",
    [
        dict(M=64, N=256),
        dict(M=16, N=8),
        dict(M=96, N=40, num_batches=5),
        dict(M=128, N=128, num_channels=2, num_aie_columns=2),
        dict(M=48, N=36, s=4, n=12, m=16, num_aie_columns=3),
        dict(M=128, N=64, m=128, n=64),
        dict(M=64, N=64 * 70, num_aie_columns=1),
        dict(M=32, N=72, T=np.uint8),
        dict(M=8, N=24, T=np.uint32),
    ],
    ids=lambda fields: "-".join(f"{k}{v}" for k, v in fields.items()),
)
def test_a_simulated_array_transposes(dev, fields):
    """Every bit is where it belongs: x is a different number at every place."""
    op = Transpose(**fields).resolved(device(dev))
    design = build(op, dev).design
    fit(design)
    x = np.arange(op.num_batches * op.M * op.N, dtype=np.uint32).astype({1: "u1", 2: "u2", 4: "u4"}[op.T.itemsize])
    y, poison, _ = simulate(op, dev, {"x": x.view(op.T).reshape(op.shape("x"))})
    assert not poison["y"].any()
    want = np.swapaxes(x.reshape(-1, op.M, op.N), 1, 2)
    assert (y["y"].view(x.dtype).reshape(want.shape) == want).all()
    assert (op.composed(x.view(op.T)).view(x.dtype).reshape(want.shape) == want).all()


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_matrix_is_transposed_or_refused_in_words(data):
    """Whatever sizes, tiles and columns are asked for."""
    sides = st.sampled_from((8, 12, 16, 24, 32, 48, 64, 96, 128, 160))
    fields = dict(M=data.draw(sides), N=data.draw(sides), num_batches=data.draw(st.integers(1, 3)))
    fields["T"] = data.draw(st.sampled_from(kernels.TURNED))
    asked = dict(m=sides, n=sides, s=st.sampled_from((8, 4)), num_aie_columns=st.integers(1, 5), num_channels=st.integers(1, 2))
    fields |= {name: data.draw(values) for name, values in asked.items() if data.draw(st.integers(0, 7)) == 7}
    dev = data.draw(st.sampled_from(DEVICES))
    try:
        op = Transpose(**fields).resolved(device(dev))
        fit(build(op, dev).design)
    except Unresolvable as error:
        event("refused")
        assert re.match(r"Transpose: \w+=.*([Ll]egal|; npu)", str(error)), str(error)
        return
    event("transposed")
    x = np.random.default_rng(0).integers(0, 256, op.num_batches * op.M * op.N * op.T.itemsize, np.uint8).view(op.T)
    x = x.reshape(op.shape("x"))
    y, poison, _ = simulate(op, dev, {"x": x})
    assert not poison["y"].any() and y["y"].tobytes() == np.ascontiguousarray(np.swapaxes(x, -1, -2)).tobytes()


def test_the_kernel_turns_every_square_where_it_stands():
    """Squares stay, the elements in them move; twice is nothing."""
    kernel = kernels.transpose(16, 8, 4, np.uint32)
    x = np.arange(8 * 16, dtype=np.uint32).reshape(8, 16)
    y = np.reshape(kernel.reference(x), (8, 16))
    for i in range(0, 8, 4):
        for j in range(0, 16, 4):
            assert (y[i : i + 4, j : j + 4] == x[i : i + 4, j : j + 4].T).all()
    assert (np.reshape(kernel.reference(y), (8, 16)) == x).all()


def test_a_memory_tile_does_the_first_half():
    """It writes what it takes in in another order: blocks turned, each as it was. A core calls one kernel."""
    array = build(Transpose(M=64, N=64), "npu2").design.array
    taken = array.fifo("x0")
    assert taken.from_stream == (((8, 8), (8, 64), (8, 512), (8, 1)),) and array.links[0].sources == ("x0",)
    (core,) = array.cores
    calls = [s for loop in core.program if hasattr(loop, "body") for s in loop.body if isinstance(s, Call)]
    assert [call.kernel.startswith("transpose_8x8") for call in calls] == [True]


def test_columns_share_out_columns_and_channels_rows():
    """Core (c, h) reads its own block of x, whole, and nothing else."""
    op = Transpose(M=128, N=128, num_aie_columns=2, num_channels=2)
    design = build(op, "npu1").design
    read = {}
    for move in design.sequence.transfers():
        if move.way == "fill":
            read[move.fifo] = np.concatenate([d.addresses() for d in move.descriptors])
    for lane in range(4):
        column, channel = divmod(lane, 2)
        rows, columns = np.divmod(read[f"x{lane}"], 128)
        assert set(rows) == {*range(channel * 64, channel * 64 + 64)} and set(columns) == {*range(column * 64, column * 64 + 64)}


def test_an_array_knows_no_extent():
    """Sizes and batches are the sequence's."""
    tiles = dict(num_aie_columns=2, m=32, n=32)
    one = build(Transpose(M=32, N=64, **tiles), "npu1").design
    other = build(Transpose(M=96, N=64, num_batches=2, **tiles), "npu1").design
    assert one.array is other.array and one.sequence != other.sequence


@pytest.mark.parametrize(("fields", "columns"), [(dict(M=64, N=64), 1), (dict(M=64, N=256), 4), (dict(M=64, N=64 * 12), 6)])
def test_columns_default_to_the_most_that_divide(fields, columns):
    """Whole tiles of 64 x 64 each."""
    op = Transpose(**fields).resolved(device("npu2"))
    assert (op.num_aie_columns, op.m, op.n, op.s) == (columns, 64, 64, 8)


@pytest.mark.parametrize(
    ("fields", "tile"),
    [(dict(M=96, N=40), (48, 40, 8)), (dict(M=80, N=20), (16, 20, 4)), (dict(M=48, N=24, n=8), (48, 8, 4))],
)
def test_tiles_default_to_the_largest_that_divide(fields, tile):
    """Squares of 8 where they do, else of 4."""
    op = Transpose(**fields).resolved(device("npu2"))
    assert (op.m, op.n, op.s) == tile and op.T == bfloat16


def test_a_tuner_is_offered_other_tiles():
    op = Transpose(M=512, N=512).resolved(device("npu2"))
    found = domains(op, device("npu2"))
    assert found["m"] == (128, 64, 32, 16) and found["num_aie_columns"] == (8, 4, 2, 1) and found["s"] == (8, 4)


@pytest.mark.parametrize(
    ("fields", "words", "mended"),
    [
        (dict(M=64, N=64, T=np.float32), "T=float32; its array moves bfloat16, uint8, uint32. Legal: T=bfloat16", dict(T=bfloat16)),
        (dict(M=64, N=64, s=5), "s=5; .* Legal: s=8, s=4", dict(s=4)),
        (dict(M=64, N=64, m=20), "m=20 with s=4, .* Nearest legal: m=16 or 32", dict(m=32)),
        (dict(M=64, N=64, s=8, n=16), "n=16 with s=8, .* multiples of 8 from 24 on. Nearest legal: n=32", dict(n=32)),
        (dict(M=128, N=128, m=128, n=128), "m=128 x n=128 is a tile of 16384 elements, and 8192 .* Legal: m=64 with n=64", dict(m=64)),
        (dict(M=64, N=128, n=128, T=np.uint32), "m=64 x n=128 is a tile of 8192 elements, and 4096 are the most", dict(n=64)),
        (dict(M=64, N=64, num_channels=3), "num_channels=3; a column has 2 channels. Legal: 1, 2", dict(num_channels=2)),
        (dict(M=64, N=320, num_aie_columns=5), "num_aie_columns=5; npu1 has 4", dict(num_aie_columns=4)),
        (dict(M=64, N=64, m=64, num_channels=2), "M=64 .* tiles of m=64 over num_channels=2, .* legal M: 128; or give m= or", dict(M=128)),
        (dict(M=64, N=100, n=64), "N=100 .* tiles of n=64 over num_aie_columns=1, .* legal N: 64 or 128; or give n=", dict(N=128)),
        (dict(M=33, N=64), "M=33 .* Nearest legal M: 32 or 48", dict(M=48)),
        (dict(M=64, N=7), "N=7 .* Nearest legal N: 8", dict(N=8)),
    ],
)  # fmt: skip
def test_what_no_array_takes_is_refused_in_words(fields, words, mended):
    """The keyword, the rule, the value; and what the message names is taken."""
    with pytest.raises(Unresolvable, match=f"^Transpose: {words}"):
        Transpose(**fields).resolved(device("npu1"))
    fit(build(Transpose(**fields | mended), "npu1").design)
