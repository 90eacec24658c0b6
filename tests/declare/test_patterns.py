"""Access patterns: which elements of a flat buffer, in which order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.errors import ShapeError

patterns = st.integers(1, 4).flatmap(
    lambda rank: st.builds(
        iron.Pattern,
        st.integers(0, 20),
        st.tuples(*[st.integers(1, 4)] * rank),
        st.tuples(*[st.integers(-6, 12)] * rank),
    )
)


@settings(max_examples=200, deadline=None)
@given(patterns)
def test_a_view_walks_offset_plus_strided_indices(pattern):
    """The numpy view is the definition, element by element; a pattern leaving the buffer is refused."""
    flat = np.arange(64)
    walked = [pattern.offset + sum(i * s for i, s in zip(at, pattern.strides, strict=True)) for at in np.ndindex(*pattern.sizes)]
    assert pattern.span == (min(walked), max(walked) + 1) and pattern.size == len(walked)
    if min(walked) < 0 or max(walked) >= flat.size:
        with pytest.raises(ShapeError, match="touches elements"):
            pattern.view(flat)
    else:
        assert pattern.view(flat).reshape(-1).tolist() == walked
    assert not pattern.contiguous or walked == list(range(walked[0], walked[0] + len(walked)))


def test_writing_a_view_writes_the_buffer():
    """Views are not copies."""
    flat = np.zeros(12)
    iron.Pattern(1, (3,), (4,)).view(flat)[...] = 1
    assert flat.nonzero()[0].tolist() == [1, 5, 9]


@pytest.mark.parametrize(
    "given", [(0, (2, 3), (1,)), (0, 4, 1), (0, [4], [1]), ("a", (4,), (1,)), (0, (2, "a"), (1, 1)), (0, (4,), (1.0,))], ids=str
)
def test_it_is_whole_numbers_and_a_stride_for_every_size(given):
    """Refused when it is made; it would be told by numpy when it is walked."""
    with pytest.raises(ShapeError, match=r"^Pattern\(offset=.*legal: whole numbers, .* a stride for every size\.$"):
        iron.Pattern(*given)
    assert iron.Pattern(np.int64(0), (np.int32(4),), (1,)).size == 4


def test_whole_cut_and_shifted():
    """Row-major over a region, fewer along one axis, the same further on."""
    pattern = iron.Pattern.whole((3, 4), offset=2)
    assert pattern.strides == (4, 1) and pattern.contiguous and pattern.span == (2, 14)
    assert pattern.cut(0, 2).size == 8 and pattern.shifted(5).offset == 7
    assert not iron.Pattern(0, (4, 3), (1, 4)).contiguous
    assert str(pattern) == "2+3x4:4,1"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 3), st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), max_size=2), st.integers(1, 3))
def test_a_walk_over_blocks_is_one_over_what_stores_them(start, outer, blocks):
    """Of 4 elements stored as 3 each: it touches the bytes of the blocks it touched, in their order."""
    sizes, strides = (*(n for n, _ in outer), 4 * blocks), (*(4 * s for _, s in outer), 1)
    pattern = iron.Pattern(4 * start, sizes, strides)
    stored = pattern.in_units(4, 3).view(np.arange(300)).reshape(-1, 3)
    assert stored.tolist() == [[3 * (at // 4) + i for i in range(3)] for at in pattern.view(np.arange(400)).reshape(-1)[::4]]


@pytest.mark.parametrize("odd", [(2, (4,), (1,)), (0, (6,), (1,)), (0, (2, 4), (6, 1)), (0, (4,), (2,)), (0, (), ())])
def test_a_walk_that_takes_parts_of_blocks_is_over_none(odd):
    """It begins in one, ends in one, steps into one, or takes its elements out of order."""
    with pytest.raises(ShapeError, match="does not take whole blocks of 4 in order"):
        iron.Pattern(*odd).in_units(4, 3)
