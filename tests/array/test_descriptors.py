"""Planning descriptors: the planned walk is the pattern, every descriptor is legal, and a refusal names its rule."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iron_core.array.descriptors import BdLimits, Descriptor, bounded, plan
from iron_core.declare.pattern import Pattern
from iron_core.devices import TileKind, device
from iron_core.errors import Unresolvable

NPU2 = device("npu2")
SHIM = {itemsize: BdLimits.of(NPU2.shim, itemsize) for itemsize in (1, 2, 4)}
#: A shim and a memory tile with fields so narrow that random patterns meet every limit.
NARROW_SHIM = TileKind(memory=0, channels=2, descriptors=6, locks=16, dims=3, wrap_bits=3, step_bits=5)
NARROW_MEMTILE = TileKind(memory=1024, channels=6, descriptors=6, locks=16, dims=4, wrap_bits=3, step_bits=5)
NARROW_CORE = TileKind(memory=1024, channels=2, descriptors=6, locks=16, dims=3, wrap_bits=2, step_bits=5)

RULES = (
    "every size must be at least 1",
    "a transfer moves at least one word",
    r"a descriptor counts to \d+",
    r"an offset must be whole 4-byte words \(\d elements\)",
    r"a run must be whole 4-byte words \(\d elements\)",
    r"a stride must be whole 4-byte words \(\d elements\)",
    "the least is 0",
    "must be consecutive, stride 1",
    "only steps forward, 1 or more",
    "repeats .* in place",
    r"there it may have \d+",
    r"a step holds \d+",
    r"do not merge; there are \d",
    r"lie outside axis \d",
    r"a length set per call counts whole 16 bytes, \d+ elements",
)


def names_a_rule(error: Unresolvable) -> bool:
    return any(re.search(rule, str(error)) for rule in RULES)


def walk(pattern: Pattern) -> np.ndarray:
    """The elements a pattern touches, in order, spelled out index by index."""
    index = np.indices(pattern.sizes, np.int64).reshape(len(pattern.sizes), -1)
    return pattern.offset + np.asarray(pattern.strides, np.int64) @ index


def patterns(size: int, strides: st.SearchStrategy[int]) -> st.SearchStrategy[Pattern]:
    return st.integers(1, 4).flatmap(
        lambda rank: st.builds(
            Pattern,
            st.integers(0, 3).map(lambda n: 4 * n) | st.integers(-1, 20),
            st.tuples(*[st.integers(1, size)] * rank),
            st.tuples(*[strides] * rank),
        )
    )


steps = st.integers(0, 12).map(lambda n: 4 * n) | st.sampled_from((0, 1, 1, 1, 8, 32, 64, 128, 140)) | st.integers(-3, 40)
#: Row-major regions and what is left of them after taking fewer of some axes, as transfers mostly are.
regions = st.lists(st.integers(1, 12), min_size=1, max_size=4).flatmap(
    lambda shape: st.builds(
        lambda sizes: Pattern(0, tuple(sizes), Pattern.whole(tuple(shape)).strides), st.tuples(*[st.integers(1, n) for n in shape])
    )
)
tiles = st.sampled_from((NARROW_SHIM, NARROW_MEMTILE, NARROW_CORE, NPU2.shim, NPU2.memtile, NPU2.core))


@settings(max_examples=400)
@given(patterns(12, steps) | regions, st.sampled_from((1, 2, 4, 4)), tiles, st.booleans())
def test_the_planned_walk_is_the_pattern_or_a_rule_is_named(pattern, itemsize, tile, single):
    """Same elements, same order, every descriptor legal, no more than there may be; else a refusal in words."""
    limits = BdLimits.of(tile, itemsize)
    try:
        planned = plan(pattern, limits, single=single)
    except Unresolvable as error:
        assert names_a_rule(error), str(error)
        return
    assert [limits.why_not(part) for part in planned] == [None] * len(planned)
    assert len(planned) <= (1 if single else limits.descriptors)
    assert np.array_equal(np.concatenate([part.addresses() for part in planned]), walk(pattern))
    for part in planned:
        assert np.array_equal(part.addresses(), walk(part.pattern())) and part.size == part.pattern().size
        if part.pattern().contiguous:
            assert part.sizes == (1, 1, 1, part.size) and part.strides == (0, 0, 0, 1)
        elif limits.repeats and Pattern(0, part.sizes[1:], part.strides[1:]).contiguous:
            assert part.sizes[1:3] == (1, 1)  # a run that iterates is still written as one run


def factorings(n: int, stride: int, parts: int):
    """Every way to walk one dimension with `parts` nested ones."""
    for sizes in itertools.product([d for d in range(1, n + 1) if n % d == 0], repeat=parts):
        if math.prod(sizes) == n:
            yield tuple((size, stride * math.prod(sizes[k + 1 :])) for k, size in enumerate(sizes))


def legal_single(pattern: Pattern, limits: BdLimits) -> bool:
    """Is there any one descriptor for this pattern? By trying every factoring of every dimension, unit slots included."""
    dims = list(zip(pattern.sizes, pattern.strides, strict=True))
    for split in itertools.product(*[[f for k in (1, 2, 3) for f in factorings(*dim, k)] for dim in dims]):
        slots = [dim for dim in itertools.chain(*split) if dim[0] > 1]
        gaps = 4 - len(slots)
        for units in itertools.combinations(range(4), gaps) if gaps >= 0 else ():
            rest = iter(slots)
            filled = tuple((1, 0) if k in units else next(rest) for k in range(4))
            if limits.why_not(Descriptor.of(pattern.offset, filled)) is None:
                return True
    return False


@example(Pattern(0, (2, 17), (4, 1)), NARROW_MEMTILE)
@settings(max_examples=120)
@given(
    st.builds(
        lambda sizes, strides: Pattern(0, sizes, strides),
        st.tuples(st.integers(1, 80), st.integers(1, 24)),
        st.tuples(st.sampled_from((0, 4, 40)), st.sampled_from((1, 1, 2))),
    ),
    st.sampled_from((NARROW_SHIM, NARROW_MEMTILE, NARROW_CORE)),
)
def test_one_descriptor_whenever_there_is_one(pattern, tile):
    limits = BdLimits.of(tile, 4)
    try:
        alone = len(plan(pattern, limits)) == 1
    except Unresolvable:
        alone = False
    assert alone or not legal_single(pattern, limits)


@pytest.mark.parametrize(
    ("pattern", "itemsize", "expected"),
    [
        # One run, whatever its length or its number of dimensions.
        (Pattern.whole((1 << 30,)), 4, [(0, (1, 1, 1, 1 << 30), (0, 0, 0, 1))]),
        (Pattern.whole((4, 4096, 1, 2048), 64), 2, [(64, (1, 1, 1, 1 << 25), (0, 0, 0, 1))]),
        (Pattern(8, (1,), (77,)), 4, [(8, (1, 1, 1, 1), (0, 0, 0, 1))]),
        # As it is.
        (Pattern(0, (3, 5, 7, 8), (4000, 400, 40, 1)), 4, [(0, (3, 5, 7, 8), (4000, 400, 40, 1))]),
        # Neighbours that step as one, merged.
        (Pattern(0, (2, 3, 16), (96, 32, 1)), 4, [(0, (1, 1, 6, 16), (0, 0, 32, 1))]),
        (Pattern(0, (5000, 8), (16, 2)), 4, [(0, (1, 1, 40, 1000), (0, 0, 2000, 2))]),
        # Rows a size of 1023 is too small for, factored.
        (Pattern(0, (8, 1024), (2048, 1)), 4, [(0, (1, 8, 2, 512), (0, 2048, 512, 1))]),
        (Pattern(0, (8, 4096), (8192, 1)), 4, [(0, (1, 8, 8, 512), (0, 8192, 512, 1))]),
        (Pattern(0, (8, 1024), (2048, 1)), 2, [(0, (1, 1, 8, 1024), (0, 0, 2048, 1))]),
        # Factors that only fit where there is no limit; rows of no factors, which iterate.
        (Pattern(0, (1031, 8), (16, 1)), 4, [(0, (1, 1031, 1, 8), (0, 16, 0, 1))]),
        (Pattern(0, (8, 1031), (2000, 1)), 4, [(0, (8, 1, 1, 1031), (2000, 0, 0, 1))]),
        (Pattern(0, (8, 1031), (4000, 2)), 4, [(0, (8, 1031, 1, 1), (4000, 2, 0, 1))]),
        # Standing still: in the iteration only, as often as a queue entry executes.
        (Pattern(0, (5, 64), (0, 1)), 4, [(0, (5, 1, 1, 64), (0, 0, 0, 1))]),
        (Pattern(0, (256, 6, 4), (0, 8, 1)), 4, [(0, (256, 1, 6, 4), (0, 0, 8, 1))]),
        (Pattern(0, (3, 2, 8), (0, 0, 1)), 4, [(0, (6, 1, 1, 8), (0, 0, 0, 1))]),
        (Pattern(0, (8, 1 << 30), (0, 1)), 4, [(0, (8, 1, 1, 1 << 30), (0, 0, 0, 1))]),
        (Pattern(0, (300, 4), (0, 1)), 4, [(0, (150, 1, 1, 4), (0, 0, 0, 1))] * 2),
        (Pattern(0, (3, 2, 16), (16, 0, 1)), 4, [(16 * k, (2, 1, 1, 16), (0, 0, 0, 1)) for k in range(3)]),
        # Cut: a stride past 2^20 words, and more rows than the iteration counts.
        (Pattern(0, (3, 8), (1 << 21, 1)), 4, [(k << 21, (1, 1, 1, 8), (0, 0, 0, 1)) for k in range(3)]),
        (Pattern(0, (2, 8), ((1 << 20) + 1, 1)), 4, [(k * ((1 << 20) + 1), (1, 1, 1, 8), (0, 0, 0, 1)) for k in range(2)]),
        (Pattern(0, (2, 8), (1 << 20, 1)), 4, [(0, (1, 1, 2, 8), (0, 0, 1 << 20, 1))]),
        (Pattern(0, (3, 8), (1 << 21, 1)), 2, [(0, (1, 1, 3, 8), (0, 0, 1 << 21, 1))]),
        (
            Pattern(0, (101, 9, 7, 8), (4000, 400, 40, 1)),
            4,
            [(204_000 * k, (51 - k, 9, 7, 8), (4000, 400, 40, 1)) for k in range(2)],
        ),
        (
            Pattern(4, (2, 2, 3, 5, 8), (9999, 3000, 900, 100, 1)),
            4,
            [(4 + 9999 * k, (2, 3, 5, 8), (3000, 900, 100, 1)) for k in range(2)],
        ),
    ],
)
def test_what_a_shim_does_with(pattern, itemsize, expected):
    planned = plan(pattern, SHIM[itemsize])
    assert [(d.offset, d.sizes, d.strides) for d in planned] == expected


@pytest.mark.parametrize(
    ("pattern", "itemsize", "words"),
    [
        (Pattern(0, (4, 0), (8, 1)), 4, "no elements; a transfer moves at least one word"),
        (Pattern(-4, (8,), (1,)), 4, "offset -4 lies before the buffer; the least is 0"),
        (Pattern(3, (8,), (1,)), 2, "offset 3 is 6 bytes; an offset must be whole 4-byte words (2 elements)"),
        (Pattern(0, (5,), (1,)), 2, "a run of 5 elements is 10 bytes; a run must be whole 4-byte words (2 elements)"),
        (Pattern(0, (1,), (1,)), 1, "a run of 1 elements is 1 bytes; a run must be whole 4-byte words (4 elements)"),
        (Pattern(0, (4, 6), (12, 2)), 1, "an innermost stride of 2; elements of 1 bytes must be consecutive, stride 1"),
        (Pattern(0, (4, 4), (6, 1)), 1, "stride 6 of the 4 is 6 bytes; a stride must be whole 4-byte words (4 elements)"),
        (Pattern(56, (8, 4), (-8, 1)), 4, "stride -8 of the 8 is negative; a descriptor only steps forward, 1 or more"),
        (Pattern(0, (17, 8), (1 << 21, 1)), 4, "d1 steps 2097152 words (stride 2097152); a step holds 1048576; cut, it would need"),
        (Pattern(0, (3, 6, 8), (64, 1 << 21, 1)), 4, "d1 steps 2097152 words (stride 2097152)"),
        (Pattern(0, (17, 2, 8), (8, 0, 1)), 4, "d1 repeats 2 times in place (stride 0); only the iteration, the outermost of four, may"),
        (
            Pattern(0, (1200, 3, 5, 8), (9999, 900, 100, 1)),
            4,
            "iteration has size 1200; there it may have 64; cut, it would need more than the 16",
        ),
        (
            Pattern(0, (17, 2, 2, 3, 8), (99999, 9999, 3000, 900, 1)),
            4,
            "5 dimensions 17:99999, 2:9999, 2:3000, 3:900, 8:1 that do not merge; there are 4; cut, it would need more than the 16",
        ),
    ],
)
def test_a_shim_refuses(pattern, itemsize, words):
    with pytest.raises(Unresolvable) as caught:
        plan(pattern, SHIM[itemsize])
    assert words in str(caught.value) and names_a_rule(caught.value)


def test_a_transfer_set_per_call_is_not_cut():
    far = Pattern(0, (3, 8), (1 << 21, 1))
    assert len(plan(far, SHIM[4])) == 3
    with pytest.raises(Unresolvable, match=r"a step holds 1048576; a transfer set per call must be one descriptor"):
        plan(far, SHIM[4], single=True)
    with pytest.raises(Unresolvable, match=r"more than the 2 there may be"):
        plan(far, SHIM[4], most=2)
    assert len(plan(Pattern(0, (17, 8), (1 << 21, 1)), SHIM[4], most=17)) == 17


def test_other_tiles_have_other_limits():
    memtile, core = BdLimits.of(NPU2.memtile, 4), BdLimits.of(NPU2.core, 4)
    assert plan(Pattern(0, (4, 4, 8, 8), (2048, 8, 32, 1)), memtile)[0].sizes == (4, 4, 8, 8)
    assert plan(Pattern(0, (4, 1024), (2048, 1)), memtile)[0].sizes == (1, 4, 2, 512)
    assert plan(Pattern.whole((131071,)), memtile)[0].sizes == (1, 1, 1, 131071)
    assert plan(Pattern(0, (4, 510), (1024, 1)), core)[0].sizes == (1, 4, 2, 255)
    # A run past the length field is cut at whole words.
    assert [d.size for d in plan(Pattern.whole((524292,)), BdLimits.of(NPU2.memtile, 1))] == [262148, 262144]
    for limits, pattern, words in (
        (memtile, Pattern(0, (4, 8), (0, 1)), "repeats 4 times in place (stride 0); only a shim's iteration may"),
        (memtile, Pattern(0, (2, 8), (1 << 18, 1)), "steps 262144 words"),
        (memtile, Pattern.whole((131072,)), "a length of 131072 words; a descriptor counts to 131071"),
        (core, Pattern(0, (2, 4, 4, 8), (512, 8, 32, 1)), "d3 has size 2; there it may have 1"),
        (core, Pattern.whole((16384,)), "a length of 16384 words; a descriptor counts to 16383"),
    ):
        with pytest.raises(Unresolvable) as caught:
            plan(pattern, limits, single=True)
        assert words in str(caught.value)


def test_only_elements_up_to_a_word():
    with pytest.raises(Unresolvable, match=r"itemsize=8: a descriptor moves elements of 1, 2 or 4 bytes"):
        BdLimits.of(NPU2.shim, 8)


@settings(max_examples=300)
@given(patterns(12, steps) | regions, st.data(), st.sampled_from((1, 2, 4, 4)), st.sampled_from((NARROW_SHIM, NPU2.shim)))
def test_a_bounded_axis_changes_only_the_length(pattern, data, itemsize, tile):
    """The descriptor of the whole, its length word set to n units, walks the pattern cut to n."""
    limits = BdLimits.of(tile, itemsize)
    axis = data.draw(st.integers(0, len(pattern.sizes) - 1))
    try:
        descriptor, unit = bounded(pattern, axis, limits)
    except Unresolvable as error:
        assert names_a_rule(error), str(error)
        return
    assert limits.why_not(descriptor) is None and unit * itemsize % 16 == 0
    for n in range(1, pattern.sizes[axis] + 1):
        assert np.array_equal(descriptor.addresses(n * unit), walk(pattern.cut(axis, n)))


@pytest.mark.parametrize(
    ("pattern", "axis", "expected"),
    [
        (Pattern.whole((6, 8)), 0, ((1, 1, 1, 48), 8)),
        (Pattern(0, (6, 64), (256, 1)), 0, ((1, 6, 1, 64), 64)),
        (Pattern(0, (4, 2048, 64), (64, 256, 1)), 1, ((4, 2048, 1, 64), 64)),
        (Pattern(0, (4, 100, 8, 8), (64, 2560, 256, 1)), 1, ((4, 100, 8, 8), 64)),
        # Standing still outside, rows of 2048 words inside.
        (Pattern(0, (5, 3, 2048), (0, 4096, 1)), 1, ((5, 3, 4, 512), 2048)),
        (Pattern(0, (1, 3, 1, 4, 4), (0, 512, 0, 64, 1)), 1, ((1, 3, 4, 4), 16)),
    ],
)
def test_where_a_bounded_axis_goes(pattern, axis, expected):
    descriptor, unit = bounded(pattern, axis, SHIM[4])
    assert (descriptor.sizes, unit) == expected


@pytest.mark.parametrize(
    ("pattern", "axis", "words"),
    [
        (Pattern.whole((6, 6)), 0, "one unit of axis 0 is 6 elements, 24 bytes; a length set per call counts whole 16 bytes, 4 elements"),
        (Pattern(0, (2, 3, 4, 8), (999, 50, 16, 1)), 2, "2 dimensions lie outside axis 2, bounded per call; there may be 1"),
        (Pattern(0, (65, 4, 8), (999, 16, 1)), 1, "iteration has size 65; there it may have 64; a transfer set per call must be one"),
        (Pattern(0, (4, 3, 3, 3, 8), (999, 300, 90, 10, 1)), 1, "4 dimensions 3:300, 3:90, 3:10, 8:1 that do not merge; there are 3"),
        (Pattern(0, (4, 8), (0, 1)), 0, "d2 repeats 4 times in place"),
    ],
)
def test_a_bounded_axis_is_refused(pattern, axis, words):
    with pytest.raises(Unresolvable) as caught:
        bounded(pattern, axis, SHIM[4])
    assert words in str(caught.value) and names_a_rule(caught.value)
    with pytest.raises(Unresolvable, match="only a shim's descriptor has one"):
        bounded(Pattern.whole((4, 8)), 0, BdLimits.of(NPU2.memtile, 4))
