"""Operators with a state, and what they take of a token, on the host: against their references at random shapes, dtypes and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.formats import bfloat16
from iron_host.backend import HostBackend
from iron_ops_aie import CausalConv1d, DeltaGates, GatedDeltaChunk, GatedDeltaStep

FLOATS = (np.dtype(np.float32), bfloat16, np.dtype(np.float16))
few = st.integers(1, 3)


def convolution(draw: Any) -> dict[str, Any]:
    return dict(channels=draw(st.integers(1, 70)), taps=draw(st.integers(2, 6)), W=draw(st.sampled_from(FLOATS)))


def delta(draw: Any) -> dict[str, Any]:
    heads = draw(few)
    return dict(
        key_heads=heads,
        value_heads=heads * draw(few),
        key_dim=draw(st.integers(1, 40)),
        value_dim=draw(st.integers(1, 70)),
        tiled=draw(st.booleans()),
    )


#: Per operator: what draws its fields.
OPERATORS: dict[Any, Any] = {
    CausalConv1d: convolution,
    GatedDeltaChunk: lambda draw: delta(draw) | dict(chunk=draw(st.integers(1, 8))),
    GatedDeltaStep: delta,
}


class One(iron.Graph):
    """An operator made already, over a state."""

    def __init__(self, op: Any) -> None:
        self.op, self.state = op, iron.state(op.shape("state"), op.format("state").dtype)


class Convolved(One):
    def body(self, x: Any, weight: Any, *, count: iron.Scratchpad[np.int32], past: iron.Scratchpad[np.int32]) -> Any:
        return self.op(x[:count], weight, self.state, past=past)[1]


class Mixed(One):
    def body(
        self, q: Any, k: Any, v: Any, g: Any, beta: Any, *, count: iron.Scratchpad[np.int32], past: iron.Scratchpad[np.int32]
    ) -> Any:
        return self.op(*(x[:count] for x in (q, k, v, g, beta)), self.state, past=past)[1]


@pytest.mark.slow
@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.__name__)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_an_operator_with_a_state_is_within_its_contract(cls, data):
    """As many rows as a call says, none too; from a state that counts, or from zeros."""
    op = cls(rows=data.draw(st.integers(1, 20)), T=data.draw(st.sampled_from(FLOATS)), **OPERATORS[cls](data.draw))
    drawn = cls.test.draw(op, np.random.default_rng(data.draw(st.integers(0, 99))))
    given_ = {name: array for name, array in drawn.items() if name != "state"}
    graph = (Convolved if cls is CausalConv1d else Mixed)(op)
    compiled = graph.compile(
        backend=HostBackend(threads=2, strict=True), **{name: (array.shape, array.dtype) for name, array in given_.items()}
    )
    for count, past in ((op.rows, 1), (data.draw(st.integers(0, op.rows)), data.draw(st.integers(0, 1)))):
        compiled.write("state", drawn["state"])
        y = compiled(*given_.values(), count=count, past=past)
        short = op.bounded(rows=count, history=past)
        read = {o.name: drawn[o.name][:count] if "rows" in o.axes(op) else drawn[o.name] for o in op.inputs}
        got = (compiled.read("state"), y)
        assert short.check(got, short.reference(*read.values()), *read.values()).compared == got[0].size + y.size


class Gated(iron.Graph):
    def __init__(self, op: Any) -> None:
        self.op = op

    def body(self, a: Any, b: Any, bias: Any, rate: Any, *, count: iron.Scratchpad[np.int32]) -> Any:
        return self.op(a[:count], b[:count], bias, rate)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_gates_of_a_state_are_within_their_contract(data):
    """As many rows as a call says, none too."""
    op = DeltaGates(rows=data.draw(st.integers(1, 20)), heads=data.draw(st.integers(1, 70)), T=data.draw(st.sampled_from(FLOATS)))
    drawn = DeltaGates.test.draw(op, np.random.default_rng(data.draw(st.integers(0, 99))))
    backend = HostBackend(threads=2, strict=True)
    compiled = Gated(op).compile(backend=backend, **{name: (array.shape, array.dtype) for name, array in drawn.items()})
    for count in (op.rows, data.draw(st.integers(0, op.rows))):
        got = compiled(*drawn.values(), count=count)
        read = [array[:count] if name in ("a", "b") else array for name, array in drawn.items()]
        short = op.bounded(rows=count)
        assert short.check(got, short.reference(*read), *read).compared == 2 * count * op.heads
