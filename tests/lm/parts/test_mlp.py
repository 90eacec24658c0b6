"""`GatedMLP` and `MLP` alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_core.errors import ParamError
from iron_lm.parts.mlp import ACTIVATIONS, MLP, GatedMLP, GatedMLPConfig, MLPConfig
from iron_lm.run import Run
from iron_lm.testing import check_part, drawn


@settings(max_examples=12)
@given(
    config=st.builds(GatedMLPConfig, st.integers(1, 40), st.integers(1, 60), st.sampled_from(sorted(ACTIVATIONS))),
    rows=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_it_is_its_twin(config: GatedMLPConfig, rows: int, seed: int, backend: str, run: Run) -> None:
    """Any sizes, every gate; rows together and one by one."""
    x = 2 * np.random.default_rng(seed).standard_normal((rows, config.hidden_size)).astype(np.float32)
    report = check_part(GatedMLP(config, run), run, x, rows // 2, seed=seed, backend=backend)
    assert report.passed, report.lines()


@settings(max_examples=12)
@given(
    config=st.builds(MLPConfig, st.integers(1, 40), st.integers(1, 60), st.sampled_from(sorted(ACTIVATIONS)), st.booleans()),
    rows=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_one_without_a_gate_is_its_twin(config: MLPConfig, rows: int, seed: int, backend: str, run: Run) -> None:
    """With biases and without."""
    x = 2 * np.random.default_rng(seed).standard_normal((rows, config.hidden_size)).astype(np.float32)
    report = check_part(MLP(config, run), run, x, rows // 2, seed=seed, backend=backend)
    assert report.passed, report.lines()


def test_biases_are_those_of_their_own_matrices(run: Run) -> None:
    """By hand: SiLU of a large number is the number, so down (up x + 100) + 7."""
    part = MLP(MLPConfig(1, 1, bias=True), run)
    assert part.tensors() == {"up": (1, 1), "down": (1, 1), "up_bias": (1,), "down_bias": (1,)}
    weights = {"up": [[2.0]], "down": [[3.0]], "up_bias": [100.0], "down_bias": [7.0]}
    got = part.twin({name: np.array(numbers, np.float32) for name, numbers in weights.items()}, np.ones((1, 1), np.float32))
    assert got.tolist() == [[3 * 102 + 7]]


def test_the_gate_is_not_the_other_matrix(run: Run) -> None:
    """gate and up exchanged give other numbers, and so do the gates."""
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    parts = {name: GatedMLP(GatedMLPConfig(8, 12, name), run) for name in ACTIVATIONS}
    weights = drawn(parts["silu"])
    exchanged = weights | {"gate": weights["up"], "up": weights["gate"]}
    found = [part.twin(given, x) for part in parts.values() for given in (weights, exchanged)]
    assert all(np.abs(one - other).max() > 1e-5 for i, one in enumerate(found) for other in found[:i])


def test_a_config_that_cannot_be_is_refused() -> None:
    """By field and value."""
    with pytest.raises(ParamError, match="activation='relu'; legal: gelu, gelu_tanh, silu"):
        GatedMLPConfig(8, 8, "relu")
    with pytest.raises(ParamError, match="intermediate_size=0; legal: a whole number, 1 or more"):
        GatedMLPConfig(8, 0)
    with pytest.raises(ParamError, match="MLPConfig: hidden_size=0; legal: a whole number, 1 or more"):
        MLPConfig(0, 8)
