"""A decoder as one graph: a prompt chunk and a decode step over the same caches."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import iron_core as iron
from iron_core import Carried, Scratchpad
from iron_core.errors import BoundsError
from iron_ops_aie import GEMM, MHA, Copy, ElementwiseAdd, ElementwiseMul, RMSNorm, RoPE, Sample, SiLU

F32 = np.float32
V, D, H, G, HD, F, C = 40, 24, 4, 2, 8, 32, 4


def project(x, w):
    return GEMM(x, w, b_col_maj=True)


class Decoder(iron.Graph):
    """Two versions of one body: with `ids` a chunk of C prompt rows, without a step for `token`."""

    def __init__(self, layers, context):
        rng = np.random.default_rng(0)

        def w(*shape):
            return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(F32)

        self.context = context
        self.embedding = iron.weight(w(V, D) * 5)
        turn = np.arange(context)[:, None] * 100.0 ** -(np.arange(HD // 2) / (HD // 2))
        self.rope = iron.weight(np.stack([np.cos(turn), np.sin(turn)], -1).reshape(context, HD).astype(F32))
        self.layers = [
            SimpleNamespace(q=w(H * HD, D), k=w(G * HD, D), v=w(G * HD, D), o=w(D, H * HD), up=w(F, D), gate=w(F, D), down=w(D, F))
            for _ in range(layers)
        ]
        self.keys = [iron.state((context, G, HD), F32) for _ in range(layers)]
        self.values = [iron.state((context, G, HD), F32) for _ in range(layers)]
        self.draws = iron.state((context, 4), np.int32)
        self.drawn = iron.state(context, np.int32)

    def body(
        self,
        ids=None,
        *,
        token: Carried[np.int32],
        position: Carried[np.int32],
        chunk: Scratchpad[np.int32],
        rows: Scratchpad[np.int32],
    ):
        prompt = ids is not None
        n = C if prompt else 1
        if prompt:
            x = Copy(self.embedding[ids[:rows]])
            angles = Copy(self.rope.reshape(self.context // C, C, HD)[chunk, :rows])
        else:
            x = Copy(self.embedding[token]).reshape(1, D)
            angles = Copy(self.rope[position]).reshape(1, HD)
        for i, layer in enumerate(self.layers):
            h = RMSNorm(x)
            q = RoPE(project(h, layer.q).reshape(n * H, HD), angles).reshape(n, H, HD)
            k = RoPE(project(h, layer.k).reshape(n * G, HD), angles).reshape(n, G, HD)
            v = project(h, layer.v).reshape(n, G, HD)
            for new, cache in ((k, self.keys[i]), (v, self.values[i])):
                if prompt:
                    Copy(new, cache.reshape(self.context // C, C, G, HD)[chunk, :rows])
                else:
                    Copy(new.reshape(G, HD), cache[position])
            seen = position + 1
            a = MHA(q, self.keys[i][:seen], self.values[i][:seen], heads_interleaved=True, kv_interleaved=True)
            x = ElementwiseAdd(x, project(a.reshape(n, H * HD), layer.o))
            h = RMSNorm(x)
            x = ElementwiseAdd(x, project(ElementwiseMul(SiLU(project(h, layer.gate)), project(h, layer.up)), layer.down))
        if prompt:
            x = Copy(x[rows - 1]).reshape(1, D)
        logits = project(RMSNorm(x), self.embedding).reshape(V)
        _, drawn = Sample(logits, self.draws, self.drawn, row=position * 4, at=position)
        return logits, iron.carry(token=drawn, position=position + 1)


def test_a_prompt_in_chunks_gives_what_token_by_token_gives():
    """The same logits and the same next token, whatever rows the last chunk has."""
    prompt = np.random.default_rng(1).integers(0, V, 7).astype(np.int32)
    one, many = Decoder(2, 16), Decoder(2, 16)
    for position, token in enumerate(prompt):
        expected, last = one.reference(token=token, position=position, chunk=0, rows=1)
    for chunk in range(2):
        part = prompt[chunk * C : (chunk + 1) * C]
        ids = np.zeros(C, np.int32)
        ids[: part.size] = part
        got, carried = many.reference(ids, token=0, position=chunk * C + part.size - 1, chunk=chunk, rows=part.size)
    assert np.allclose(got, expected, atol=1e-4)
    assert carried == last
    for _ in range(3):
        expected, last = one.reference(token=last.token, position=last.position, chunk=0, rows=1)
        got, carried = many.reference(token=carried.token, position=carried.position, chunk=0, rows=1)
        assert np.allclose(got, expected, atol=1e-4) and carried == last


def test_the_two_versions_share_weights_and_states():
    """By the identity of their storage."""
    graph = Decoder(2, 16)
    step, chunk = graph.trace(), graph.trace(ids=((C,), np.int32))
    assert {b.key for b in step.weights} == {b.key for b in chunk.weights}
    assert {(b.name, b.key) for b in step.states} == {(b.name, b.key) for b in chunk.states}


def test_no_activation_follows_the_context():
    """Only caches, the rotary table and the draws do."""
    for shapes in ({}, {"ids": ((C,), np.int32)}):
        short, long = Decoder(2, 16).trace(**shapes), Decoder(2, 64).trace(**shapes)
        assert [b.shape for b in short.intermediates] == [b.shape for b in long.intermediates]
        assert [type(s.op) for s in short.steps] == [type(s.op) for s in long.steps]


def test_a_layer_adds_the_same_steps_each_time():
    """And as many checks as one: layers index their caches alike."""
    two, four = Decoder(2, 16).trace(), Decoder(4, 16).trace()
    assert len(four.steps) - len(two.steps) == 2 * 18
    assert four.checks == two.checks


@pytest.mark.parametrize(
    "values",
    [
        dict(position=16, chunk=0, rows=1, token=0),
        dict(position=3, chunk=0, rows=1, token=V),
        dict(position=-1, chunk=0, rows=1, token=0),
    ],
)
def test_nothing_outside_the_context_or_the_vocabulary_is_touched(values):
    """Refused before the call."""
    with pytest.raises(BoundsError):
        Decoder(1, 16).reference(**values)
