"""Configs of parts, small ones of every kind."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from iron_lm.parts.attention import AttentionConfig
from iron_lm.parts.norm import NormConfig
from iron_lm.parts.rotary import RotaryConfig

#: Head sizes; the host builds a kernel for each, which takes seconds.
HEADS = (16, 32)
#: Every way to scale, with numbers of which some pairs of a small head are on either side.
scalings = st.one_of(
    st.none(),
    st.builds(lambda factor: ("linear", (factor,)), st.sampled_from((2.0, 8.0))),
    st.builds(lambda original: ("llama3", (8.0, 1.0, 4.0, original)), st.sampled_from((16.0, 64.0))),
    st.builds(lambda share: ("proportional", (share, 1.0)), st.sampled_from((0.25, 0.5, 1.0))),
    st.builds(lambda cut: ("yarn", (4.0, 64.0, 32.0, 1.0, 1.14, cut)), st.sampled_from((0.0, 1.0))),
)


@st.composite
def rotaries(draw: Any, head_dim: int | None = None) -> RotaryConfig:
    """Of heads of this size, or of any even one up to 32; all of a head turns, or its first numbers."""
    size = head_dim or 2 * draw(st.integers(1, 16))
    dims = draw(st.sampled_from((None, *range(2, size + 1, 2))))
    pairs = (dims or size) // 2
    each = st.lists(st.sampled_from((1.0, 1.5, 32.0)), min_size=pairs, max_size=pairs).map(tuple)
    original = st.sampled_from((8.0, 64.0))
    longrope = st.builds(lambda original, short, long: ("longrope", (original, 1.2, *short, *long)), original, each, each)
    base, scaling = draw(st.sampled_from((100.0, 10000.0))), draw(scalings | longrope)
    return RotaryConfig(size, base, scaling, draw(st.none() | each), draw(st.booleans()), dims)


def _norms(head_dim: int, heads: int) -> Any:
    """None, of each head, of all of them together; with a weight or without."""
    sizes = st.sampled_from((head_dim, heads * head_dim))
    return st.none() | st.builds(NormConfig, sizes, epsilon=st.just(1e-6), weight=st.booleans())


@st.composite
def attentions(draw: Any, hidden_size: int | None = None) -> tuple[AttentionConfig, RotaryConfig | None]:
    """Sizes, groups, scale, cap, reach, norms, biases and gate; with a rotary embedding or none."""
    groups, head_dim = draw(st.integers(1, 3)), draw(st.sampled_from(HEADS))
    heads = groups * draw(st.integers(1, 4))
    config = AttentionConfig(
        hidden_size or draw(st.integers(1, 40)),
        heads,
        groups,
        head_dim,
        scale=draw(st.sampled_from((None, 0.25, 1.0))),
        reach=draw(st.sampled_from((None, 1, 5, 100))),
        q_norm=draw(_norms(head_dim, heads)),
        k_norm=draw(_norms(head_dim, groups)),
        bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        cap=draw(st.sampled_from((None, 0.5, 30.0))),
        gate=draw(st.booleans()),
    )
    return config, draw(st.none() | rotaries(head_dim))
