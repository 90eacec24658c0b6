"""`AxialRotary` alone: the angles of patches by column and row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import ParamError
from iron_lm.parts.attention import Attention, AttentionConfig
from iron_lm.parts.axial_rotary import AxialRotary, AxialRotaryConfig
from iron_lm.parts.part import Part
from iron_lm.run import Run
from iron_ops_aie import RoPE


class Turned(Part):
    """x (patches, head_dim), its numbers in the order that the operator takes them in, turned by its angles."""

    def __init__(self, rotary: AxialRotary) -> None:
        self.rotary = rotary

    def body(self, x: Any, positions: Any) -> Any:
        return RoPE(x, self.rotary(positions), method_type=int(self.rotary.config.neighbours))


def turned(config: AxialRotaryConfig, run: Run, x: np.ndarray, positions: np.ndarray, backend: str) -> np.ndarray:
    shapes: dict[str, Any] = dict(x=(x.shape, np.float32), positions=(positions.shape, np.int32))
    ordered = Turned(AxialRotary(config, run)).compile(backend=backend, **shapes)(np.ascontiguousarray(x[:, config.order]), positions)
    out = np.empty_like(x)
    out[:, config.order] = ordered
    return out


@settings(max_examples=20)
@given(
    head_dim=st.integers(1, 8).map(lambda n: 4 * n),
    base=st.sampled_from((100.0, 10000.0)),
    patches=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_it_is_its_twin(head_dim: int, base: float, patches: int, seed: int, backend: str, run: Run) -> None:
    """Sizes, bases, patches in any order."""
    rng = np.random.default_rng(seed)
    config = AxialRotaryConfig(head_dim, 50, base)
    x, positions = rng.standard_normal((patches, head_dim)).astype(np.float32), rng.integers(0, 50, (patches, 2)).astype(np.int32)
    want = AxialRotary(config, run).twin({}, x[:, None], positions)[:, 0]
    np.testing.assert_allclose(turned(config, run, x, positions, backend), want, atol=1e-5)


def test_the_first_half_turns_with_the_column_and_the_second_with_the_row(backend: str, run: Run) -> None:
    """By hand, of a head of four numbers, whose two pairs turn by a radian a place: (a, b) becomes (a cos - b sin, a sin + b cos)."""
    x = np.array([[1, 2, 3, 4]], np.float32)
    got = turned(AxialRotaryConfig(4, 8, 100.0), run, x, np.array([[2, 5]], np.int32), backend)[0]
    want = [
        math.cos(2) - 2 * math.sin(2), math.sin(2) + 2 * math.cos(2), 3 * math.cos(5) - 4 * math.sin(5), 3 * math.sin(5) + 4 * math.cos(5),
    ]  # fmt: skip
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_a_score_knows_how_far_apart_two_patches_are_and_not_where(run: Run) -> None:
    """Both moved by as many columns and rows, it is the same; one moved, it is another."""
    rotary = AxialRotary(AxialRotaryConfig(16, 50, 100.0), run)
    q, k = np.random.default_rng(0).standard_normal((2, 1, 1, 16)).astype(np.float32)

    def score(a: tuple[int, int], b: tuple[int, int]) -> float:
        return float((rotary.twin({}, q, np.array([a])) * rotary.twin({}, k, np.array([b]))).sum())

    assert score((3, 7), (5, 2)) == pytest.approx(score((23, 8), (25, 3)), abs=1e-4)
    assert abs(score((3, 7), (5, 2)) - score((3, 8), (5, 2))) > 1e-2 < abs(score((3, 7), (5, 2)) - score((4, 7), (5, 2)))


def test_attention_lays_its_rows_so_that_pairs_are_halves_of_a_head(run: Run) -> None:
    """As it does for a rotary embedding that turns a part of a head."""
    config = AxialRotaryConfig(8, 50, 100.0)
    part = Attention(AttentionConfig(20, 2, 1, 8), run, AxialRotary(config, run))
    assert config.order.tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    q = np.arange(16 * 20, dtype=np.float32).reshape(16, 20)
    np.testing.assert_array_equal(part.arranged("q", q), q[[*config.order, *(8 + config.order)]])


@pytest.mark.parametrize(("given", "says"), [
    (dict(head_dim=6), "head_dim=6; legal: a multiple of 4"), (dict(places=0), "places=0; legal: a whole number, 1 or more"),
    (dict(base=-1.0), "base=-1.0; legal: a positive"),
])  # fmt: skip
def test_a_config_that_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    """By field and value."""
    with pytest.raises(ParamError, match=says):
        AxialRotaryConfig(**dict(head_dim=8, places=50, base=100.0) | given)
