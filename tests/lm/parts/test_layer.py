"""`Layer` alone: a mixer and a feed-forward with norms before, after, both or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_lm.parts.attention import Attention, AttentionConfig
from iron_lm.parts.layer import Layer
from iron_lm.parts.mlp import GatedMLP, GatedMLPConfig
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.rotary import Rotary
from iron_lm.run import Run
from iron_lm.testing import check_part, drawn
from tests.lm.parts.strategies import attentions

WIDTH = 12
NORMS = ("mixer_norm", "mixer_norm_after", "ffn_norm", "ffn_norm_after")


def layer(run: Run, configs: Any, norms: Any = NORMS) -> Layer:
    config, rotary = configs
    mixer = Attention(config, run, None if rotary is None else Rotary(rotary, run))
    return Layer(mixer, GatedMLP(GatedMLPConfig(WIDTH, 20), run), **{name: Norm(NormConfig(WIDTH)) for name in norms})


@settings(max_examples=10)
@given(
    configs=attentions(WIDTH),
    norms=st.sets(st.sampled_from(NORMS)),
    rows=st.integers(1, 18),
    decoded=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_it_is_its_twin(configs: Any, norms: set[str], rows: int, decoded: int, seed: int, backend: str, run: Run) -> None:
    """Whichever norms there are; with a rotary embedding or none."""
    x = np.random.default_rng(seed).standard_normal((rows + decoded, WIDTH)).astype(np.float32)
    report = check_part(layer(run, configs, norms), run, x, rows, seed=seed, backend=backend)
    assert report.passed, report.lines()


@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_has_its_place(norm: str, run: Run) -> None:
    """The weight of each changes what comes out."""
    part = layer(run, (AttentionConfig(WIDTH, 2, 1, 6), None))
    weights, x = drawn(part), np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float32)
    want = part.twin(weights, x, np.arange(4))
    other = part.twin(weights | {f"{norm}.weight": 2 * weights[f"{norm}.weight"]}, x, np.arange(4))
    assert np.abs(other - want).max() > 1e-2
