"""How rounding adds up over layers: `python -m bench.layers`."""

from __future__ import annotations

import json

import numpy as np
import pytest

import iron_core as iron
from bench import layers
from iron_ops_flm import DequantBFP

SMALL = layers.Shape(hidden=128, heads=4, kv_heads=2, head_dim=32, inner=256)


def naive(shape, h, w, gains):
    """A layer, token by token and head by head, in float64."""

    def norm(x, gain):
        return x / np.sqrt((x**2).mean() + 1e-6) * gain

    def turn(x, position):
        half = len(x) // 2
        turned = (x[:half] + 1j * x[half:]) * np.exp(1j * position * 1e6 ** (-np.arange(half) / half))
        return np.concatenate([turned.real, turned.imag])

    d, each = shape.head_dim, shape.heads // shape.kv_heads
    x = [norm(row, gains["mixer"]) for row in h]
    keys, values = ([(w[name] @ row).reshape(-1, d) for row in x] for name in "kv")
    out = []
    for i, row in enumerate(x):
        mixed = []
        for head, q in enumerate((w["q"] @ row).reshape(-1, d)):
            q = turn(norm(q, gains["queries"]), i)
            group = head // each
            scores = np.array([q @ turn(norm(keys[j][group], gains["keys"]), j) for j in range(i + 1)]) / np.sqrt(d)
            shares = np.exp(scores) / np.exp(scores).sum()
            mixed.append(sum(share * values[j][group] for j, share in enumerate(shares)))
        behind = h[i] + w["o"] @ np.concatenate(mixed)
        inner = norm(behind, gains["mlp"])
        gate = w["gate"] @ inner
        out.append(behind + w["down"] @ (gate / (1 + np.exp(-gate)) * (w["up"] @ inner)))
    return np.array(out)


def test_a_block_is_qwen3s(rng):
    """Norms of heads, rotary embedding by halves, shared keys, a gated feed-forward, two residuals."""
    w, gains = layers.weights(SMALL, rng)
    w = {name: one.astype(np.float64) for name, one in w.items()}
    h = rng.standard_normal((5, 128))
    assert np.allclose(layers.block(SMALL, h, w, gains, layers.dense), naive(SMALL, h, w, gains), rtol=1e-9)


def test_weights_are_spread_as_they_say(rng):
    """Products of unit size; tails longer than normal ones."""
    w, gains = layers.weights(layers.Shape(hidden=512, inner=512), rng)
    for one in w.values():
        size = one.std() * np.sqrt(one.shape[1])
        assert abs(size - 1) < 1e-3 and 3.5 < (one**4).mean() / one.std() ** 4 < 6
    assert 0.2 < np.log(gains["mlp"]).std() < 0.4


def test_outliers_leave_the_norms_of_hidden_states(rng):
    """Ten times as large, each far from the next; weights are the same."""
    seeds = [np.random.default_rng(3) for _ in range(2)]
    (plain, gains), (same, larger) = (layers.weights(layers.Shape(hidden=128), rng, n) for rng, n in zip(seeds, (0, 3), strict=True))
    assert all(np.array_equal(plain[name], same[name]) for name in plain)
    for name in ("mixer", "mlp"):
        assert np.flatnonzero(larger[name] != gains[name]).tolist() == [0, 37, 74]
        assert np.allclose(larger[name][::37][:3], 10 * gains[name][::37][:3])


def test_a_core_that_nobody_told_rounds_everything_down(rng):
    """What it makes is never above the exact product of what it was given."""
    x, w = rng.standard_normal((4, 64)).astype(np.float32), rng.standard_normal((8, 64)).astype(np.float32)
    down, even = layers.of_blocks_down(x, w), layers.of_blocks(x, w)
    exact = layers.blocks(layers.floored(x), "floor").astype(np.float64) @ w.T
    assert (down <= exact + 1e-5).all() and np.abs(down - exact).max() < 0.1 and not np.array_equal(down, even)


def test_twice_rounded_weights_are_dequant_bfps(rng):
    """To the bit, so the study is of what the operator does."""
    x = iron.Q4NX.quantize(rng.standard_normal((64, 512)).astype(np.float32))
    prepared = layers.WAYS["q4nx, bfp16 down"].prepare(x.dequantize())
    assert np.array_equal(prepared, DequantBFP(N=64, K=512).reference(x).dequantize().T)


def test_integers_are_multiplied_exactly(rng):
    """Sums of what int8 holds, times both scales; what 5 / 127 does not reach is cut."""
    w, x = rng.standard_normal((24, 64)).astype(np.float32), 3 * rng.standard_normal((4, 64)).astype(np.float32)
    integers, scale = layers.per_tensor(w)
    assert np.abs(integers).max() == 127 and np.abs(integers * scale - w).max() <= scale * 0.501
    rows = np.abs(x).max(1, keepdims=True) / np.float32(127)
    assert np.allclose(layers.by_row(x, (integers, scale)), (np.rint(x / rows) @ integers.T) * rows * scale, rtol=1e-5)
    cut = np.clip(np.rint(x / layers.FIXED), -127, 127)
    want = (cut @ integers.T) * layers.FIXED * scale
    assert np.abs(cut).max() == 127 and np.allclose(layers.fixed(x, (integers, scale)), want, rtol=1e-5)


@pytest.fixture(scope="module")
def found():
    return layers.study(SMALL, layers=4, tokens=6)


def test_every_way_has_an_error_behind_every_layer(found):
    """float32's is its own rounding; coarser arithmetic has more, and Q4NX's four bits most of what stands behind them."""
    errors = {name: figures["errors"] for name, figures in found.items() if name != "exact"}
    assert set(errors) == set(layers.WAYS) and {len(e) for e in errors.values()} == {4}
    for e in zip(*(errors[name] for name in ("float32", "bfp16", "int8, by row", "q4nx")), strict=True):
        assert 0 < e[0] < 1e-5 and e[0] < e[1] < e[2] < e[3] < 1
    added = {name: figures["added"] for name, figures in found.items() if "added" in figures}
    assert set(added) == {name for name in layers.WAYS if name.startswith("q4nx, ")}
    assert all(0 < more < own for more, own in zip(added["q4nx, bfp16 even"], errors["q4nx"], strict=True))
    assert found["float32"]["agreed"] == 1


def test_four_bits_in_groups_are_of_some_matrices(rng, found):
    """Attention's, the others, or both, rounded to the nearest; both have more of an error than either."""
    matrices, _ = layers.weights(SMALL, rng)
    stored = layers.stored_as(("attention", "mlp", "both"), matrices)
    for kind, parts in layers.INT4_PARTS.items():
        for name, w in matrices.items():
            same = np.array_equal(stored[kind][name], w)
            assert same == (name not in parts)
            if not same:
                assert np.array_equal(stored[kind][name], layers.INT4.quantize(w).dequantize())
    errors = {name: found[f"int4, {name}"]["errors"] for name in layers.INT4_PARTS}
    assert all(both > max(one, other) > 0.01 for one, other, both in zip(*errors.values(), strict=True))


def test_some_ways_alone(monkeypatch, capsys):
    """`--ways` with their names."""
    monkeypatch.setattr(layers, "Shape", lambda: SMALL)
    assert layers.main(["--layers", "2", "--tokens", "3", "--ways", "float32", "int4, attention", "q4nx"]) == 0
    out = capsys.readouterr().out
    assert "int4, attention" in out and "int4, mlp" not in out and "bfp16" not in out
    with pytest.raises(SystemExit):
        layers.main(["--ways", "int3"])


def test_the_same_seed_gives_the_same_figures(found):
    """And another does not."""
    ways = {"float32": layers.WAYS["float32"], "q4nx": layers.WAYS["q4nx"]}
    assert layers.study(SMALL, 4, 6, ways=ways)["q4nx"]["errors"] == found["q4nx"]["errors"]
    assert layers.study(SMALL, 4, 6, seed=1, ways=ways)["q4nx"]["errors"] != found["q4nx"]["errors"]


def test_likeness_is_one_where_tokens_have_become_one():
    """And 0 where none is like another."""
    assert layers.likeness(np.tile(np.arange(1.0, 9), (3, 1))) == pytest.approx(1)
    assert layers.likeness(np.eye(4)) == 0


def test_figures_are_printed_and_written(monkeypatch, capsys, tmp_path):
    """A table, a chart with a letter for each way, and JSON."""
    monkeypatch.setattr(layers, "Shape", lambda: SMALL)
    assert layers.main(["--layers", "3", "--tokens", "4", "--json", str(tmp_path / "f.json")]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in layers.WAYS) and "likeness" in out and "against q4nx in float32" in out
    assert set(json.loads((tmp_path / "f.json").read_text())) == {*layers.WAYS, "exact"}
    picture = out[out.index(" % |") : out.index("a: bfp16")]
    assert {letter for letter in "abcdefghijkl" if letter in picture.replace("layer", "")} >= {"a", "b", "c", "k"}
    for wrong in (["--tokens", "1"], ["--layers", "0"], ["--outliers", "4"]):
        with pytest.raises(SystemExit):
            layers.main(wrong)
