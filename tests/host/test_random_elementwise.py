"""Elementwise operators on the host: each against its reference at random shapes, dtypes, views and bounds."""

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
from iron_ops_aie import Quantize
from tests.catalog import OPERATORS, named

FLOATS = (np.dtype(np.float32), bfloat16, np.dtype(np.float16))
ELEMENTWISE = [cls for cls in OPERATORS if issubclass(cls, (iron.UnaryElementwise, iron.BinaryElementwise))]
small = st.floats(-4, 4, width=16)
#: What operators are given besides tensors.
FIELDS: dict[str, dict[str, Any]] = {
    "AXPY": dict(scalar_factor=small),
    "Clamp": dict(low=st.floats(-4, 0, width=16), high=st.floats(0, 4, width=16)),
    "LeakyReLU": dict(alpha=small),
    "Log": dict(offset=st.sampled_from((0.0, 1e-3, 2.0))),
    "Quantize": dict(scale=st.sampled_from((1e-3, 0.03, 1.0))),
    "Scale": dict(factor=small),
    "SoftCap": dict(cap=st.sampled_from((0.25, 1.5, 30.0))),
}


class One(iron.Graph):
    """An operator on the first numbers of one part of each input, (parts, numbers)."""

    def __init__(self, cls: Any, parts: tuple[int, ...], fields: dict[str, Any]) -> None:
        self._cls, self._parts, self._fields = cls, parts, fields

    def body(self, x: Any, other: Any = None, *, count: iron.Scratchpad[np.int32]) -> Any:
        read = (x,) if other is None else (x, other)
        return self._cls(*(tensor[part, :count] for tensor, part in zip(read, self._parts, strict=True)), **self._fields)


@pytest.mark.slow
@pytest.mark.parametrize("cls", ELEMENTWISE, ids=named)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_an_elementwise_operator_is_within_its_contract(cls, data):
    """Of parts of larger tensors, as many numbers as a call says; none at all, too."""
    draw = data.draw
    dtype, size, many = draw(st.sampled_from(FLOATS)), draw(st.integers(1, 300)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    fields = {name: draw(values) for name, values in FIELDS.get(cls.__name__, {}).items()}
    fields["T"] = dtype
    inputs = [x.reshape(many, size) for x in cls.test.draw(cls(size=many * size, **fields), rng).values()]
    parts = tuple(draw(st.integers(0, many - 1)) for _ in inputs)
    graph = One(cls, parts, fields)
    shapes = {name: (x.shape, x.dtype) for name, x in zip(("x", "other"), inputs, strict=False)}
    compiled = graph.compile(backend=HostBackend(threads=2, strict=True), **shapes)
    (step,) = graph.trace(**shapes).steps
    for count in {size, draw(st.integers(0, size))}:
        got = np.asarray(compiled(*inputs, count=count))
        short = step.op.bounded(size=count)
        read = tuple(x[part, :count] for x, part in zip(inputs, parts, strict=True))
        assert got.shape == (count,)
        assert short.check(got, short.reference(*read), *read).compared == count


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(FLOATS), st.integers(1, 300), st.integers(0, 99))
def test_a_scale_is_found(dtype, size, seed):
    """By `Quantize` without one, of all that it reads: it takes no bound."""
    x = round_to(np.random.default_rng(seed).normal(size=size) * 4.0 ** (seed % 7 - 3), dtype)
    op = Quantize(size=size, T=dtype)
    got = iron.OperatorImage(op, backend=HostBackend(strict=True))(x)
    assert op.check(got, op.reference(x), x).compared == size + 1
