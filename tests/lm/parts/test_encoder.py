"""`Encoder`, its layers, its attention in both directions and its pooling: against their twins, at every length with one compile."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.errors import DeclarationError, ParamError
from iron_lm import testing
from iron_lm.parts.attention import AttentionConfig
from iron_lm.parts.bidirectional import BidirectionalAttention
from iron_lm.parts.embedding import Embedding, EmbeddingConfig
from iron_lm.parts.encoder import Encoder
from iron_lm.parts.encoder_layer import EncoderLayer, PostNormLayer
from iron_lm.parts.layer import Layer
from iron_lm.parts.mlp import GatedMLP, GatedMLPConfig
from iron_lm.parts.norm import Norm, NormConfig
from iron_lm.parts.pooling import Pooling
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.run import Run

MOST = 24
WHOLE = Run(MOST, MOST, dtype="float32", cache_dtype="float32")
SIZES = AttentionConfig(32, 4, 2, 16)
NORM = NormConfig(32)


def layer(reach: int | None, rotary: Rotary | None, kind: Any = EncoderLayer, **norms: Any) -> EncoderLayer:
    mixer = BidirectionalAttention(attrs.evolve(SIZES, reach=reach), WHOLE, rotary)
    return kind(mixer, GatedMLP(GatedMLPConfig(32, 48), WHOLE), mixer_norm=Norm(NORM), ffn_norm=Norm(NORM), **norms)


def encoder(pooling: str | None = "mean", kind: Any = EncoderLayer, **given: Any) -> Encoder:
    rotary = Rotary(RotaryConfig(16), WHOLE)
    after = {} if kind is PostNormLayer else dict(mixer_norm_after=Norm(NORM), ffn_norm_after=Norm(NORM))
    layers = [layer(3, rotary, kind, **after), layer(None, None, kind)]
    return Encoder(WHOLE, Embedding(EmbeddingConfig(50, 32), WHOLE), layers, Norm(NORM), pooling=pooling, **given)


def ids_of(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 50, n).astype(np.int32)


def run(compiled: Any, ids: np.ndarray) -> np.ndarray:
    return np.array(compiled(np.concatenate([ids, np.full(MOST - len(ids), 49, np.int32)]), rows=len(ids)))


@pytest.mark.parametrize("kind", (EncoderLayer, PostNormLayer))
@pytest.mark.parametrize("pooling", ("mean", "cls", "last", None))
def test_it_is_its_twin_at_every_length_with_one_compile(pooling: str | None, kind: Any, backend: str) -> None:
    """The length is a value of a call; what lies behind it in the row of ids counts for nothing."""
    model = encoder(pooling, kind)
    weights = testing.drawn(model)
    model.fill(weights)
    compiled = model.compile(backend=backend, ids=((MOST,), np.int32))
    for n in (1, 2, 7, MOST - 1, MOST, 1):
        got, want = run(compiled, ids_of(n)), model.twin(weights, ids_of(n))
        assert got.shape == want.shape == ((n, 32) if pooling is None else (1, 32))
        assert np.abs(got - want).max() < 1e-5, n


def test_what_it_makes_of_each_token_is_pooled_as_its_name_says() -> None:
    """The first row, the last, the mean of all."""
    weights = testing.drawn(encoder(None))
    states = encoder(None).twin(weights, ids_of(9))
    for pooling, want in (("cls", states[0]), ("last", states[8]), ("mean", states.mean(0))):
        np.testing.assert_allclose(encoder(pooling).twin(weights, ids_of(9))[0], want, atol=1e-6)


def test_a_radius_has_both_its_ends(backend: str) -> None:
    """A query sees the key `reach` places away on either side, and none further."""
    part = BidirectionalAttention(attrs.evolve(SIZES, reach=3), WHOLE)
    part.fill(testing.drawn(part))
    compiled = part.compile(backend=backend, x=((MOST, 32), np.float32))
    x = np.random.default_rng(0).standard_normal((MOST, 32)).astype(np.float32)
    want = np.array(compiled(x, rows=MOST))[10]
    for changed, same in ((6, True), (7, False), (13, False), (14, True)):
        other = x.copy()
        other[changed] += 1
        assert np.array_equal(np.array(compiled(other, rows=MOST))[10], want) == same, changed


def test_the_twin_sees_both_sides() -> None:
    """By the places of keys and queries alone."""
    seen = BidirectionalAttention(attrs.evolve(SIZES, reach=1), WHOLE).seen(4)
    assert seen.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert BidirectionalAttention(SIZES, WHOLE).seen(3).all()


@pytest.mark.parametrize("width", (20, 64, 96))
def test_the_mean_of_any_width(width: int, backend: str) -> None:
    """Also of one that is not whole heads of 64."""
    part = Pooling("mean", width, WHOLE)
    compiled = part.compile(backend=backend, x=((MOST, width), np.float32))
    x = np.random.default_rng(1).standard_normal((MOST, width)).astype(np.float32)
    for n in (1, 5, MOST):
        np.testing.assert_allclose(np.array(compiled(x, rows=n))[0], x[:n].mean(0), atol=1e-6)


def test_what_is_no_encoder_is_refused() -> None:
    """By name, value and what would be legal."""
    embedding = Embedding(EmbeddingConfig(50, 32), WHOLE)
    with pytest.raises(ParamError, match="Encoder: pooling='max'; legal: cls, last, mean, or None"):
        Encoder(WHOLE, embedding, [], pooling="max")
    with pytest.raises(ParamError, match="prefill_chunk=8; legal: max_seq_len=24"):
        Encoder(Run(24, 8), embedding, [])
    with pytest.raises(DeclarationError, match=r"layers\[0\] is an object of class `Layer`; legal: a EncoderLayer"):
        Encoder(WHOLE, embedding, [Layer(GatedMLP(GatedMLPConfig(32, 48), WHOLE), GatedMLP(GatedMLPConfig(32, 48), WHOLE))])  # type: ignore[list-item]
