"""`DepthwiseConv1d`: what it computes, its array's windows, and the bits a simulated array gives."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core import bfloat16
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.array.program import Acquire
from iron_core.devices import device
from iron_core.errors import ParamError, Unresolvable
from iron_ops_aie import DepthwiseConv1d, ReLU
from iron_ops_aie.products.kernels_conv import depthwise_row
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")
F32 = np.float32


def drawn(rows, channels, taps=5, T=bfloat16):
    rng = np.random.default_rng(rows)
    return rng.uniform(-4, 4, (rows, channels)).astype(T), rng.uniform(-4, 4, (taps, channels)).astype(T)


def convolved(x, weight):
    """Channel by channel, as numpy convolves."""
    wide = [np.convolve(x[:, c].astype(np.float64), weight[::-1, c].astype(np.float64))[: len(x)] for c in range(x.shape[1])]
    return np.stack(wide, 1)


# -- the contract -----------------------------------------------------------------------------------


@pytest.mark.parametrize("taps", [1, 3, 5])
def test_every_channel_is_convolved_by_its_own_weights(taps):
    """The last weight meets the row itself; what was before the first row is zero."""
    x, weight = drawn(9, 7, taps, F32)
    y = DepthwiseConv1d(rows=9, channels=7, taps=taps, T=F32).reference(x, weight)
    assert np.allclose(y, convolved(x, weight), rtol=1e-12)


def test_no_row_depends_on_a_later_one():
    """So the first rows of a bounded call are those of the whole."""
    x, weight = drawn(9, 7, 5, F32)
    op = DepthwiseConv1d(rows=9, channels=7, T=F32)
    for n in (0, 1, 4, 9):
        assert (op.bounded(rows=n).reference(x[:n], weight) == op.reference(x, weight)[:n]).all()


def test_what_is_no_convolution_is_refused():
    """By the field and what would be legal."""
    with pytest.raises(ParamError, match="taps=0; a dimension of weight is a whole number of at least 1"):
        DepthwiseConv1d(rows=4, channels=8, taps=0)
    with pytest.raises(ParamError, match="W=int8; legal: float32, bfloat16, float16"):
        DepthwiseConv1d(rows=4, channels=8, W=np.int8)


@pytest.mark.parametrize("options", [dict(backend="sim", dev="npu2"), dict(backend="host")], ids=["sim", "host"])
def test_a_graph_bounds_its_rows(options):
    """Rows past the bound are of no account, whoever makes them."""

    class Light(iron.Graph):
        def __init__(self, weight):
            self.weight = weight

        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return DepthwiseConv1d(ReLU(x[:n]), self.weight)

    x, weight = drawn(32, 64)
    graph = Light(weight)
    compiled = graph.compile(x=(32, 64), **options)
    for n in (32, 1, 7, 20):
        y = compiled(x, n=n)
        assert y.shape == (n, 64) and iron.allclose(y, convolved(np.maximum(x[:n], 0), weight))


# -- its array --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    "fields",
    [
        dict(rows=64, channels=64, num_aie_columns=1),
        dict(rows=20, channels=96),
        dict(rows=16, channels=32, num_aie_columns=4),
        dict(rows=4, channels=32),
        dict(rows=37, channels=160),
        dict(rows=96, channels=1024),
    ],
    ids=lambda fields: "-".join(f"{k}{v}" for k, v in fields.items()),
)
def test_a_simulated_array_gives_the_composed_bits(dev, fields):
    """Every bit, and within the gate of the reference; runs as short as a window, and one alone."""
    op = DepthwiseConv1d(**fields).resolved(device(dev))
    fit(build(op, dev).design)
    x, weight = drawn(op.rows, op.channels)
    y, poison, _ = simulate(op, dev, {"x": x, "weight": weight})
    got = y["y"].reshape(x.shape)
    assert not poison["y"].any()
    assert (got.view(np.uint16) == op.composed(x, weight).view(np.uint16)).all()
    op.check(got, op.reference(x, weight), x, weight)


def test_a_run_begins_four_rows_early():
    """All but the first, whose core keeps a row of zeros; each reads its own rows once, and every row is written once."""
    design = build(DepthwiseConv1d(rows=24, channels=32, num_aie_columns=3), "npu1").design
    moved = {(t.fifo, t.way): np.concatenate([d.addresses() for d in t.descriptors]) // 32 for t in design.sequence.transfers()}
    assert [sorted(set(moved[f"x{k}", "fill"])) for k in range(3)] == [[*range(8)], [*range(4, 16)], [*range(12, 24)]]
    assert [sorted(set(moved[f"y{k}", "drain"])) for k in range(3)] == [[*range(8)], [*range(8, 16)], [*range(16, 24)]]
    assert [buffer.name for buffer in design.array.buffers if buffer.name == "zeros"] == ["zeros"]


def test_the_input_fifo_is_the_window():
    """Five rows are held of six there are, and one is let go; one fifo brings the weights to all cores."""
    array = build(DepthwiseConv1d(rows=24, channels=32, num_aie_columns=3), "npu1").design.array
    assert len(array.fifo("weight").consumers) == 3 and len(array.lanes_of("weight")) == 1
    for core in array.cores[1:]:
        loop = next(s for s in core.program if hasattr(s, "body"))
        loop = next((s for s in loop.body if hasattr(s, "body")), loop)
        assert [s.count for s in loop.body if isinstance(s, Acquire)] == [5, 1]
    assert array.fifo("x1").depth == 6


def test_an_array_knows_no_rows():
    """They are the sequence's."""
    one, other = (build(DepthwiseConv1d(rows=r, channels=64, num_aie_columns=2), "npu1").design for r in (8, 40))
    assert one.array is other.array and one.sequence != other.sequence


def test_the_kernel_needs_the_stack_that_was_measured():
    """Unrolled over all channels where it is built for npu1."""
    assert [depthwise_row(c, "aie2").data.stack for c in (384, 1024)] == [1024, 9216]
    assert [depthwise_row(c, "aie2p").data.stack for c in (96, 1024)] == [1024, 1280]


@pytest.mark.parametrize(
    ("fields", "words", "mended"),
    [
        (dict(T=F32), "T=float32; .* Legal: T=W=bfloat16", dict(T=bfloat16)),
        (dict(W=F32), "W=float32; .* Legal: T=W=bfloat16", dict(W=bfloat16)),
        (dict(taps=4), "taps=4; .* sums over 5 rows. Legal: taps=5", dict(taps=5)),
        (dict(channels=100), "channels=100 .* Nearest legal: channels=96 or 128", dict(channels=128)),
        (dict(rows=3), "rows=3; a core makes at least 4. Legal: rows=4", dict(rows=4)),
        (dict(num_aie_columns=8), "num_aie_columns=8; npu1 has 4", dict(num_aie_columns=4)),
        (dict(num_aie_columns=3), "num_aie_columns=3 do not share out rows=32 .* Nearest legal: .*=2 or 4", dict(num_aie_columns=4)),
        (dict(rows=8, num_aie_columns=4), "num_aie_columns=4 do not share out rows=8 in runs of 4 .*=2", dict(num_aie_columns=2)),
        (dict(channels=4096), "core core0 needs .* Legal: fewer channels", dict(channels=1024)),
    ],
)  # fmt: skip
def test_what_no_array_takes_is_refused_in_words(fields, words, mended):
    """The keyword, the rule, the value; and what the message names is taken."""
    fields = dict(rows=32, channels=64) | fields
    with pytest.raises(Unresolvable, match=f"^DepthwiseConv1d: {words}"):
        DepthwiseConv1d(**fields).resolved(device("npu1"))
    fit(build(DepthwiseConv1d(**fields | mended), "npu1").design)
