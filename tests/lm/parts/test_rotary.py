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
from iron_lm.parts.rotary import Rotary, RotaryConfig, angles, inverse_frequencies
from iron_lm.run import Run
from iron_lm.testing import check_part
from iron_ops_aie import RoPE
from tests.lm.parts.strategies import rotaries


class Turned(Part):
    """x (rows, head_dim), its numbers in the order that the operator takes them in, turned by its angles."""

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
        order = self.turning.config.order
        if order is None:
            return self.turning.twin({}, x[:, None], positions)[:, 0]
        published = np.empty_like(x)
        published[:, order] = x
        return self.turning.twin({}, published[:, None], positions)[:, 0, order]


@settings(max_examples=25)
@given(config=rotaries(), rows=st.integers(1, 20), decoded=st.integers(0, 4), seed=st.integers(0, 99))
def test_it_is_its_twin(config: RotaryConfig, rows: int, decoded: int, seed: int, backend: str, run: Run) -> None:
    """Sizes, bases, scalings, factors, halves and neighbours, of all of a head or its first numbers; a prompt's chunks, then steps."""
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


def test_the_rest_of_a_head_stands_where_its_first_numbers_turn(run: Run) -> None:
    """By hand, a quarter turn of the one pair of four numbers: it is (0, 1) of either kind; the angles of the others are none."""
    position = np.array([math.pi / 2])
    for neighbours in (False, True):
        config = RotaryConfig(4, neighbours=neighbours, dims=2)
        got = Rotary(config, run).twin({}, np.array([[[1, 2, 3, 4]]], np.float32), position)
        np.testing.assert_allclose(got[0, 0], [-2, 1, 3, 4], atol=1e-6)
        np.testing.assert_allclose(angles(config, position), [[0, 1, 1, 0]], atol=1e-6)
    assert RotaryConfig(8, dims=4).order.tolist() == [0, 1, 4, 5, 2, 3, 6, 7]  # type: ignore[union-attr]


def test_longrope_chooses_by_the_context_that_the_caches_hold() -> None:
    """Up to the original context the short factors, beyond it the long ones, whatever the prompt's length."""
    config = RotaryConfig(4, 100.0, ("longrope", (16.0, 1.1, 1.0, 2.0, 4.0, 8.0)))
    for context, want in ((16, [1, 0.1 / 2]), (24, [1 / 4, 0.1 / 8])):
        got, scale = inverse_frequencies(config, context)
        np.testing.assert_allclose(got, want, rtol=1e-6)
        assert scale == 1.1
        run = Run(context, 8, dtype="float32", cache_dtype="float32")
        np.testing.assert_allclose(Rotary(config, run).angles([1])[0, :2], 1.1 * np.array([np.cos(want[0]), np.sin(want[0])]), rtol=1e-6)


def test_the_scalings_by_hand() -> None:
    """A linear one divides all; llama3's leaves the fast and divides the slow; yarn's too, and scales cosine and sine; a
    proportional one stops the last pairs."""
    plain, _ = inverse_frequencies(RotaryConfig(8, 10000.0))
    np.testing.assert_allclose(plain, [1, 0.1, 0.01, 0.001])
    linear, _ = inverse_frequencies(RotaryConfig(8, 10000.0, ("linear", (4.0,))))
    np.testing.assert_allclose(linear, plain / 4)
    llama3, _ = inverse_frequencies(RotaryConfig(8, 10000.0, ("llama3", (8.0, 1.0, 4.0, 128.0))))
    # wavelengths 6.3, 63, 628 and 6283 of a context of 128: the second lies between 32 and 128
    smooth = (128 / (2 * math.pi / 0.1) - 1) / 3
    np.testing.assert_allclose(llama3, [1, 0.1 * ((1 - smooth) / 8 + smooth), 0.01 / 8, 0.001 / 8], rtol=1e-6)
    proportional, _ = inverse_frequencies(RotaryConfig(8, 10000.0, ("proportional", (0.5, 2.0))))
    np.testing.assert_allclose(proportional, [0.5, 0.05, 0, 0])
    plain, _ = inverse_frequencies(RotaryConfig(16, 10000.0))
    # pairs turn 163 * 10000 ** (-i / 8) times in 1024 tokens: 16 times at i = 2.0160, once at 4.4242
    for cut, first, last in ((1.0, 2, 5), (0.0, 2.0160, 4.4242)):
        yarn, scale = inverse_frequencies(RotaryConfig(16, 10000.0, ("yarn", (4.0, 1024.0, 16.0, 1.0, 1.5, cut))))
        kept = [1 if i <= first else 0 if i >= last else (last - i) / (last - first) for i in range(8)]
        np.testing.assert_allclose(yarn, [f * (k + (1 - k) / 4) for f, k in zip(plain, kept, strict=True)], rtol=1e-4)
        assert scale == 1.5


@pytest.mark.parametrize(("given", "says"), [
    (dict(head_dim=5), "head_dim=5; legal: an even number"), (dict(base=0.0), "base=0.0; legal: a positive"),
    (dict(scaling=("dynamic", (2.0,))), "scaling=.*dynamic.*; legal: linear, llama3, yarn, longrope, proportional"),
    (dict(factors=(1.0,)), "1 factors; legal: one for each of 4 pairs"), (dict(factors=(1.0, 1.0, 0.0, 1.0)), "positive"),
    (dict(dims=3), "dims=3; legal: an even number up to head_dim=8"), (dict(dims=10), "dims=10"), (dict(dims=0), "dims=0"),
    (dict(dims=4, factors=(1.0,) * 4), "4 factors; legal: one for each of 2 pairs"),
    (dict(scaling=("longrope", (16.0, 1.0, *[1.0] * 7, 0.0))), "longrope has 8 factors; legal: .*, positive numbers"),
    (dict(scaling=("longrope", (16.0, 1.0, 1.0, 1.0))), "longrope has 2 factors; legal: a short and a long one for each of 4 pairs"),
])  # fmt: skip
def test_a_config_that_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    """By field and value."""
    with pytest.raises(ParamError, match=says):
        RotaryConfig(**dict(head_dim=8) | given)
