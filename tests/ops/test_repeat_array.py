"""`Repeat`'s array: a memory tile and descriptors, no core, and the bits a simulated array gives."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.devices import device
from iron_core.errors import Unresolvable
from iron_ops_aie import Repeat
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")


def numbered(op):
    """x, a different number at every place of a row, and of every row."""
    x = np.arange(op.rows * op.cols, dtype=np.uint32).astype({1: "u1", 2: "u2", 4: "u4"}[op.T.itemsize])
    return x.view(op.T).reshape(op.shape("x"))


def bits(array):
    return np.ascontiguousarray(array).view(np.uint8)


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    "fields",
    [
        dict(rows=8, cols=64, repeat=4),
        dict(rows=5, cols=6, repeat=1),
        dict(rows=3, cols=33, repeat=7, T=np.float32),
        dict(rows=4, cols=12, repeat=3, T=np.uint8),
        dict(rows=8, cols=512, repeat=4, tile_size=64),
        dict(rows=2, cols=8, repeat=600),
        dict(rows=70, cols=2062, repeat=3),
        dict(rows=2, cols=70000, repeat=2),
    ],
    ids=lambda fields: "-".join(f"{k}{v}" for k, v in fields.items()),
)
def test_a_simulated_array_repeats_every_row(dev, fields):
    """Short rows, long rows, rows that no descriptor counts, more repetitions than one descriptor makes."""
    op = Repeat(**fields).resolved(device(dev))
    fit(build(op, dev).design)
    x = numbered(op)
    y, poison, _ = simulate(op, dev, {"x": x})
    assert not poison["y"].any()
    assert (bits(y["y"]) == bits(np.repeat(x, op.repeat, 0)).reshape(bits(y["y"]).shape)).all()


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("valid", [1, 5, 16])
def test_a_bound_shortens_every_pass(dev, valid):
    """Rows past it do not move, and what they would have been stays as it was."""
    op = Repeat(rows=16, cols=24, repeat=3).resolved(device(dev))
    x = numbered(op)
    y, poison, stats = simulate(op, dev, {"x": x}, {"valid": valid})
    want = np.repeat(x[:valid], 3, 0)
    assert (bits(y["y"][: 3 * valid]) == bits(want)).all() and not poison["y"][: 3 * valid].any()
    assert poison["y"][3 * valid :].all() and stats.elements("y") == stats.elements("x") == want.size


def test_a_graph_bounds_it_per_call():
    """One build; the number of rows is a word."""

    class Thrice(iron.Graph):
        def body(self, x, *, n: iron.Scratchpad[np.int32]):
            return Repeat(x[:n], repeat=3)

    x = np.arange(6 * 8).reshape(6, 8).astype(iron.bfloat16)
    thrice = Thrice().compile(x=(6, 8), backend="sim", dev="npu2")
    for n in (6, 1, 4):
        assert np.array_equal(thrice(x, n=n), np.repeat(x[:n], 3, 0))


def test_it_takes_no_core():
    """One channel through a memory tile; x is read again at stride 0, y is written in between."""
    design = build(Repeat(rows=8, cols=64, repeat=4), "npu2").design
    assert not design.array.cores and len(design.array.links) == 1
    drain, fill = design.sequence.transfers()
    assert (drain.way, fill.way) == ("drain", "fill")
    assert (fill.descriptors[0].sizes[0], fill.descriptors[0].strides[0]) == (4, 0)
    (where,) = drain.descriptors
    assert (where.addresses()[::64][:10] // 64).tolist() == [0, 4, 8, 12, 16, 20, 24, 28, 1, 5]


def test_an_array_knows_no_extent():
    """Rows and repetitions are the sequence's."""
    one, other = (build(Repeat(rows=r, cols=64, repeat=n), "npu1").design for r, n in ((8, 4), (3, 2)))
    assert one.array is other.array and one.sequence != other.sequence


@pytest.mark.parametrize(
    ("fields", "bound", "words", "mended"),
    [
        (dict(rows=8, cols=513), (), "cols=513 of 2 bytes; .* whole 4-byte words. Nearest legal: cols=512 or 514", dict(cols=514)),
        (dict(rows=8, cols=48, tile_size=10), (), "tile_size=10 .* Nearest legal: tile_size=8 or 12", dict(tile_size=12)),
        (dict(rows=8, cols=65536, tile_size=65536), (), "tile_size=65536 .* at most 65536 bytes. .*=32768", dict(tile_size=4096)),
        (dict(rows=8, cols=12), ("valid",), "cols=12; .* a row is whole 16 bytes. Nearest legal: cols=8 or 16", dict(cols=16)),
        (dict(rows=8, cols=64, repeat=65), ("valid",), "repeat=65; .* at most 64 times. Legal: repeat=64", dict(repeat=64)),
    ],
)  # fmt: skip
def test_what_no_array_takes_is_refused_in_words(fields, bound, words, mended):
    """The keyword, the rule, the value; and what the message names is taken."""
    with pytest.raises(Unresolvable, match=f"^Repeat: {words}"):
        build(Repeat(**fields), "npu1", bound)
    fit(build(Repeat(**fields | mended), "npu1", bound).design)
