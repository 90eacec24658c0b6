"""What 4 bits for parts of a mixture cost, layer by layer: `python -m bench.mixture_layers`."""

from __future__ import annotations

import json

import attrs
import numpy as np
import pytest

from bench import mixture_layers as layers
from iron_lm.parts.attention import Attention, AttentionConfig
from iron_lm.parts.experts import Experts, ExpertsConfig
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run

SMALL = layers.Shape(hidden=128, heads=2, head_dim=64, experts=6, chosen=2, inner=128, shared=256)


def gated(prefix, w):
    return {f"{prefix}{name}": one for name, one in zip(("gate", "up", "down"), w, strict=True)}


@pytest.mark.parametrize("renormalise", [False, True])
def test_a_layer_is_a_qwen2_moes(rng, renormalise):
    """Its attention and its feed-forward are those that the parts of the model compute, rounded weights as their own."""
    shape = attrs.evolve(SMALL, renormalise=renormalise)
    layer, x = layers.Layer(shape, 3, 1), rng.standard_normal((7, 128)).astype(np.float32)
    rounded = ("shared", "experts")
    for parts in ((), rounded):
        part = Experts(ExpertsConfig(128, 128, 6, 2, renormalise=renormalise, shared_size=256, shared_gate=True), Run(64))
        experts = [layer.expert(e, "experts" in parts) for e in range(6)]
        weights = {"router": layer.router, "opening": layer.opening, **gated("shared.", layer.rounded_shared if parts else layer.shared)}
        weights |= gated("", [np.stack(stack) for stack in zip(*experts, strict=True)])
        made, (ids, shares) = layers.mixture(x, layer, parts)
        np.testing.assert_allclose(made, part.twin(weights, x), rtol=1e-4, atol=1e-5)
        assert ids.shape == shares.shape == (7, 2) and (np.allclose(shares.sum(-1), 1) == renormalise)
    rotary = Rotary(RotaryConfig(64, 1e6), Run(64))
    part = Attention(AttentionConfig(128, 2, 2, 64, bias=True), Run(64), rotary)
    weights = {**layer.attention, **{f"{name}_bias": bias for name, bias in layer.biases.items()}}
    h = x + part.twin(weights, layers.normed(x, layer.gains["mixer"]), np.arange(7))
    want = h + layers.mixture(layers.normed(h, layer.gains["mlp"]), layer)[0]
    np.testing.assert_allclose(layers.block(x, layer)[0], want, rtol=1e-4, atol=1e-4)


def test_weights_are_spread_as_they_say(rng):
    """Products of unit size; the tails of a t distribution of 10 degrees of freedom, wider by what rows and columns have."""
    w = layers.matrix(rng, 512, 512)
    assert abs(w.std() * np.sqrt(512) - 1) < 1e-3 and 3.5 < (w**4).mean() / w.std() ** 4 < 6
    table = layers.quantiles()
    assert np.array_equal(table, -table[::-1]) and abs(table.var() - 10 / 8) < 0.01 and abs((table**4).mean() / table.var() ** 2 - 4) < 0.1


def test_an_experts_weights_do_not_depend_on_who_asks_first():
    """Nor on which other ones are asked for."""
    one, other = (layers.Layer(SMALL, 3, 1) for _ in range(2))
    other.expert(5, True)
    for mine, theirs in zip(one.expert(2, False), other.expert(2, False), strict=True):
        assert np.array_equal(mine, theirs)
    assert not np.array_equal(one.expert(2, False)[0], one.expert(3, False)[0])


def test_what_is_held_takes_the_route_of_the_weights_as_drawn():
    """Nothing rounded, nothing differs; the number of other experts is that of those that are not wanted."""
    layer = layers.Layer(SMALL, 3, 1)
    x = np.random.default_rng(0).standard_normal((9, 128)).astype(np.float32)
    made, route = layers.mixture(x, layer)
    held, same = layers.mixture(x, layer, (), route)
    assert np.array_equal(made, held) and same is route
    wanted = (np.array([[0, 1], [2, 3]]), np.zeros((2, 2)))
    assert layers.others((np.array([[1, 0], [3, 4]]), np.zeros((2, 2))), wanted) == 0.25


def test_what_is_rounded_errs_and_more_of_it_errs_more():
    """Of three layers; a model held to the other's experts chooses none itself, one of its own choice some others."""
    found = dict(layers.study(SMALL, layers=3, tokens=16))
    assert list(found) == [1, 2, 3]
    for figures in found.values():
        assert set(figures) == set(layers.WAYS)
        assert all(0.01 < one["held"] < 0.5 and one["held"] <= one["own"] * 1.05 and 0 <= one["others"] <= 1 for one in figures.values())
        assert figures["both"]["held"] > max(figures["attention"]["held"], figures["shared expert"]["held"])
        assert figures["all three"]["held"] > figures["both"]["held"]
    assert found[1]["shared expert"]["others"] == 0 and found[3]["all three"]["others"] > 0


def test_figures_are_a_table_and_json(capsys, tmp_path, monkeypatch):
    """Of the layers that are shown, and of all."""
    monkeypatch.setattr(layers, "Shape", lambda renormalise: attrs.evolve(SMALL, renormalise=renormalise))
    out = tmp_path / "figures.json"
    assert layers.main(["--layers", "5", "--tokens", "4", "--renormalise", "--json", str(out)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("5 layers of 128, 2 of 6 experts by shares that add up to 1, 4 tokens, seed 0, 0 outliers\n")
    assert len([line for line in told.splitlines() if line.startswith("all three")]) == 3
    assert sorted(json.loads(out.read_text())) == ["1", "2", "3", "4", "5"]
    with pytest.raises(SystemExit):
        layers.main(["--layers", "0"])
