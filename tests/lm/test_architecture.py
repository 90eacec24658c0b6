"""`Architecture`: a family that says nothing more is built like a Llama, and one that does replaces what differs alone."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.errors import DeclarationError
from iron_llama.model import Llama
from iron_lm import testing
from iron_lm.architecture import Architecture
from iron_lm.checkpoints import names, sources
from iron_lm.decoder_config import DecoderConfig, windowed
from iron_lm.family import Family
from iron_lm.parts.attention import Attention
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.layer import Layer
from iron_lm.parts.layer_norm import LayerNorm
from iron_lm.parts.mlp import GatedMLP
from iron_lm.parts.norm import Norm
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.parts.sliding_decoder import SlidingDecoder
from iron_lm.run import Run

CONFIG = DecoderConfig(
    vocab_size=60, hidden_size=24, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=40, max_positions=512,
    rotary=RotaryConfig(8),
)  # fmt: skip
RUN = Run(64, 16)


class Plain(Family):
    """That says nothing of its graph or its names."""

    name = "plain"


class Normed(Plain):
    """Queries and keys of every second layer are normed."""

    @classmethod
    def mixer(cls, config: Any, run: Run, i: int, rotary: Any) -> Attention:
        return Attention(config.attention(i, qk_norm=i % 2 == 1), run, rotary)


class Centred(Plain):
    """Whose norms centre."""

    @classmethod
    def norm(cls, config: Any) -> LayerNorm:
        return LayerNorm(config.layer_norm())


class Bare(Normed):
    """No norms in the first layer."""

    @classmethod
    def layer(cls, config: Any, run: Run, i: int, rotary: Any) -> Layer:
        return super().layer(config, run, i, rotary) if i else Layer(cls.mixer(config, run, i, rotary), GatedMLP(config.mlp(), run))


def test_one_that_says_nothing_is_built_like_a_llama() -> None:
    """The same tensors, under the same names in a folder and in a GGUF, and the same numbers."""
    plain, llama = (testing.tiny(family, CONFIG) for family in (Plain, Llama))
    assert list(plain.weights) == list(llama.weights)
    np.testing.assert_array_equal(plain.twin([3, 1, 2]), llama.twin([3, 1, 2]))
    for kind, table in (("safetensors", names.HUGGINGFACE), ("pytorch", names.HUGGINGFACE), ("gguf", names.GGUF)):
        assert Plain.names(kind, CONFIG) == Llama.names(kind, CONFIG) == table


@pytest.mark.parametrize("family", [Normed, Bare])
def test_a_mixer_or_a_layer_of_its_own_stands_where_the_family_says(family: Any) -> None:
    """By its number; the rest stays, and the model passes its checks."""
    loaded = testing.tiny(family, CONFIG)
    plain, own = ({*testing.tiny(each, CONFIG).weights} for each in (Plain, family))
    assert own - plain == {f"layers.1.mixer.{x}_norm.weight" for x in "qk"}
    assert plain - own == ({f"layers.0.{x}_norm.weight" for x in ("mixer", "ffn")} if family is Bare else set())
    for report in testing.check_model(loaded, backend="reference"):
        assert report.passed, report.lines()


def test_a_norm_of_another_kind_stands_in_every_place() -> None:
    """What the family calls its norm is before each part of a layer and last; the tables name its biases; the checks pass."""
    loaded = testing.tiny(Centred, CONFIG)
    biases = {*loaded.weights} - {*testing.tiny(Plain, CONFIG).weights}
    assert biases == {f"layers.{i}.{x}_norm.bias" for i in range(3) for x in ("mixer", "ffn")} | {"norm.bias"}
    of = {kind: {sources.source_of(Centred.names(kind, CONFIG), path).names[0] for path in biases} for kind in ("safetensors", "gguf")}
    assert {"model.norm.bias", "model.layers.2.input_layernorm.bias", "model.layers.0.post_attention_layernorm.bias"} < of["safetensors"]
    assert {"output_norm.bias", "blk.2.attn_norm.bias", "blk.0.ffn_norm.bias"} < of["gguf"]
    for report in testing.check_model(loaded, backend="reference"):
        assert report.passed, report.lines()


def test_all_layers_are_given_one_rotary_embedding() -> None:
    """So its angles are computed once; none where the config has none, and then nothing turns."""
    turning = Plain.build(CONFIG, RUN)
    assert len({id(layer.rotary) for layer in turning.layers}) == 1 and turning.layers[0].rotary.config is CONFIG.rotary
    still = Plain.build(attrs.evolve(CONFIG, rotary=None), RUN)
    assert [layer.rotary for layer in still.layers] == [None] * 3


def test_caches_slide_where_a_layer_does() -> None:
    """Whatever the family; else the decoder is the plain one."""
    for family in (Plain, Normed, Bare):
        kinds = [type(family.build(attrs.evolve(CONFIG, window=window, sliding=sliding), RUN)) for window, sliding in (
            (None, ()), (9, (False,) * 3), (9, (False, True, False)),
        )]  # fmt: skip
        assert kinds == [Decoder, Decoder, SlidingDecoder]


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_is_the_embeddings_where_the_config_ties_them(tied: bool) -> None:
    """One table, or a matrix more."""
    model = Plain.build(attrs.evolve(CONFIG, tied=tied), RUN)
    assert ("head.matrix" in model.tensors()) is not tied and isinstance(model.norm, Norm)


def test_a_window_on_every_layer_or_on_none() -> None:
    """As `windowed` gives the keywords, and a config takes them."""
    found = {field.name: getattr(CONFIG, field.name) for field in attrs.fields(DecoderConfig)}
    slid, whole = (DecoderConfig(**windowed(found, window)) for window in (9, None))
    assert (slid.window, slid.sliding) == (9, (True,) * 3) and attrs.evolve(slid, window=None, sliding=()) == whole == CONFIG


def test_what_a_family_must_say_is_named() -> None:
    """By the class."""
    with pytest.raises(DeclarationError, match=r"^Plain defines no full_size\(\)\.$"):
        Plain.full_size()
    assert issubclass(Plain, Architecture)
