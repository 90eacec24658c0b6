"""Operators on rows, on the host: each against its reference at random shapes, dtypes, views and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.formats import bfloat16
from iron_core.declare.rounding import round_to
from iron_host.backend import HostBackend
from iron_ops_aie import L2Norm, LayerNorm, Limbs, Magnitude, QuantizeRows, RMSNorm, RoPE, RowwiseAdd, RowwiseMul, Softmax

F32 = np.dtype(np.float32)
FLOATS = (F32, bfloat16, np.dtype(np.float16))
#: Per operator: dtypes of x, what cols are a multiple of, the vectors it may take and those it needs, its fields.
OPERATORS: dict[Any, dict[str, Any]] = {
    L2Norm: dict(fields=dict(epsilon=st.sampled_from((1e-6, 0.25)))),
    LayerNorm: dict(vectors=("weight", "bias"), fields=dict(epsilon=st.sampled_from((1e-5, 0.25)))),
    Limbs: dict(dtypes=(F32,)),
    Magnitude: dict(dtypes=(F32,), unit=2),
    QuantizeRows: {},
    RMSNorm: dict(vectors=("weight",), fields=dict(epsilon=st.sampled_from((1e-6, 0.25)))),
    RoPE: dict(unit=2, fields=dict(method_type=st.integers(0, 1))),
    RowwiseAdd: dict(needs=("vector",)),
    RowwiseMul: dict(needs=("vector",)),
    Softmax: {},
}


class One(iron.Graph):
    """An operator on one part of x, (parts, rows, cols); how many rows of it is a per-call value."""

    def __init__(self, cls: Any, part: int, per: int, vectors: dict[str, Any], options: dict[str, Any]) -> None:
        self._cls, self._part, self._per, self._options = cls, part, per, options
        self.vectors = {name: iron.weight(vector) for name, vector in vectors.items()}

    def body(self, x: Any, angles: Any = None, *, count: iron.Scratchpad[np.int32]) -> Any:
        options, more = {**self.vectors, **self._options}, [] if angles is None else [angles[:count]]
        if "vector" in options:
            more.append(options.pop("vector"))
        return self._cls(x[self._part, : self._per * count], *more, **options)


@pytest.mark.slow
@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.__name__)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_an_operator_on_rows_is_within_its_contract(cls, data):
    """Of a part of a larger tensor, as many rows as a call says; none at all, too."""
    what = OPERATORS[cls]
    dtype, other = data.draw(st.sampled_from(what.get("dtypes", FLOATS))), data.draw(st.sampled_from(FLOATS))
    parts, positions, per = (data.draw(st.integers(1, most)) for most in (3, 5, 3 if cls is RoPE else 1))
    cols = what.get("unit", 1) * data.draw(st.integers(1, 70))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def drawn(dtype: Any, *shape: int) -> Any:
        return round_to(rng.uniform(-4, 4, shape), dtype)

    part = data.draw(st.integers(0, parts - 1))
    vectors = {name: drawn(other, cols) for name in what.get("vectors", ()) if data.draw(st.booleans())}
    vectors |= {name: drawn(dtype, cols) for name in what.get("needs", ())}
    graph = One(cls, part, per, vectors, {name: data.draw(values) for name, values in what.get("fields", {}).items()})
    inputs = [drawn(dtype, parts, positions * per, cols), *([drawn(other, positions, cols)] if cls is RoPE else ())]
    shapes = dict(zip(("x", "angles"), ((one.shape, one.dtype) for one in inputs), strict=False))
    compiled = graph.compile(backend=HostBackend(threads=2, strict=True), **shapes)
    (step,) = graph.trace(**shapes).steps
    for count in {positions, data.draw(st.integers(0, positions))}:
        outputs = compiled(*inputs, count=count)
        short = step.op.bounded(rows=count * per, **({"angle_rows": count} if cls is RoPE else {}))
        read = dict(x=inputs[0][part, : count * per], angles=inputs[-1][:count], **vectors)
        operands = tuple(read.get(operand.name) for operand in cls.inputs)
        got = [np.asarray(output) for output in (outputs if isinstance(outputs, tuple) else (outputs,))]
        assert [y.shape for y in got] == [short.shape(operand.name) for operand in cls.outputs]
        expected = short.reference(*operands)
        given = (tuple(got), expected) if isinstance(expected, tuple) else (got[0], expected)
        assert short.check(*given, *operands).compared == sum(y.size for y in got)
