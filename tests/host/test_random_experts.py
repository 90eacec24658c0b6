"""Operators of mixtures of experts on the host: each against its reference at random shapes, formats, views and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
from iron_core.declare.formats import SUPERBLOCKS, as_format, bfloat16
from iron_core.declare.rounding import round_to
from iron_host.backend import HostBackend
from iron_ops_aie import CombineExperts, GatedExperts, Route

F32 = np.dtype(np.float32)
HOST = HostBackend(threads=2, strict=True)
RANDOM = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
#: Weights, activations, arithmetic.
STORED = (
    *((w, F32, a) for w in (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, *SUPERBLOCKS) for a in ("exact", "int8_block")),
    *((F32, F32, "exact"), (bfloat16, F32, "exact"), (bfloat16, bfloat16, "exact")),
)


#: Of the routes that no router gives evenly: whom rows choose.
ROUTES = ("one for all", "few for all", "one row apart", "even")


def routes(rng: np.random.Generator, kind: str, rows: int, k: int, experts: int) -> np.ndarray:
    """int32 (rows, k), each row's differing. "one for all": the same ones, so most experts get every row or none."""
    even = np.array([rng.permutation(experts)[:k] for _ in range(rows)], np.int32)
    same = np.broadcast_to(rng.permutation(experts)[:k].astype(np.int32), (rows, k)).copy()
    if kind == "one for all":
        return same
    if kind == "few for all":
        few = rng.permutation(experts)[: min(experts, k + 1)]
        return np.array([rng.permutation(few)[:k] for _ in range(rows)], np.int32)
    if kind == "one row apart":
        same[rng.integers(rows)] = even[0]
        return same
    return even


class Asked(iron.Graph):
    """Both operators, of ids that are given."""

    def __init__(self, stacks: dict[str, Any], arithmetic: dict[str, str]) -> None:
        self._arithmetic = arithmetic
        self.gate, self.up, self.down = (iron.weight(stacks[name]) for name in ("gate", "up", "down"))

    def body(self, x: Any, ids: Any, weights: Any) -> Any:
        made = GatedExperts(x, self.gate, self.up, ids, **self._arithmetic)
        return made, CombineExperts(made, self.down, ids, weights, **self._arithmetic)


def formula(x: np.ndarray, stacks: dict[str, np.ndarray], ids: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What experts make of each row, and its weighted sum, float64, pair by pair."""
    made = np.empty((*ids.shape, stacks["gate"].shape[1]))
    for (row, slot), e in np.ndenumerate(ids):
        gate, up = (stacks[name][e] @ x[row] for name in ("gate", "up"))
        made[row, slot] = gate / (1 + np.exp(-gate)) * up
    y = [sum(w * (stacks["down"][e] @ m) for m, e, w in zip(*one, strict=True)) for one in zip(made, ids, weights, strict=True)]
    return made, np.array(y)


@settings(RANDOM, max_examples=25)
@given(st.data())
def test_whoever_is_chosen(data):
    """By 1 to 130 rows, experts that get all of them, and none: the formula's numbers, on the reference too, and each row's bits are
    those it has alone."""
    W, T, activations = data.draw(st.sampled_from(STORED))
    packed = hasattr(W, "planes")
    unit = W.block[1] if packed else 1
    hidden, inner = (unit * data.draw(st.integers(1, 2 if packed else 40)) for _ in range(2))
    rows, experts = data.draw(st.integers(1, 130)), data.draw(st.integers(1, 9))
    k = data.draw(st.integers(1, experts))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shapes = dict(gate=(experts, inner, hidden), up=(experts, inner, hidden), down=(experts, hidden, inner))
    stacks = {name: as_format(W).drawn(rng, shape, shape[-1] ** -0.5) for name, shape in shapes.items()}
    exact = {name: np.asarray(one.dequantize() if packed else one, np.float64) for name, one in stacks.items()}
    x = round_to(rng.standard_normal((rows, hidden)).astype(np.float32), T)
    ids = routes(rng, data.draw(st.sampled_from(ROUTES)), rows, k, experts)
    weights = rng.uniform(0.1, 1, (rows, k)).astype(np.float32)
    graph = Asked(stacks, {"activations": activations} if packed else {})
    inputs = (x, ids, weights)
    given = {name: (a.shape, a.dtype) for name, a in zip(("x", "ids", "weights"), inputs, strict=True)}
    gate = 0.03 if activations == "int8_block" else 1e-4 if T == F32 else 0.02
    want = formula(x.astype(np.float64), exact, ids, weights.astype(np.float64))
    for backend in (HOST, "reference"):
        found = graph.compile(backend=backend, **given)(*inputs)
        for got, right in zip(found, want, strict=True):
            off = np.abs(np.asarray(got, np.float64).reshape(right.shape) - right).max()
            assert off <= gate * max(1.0, np.abs(right).max()), (backend, off)
        if backend is HOST:
            kept = [np.asarray(a).copy() for a in found]
    row = data.draw(st.integers(0, rows - 1))
    alone = {name: ((1, *shape[1:]), dtype) for name, (shape, dtype) in given.items()}
    for got, all_rows in zip(graph.compile(backend=HOST, **alone)(*(a[row : row + 1] for a in inputs)), kept, strict=True):
        assert np.array_equal(np.asarray(got).reshape(-1), all_rows[row].reshape(-1))


class Mixture(iron.Graph):
    """The operators one behind another, of a part of x, (parts, rows, hidden); how many rows of it is a per-call value."""

    def __init__(self, part: int, k: int, renormalise: bool, stacks: dict[str, Any], arithmetic: dict[str, str]) -> None:
        self._part, self._options = part, dict(k=k, renormalise=renormalise)
        self._arithmetic = arithmetic
        self.gate, self.up, self.down = (iron.weight(stacks[name]) for name in ("gate", "up", "down"))

    def body(self, x: Any, logits: Any, shared: Any = None, shared_gate: Any = None, *, n: iron.Scratchpad[np.int32]) -> Any:
        more = {name: given[:n] for name, given in (("shared", shared), ("shared_gate", shared_gate)) if given is not None}
        ids, weights = Route(logits[self._part, :n], **self._options)
        made = GatedExperts(x[self._part, :n], self.gate, self.up, ids, **self._arithmetic)
        return ids, weights, made, CombineExperts(made, self.down, ids, weights, **more, **self._arithmetic)


@pytest.mark.slow
@RANDOM
@given(st.data())
def test_a_mixture_is_within_its_contracts(data):
    """Of a part of larger tensors, as many rows as a call says; none at all, too."""
    W, T, activations = data.draw(st.sampled_from(STORED))
    packed = hasattr(W, "planes")
    unit = W.block[1] if packed else 1
    hidden, inner = (unit * data.draw(st.integers(1, 3 if packed else 70)) for _ in range(2))
    parts, rows, experts = (data.draw(st.integers(1, most)) for most in (2, 40, 9))
    k, part = data.draw(st.integers(1, experts)), data.draw(st.integers(0, parts - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def drawn(dtype: Any, *shape: int) -> Any:
        return as_format(dtype).drawn(rng, shape)

    shapes = dict(gate=(experts, inner, hidden), up=(experts, inner, hidden), down=(experts, hidden, inner))
    stacks = {name: drawn(W, *shape) for name, shape in shapes.items()}
    graph = Mixture(part, k, data.draw(st.booleans()), stacks, {"activations": activations} if packed else {})
    inputs = dict(x=drawn(T, parts, rows, hidden), logits=drawn(F32, parts, rows, experts))
    inputs |= data.draw(st.sampled_from(({}, dict(shared=drawn(T, rows, hidden)))))
    inputs |= dict(shared_gate=drawn(np.float32, rows, 1)) if "shared" in inputs and data.draw(st.booleans()) else {}
    compiled = graph.compile(backend=HOST, **{name: (a.shape, a.dtype) for name, a in inputs.items()})
    steps = {type(step.op): step.op for step in graph.trace(**{name: (a.shape, a.dtype) for name, a in inputs.items()}).steps}
    for n in {rows, data.draw(st.integers(0, rows))}:
        ids, weights, made, y = (np.asarray(a) for a in compiled(*inputs.values(), n=n))
        given = {name: a[part, :n] if a.ndim == 3 else a[:n] for name, a in inputs.items()}
        route, gated, combine = (steps[cls].bounded(rows=n) for cls in (Route, GatedExperts, CombineExperts))
        for got, want in zip((ids, weights), route.reference(given["logits"]), strict=True):
            assert np.array_equal(got, want)
        operands = (given["x"], stacks["gate"], stacks["up"], ids)
        gated.check((made,), (gated.reference(*operands),), *operands)
        operands = (made, stacks["down"], ids, weights, given.get("shared"), given.get("shared_gate"))
        combine.check((y,), (combine.reference(*operands),), *operands)
