"""`Rotary` alone: the angles of a call's rows, and the scalings by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.errors import ParamError
from iron_lm.parts.part import Part, Weights
from iron_lm.parts.rotary import Rotary, RotaryConfig, inverse_frequencies
from iron_lm.run import Run
from iron_lm.testing import check_part
from iron_ops_aie import RoPE
from tests.lm.parts.strategies import rotaries


class Turned(Part):
    """x (rows, head_dim), turned by its angles."""

    def __init__(self, rotary: Rotary) -> None:
        self.turning = rotary

    def body(
        self,
        x: Any,
        *,
        chunk: iron.Scratchpad[np.int32],
        rows: iron.Scratchpad[np.int32],
        position: iron.Scratchpad[np.int32],
    ) -> Any:
        x = x if x.shape[0] == 1 else x[:rows]
        table = self.turning(x, chunk=chunk, rows=rows, position=position)
        return RoPE(x, table, method_type=int(self.turning.config.neighbours))

    def twin(self, weights: Weights, x: Any, positions: Any) -> np.ndarray:
        return self.turning.twin({}, x[:, None], positions)[:, 0]


@settings(max_examples=15)
@given(config=rotaries(), rows=st.integers(1, 20), decoded=st.integers(0, 4), seed=st.integers(0, 99))
def test_it_is_its_twin(config: RotaryConfig, rows: int, decoded: int, seed: int, backend: str, run: Run) -> None:
    """Sizes, bases, scalings, factors, halves and neighbours; a prompt's chunks, then steps."""
    x = np.random.default_rng(seed).standard_normal((rows + decoded, config.head_dim)).astype(np.float32)
    report = check_part(Turned(Rotary(config, run)), run, x, rows, backend=backend)
    assert report.passed, report.lines()


def test_a_row_of_a_bare_shape_has_its_positions_angles(backend: str, run: Run) -> None:
    """Of x only the number of rows is looked at: cosine and sine of position times frequency, side by side."""
    rotary = Rotary(RotaryConfig(4, 100.0), run)
    compiled = rotary.compile(backend=backend, x=((8, 4), np.float32))
    got = compiled(np.zeros((8, 4), np.float32), chunk=1, rows=3, position=10)
    turns = np.arange(8, 11)[:, None] * [1.0, 0.1]
    np.testing.assert_allclose(got, np.stack([np.cos(turns), np.sin(turns)], -1).reshape(3, 4), atol=1e-6)
    one = rotary.compile(backend=backend, x=((1, 4), np.float32))(np.zeros((1, 4), np.float32), chunk=0, rows=0, position=10)
    np.testing.assert_array_equal(one, got[2:])


def test_pairs_are_of_a_heads_halves_or_neighbours(run: Run) -> None:
    """By hand, a quarter turn of the first pair of two: (a, b) becomes (-b, a)."""
    position = np.array([math.pi / 2])
    x = np.array([[[1, 2, 3, 4]]], np.float32)
    for neighbours, want in ((False, [-3, 2, 1, 4]), (True, [-2, 1, 3, 4])):
        got = Rotary(RotaryConfig(4, 1e12, neighbours=neighbours), run).twin({}, x, position)
        np.testing.assert_allclose(got[0, 0], want, atol=1e-5)


def test_the_scalings_by_hand() -> None:
    """A linear one divides all; llama3's leaves the fast and divides the slow; yarn's too, and scales cosine and sine."""
    plain, _ = inverse_frequencies(RotaryConfig(8, 10000.0))
    np.testing.assert_allclose(plain, [1, 0.1, 0.01, 0.001])
    linear, _ = inverse_frequencies(RotaryConfig(8, 10000.0, ("linear", (4.0,))))
    np.testing.assert_allclose(linear, plain / 4)
    llama3, _ = inverse_frequencies(RotaryConfig(8, 10000.0, ("llama3", (8.0, 1.0, 4.0, 128.0))))
    # wavelengths 6.3, 63, 628 and 6283 of a context of 128: the second lies between 32 and 128
    smooth = (128 / (2 * math.pi / 0.1) - 1) / 3
    np.testing.assert_allclose(llama3, [1, 0.1 * ((1 - smooth) / 8 + smooth), 0.01 / 8, 0.001 / 8], rtol=1e-6)
    yarn, scale = inverse_frequencies(RotaryConfig(8, 10000.0, ("yarn", (4.0, 64.0, 8.0, 1.0, 1.5, 1.0))))
    assert scale == 1.5
    # 8 turns in 64 tokens are at pair 0.1, one turn at 1.01; made whole: 0 and 2
    np.testing.assert_allclose(yarn, [1, 0.1 * (0.5 + 0.5 / 4), 0.01 / 4, 0.001 / 4], rtol=1e-6)


@pytest.mark.parametrize(("given", "says"), [
    (dict(head_dim=5), "head_dim=5; legal: an even number"), (dict(base=0.0), "base=0.0; legal: a positive"),
    (dict(scaling=("dynamic", (2.0,))), "scaling 'dynamic'; legal: linear, llama3, yarn"),
    (dict(factors=(1.0,)), "1 factors; legal: head_dim / 2 = 4 positive numbers"), (dict(factors=(1.0, 1.0, 0.0, 1.0)), "4 positive"),
])  # fmt: skip
def test_a_config_that_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    """By field and value."""
    with pytest.raises(ParamError, match=says):
        RotaryConfig(**dict(head_dim=8) | given)
