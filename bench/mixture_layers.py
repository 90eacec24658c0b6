"""`python -m bench.mixture_layers`: what 4 bits for parts of a mixture of experts cost, layer by layer.

Layers of Qwen2-MoE's form, half as wide as Qwen1.5-MoE-A2.7B and as many as the deepest of these models has, run in numpy, in float32,
on the same random weights: as drawn, and with attention, the shared expert, the experts in 4 bits. Behind every layer the hidden states are
compared with those of the weights as drawn: the root of the mean square of the difference over that of the states. The rounded models
choose experts by themselves, or are held to what the model as drawn chose, and to its shares; so what the rounding does and what it makes
routers do stand apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from bench.layers import COLUMNS, FREEDOM, GAINS, INT4, OUTLYING, ROWS, SPACING, attention, error, normed, turned

LAYERS, TOKENS, SEED = 48, 32, 0
#: Layers that are printed.
SHOWN = (1, 4, 8, 16, 24, 32, 48)
#: How large the biases of queries, keys and values are, beside products of size 1.
BIASES = 0.5
#: What is rounded, by name.
WAYS = {
    "shared expert": ("shared",),
    "attention": ("attention",),
    "both": ("shared", "attention"),
    "experts": ("experts",),
    "all three": ("shared", "attention", "experts"),
}
#: Quantiles of the t distribution that weights are taken from, and numbers drawn to find each.
_QUANTILES, _DRAWN = 1 << 16, 16

Route = tuple[np.ndarray, np.ndarray]
MLP = tuple[np.ndarray, np.ndarray, np.ndarray]


@attrs.frozen
class Shape:
    """Sizes of a layer. renormalise: are the chosen experts' shares made to add up to 1, as Qwen3-MoE's are?"""

    hidden: int = 1024
    heads: int = 8
    head_dim: int = 128
    experts: int = 60
    chosen: int = 4
    inner: int = 768
    shared: int = 2816
    renormalise: bool = False


# -- weights ---------------------------------------------------------------------------------------------


@cache
def quantiles() -> np.ndarray:
    """float32: of the t distribution with `FREEDOM` degrees of freedom, from the lowest to the highest, those of plus and minus alike."""
    drawn = np.sort(np.random.default_rng(0).standard_t(FREEDOM, _QUANTILES * _DRAWN))
    table = drawn[_DRAWN // 2 :: _DRAWN]
    return ((table - table[::-1]) / 2).astype(np.float32)


def matrix(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """As `layers.weights` draws one: long tails, rows and columns of factors of their own, products with numbers of size 1 of size 1."""
    w = quantiles()[rng.integers(0, _QUANTILES, (rows, columns), np.uint16)]
    w *= np.exp(ROWS * rng.standard_normal((rows, 1))).astype(np.float32)
    w *= np.exp(COLUMNS * rng.standard_normal((1, columns))).astype(np.float32)
    return w / (w.std() * np.float32(np.sqrt(columns)))


def four_bits(w: np.ndarray) -> np.ndarray:
    return INT4.quantize(w).dequantize()


def _mlp(rng: np.random.Generator, hidden: int, inner: int) -> MLP:
    return matrix(rng, inner, hidden), matrix(rng, inner, hidden), matrix(rng, hidden, inner)


class Layer:
    """A layer's weights as drawn and in 4 bits; an expert's are drawn when it is first chosen, from a stream of its own."""

    def __init__(self, shape: Shape, seed: int, number: int, outliers: int = 0) -> None:
        self.shape, self._stream = shape, (seed, number)
        rng, width = np.random.default_rng(self._stream), shape.heads * shape.head_dim
        self.attention = {name: matrix(rng, width, shape.hidden) for name in "qkv"} | {"o": matrix(rng, shape.hidden, width)}
        self.biases = {name: (BIASES * rng.standard_normal(width)).astype(np.float32) for name in "qkv"}
        self.router, self.opening = matrix(rng, shape.experts, shape.hidden), matrix(rng, 1, shape.hidden)
        self.shared = _mlp(rng, shape.hidden, shape.shared)
        self.gains = {name: np.exp(GAINS * rng.standard_normal(shape.hidden)).astype(np.float32) for name in ("mixer", "mlp")}
        for gain in self.gains.values():
            gain[: outliers * SPACING : SPACING] *= OUTLYING
        self.rounded_attention = {name: four_bits(w) for name, w in self.attention.items()}
        self.rounded_shared = tuple(map(four_bits, self.shared))
        self._experts: dict[tuple[int, bool], Any] = {}

    def expert(self, e: int, rounded: bool) -> MLP:
        if (e, rounded) not in self._experts:
            rng = np.random.default_rng((*self._stream, e))
            found = tuple(map(four_bits, self.expert(e, False))) if rounded else _mlp(rng, self.shape.hidden, self.shape.inner)
            self._experts[e, rounded] = found
        return self._experts[e, rounded]  # type: ignore[no-any-return]


# -- the model -------------------------------------------------------------------------------------------


def gated(x: np.ndarray, w: Any) -> np.ndarray:
    """down(silu(gate x) * up x)."""
    gate = x @ w[0].T
    return np.asarray((gate / (1 + np.exp(-gate)) * (x @ w[1].T)) @ w[2].T)


def routed(x: np.ndarray, layer: Layer) -> Route:
    """Ids of the experts that each row chooses, the largest share first, and their shares."""
    logits = x @ layer.router.T
    ids = np.argsort(-logits, -1, kind="stable")[:, : layer.shape.chosen]
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares = np.take_along_axis(shares / shares.sum(-1, keepdims=True), ids, -1)
    return ids, shares / shares.sum(-1, keepdims=True) if layer.shape.renormalise else shares


def mixture(x: np.ndarray, layer: Layer, parts: tuple[str, ...] = (), route: Route | None = None) -> tuple[np.ndarray, Route]:
    """What the feed-forward makes of x, `parts` in 4 bits, and the route that it took: its own, or the one it is held to."""
    ids, shares = route = routed(x, layer) if route is None else route
    out = gated(x, layer.rounded_shared if "shared" in parts else layer.shared) / (1 + np.exp(-(x @ layer.opening.T)))
    for e in np.unique(ids).tolist():
        rows, slots = np.nonzero(ids == e)
        out[rows] += shares[rows, slots, None] * gated(x[rows], layer.expert(e, "experts" in parts))
    return out, route


def block(h: np.ndarray, layer: Layer, parts: tuple[str, ...] = (), route: Route | None = None) -> tuple[np.ndarray, Route]:
    """The hidden states (tokens, hidden) behind a layer, and its route."""
    w = layer.rounded_attention if "attention" in parts else layer.attention
    x = normed(h, layer.gains["mixer"])
    q, k, v = ((x @ w[name].T + layer.biases[name]).reshape(len(x), -1, layer.shape.head_dim) for name in "qkv")
    h = h + attention(turned(q), turned(k), v) @ w["o"].T
    made, route = mixture(normed(h, layer.gains["mlp"]), layer, parts, route)
    return h + made, route


# -- figures ---------------------------------------------------------------------------------------------


def others(route: Route, wanted: Route) -> float:
    """The share of chosen experts that are none of those wanted for the same row."""
    found = [len(np.setdiff1d(mine, theirs)) for mine, theirs in zip(route[0], wanted[0], strict=True)]
    return sum(found) / wanted[0].size


def study(
    shape: Shape, layers: int = LAYERS, tokens: int = TOKENS, seed: int = SEED, outliers: int = 0
) -> Iterator[tuple[int, dict[str, dict[str, float]]]]:
    """Behind every layer its number and by way, errors where experts are its own choice (`own`), where they are `held`, and the share of
    `others` that it chose itself."""
    first = np.random.default_rng(seed).standard_normal((tokens, shape.hidden)).astype(np.float32)
    exact, states = first, {(name, held): first for name in WAYS for held in (False, True)}
    for number in range(1, layers + 1):
        layer = Layer(shape, seed, number, outliers)
        exact, wanted = block(exact, layer)
        found: dict[str, dict[str, float]] = {}
        for name, parts in WAYS.items():
            states[name, True], _ = block(states[name, True], layer, parts, wanted)
            states[name, False], route = block(states[name, False], layer, parts)
            found[name] = {key: error(states[name, held], exact) for key, held in (("own", False), ("held", True))}
            found[name]["others"] = others(route, wanted)
        yield number, found


def table(found: dict[int, dict[str, dict[str, float]]]) -> str:
    """Per cent, behind some layers."""
    shown = [number for number in found if number in SHOWN or number == max(found)]

    def lines(title: str, key: str) -> list[str]:
        rows = [f"{name:<32}" + "".join(f"{100 * found[n][name][key]:>8.3g}" for n in shown) for name in WAYS]
        return [f"{title:<32}" + "".join(f"{n:>8}" for n in shown), *rows, ""]

    return "\n".join(
        lines("error, experts held, %, behind", "held")
        + lines("error, experts its own choice, %", "own")
        + lines("other experts than float32's, %", "others")
    ).rstrip()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench.mixture_layers", description="What 4 bits for parts of a mixture cost, by layer.")
    parser.add_argument("--layers", type=int, default=LAYERS, metavar="N", help=f"layers ({LAYERS})")
    parser.add_argument("--tokens", type=int, default=TOKENS, metavar="N", help=f"tokens ({TOKENS})")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of the weights ({SEED})")
    parser.add_argument("--outliers", type=int, default=0, metavar="N", help=f"channels behind the norms {OUTLYING} times as large (0)")
    parser.add_argument("--renormalise", action="store_true", help="shares of the chosen experts add up to 1, as Qwen3-MoE's do")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, of every layer")
    options = parser.parse_args(argv)
    shape = Shape(renormalise=options.renormalise)
    most = shape.hidden // SPACING
    if options.layers < 1 or options.tokens < 1 or not 0 <= options.outliers <= most:
        parser.error(f"--layers is 1 or more, --tokens 1 or more, --outliers 0 to {most}")
    found = dict(study(shape, options.layers, options.tokens, options.seed, options.outliers))
    shares = "that add up to 1" if shape.renormalise else "of a softmax over all"
    sizes = f"{options.layers} layers of {shape.hidden}, {shape.chosen} of {shape.experts} experts by shares {shares}"
    print(f"{sizes}, {options.tokens} tokens, seed {options.seed}, {options.outliers} outliers\n")
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
