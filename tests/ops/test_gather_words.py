"""`GatherWords`: the addresses of rows, in their places among a gather's control words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.array.build import build
from iron_core.array.gather import Gather
from iron_core.errors import ParamError, Unresolvable
from iron_ops_aie import GatherWords
from iron_sim.run import simulate


@given(st.integers(1, 80), st.integers(1, 4), st.integers(1, 30), st.integers(0, 1 << 45))
@settings(max_examples=100, deadline=None)
def test_the_words_are_those_that_the_host_would_make(rows, feeds, held, base):
    """For ids from the end and past it, wherever the table is."""
    gather = Gather("x", held, rows, 12, feeds)
    if not gather.share(feeds - 1)[1]:
        return
    ids = np.random.default_rng(rows).integers(-held - 3, held + 3, rows).astype(np.int32)
    address = np.array([base * 4 & 0xFFFFFFFF, base * 4 >> 32], np.uint32)
    op = GatherWords(rows=rows, table_rows=held, row_bytes=12, feeds=feeds)
    words = op.reference(ids, address, gather.template())
    assert words.tobytes() == gather.control_words(ids, base * 4).tobytes()
    if rows % 7 == 0:
        made, masks, _ = simulate(op, "npu2", dict(ids=ids, address=address, words=gather.template()))
        assert made["words"].tobytes() == words.tobytes() and not masks["words"].any()


def test_the_slots_are_all_that_differs():
    """Two words a row; the template is what is left of any tensor of control words without them."""
    gather = Gather("x", 100, 45, 64, 2)
    one, other = (gather.control_words(np.full(45, i), 0x3_0000_0000) for i in (0, 1))
    where = np.concatenate([s.view(np.arange(gather.words)).reshape(-1) for feed in range(2) for s in gather.slots(feed)])
    assert len(set(where.tolist())) == 90 and set(np.flatnonzero(one != other)) <= set(where.tolist())
    one[where] = 0
    assert one.tolist() == gather.template().tolist()


def test_blocks_divide_the_ids():
    """The largest up to 512."""
    for rows, block in ((7, 7), (1024, 512), (1029, 343), (521, 1)):
        assert GatherWords(rows=rows, table_rows=9, row_bytes=4).resolved("npu2").block == block


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (dict(row_bytes=6), ParamError, "row_bytes=6; legal: 1 or more, rows of whole 4-byte words"),
        (dict(table_rows=0), ParamError, "table_rows=0"),
        (dict(feeds=2), ParamError, "feeds=2 for rows=8; legal: 1 to 1, a batch of 8 each"),
        (dict(size=9), ParamError, "words has 9 of them; this gather has 187"),
        (dict(block=3), Unresolvable, "block=3 of rows=8; .* Nearest legal: block=2 or 4"),
    ],
)
def test_what_is_no_gather_is_refused(fields, error, message):
    """With what would be legal."""
    with pytest.raises(error, match=message):
        build(GatherWords(**dict(rows=8, table_rows=20, row_bytes=8) | fields), "npu2")
