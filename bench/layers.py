"""`python -m bench.layers`: how the rounding of weights and activations adds up over the layers of a language model.

Blocks of Qwen3's form, by default of Qwen3 0.6B's shape, run in numpy on the same random weights in several arithmetics side by side.
Behind every layer the hidden states are compared with those of float64: the relative error, the L2 norm of the difference over that
of the exact states, of all tokens. What is not a product (norms, rotary embedding, softmax, residuals) is float32 in all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from iron_core import BFP16EBS8, Q4NX, bfloat16
from iron_core.declare.formats import grouped
from iron_core.declare.rounding import floored
from iron_lm.int8 import FIXED
from iron_ops_aie.elementwise.kernels_quantize import inverse, measured, rounded

LAYERS, TOKENS, SEED = 28, 32, 0
#: Degrees of freedom of the t distribution that weights are drawn from, and the spread (of the logarithm) of a row's, a column's
#: and a norm's own factor: about what SmolLM2-135M has (kurtosis 3 to 6; spreads of 0.1 to 0.5, 0.1 to 0.3, and 0.3).
FREEDOM, ROWS, COLUMNS, GAINS = 10, 0.2, 0.12, 0.3
#: Outliers among channels: how much larger, and how far apart.
OUTLYING, SPACING = 10, 37
#: Four bits with a scale and a zero point for 128 numbers of a row, as GPTQ and AWQ have it by default, here rounded to the nearest.
INT4 = grouped(4, 128, zeros=True)
ATTENTION, MLP = ("q", "k", "v", "o"), ("gate", "up", "down")
INT4_PARTS = {"attention": ATTENTION, "mlp": MLP, "both": ATTENTION + MLP}
#: Rows of the random head by which next tokens are compared.
VOCABULARY = 8192


@attrs.frozen
class Shape:
    """Sizes of a block: Qwen3 0.6B's."""

    hidden: int = 1024
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    inner: int = 3072

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the four fused projections' parts."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q": (queries, self.hidden), "k": (keys, self.hidden), "v": (keys, self.hidden), "o": (self.hidden, queries),
            "gate": (self.inner, self.hidden), "up": (self.inner, self.hidden), "down": (self.hidden, self.inner),
        }  # fmt: skip


# -- products --------------------------------------------------------------------------------------------


def narrow(x: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16."""
    return x.astype(bfloat16).astype(np.float32)


def blocks(x: np.ndarray, rounding: str = "conv_even") -> np.ndarray:
    """The numbers that bfp16ebs8 has for rows, eight by eight along them."""
    return BFP16EBS8.quantize(x, rounding).dequantize()


def dense(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x @ w.T


def of_blocks(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """As a core of AIE2P multiplies: bfloat16 activations made blocks, sums in float32, one rounding to bfloat16. w: blocks."""
    return narrow(blocks(narrow(x)) @ w.T)


def of_blocks_down(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The same by a core that nobody told how to round, so that it rounds everything down."""
    return floored(blocks(floored(x), "floor") @ w.T).astype(np.float32)


def int8(x: np.ndarray, scale: Any) -> np.ndarray:
    """The integers of `Quantize`, float64: their sums are exact."""
    return rounded(x, inverse(scale)).astype(np.float64)


def fixed(x: np.ndarray, w: tuple[np.ndarray, np.float32]) -> np.ndarray:
    """Integers times integers, activations by one scale. w: integers of a matrix and their scale."""
    integers, scale = w
    return ((int8(x, FIXED) @ integers.T) * (FIXED * scale)).astype(np.float32)


def by_row(x: np.ndarray, w: tuple[np.ndarray, np.float32]) -> np.ndarray:
    """The same, activations by their row's largest."""
    integers, scale = w
    scales = measured(x, -1)[:, None]
    return ((int8(x, scales) @ integers.T) * (scales * scale)).astype(np.float32)


def per_tensor(w: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """int8 of a matrix's largest."""
    scale = measured(w)
    return int8(w, scale), scale


@attrs.frozen
class Way:
    """An arithmetic: weights as stored, "exact", "q4nx", or those of `INT4_PARTS` in `INT4`; what is made of them; what multiplies."""

    stored: str
    prepare: Callable[[np.ndarray], Any]
    product: Callable[[np.ndarray, Any], np.ndarray]


def _same(w: np.ndarray) -> np.ndarray:
    return w


def _even(w: np.ndarray) -> np.ndarray:
    return blocks(narrow(w))


def _down(w: np.ndarray) -> np.ndarray:
    """As `flm.DequantBFP` rounds."""
    return blocks(floored(w), "floor")


#: "down" is `flm.DequantBFP`, which rounds towards minus infinity, to bfloat16 and to blocks; "even" rounds both half to even. "all
#: down": activations and products too, as a fresh core does.
WAYS = {
    "float32": Way("exact", _same, dense),
    "bfp16": Way("exact", _even, of_blocks),
    "int8, by row": Way("exact", per_tensor, by_row),
    "int8, 5/127": Way("exact", per_tensor, fixed),
    "int4, attention": Way("attention", _same, dense),
    "int4, mlp": Way("mlp", _same, dense),
    "int4, both": Way("both", _same, dense),
    "q4nx": Way("q4nx", _same, dense),
    "q4nx, bfp16 even": Way("q4nx", _even, of_blocks),
    "q4nx, bfp16 down": Way("q4nx", _down, of_blocks),
    "q4nx, bfp16 all down": Way("q4nx", _down, of_blocks_down),
    "q4nx, int8, by row": Way("q4nx", per_tensor, by_row),
    "q4nx, int8, 5/127": Way("q4nx", per_tensor, fixed),
}


# -- the model -------------------------------------------------------------------------------------------


def weights(
    shape: Shape, rng: np.random.Generator, outliers: int = 0
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A layer's matrices, float32 (rows, columns), whose products with numbers of size 1 have size 1; and its norms' gains.

    outliers: channels that leave the norms of hidden states `OUTLYING` times as large.
    """
    matrices = {}
    for name, (rows, columns) in shape.products.items():
        w = rng.standard_t(FREEDOM, (rows, columns))
        w *= np.exp(ROWS * rng.standard_normal((rows, 1))) * np.exp(COLUMNS * rng.standard_normal((1, columns)))
        matrices[name] = (w / (w.std() * np.sqrt(columns))).astype(np.float32)
    sizes = {"mixer": shape.hidden, "mlp": shape.hidden, "queries": shape.head_dim, "keys": shape.head_dim}
    gains = {name: np.exp(GAINS * rng.standard_normal(n)).astype(np.float32) for name, n in sizes.items()}
    for name in ("mixer", "mlp"):
        gains[name][: outliers * SPACING : SPACING] *= OUTLYING
    return matrices, gains


def stored_as(kinds: Iterable[str], matrices: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """By kind the numbers that a layer's matrices have as they are stored."""
    kinds = tuple(dict.fromkeys(kinds))
    found = {"exact": matrices}
    if "q4nx" in kinds:
        found["q4nx"] = {name: Q4NX.quantize(w).dequantize() for name, w in matrices.items()}
    if INT4_PARTS.keys() & set(kinds):
        rounded = {name: INT4.quantize(w).dequantize() for name, w in matrices.items()}
        found |= {kind: matrices | {name: rounded[name] for name in parts} for kind, parts in INT4_PARTS.items()}
    return found


def normed(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + x.dtype.type(1e-6)) * gain.astype(x.dtype)


def turned(x: np.ndarray) -> np.ndarray:
    """Rotary embedding of (tokens, heads, d), by halves."""
    tokens, _, d = x.shape
    angles = np.arange(tokens)[:, None] * 1e6 ** (-np.arange(0, d, 2) / d)
    cos, sin = (f(angles)[:, None].astype(x.dtype) for f in (np.cos, np.sin))
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention of (tokens, heads, d)."""
    tokens, heads, d = q.shape
    k, v = (np.repeat(x, heads // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / q.dtype.type(np.sqrt(d))
    scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", shares / shares.sum(-1, keepdims=True), v).reshape(tokens, -1)


def block(shape: Shape, h: np.ndarray, w: dict[str, Any], gains: dict[str, np.ndarray], product: Callable[..., Any]) -> np.ndarray:
    """The hidden states (tokens, hidden) behind a layer."""
    x = normed(h, gains["mixer"])
    q, k, v = (product(x, w[name]).reshape(len(x), -1, shape.head_dim) for name in "qkv")
    mixed = attention(turned(normed(q, gains["queries"])), turned(normed(k, gains["keys"])), v)
    h = h + product(mixed, w["o"])
    x = normed(h, gains["mlp"])
    gate, up = product(x, w["gate"]), product(x, w["up"])
    return h + product(gate / (1 + np.exp(-gate)) * up, w["down"])


def run(
    shape: Shape, layers: int, tokens: int, seed: int, outliers: int, ways: dict[str, Way]
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Behind every layer its number and the hidden states of every way; "exact" is float64's."""
    rng = np.random.default_rng(seed)
    first = rng.standard_normal((tokens, shape.hidden))
    states = {"exact": first, **{name: first.astype(np.float32) for name in ways}}
    for layer in range(1, layers + 1):
        matrices, gains = weights(shape, rng, outliers)
        wide = {name: w.astype(np.float64) for name, w in matrices.items()}
        states["exact"] = block(shape, states["exact"], wide, gains, dense)
        stored = stored_as((way.stored for way in ways.values()), matrices)
        for kind in dict.fromkeys((way.stored, way.prepare) for way in ways.values()):
            prepared = {part: kind[1](w) for part, w in stored[kind[0]].items()}
            for name, way in ways.items():
                if (way.stored, way.prepare) == kind:
                    states[name] = block(shape, states[name], prepared, gains, way.product)
        yield layer, states


# -- figures ---------------------------------------------------------------------------------------------


def error(states: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(states - exact) / np.linalg.norm(exact))


def likeness(states: np.ndarray) -> float:
    """Mean cosine between the states of different tokens: 1 where they have become one."""
    unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
    cosines = unit @ unit.T
    return float((cosines.sum() - len(unit)) / (len(unit) * (len(unit) - 1)))


def study(
    shape: Shape, layers: int = LAYERS, tokens: int = TOKENS, seed: int = SEED, outliers: int = 0, ways: dict[str, Way] | None = None
) -> dict[str, Any]:
    """By way: `errors` of every layer, against the exact states; of weights in Q4NX also `added`, against those that the same weights
    give in float32; behind the last layer `likeness`, and `agreed`, the share of tokens for which a random head chooses what it
    chooses for the exact states. `exact` has the likeness alone."""
    ways = WAYS if ways is None else ways
    found: dict[str, Any] = {name: {"errors": []} for name in ways}
    twice = [name for name, way in ways.items() if way.stored == "q4nx" and name != "q4nx"] if "q4nx" in ways else []
    found |= {name: {"errors": [], "added": []} for name in twice}
    states: dict[str, np.ndarray] = {}
    for _, states in run(shape, layers, tokens, seed, outliers, ways):
        for name in ways:
            found[name]["errors"].append(error(states[name], states["exact"]))
        for name in twice:
            found[name]["added"].append(error(states[name], states["q4nx"]))
    head = np.random.default_rng(seed + 1).standard_normal((VOCABULARY, shape.hidden)).astype(np.float32)
    chosen = {name: (h.astype(np.float32) @ head.T).argmax(-1) for name, h in states.items()}
    found["exact"] = {}
    for name, h in states.items():
        found[name]["likeness"] = likeness(h)
        if name in ways:
            found[name]["agreed"] = float((chosen[name] == chosen["exact"]).mean())
    return found


def table(found: dict[str, Any], layers: int) -> str:
    """Relative errors in per cent at some layers, what is left behind the last; then what an arithmetic adds to Q4NX's own errors."""
    shown = sorted({1, 2, 4, 7, 14, 21, layers} & set(range(1, layers + 1)))

    def line(name: str, errors: list[float], behind: str = "") -> str:
        return f"{name:<32}" + "".join(f"{100 * errors[n - 1]:>9.3g}" for n in shown) + behind

    head = "".join(f"{n:>9}" for n in shown)
    lines = [f"{'relative error, %, behind layer':<32}{head}{'agreed':>9}{'likeness':>10}"]
    for name, figures in found.items():
        if name != "exact":
            lines.append(line(name, figures["errors"], f"{100 * figures['agreed']:>8.0f}%{figures['likeness']:>10.3f}"))
    lines.append(f"{'float64':<32}{'':>{len(head) + 9}}{found['exact']['likeness']:>10.3f}")
    added = [line(name, figures["added"]) for name, figures in found.items() if "added" in figures]
    return "\n".join(lines + (["", f"{'against q4nx in float32, %':<32}{head}", *added] if added else []))


def chart(found: dict[str, Any], height: int = 20) -> str:
    """Errors over layers, by powers of ten: a letter for each way but float32, far below the others; of those at one place two."""
    lines = {name: figures["errors"] for name, figures in found.items() if name not in ("exact", "float32")}
    logs = {name: np.log10(errors) for name, errors in lines.items()}
    low, high = min(map(np.min, logs.values())), max(map(np.max, logs.values()))
    step = max(high - low, 1e-9) / (height - 1)
    columns = len(next(iter(lines.values())))
    rows = [[" "] * (2 * columns) for _ in range(height)]
    letters = dict(zip(logs, "abcdefghijklmnop", strict=False))
    for name, values in logs.items():
        for layer, value in enumerate(values):
            row, at = rows[round((high - value) / step)], 2 * layer
            row[at if row[at] == " " else at + 1] = letters[name]
    text = [f"{100 * 10 ** (high - i * step):8.2f} % |{''.join(row).rstrip()}" for i, row in enumerate(rows)]
    axis = [f"{'':>11}+{'-' * 2 * columns}", f"{'layer':>11} 1{columns:>{2 * columns - 2}}"]
    return "\n".join([*text, *axis, "", "  ".join(f"{letter}: {name}" for name, letter in letters.items())])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench.layers", description="How rounding adds up over the layers of a language model.")
    parser.add_argument("--layers", type=int, default=LAYERS, metavar="N", help=f"blocks ({LAYERS})")
    parser.add_argument("--tokens", type=int, default=TOKENS, metavar="N", help=f"tokens, two or more ({TOKENS})")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of the weights ({SEED})")
    parser.add_argument("--outliers", type=int, default=0, metavar="N", help=f"channels behind the norms {OUTLYING} times as large (0)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="NAME", help=f"of {'; '.join(WAYS)} (all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    options = parser.parse_args(argv)
    shape = Shape()
    most = shape.hidden // SPACING
    if options.layers < 1 or options.tokens < 2 or not 0 <= options.outliers <= most:
        parser.error(f"--layers is 1 or more, --tokens 2 or more, --outliers 0 to {most}")
    ways = {name: WAYS[name] for name in options.ways}
    found = study(shape, options.layers, options.tokens, options.seed, options.outliers, ways)
    print(f"{options.layers} layers of Qwen3 0.6B's shape, {options.tokens} tokens, seed {options.seed}, {options.outliers} outliers\n")
    print(table(found, options.layers) + "\n\n" + chart(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
