"""Copies between random views, and the rules that may refuse one."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from iron_core.declare.pattern import Pattern

DTYPES = (np.int8, ml_dtypes.bfloat16, np.float32)

#: What may be wrong with a copy that its params allow.
RULES = (
    r"must be whole 4-byte words",
    r"must be consecutive, stride 1",
    r"only steps forward, 1 or more",
    r"repeats \d+ times in place",
    r"do not merge; there are \d",
    r"a step holds \d+",
    r"lie outside axis \d",
    r"counts whole 16 bytes",
    r"does not divide the run of \d+ elements",
    r"is no object of every channel's transfers",
    r"are \d+ elements, not whole objects of tile_size=\d+",
    r"share out the innermost axis",
    r"makes other numbers",
)


def walk(patterns):
    """The elements that patterns touch in turn, spelled out index by index."""
    if isinstance(patterns, Pattern):
        patterns = (patterns,)
    parts = []
    for p in patterns:
        index = np.indices(p.sizes, np.int64).reshape(len(p.sizes), -1)
        parts.append(p.offset + np.asarray(p.strides, np.int64) @ index)
    return np.concatenate(parts)


@st.composite
def views(draw, sizes, itemsize, wild):
    """A pattern of these sizes that touches no element twice; aligned unless it is to be wild."""
    granule = 1 if wild else max(1, 4 // itemsize)
    step, strides = 1, []
    for n in reversed(sizes):
        strides.append(step)
        step = step * n + granule * draw(st.integers(0, 3))
        step = -(-step // granule) * granule
        if wild and draw(st.integers(0, 9)) == 0:
            step *= draw(st.sampled_from((-1, 1, 3)))
    order = list(range(len(sizes)))
    if wild and draw(st.booleans()):
        order = list(draw(st.permutations(order)))
    strides = strides[::-1]
    pattern = Pattern(0, tuple(sizes[k] for k in order), tuple(strides[k] for k in order))
    low = -pattern.span[0]
    return pattern.shifted(low + granule * draw(st.integers(0, 5)))


@st.composite
def copies(draw, wild):
    """Fields of a copy between two views of equal size."""
    dtype = draw(st.sampled_from(DTYPES))
    itemsize = np.dtype(dtype).itemsize
    granule = max(1, 4 // itemsize)
    inner = granule * draw(st.integers(1, 6)) if not wild else draw(st.integers(1, 9))
    sizes = (*draw(st.lists(st.integers(1, 4), max_size=3)), inner)
    src = draw(views(sizes, itemsize, wild))
    other = sizes if draw(st.booleans()) else (int(np.prod(sizes[:-1])), inner)
    dst = draw(views(other, itemsize, wild))
    assume(dst.span[0] >= 0 and src.span[0] >= 0)
    assume(len(set(walk(dst).tolist())) == dst.size)
    channels = draw(st.sampled_from((1, 1, 2, 3, 4)))
    fields = dict(input_size=src.span[1] + 3, output_size=dst.span[1] + 2, src=src, dst=dst, X=dtype, num_channels=channels)
    if draw(st.booleans()):
        fields["tile_size"] = draw(st.integers(1, 12)) * granule
    return fields


def refused(error):
    """Whether a rule is why."""
    return any(re.search(rule, str(error)) for rule in RULES)
