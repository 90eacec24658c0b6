"""`Dequant`'s array: tiles of int4 shared out over cores, the format they are in, and the bits a simulated array gives."""

from __future__ import annotations

import numpy as np
import pytest

import iron_core as iron
from iron_core import Plane, PlaneQuant, bfloat16
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.devices import device
from iron_core.errors import FormatError, Unresolvable
from iron_ops_aie import Dequant
from iron_ops_aie.products import kernels_expand
from iron_ops_aie.products.int4_tiles import INT4_TILES, int4_tiles, tiled
from iron_sim.run import simulate

DEVICES = ("npu1", "npu2")


def drawn(format, shape, seed=0):
    """Any nibbles; scales of both signs, some of them tiny."""
    rng = np.random.default_rng(seed)
    x = format.tensor(rng.integers(0, 256, format.nbytes(shape), np.uint8), shape)
    tiles = x.data.reshape(-1, format.block_bytes)
    scales = rng.standard_normal((len(tiles), format.block[1] // format.group)) * 10.0 ** rng.integers(-30, 3, (len(tiles), 1))
    tiles[:, format.block[1] // 2 :] = scales.astype(bfloat16).view(np.uint8)
    return x


def by_hand(x):
    """What the tiles stand for, number by number."""
    tile, group = x.format.block[1], x.format.group
    out = []
    for raw in x.data.reshape(-1, x.format.block_bytes):
        scales = raw[tile // 2 :].view(bfloat16).astype(np.float32)
        out += [np.float32(raw[k // 2] >> 4 * (k % 2) & 15) * scales[k // group] for k in range(tile)]
    return np.array(out, np.float32).astype(bfloat16).reshape(x.shape)


def test_a_tile_is_nibbles_and_then_scales():
    """Number 2k in the low half of byte k, 2k + 1 in the high one; scale * q."""
    x = int4_tiles(64).tensor(np.zeros(36, np.uint8), (1, 64))
    x.data[0, :32] = [0x10 * (i % 16) + (15 - i % 16) for i in range(32)]
    x.data[0, 32:] = np.array([0.5, -2.0], bfloat16).view(np.uint8)
    want = [(k // 2 % 16 if k % 2 else 15 - k // 2 % 16) * (0.5 if k < 32 else -2.0) for k in range(64)]
    assert x.dequantize()[0].tolist() == want == Dequant(rows=1, cols=64, F=x.format).reference(x)[0].tolist()


def test_formats_of_tiles_have_names():
    """The one that mlir-aie's kernel defaults to is registered; the others are made."""
    assert Dequant(rows=1, cols=1024, F="int4_tiles").F is INT4_TILES and INT4_TILES.block_bytes == 576
    assert int4_tiles() == INT4_TILES and int4_tiles(256, 64).name == "int4_tiles_256_64"
    same = PlaneQuant("mine", (1, 256), (Plane("values", "uint4"), Plane("scales", "bfloat16", group=(1, 64))))
    assert tiled(same) and tiled(int4_tiles(64)) and not any(tiled(f) for f in (iron.Q4_0, iron.Q8_0, bfloat16))
    with pytest.raises(FormatError, match="scales that do not divide its block of 1 x 96"):
        int4_tiles(96, 64)


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize(
    ("shape", "tile", "fields"),
    [
        ((4, 2048), (1024, 32), {}),
        ((7, 192), (64, 32), {}),
        ((5, 384), (384, 64), dict(num_aie_columns=1)),
        ((8, 2048), (512, 128), dict(num_channels=2, num_aie_columns=4)),
        ((2, 8192), (8192, 32), {}),
        ((1, 32768), (16384, 32), {}),
    ],
    ids=str,
)
def test_a_simulated_array_makes_the_numbers(dev, shape, tile, fields):
    """Every bit, of tiles of any length, once each."""
    x = drawn(int4_tiles(*tile), shape)
    op = Dequant(rows=shape[0], cols=shape[1], F=x.format, **fields).resolved(device(dev))
    fit(build(op, dev).design)
    y, poison, stats = simulate(op, dev, {"x": x})
    assert not poison["y"].any() and stats.elements("x") == x.nbytes
    assert (y["y"].reshape(shape).view(np.uint16) == by_hand(x).view(np.uint16)).all()
    assert (op.composed(x).view(np.uint16) == by_hand(x).view(np.uint16)).all()
    op.check(y["y"].reshape(shape), op.reference(x), x)


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("valid", [1, 5, 8])
def test_a_bound_shortens_what_is_moved(dev, valid):
    """Every core takes its share of the tiles that the rows have, two of them a row."""
    x = drawn(int4_tiles(256), (8, 512))
    op = Dequant(rows=8, cols=512, F=x.format, num_aie_columns=4).resolved(device(dev))
    y, poison, stats = simulate(op, dev, {"x": x}, {"valid": valid})
    tiles = -(-2 * valid // 4) * 4
    assert (y["y"][:valid].view(np.uint16) == by_hand(x)[:valid].view(np.uint16)).all() and not poison["y"][:valid].any()
    assert stats.elements("x") == tiles * 144 and stats.elements("y") == tiles * 256


def test_a_graph_makes_numbers_of_a_packed_weight():
    """On the simulator and on the CPU alike."""

    class Numbers(iron.Graph):
        def __init__(self):
            self.w = drawn(INT4_TILES, (6, 1024))

        def body(self, *, n: iron.Scratchpad[np.int32]):
            return Dequant(iron.weight(self.w)[:n])

    graph = Numbers()
    for options in (dict(backend="sim", dev="npu2"), dict(backend="host")):
        compiled = graph.compile(**options)
        for n in (6, 1, 4):
            assert np.asarray(compiled(n=n)).tobytes() == by_hand(graph.w)[:n].tobytes()


def test_an_array_knows_no_extent():
    """Rows and columns are the sequence's; the tile is the format's, so the array's."""
    fields = dict(F=INT4_TILES, num_aie_columns=2)
    one, other = (build(Dequant(rows=r, cols=c, **fields), "npu1").design for r, c in ((2, 1024), (6, 3072)))
    assert one.array is other.array and one.sequence != other.sequence
    assert build(Dequant(rows=2, cols=1024, F=int4_tiles(512), num_aie_columns=2), "npu1").design.array is not one.array


def test_a_long_tile_is_held_once():
    """Two of each would not fit beside one another."""
    for tile, depth in ((8192, 2), (16384, 1)):
        array = build(Dequant(rows=1, cols=16384, F=int4_tiles(tile), num_aie_columns=1), "npu1").design.array
        assert {fifo.depth for fifo in array.fifos} == {depth}


def test_the_kernel_rounds_once():
    """q * scale is exact in float32: 4 bits times 8."""
    x = drawn(int4_tiles(64), (1, 64))
    exact = x.format.fields(x.data, x.shape)
    assert (kernels_expand.expand(64, 32).reference(x.data) == (exact[0] * np.repeat(exact[1].astype(float), 32)).reshape(-1)).all()


@pytest.mark.parametrize(
    ("fields", "bound", "words", "mended"),
    [
        (dict(F="q4_0"), (), r"F=q4_0; .* as iron_ops_aie.products.int4_tiles makes. Legal: F=int4_tiles\.$", dict(F="int4_tiles")),
        (dict(F="int4_tiles", T=np.float32), (), "T=float32; .* Legal: T=bfloat16", dict(T=bfloat16)),
        (dict(F=int4_tiles(1024, 16)), (), r"F=.* a scale for every 16 .* legal: int4_tiles\(1024, group=32\)", dict(F=int4_tiles())),
        (dict(F=int4_tiles(32)), (), r"F=.* tiles of 32 numbers; .* legal: int4_tiles\(64, group=32\)", dict(F=int4_tiles(64))),
        (dict(F=int4_tiles(32768)), (), r"F=.* tiles of 32768 numbers; .* legal: int4_tiles\(16384, group=32\)", dict(F=int4_tiles(16384))),
        (dict(F="int4_tiles", num_channels=3), (), "num_channels=3; a column has 2 channels. Legal: 1, 2", dict(num_channels=2)),
        (dict(F="int4_tiles", num_aie_columns=5), (), "num_aie_columns=5 .* npu1 has 4 .* Legal: .*=4", dict(num_aie_columns=4)),
        (
            dict(F="int4_tiles", num_aie_columns=3), (),
            "num_aie_columns=3 x num_channels=1 do not share out 128 tiles, .* Legal: num_aie_columns=2 with num_channels=1",
            dict(num_aie_columns=2),
        ),
        (dict(F=int4_tiles(64)), ("valid",), r"F=.* tiles of 64 numbers; .* legal: int4_tiles\(256, group=32\)", dict(F=int4_tiles(256))),
    ],
)  # fmt: skip
def test_what_no_array_takes_is_refused_in_words(fields, bound, words, mended):
    """The keyword, the rule, the value; and what the message names is taken."""
    with pytest.raises(Unresolvable, match=f"^Dequant: {words}"):
        build(Dequant(rows=4, cols=32768, **fields), "npu1", bound)
    fit(build(Dequant(rows=4, cols=32768, **fields | mended), "npu1", bound).design)
