"""`ResampleTaps` and `Resample`: torch's antialiased bicubic of bytes, and the patches of a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.errors import ParamError
from iron_ops_aie import Resample, ResampleTaps
from tests.resizes import by_table, padded, resized, unpatched

GOLDEN = dict(np.load(Path(__file__).parents[1] / "data/resized.npz"))
PAIRS = sorted({int(name.partition("/")[0]) for name in GOLDEN})
RNG = np.random.default_rng(7)


def bicubic(numbers, outputs):
    """The resize as textbooks have it: Keys' cubic of a = -0.5, as wide as the picture shrinks, in float64."""
    scale = len(numbers) / outputs
    wide = max(scale, 1)
    centers = (np.arange(outputs) + 0.5) * scale
    x = np.abs(np.arange(len(numbers)) + 0.5 - centers[:, None]) / wide
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weights = np.where(x <= 1, near, np.where(x < 2, far, 0))
    return np.clip(weights / weights.sum(1, keepdims=True) @ numbers, 0, 255)


# -- tables ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", PAIRS)
def test_a_resize_is_torchs(at):
    """Stored pictures of many sizes: every byte."""
    picture, want = GOLDEN[f"{at}/picture"], GOLDEN[f"{at}/resized"]
    assert np.array_equal(resized(picture, *want.shape[:2]), want)


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_a_resize_is_the_formula_but_for_rounding(inputs, outputs, seed):
    """Within one of 256 steps."""
    numbers = np.random.default_rng(seed).integers(0, 256, (inputs, 1)).astype(np.uint8)
    assert np.abs(by_table(numbers, outputs, words=2048).astype(float) - bicubic(numbers, outputs)).max() <= 1


@given(st.integers(1, 90), st.integers(1, 90), st.integers(16, 400), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_words_and_slots_change_the_layout_alone(inputs, outputs, words, slots):
    """Where a table fits, the weights are those of a table of one chunk."""
    numbers = RNG.integers(0, 256, (inputs, 2)).astype(np.uint8)
    whole = ResampleTaps(in_size=inputs, out_size=outputs, words=4096).reference()
    for given_slots in (None, slots):
        try:
            op = ResampleTaps(in_size=inputs, out_size=outputs, words=words, slots=given_slots)
        except ParamError:
            assert given_slots
            continue
        table = op.reference()
        if table[0, 0] < 0:
            assert (table[:, 0] == -1).all() and (table[:, 1] == whole[0, 1]).all() and not table[:, 2:].any()
        else:
            assert table.shape == (op.chunks, words) and op.chunks % 16 == 0 and (table[:, 0] == whole[0, 0]).all()
            assert np.array_equal(by_table(numbers, outputs, words=words, slots=given_slots), by_table(numbers, outputs, words=4096))


def test_a_table_is_as_documented():
    """Two pixels to four: precision, window, first and outputs, then start, count and the weights, two to a word."""
    table = ResampleTaps(in_size=2, out_size=4, words=16, slots=2, chunks=3).reference()
    assert table.shape == (3, 16) and table.dtype == np.int32
    assert table[:, :4].tolist() == [[14, 5, 0, 2], [14, 5, 2, 2], [14, 5, 4, 0]]
    assert table[0, 4:6].tolist() == [0, 2] and not table[0, 14:].any() and not table[2, 4:].any()
    halves = table[0, 6:9].view(np.int16)
    assert halves[:2].sum() == 1 << 14 and not halves[2:].any() and halves[0] > 1 << 14 > 0 > halves[1]


@pytest.mark.parametrize(
    ("outputs", "starts", "counts"),
    [
        (6, [0, 0, 1, 2, 3, 4], [3, 4, 4, 4, 3, 2]),
        (3, [0, 0, 1], [5, 6, 5]),
        (12, [0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4], [2, 3, 3, 4, 4, 4, 4, 4, 4, 3, 3, 2]),
    ],
)
def test_an_output_has_the_inputs_in_its_support(outputs, starts, counts):
    """Two of its own pixels, or of the picture's where those are larger, to either side of its middle; those that there are."""
    table = ResampleTaps(in_size=6, out_size=outputs, words=400).reference()
    slots = table[0, 4 : 4 + outputs * (2 + (table[0, 1] + 1) // 2)].reshape(outputs, -1)
    assert (slots[:, 0].tolist(), slots[:, 1].tolist()) == (starts, counts)


def test_a_table_that_does_not_fit_says_so():
    """In every header: -1, the window that it has, and no outputs."""
    for fields in (dict(words=16), dict(words=40, slots=2), dict(words=64, slots=2, chunks=1)):
        table = ResampleTaps(in_size=90, out_size=9, **fields).reference()
        assert table.any(1).all() and set(map(tuple, table[:, :4].tolist())) == {(-1, 41, 0, 0)} and not table[:, 4:].any()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (dict(in_size=0, out_size=4), "in_size=0; legal: 1 or more"),
        (dict(in_size=4, out_size=-1), "out_size=-1; legal: 1 or more"),
        (dict(in_size=4, out_size=4, words=8), "words=8; legal: 9 or more"),
        (dict(in_size=4, out_size=4, words=19, slots=4), "slots=4 of words=19; legal: 1 to 3, or None"),
        (dict(in_size=4, out_size=4, slots=0), "slots=0 of words=256; legal: 1 to [0-9]+, or None"),
    ],
)
def test_a_table_that_holds_nothing_is_refused(fields, said):
    """With what would be legal."""
    with pytest.raises(ParamError, match=f"ResampleTaps: {said}"):
        ResampleTaps(**fields)


# -- patches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [at for at in PAIRS if not any(n % 16 for n in GOLDEN[f"{at}/resized"].shape[:2])])
def test_patches_are_the_pixels_of_torchs_picture(at):
    """Each a 16 x 16 square, row by row, channels last, as fractions of 255."""
    picture, want = GOLDEN[f"{at}/picture"], GOLDEN[f"{at}/resized"]
    size = dict(zip(("height", "width", "out_height", "out_width"), (*picture.shape[:2], *want.shape[:2]), strict=True))
    op = Resample(**size, T=np.float32)
    patches = op.reference(padded(picture), op.table("width"), op.table("height"))
    assert np.array_equal(unpatched(op, patches), want.astype(np.float32) / np.float32(255))
    assert np.array_equal(patches[0].reshape(16, 16, 3)[:, :, 1], want[:16, :16, 1].astype(np.float32) / np.float32(255))


def test_rows_of_patches_end_with_zeros():
    """Patch (py, px) is row py * pad + px, pad a multiple of the cores that is larger than the columns."""
    for cores, columns, pad in ((4, 3, 4), (4, 4, 8), (1, 2, 3), (16, 5, 16)):
        op = Resample(height=20, width=30, out_height=32, out_width=16 * columns, cores=cores, patches_out=2 * pad + 3, T=np.float32)
        assert op.pad == pad
        patches = op.reference(np.full((20, 4096), 255, np.uint8), op.table("width"), op.table("height"))
        full = patches.all(1)
        assert np.flatnonzero(full).tolist() == [*range(columns), *range(pad, pad + columns)]
        assert not patches[~full].any()


def test_what_lies_behind_the_pixels_does_not_matter():
    """Padding may hold anything."""
    op = Resample(height=20, width=30, out_height=16, out_width=16)
    image = padded(RNG.integers(0, 256, (20, 30, 3)).astype(np.uint8))
    other = image.copy()
    other[:, 90:] ^= 255
    tables = op.table("width"), op.table("height")
    assert np.array_equal(op.reference(image, *tables), op.reference(other, *tables))


@pytest.mark.parametrize("backend", ["host", "reference"])
@pytest.mark.parametrize("wrong", ["width", "height"])
def test_a_table_that_is_none_gives_zeros(backend, wrong):
    """The picture shrinks by more than its chunks have room for."""
    op = Resample(height=300, width=300, out_height=16 if wrong == "height" else 160, out_width=16 if wrong == "width" else 160)
    tables = op.table("width"), op.table("height")
    assert (tables[wrong == "height"][:, 0] == -1).all()
    assert not iron.OperatorImage(op, backend=backend)(np.full((300, 4096), 9, np.uint8), *tables).any()


class Resized(iron.Graph):
    """The patches of a picture of 60 x 70 pixels at most."""

    def __init__(self, T):
        self.T = T

    def body(
        self,
        picture,
        *,
        height: iron.Scratchpad[np.int32],
        width: iron.Scratchpad[np.int32],
        out_height: iron.Scratchpad[np.int32],
        out_width: iron.Scratchpad[np.int32],
    ):
        across = ResampleTaps(in_size=70, out_size=80, words=356, slots=16)(in_length=width, out_length=out_width)
        down = ResampleTaps(in_size=60, out_size=48, words=356, slots=16)(in_length=height, out_length=out_height)
        size = dict(width=70, out_height=48, out_width=80, cores=4, T=self.T)
        return Resample(picture, across, down, **size, rows=height, out_rows=out_height, out_columns=out_width)


RUNS = (("host", None, np.float32), ("host", None, iron.bfloat16), ("sim", "npu1", iron.bfloat16), ("sim", "npu2", iron.bfloat16))


@pytest.mark.parametrize(("backend", "dev", "T"), RUNS)
def test_a_call_gives_the_sizes(backend, dev, T):
    """One build; the tables and patches are those of the sizes that the call says."""
    graph = Resized(T)
    compiled = graph.compile(picture=((60, 4096), np.uint8), backend=backend, dev=dev)
    for height, width, out_height, out_width in ((60, 70, 48, 80), (33, 50, 16, 48), (9, 70, 48, 32), (1, 1, 16, 16), (60, 4, 48, 64)):
        picture = RNG.integers(0, 256, (height, width, 3)).astype(np.uint8)
        image = np.zeros((60, 4096), np.uint8)
        image[:height] = padded(picture)
        got = compiled(image, height=height, width=width, out_height=out_height, out_width=out_width)
        op = Resample(height=height, width=width, out_height=out_height, out_width=out_width, cores=4, patches_out=24, T=T)
        want = (resized(picture, out_height, out_width).astype(np.float32) / np.float32(255)).astype(T)
        assert got.shape == (24, 768) and np.array_equal(unpatched(op, np.asarray(got)), want)
        assert np.array_equal(got, graph.reference(image, height=height, width=width, out_height=out_height, out_width=out_width))
        assert not np.asarray(got)[op.out_height // 16 * op.pad :].any()


@pytest.mark.parametrize(
    ("fields", "said", "legal"),
    [
        (dict(out_height=40), "out_height=40; legal: multiples of 16. Nearest legal: 32 or 48", dict(out_height=48)),
        (dict(out_width=7), "out_width=7; legal: multiples of 16. Nearest legal: 16", dict(out_width=16)),
        (dict(row_bytes=4000), "row_bytes=4000 for width=30; legal: a multiple of 4096, 4096 or more", dict(row_bytes=4096)),
        (dict(width=1366, row_bytes=4096), "row_bytes=4096 for width=1366; .* 8192 or more", dict(width=1366, row_bytes=8192)),
        (dict(words=83), "words=83; legal: 84 or more", dict(words=84)),
        (dict(chunks_w=1), "chunks_w=1 for out_width=32; legal: 2 or more", dict(chunks_w=2)),
        (dict(chunks_h=1), "chunks_h=1 for out_height=32; legal: 2 or more", dict(chunks_h=2)),
        (dict(cores=0), "cores=0; legal: 1 or more", dict(cores=1)),
        (dict(patches_out=31), "patches_out=31; legal: 32 or more", dict(patches_out=32)),
        (dict(T=np.int32), "T=int32; legal: float32", dict(T=np.float32)),
    ],
)
def test_sizes_that_are_no_patches_are_refused(fields, said, legal):
    """With the nearest that are; those are taken."""
    size = dict(height=20, width=30, out_height=32, out_width=32)
    with pytest.raises(ParamError, match=f"Resample: {said}"):
        Resample(**size | fields)
    Resample(**size | legal)
