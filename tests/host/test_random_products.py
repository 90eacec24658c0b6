"""Products and attention on the host: each against its reference at random shapes, dtypes, layouts, views and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import iron_core as iron
from iron_core.declare.formats import (
    Q4_0,
    Q4_1,
    Q4NX,
    Q4NX_Q8,
    Q4NX_SIGNED,
    Q5_0,
    Q5_1,
    Q8_0,
    SUPERBLOCKS,
    PackedArray,
    as_format,
    bfloat16,
    grouped,
)
from iron_core.declare.formats.bfp16 import ROUNDINGS
from iron_host.backend import HostBackend
from iron_ops_aie import GEMM, GEMV, MHA
from iron_ops_flm import GEMM as FlmGEMM
from iron_ops_flm.epilogue import GELUS, Epilogue

FLOATS = (np.dtype(np.float32), bfloat16, np.dtype(np.float16))
CHUNKS = (Q4NX, Q4NX_SIGNED, Q4NX_Q8)
BLOCKS = (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, *SUPERBLOCKS, *CHUNKS, grouped(4, 64), grouped(4, 128, np.float32, zeros=True))
MANY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


class One(iron.Graph):
    """An operator that reads one of two parts of every dense input, cut to the numbers that a call gives for `members`."""

    def __init__(self, op: Any, parts: dict[str, int], packed: dict[str, Any], members: tuple[str, ...]) -> None:
        self._op, self._parts, self._members = op, parts, members
        self.packed = {name: iron.weight(tensor) for name, tensor in packed.items()}

    def body(
        self, a: Any, b: Any = None, c: Any = None, d: Any = None, *, m: iron.Scratchpad[np.int32], n: iron.Scratchpad[np.int32]
    ) -> Any:
        op, given, read, named = self._op, iter((a, b, c, d)), [], {}
        limits = op.limits(dict(zip(self._members, (m, n), strict=False)))
        for operand in op.inputs:
            if operand.name in self.packed:
                read.append(self.packed[operand.name])
            elif operand.present(op):
                view = cut(op, operand, next(given)[self._parts[operand.name]], limits)
                if operand.when is None:
                    read.append(view)
                else:
                    named[operand.name] = view
        fields = {name: getattr(op, name) for name in op.fields if name not in op.autos() and name not in limits}
        return type(op)(*read, **named, **fields)


def cut(op: Any, operand: Any, tensor: Any, limits: dict[str, Any]) -> Any:
    """The part of an operand's tensor that is within a call's limits, by field."""
    return tensor[tuple(slice(limits.get(axis)) for axis in operand.axes(op))]


def within(op: Any, data: Any, bounded: tuple[str, ...]) -> None:
    """The host's answer, whole and under bounds, is as near to the exact one as the contract asks."""
    draw, rng = data.draw, np.random.default_rng(data.draw(st.integers(0, 99)))
    both = [op.test.draw(op, rng) for _ in range(2)]
    packed = {name: tensor for name, tensor in both[0].items() if isinstance(tensor, PackedArray)}
    parts = {name: draw(st.integers(0, 1)) for name in both[0] if name not in packed}
    inputs = {name: np.stack([each[name] for each in both]) for name in parts}
    shapes = {letter: (x.shape, x.dtype) for letter, x in zip("abcd", inputs.values(), strict=False)}
    graph = One(op, parts, packed, bounded)
    compiled = graph.compile(backend=HostBackend(threads=2, strict=True), **shapes)
    most = [getattr(op, op.extents[member].field) for member in bounded]
    for numbers in (most, [draw(st.integers(0, n)) for n in most]):
        called = dict(zip(bounded, numbers, strict=True))
        m, n = [*numbers, 0, 0][:2]
        made = np.asarray(compiled(*inputs.values(), m=m, n=n))
        limits = op.limits(called)
        short = op.bounded(**limits)
        read = tuple(
            packed[o.name] if o.name in packed else cut(op, o, inputs[o.name][parts[o.name]], limits) if o.name in parts else None
            for o in op.inputs
        )
        exact = short.reference(*read)
        got = made.reshape(short.shape(op.outputs[0].name))  # a graph keeps a batch of one as an axis
        assert short.check(got, exact, *read).compared == got.size


def formats(draw: Any) -> dict[str, Any]:
    """The dtypes of a product, its K, and its arithmetic."""
    T = draw(st.sampled_from(FLOATS))
    if draw(st.booleans()):
        return dict(T=T, W=draw(st.sampled_from(FLOATS)), K=draw(st.integers(1, 70)))
    how = draw(st.sampled_from(("exact", "int8_block")))
    W = draw(st.sampled_from(BLOCKS))
    return dict(T=T, W=W, K=(W.padded or W.block[1]) * draw(st.integers(1, 4)), activations=how)


def outputs(draw: Any, fields: dict[str, Any]) -> int:
    """Rows of a product's weights: whole blocks of them."""
    rows = as_format(fields["W"]).block[0] if "activations" in fields else 1
    return rows * draw(st.integers(1, 40 if rows == 1 else 3))


@pytest.mark.slow
@MANY
@given(st.data())
def test_a_product_of_matrices(data):
    """In both layouts of B and of C, rows and depth bounded."""
    draw, fields = data.draw, formats(data.draw)
    packed = "activations" in fields
    layout = dict(b_col_maj=packed or draw(st.booleans()), c_col_maj=draw(st.booleans()))
    op = GEMM(M=draw(st.integers(1, 20)), N=outputs(draw, fields), **layout, **fields)
    within(op, data, ("valid",) if packed else draw(st.sampled_from(((), ("valid",), ("valid_k",), ("valid", "valid_k")))))


@pytest.mark.slow
@MANY
@given(st.data())
def test_a_product_with_an_epilogue(data):
    """B as stored at any shape, and packed in both orders; every activation, rounding and clamp; rows bounded."""
    draw = data.draw
    b_col_maj, tile_n = draw(st.booleans()), draw(st.sampled_from((16, 32, 128)))
    share = {16: 16, 32: 32, 128: 32}[tile_n]
    k_tile = share * draw(st.integers(1, 3))
    how = dict(b_col_maj=True) if b_col_maj else dict(packed_blocks=draw(st.booleans()), tile_n=tile_n, k_tile=k_tile)
    op = FlmGEMM(
        M=draw(st.integers(1, 20)),
        K=draw(st.integers(1, 70)) if b_col_maj else k_tile * draw(st.integers(1, 3)),
        N=draw(st.integers(1, 40)) if b_col_maj else tile_n * draw(st.integers(1, 2)),
        epilogue=draw(st.sampled_from(Epilogue)),
        clamp=draw(st.sampled_from((None, (-0.3, 0.7), (0.1, float("inf"))))),
        rounding=draw(st.sampled_from(ROUNDINGS)),
        gelu=draw(st.sampled_from(GELUS)),
        **how,
    )
    within(op, data, draw(st.sampled_from(((), ("valid",)))))


@pytest.mark.slow
@MANY
@given(st.data())
def test_a_product_with_a_vector(data):
    """Of several matrices, each with several vectors; of one its rows bounded."""
    draw = data.draw
    matrices, repeat = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    fields = formats(draw)
    op = GEMV(M=outputs(draw, fields), num_batches=matrices * repeat, repeat=repeat, **fields)
    within(op, data, draw(st.sampled_from(((), ("valid",)))) if op.num_batches == 1 and "activations" not in fields else ())


@pytest.mark.slow
@MANY
@given(st.data())
def test_attention(data):
    """Heads that share keys, in both layouts; a window, a cap, a bias; queries and keys bounded."""
    draw = data.draw
    heads, group, queries = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 20))
    op = MHA(
        num_heads=heads * group,
        num_KV_heads=heads,
        seq_len=queries,
        kv_len=queries + draw(st.integers(0, 40)),
        d=draw(st.sampled_from((1, 7, 16, 40))),
        T=draw(st.sampled_from(FLOATS)),
        C=draw(st.sampled_from(FLOATS)),
        causal=draw(st.booleans()),
        window=draw(st.sampled_from((None, 1, 9))),
        soft_cap=draw(st.sampled_from((None, 0.5, 30.0))),
        biased=draw(st.booleans()),
        heads_interleaved=draw(st.booleans()),
        kv_interleaved=draw(st.booleans()),
    )
    within(op, data, draw(st.sampled_from(((), ("valid",), ("kv_valid",), ("valid", "kv_valid")))))
