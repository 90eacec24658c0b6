"""What the arithmetic of attention's array costs: `python -m bench.precision`."""

from __future__ import annotations

import json

import numpy as np

from bench import precision


def test_a_float32_state_is_nearer_over_a_long_cache():
    """And the longer the cache, the more a bfloat16 one loses."""
    short, long = (precision.state_errors(64, keys, 1) for keys in (256, 2048))
    assert all(errors["float32"] < errors["bfloat16"] < 0.1 for errors in (short, long))
    assert long["bfloat16"] - long["float32"] > short["bfloat16"] - short["float32"]


def test_a_models_attention_is_the_arrays(rng):
    """Of a number of tokens that is no whole block: near softmax in float64, the accurate power nearer."""
    q, k, v = (rng.standard_normal((70, heads, 64)) for heads in (4, 2, 2))
    scores = np.einsum("ihd,jhd->hij", q, k.repeat(2, 1)) / 8
    scores[:, np.triu(np.ones((70, 70), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v.repeat(2, 1)).reshape(70, -1)
    errors = {exp2: np.abs(precision.attended(exp2)(q, k, v) - exact).mean() for exp2 in ("accurate", "fast")}
    assert 0 < errors["accurate"] < errors["fast"] < 0.02


def test_figures_stand_beside_the_published_ones(capsys, tmp_path):
    """As a table and as JSON."""
    out = tmp_path / "figures.json"
    assert precision.main(["--rows", "64", "--keys", "64", "--heads", "1", "--json", str(out)]) == 0
    assert "published 0.0068" in capsys.readouterr().out
    assert set(json.loads(out.read_text())["state"]) == {"float32", "bfloat16"}
