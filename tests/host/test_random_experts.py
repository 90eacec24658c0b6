"""Operators of mixtures of experts on the host: each against its reference at random shapes, formats, views and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core import Q4_0, Q4_1, Q8_0
from iron_core.declare.formats import bfloat16
from iron_core.declare.rounding import round_to
from iron_host.backend import HostBackend
from iron_ops_aie import CombineExperts, GatedExperts, Route

F32 = np.dtype(np.float32)
HOST = HostBackend(threads=2, strict=True)
RANDOM = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
#: Weights, activations, arithmetic.
STORED = (
    *((w, F32, a) for w in (Q4_0, Q4_1, Q8_0) for a in ("exact", "int8_block")),
    *((F32, F32, "exact"), (bfloat16, F32, "exact"), (bfloat16, bfloat16, "exact")),
)


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
    unit = 32 if packed else 1
    hidden, inner = (unit * data.draw(st.integers(1, 3 if packed else 70)) for _ in range(2))
    parts, rows, experts = (data.draw(st.integers(1, most)) for most in (2, 40, 9))
    k, part = data.draw(st.integers(1, experts)), data.draw(st.integers(0, parts - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def drawn(dtype: Any, *shape: int) -> Any:
        numbers = rng.standard_normal(shape).astype(np.float32)
        return dtype.quantize(numbers) if hasattr(dtype, "planes") else round_to(numbers, dtype)

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
