"""`PatchPositions`: patches window by window, and where each of them is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.errors import ParamError, Unresolvable
from iron_ops_aie import Copy, PatchPositions, Resample
from iron_sim.run import simulate
from tests.resizes import padded


def in_windows(rows, columns, pool):
    """(x, y) of every patch: window by window, each row by row."""
    for top, left in itertools.product(range(0, rows - pool + 1, pool), range(0, columns - pool + 1, pool)):
        for y, x in itertools.product(range(pool), range(pool)):
            yield left + x, top + y


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(1, 17), st.integers(0, 20), st.data())
@settings(max_examples=100, deadline=None)
def test_places_go_window_by_window(pool, down, across, cores, more, data):
    """Every patch of a whole window once, its row of Resample's patches, its x and its y; then each table's last row."""
    rows, columns = down * pool, across * pool
    op = PatchPositions(rows=rows, columns=columns, pool=pool, cores=cores, places=rows * columns + more)
    rows, columns = data.draw(st.integers(0, rows)), data.draw(st.integers(0, columns))
    sources, positions = op.bounded(rows=rows, columns=columns).reference()
    want = list(in_windows(rows, columns, pool))
    pad = (columns // cores + 1) * cores
    assert sources.tolist() == [y * pad + x for x, y in want] + [op.source_rows - 1] * (op.places - len(want))
    assert positions.T.tolist() == [[x, y] for x, y in want] + [[10240, 10240]] * (op.places - len(want))
    assert sources.max() < op.source_rows


@pytest.mark.parametrize(("backend", "dev"), [("reference", None), ("host", None), ("sim", "npu1"), ("sim", "npu2")])
def test_there_may_be_fewer_places_than_the_largest_picture_has_patches(backend, dev):
    """Those of a smaller one that they hold are as ever; of one that is too large the last patches are left out."""

    class Some(iron.Graph):
        def body(self, x, *, rows: iron.Scratchpad[np.int32], columns: iron.Scratchpad[np.int32]):
            op = PatchPositions(rows=9, columns=9, cores=4, places=20, position_rows=10)
            return *op(valid_rows=rows, valid_columns=columns), Copy(x)

    compiled = Some().compile(x=((4,), np.int32), backend=backend, dev=dev)
    for rows, columns in ((3, 6), (9, 3), (9, 9)):
        sources, positions, _ = compiled(np.zeros(4, np.int32), rows=rows, columns=columns)
        want = list(in_windows(rows, columns, 3))[:20]
        assert np.asarray(positions).T.tolist()[: len(want)] == [[x, y] for x, y in want]
        assert sources.tolist()[: len(want)] == [y * ((columns // 4 + 1) * 4) + x for x, y in want]
        assert (sources[len(want) :] == 9 * 12 - 1).all()


class Ordered(iron.Graph):
    """A picture of 60 x 70 pixels at most as patches in a tower's order, and a table of positions looked up by their x."""

    def __init__(self, T):
        self.T, self.patches = T, iron.state((72, 768), T)
        self.table = iron.weight(np.concatenate([np.arange(1, 10), [0]]).reshape(10, 1).repeat(16, 1).astype(T))

    def body(self, picture, across, down, *, rows: iron.Scratchpad[np.int32], columns: iron.Scratchpad[np.int32]):
        size = dict(width=70, out_height=96, out_width=144, cores=4, T=self.T)
        patches = Resample(picture, across, down, self.patches, **size, out_rows=rows * 16, out_columns=columns * 16)
        op = PatchPositions(rows=6, columns=9, cores=4, places=56, source_rows=6 * 12, position_rows=10)
        sources, positions = op(valid_rows=rows, valid_columns=columns)
        return Copy(patches[sources]), Copy(self.table[positions[0]])


@pytest.mark.parametrize(("backend", "dev"), [("host", None), ("sim", "npu2")])
def test_a_tower_reads_patches_and_positions_by_them(backend, dev):
    """Of any size that a call gives: each patch, then zeros; and a position's row of a table, whose last is zero."""
    compiled = Ordered(iron.bfloat16).compile(
        picture=((60, 4096), np.uint8), across=((9, 356), np.int32), down=((6, 356), np.int32), backend=backend, dev=dev
    )
    image = padded(np.random.default_rng(0).integers(0, 256, (60, 70, 3)).astype(np.uint8))
    for rows, columns in ((6, 9), (3, 9), (6, 3)):
        op = Resample(height=60, width=70, out_height=16 * rows, out_width=16 * columns, chunks_w=9, chunks_h=6, cores=4)
        tables = op.table("width"), op.table("height")
        plain = op.reference(image, *tables).astype(iron.bfloat16)
        patches, xs = compiled(image, *tables, rows=rows, columns=columns)
        order = list(in_windows(rows, columns, 3))
        assert np.array_equal(patches[: len(order)], plain[[y * op.pad + x for x, y in order]])
        assert np.asarray(xs)[:, 5].astype(int).tolist() == [x + 1 for x, _ in order] + [0] * (56 - len(order))
        assert not np.asarray(patches)[len(order) :].any()


@pytest.mark.parametrize(
    ("fields", "said", "legal"),
    [
        (dict(rows=7), "rows=7; legal: multiples of pool=3. Nearest legal: 6 or 9", dict(rows=9)),
        (dict(columns=1), "columns=1; legal: multiples of pool=3. Nearest legal: 3", dict(columns=3)),
        (dict(pool=0), "pool=0; legal: 1 or more", dict(pool=1)),
        (dict(cores=0), "cores=0; legal: 1 or more", dict(cores=1)),
        (dict(places=0), "places=0; a dimension of sources is a whole number of at least 1", dict(places=1)),
        (dict(source_rows=95), "source_rows=95 for rows=6 x columns=6; legal: 96 or more", dict(source_rows=96)),
        (dict(position_rows=6), "position_rows=6 for rows=6 x columns=6; legal: 7 or more", dict(position_rows=7)),
    ],
)
def test_what_no_table_or_place_holds_is_refused(fields, said, legal):
    """With what would be legal; that is taken."""
    with pytest.raises(ParamError, match=f"PatchPositions: {said}"):
        PatchPositions(**dict(rows=6, columns=6) | fields)
    PatchPositions(**dict(rows=6, columns=6) | legal)


def test_a_block_divides_the_places():
    """Given or found; the nearest that does is named."""
    assert PatchPositions(rows=42, columns=57, places=2520).resolved("npu2").block == 63
    with pytest.raises(Unresolvable, match=r"places=61 is not whole blocks of block=8, 8 in all\. Nearest legal places: 56 or 64"):
        PatchPositions(rows=6, columns=9, places=61, block=8).resolved("npu2")
    outputs, masks, _ = simulate(PatchPositions(rows=6, columns=9, places=64, block=8), "npu1", {})
    assert outputs["sources"][0] == 0 and not masks["positions"].any()
