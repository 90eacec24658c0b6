"""Gemma 3: norms around every part, windows on most layers, a scaled embedding; and EmbeddingGemma, which is one of both directions."""

from __future__ import annotations

import math
from typing import Any

import attrs

from iron_core.errors import CheckpointError
from iron_lm.checkpoints import gguf_metadata, huggingface, names
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.entries import Entries
from iron_lm.checkpoints.sentence_transformers import modules
from iron_lm.checkpoints.sources import Either, Names, PlusOne, Scaled, Source
from iron_lm.decoder_config import DecoderConfig, every_nth_is_full
from iron_lm.family import Family
from iron_lm.fields import flag
from iron_lm.parts.attention import Attention
from iron_lm.parts.bidirectional import BidirectionalAttention
from iron_lm.parts.dense_layers import DenseLayers
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.encoder import Encoder
from iron_lm.parts.encoder_layer import EncoderLayer
from iron_lm.parts.head import Head
from iron_lm.parts.layer import Layer
from iron_lm.parts.mlp import GatedMLP
from iron_lm.parts.norm import Norm
from iron_lm.parts.rotary import Rotary, RotaryConfig
from iron_lm.parts.sliding_decoder import SlidingDecoder
from iron_lm.run import Run

#: Every sixth layer sees everything, where a file does not say which do.
PERIOD = 6
#: The rotary base of the layers that slide, where a GGUF does not say it.
LOCAL_BASE = 10000.0
#: A GGUF does not say how scores are scaled; the 27B, known by its layers, divides by another root than the others.
LAYERS_OF_27B = 62


@attrs.frozen(kw_only=True)
class Gemma3Config(DecoderConfig):
    """local_rotary: of the layers that slide; the others have `rotary`. scaled_table: the embedding's table has the scale of its
    rows in it already. dense: of an encoder, numbers that come out of each matrix behind its pooling.

    An encoder's layers that slide see half of `window` on either side.
    """

    local_rotary: RotaryConfig
    scaled_table: bool = attrs.field(default=False, validator=flag)
    dense: tuple[int, ...] = ()

    @property
    def vector_size(self) -> int:
        return self.dense[-1] if self.dense else self.hidden_size

    def reach(self, layer: int) -> int | None:
        if self.encodes and self.slides(layer) and self.window is not None:
            return self.window // 2
        return super().reach(layer)

    @property
    def embedding_scale(self) -> float:
        """Root of the hidden size, by which rows of the embedding are multiplied."""
        return math.sqrt(self.hidden_size)


class Gemma3(Family):
    """`iron-run gemma3`."""

    name = "gemma3"
    summary = "Gemma 3's text models, and EmbeddingGemma."
    architectures = ("gemma3", "gemma3_text")
    Config = Gemma3Config
    absent = {
        "max_position_embeddings": 131072, "num_key_value_heads": 4, "head_dim": 256, "rope_theta": 1e6,
        "rope_local_base_freq": LOCAL_BASE, "query_pre_attn_scalar": 256, "sliding_window": 4096,
        "tie_word_embeddings": True,
    }  # fmt: skip

    @classmethod
    def names(cls, kind: str, config: Gemma3Config) -> Names:
        """In a Hugging Face checkpoint norms' weights are stored less one; in a GGUF and a Q4NX file they are whole, and in the
        latter the embedding is scaled."""
        if kind == "gguf":
            return names.GGUF
        found = names.HUGGINGFACE | {"layers.{i}.ffn_norm.weight": "model.layers.{i}.pre_feedforward_layernorm.weight"}
        if kind == "q4nx":
            table = found["embedding.table"]
            return found | {"embedding.table": table if config.scaled_table else Scaled(table, config.embedding_scale)}
        sources: dict[str, Source | str] = {**found}
        if config.encodes:  # as the text model alone is saved
            sources = {path: Either(name.removeprefix("model."), name) for path, name in found.items()}
            sources |= {f"head.w{n}": f"dense.{n}.linear.weight" for n in range(len(config.dense))}
        return {path: PlusOne(source) if "norm" in path else source for path, source in sources.items()}

    @classmethod
    def build(cls, config: Gemma3Config, run: Run) -> SlidingDecoder | Encoder:
        c = config
        assert c.rotary is not None
        kind: Any
        kind, mixer = (EncoderLayer, BidirectionalAttention) if c.encodes else (Layer, Attention)
        embedding = Embedding(c.embedding(1.0 if c.scaled_table else c.embedding_scale), run)
        every, local = Rotary(c.rotary, run), Rotary(c.local_rotary, run)
        layers = [
            kind(
                mixer(c.attention(i, qk_norm=True), run, local if c.slides(i) else every),
                GatedMLP(c.mlp(), run),
                mixer_norm=Norm(c.norm()),
                mixer_norm_after=Norm(c.norm()),
                ffn_norm=Norm(c.norm()),
                ffn_norm_after=Norm(c.norm()),
            )
            for i in range(c.num_layers)
        ]
        if c.encodes:
            head = DenseLayers((c.hidden_size, *c.dense), run) if c.dense else None
            return Encoder(run, embedding, layers, Norm(c.norm()), pooling=c.pooling, head=head)
        return SlidingDecoder(run, embedding, layers, Norm(c.norm()), Head(c.head(), run, embedding if c.tied else None))

    @classmethod
    def described(cls, checkpoint: Checkpoint) -> tuple[DecoderConfig, Entries]:
        config, entries = super().described(checkpoint)
        if config.encodes:
            found = modules(checkpoint, dense=True)
            return attrs.evolve(config, pooling=found.pooling or config.pooling, dense=found.dense), entries  # type: ignore[call-arg]
        # A head that is the embedding would be scaled with it.
        return attrs.evolve(config, scaled_table=checkpoint.kind == "q4nx" and not config.tied), entries  # type: ignore[call-arg]

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> Gemma3Config:
        entries.refuse_unless("attn_logit_softcapping")  # its attention has none, though Gemma 2's has
        found = gguf_metadata.decoder(entries, tensors)
        layers, head_dim = found["num_layers"], found["head_dim"]
        queries = found["hidden_size"] / found["num_heads"] if layers == LAYERS_OF_27B else head_dim
        return Gemma3Config(
            **found
            | dict(
                activation="gelu_tanh",
                score_scale=found["score_scale"] or queries**-0.5,
                sliding=every_nth_is_full(layers, entries.whole("attention.sliding_window_pattern", PERIOD)),
                window=entries.whole("attention.sliding_window"),
                local_rotary=RotaryConfig(head_dim, entries.number("rope.freq_base_swa", LOCAL_BASE)),
            )
        )

    @classmethod
    def from_huggingface(cls, entries: Entries) -> Gemma3Config:
        entries.refuse_unless("attn_logit_softcapping")
        found = huggingface.decoder(entries, encodes=True)
        for key in ("hidden_act", "hidden_activation"):
            entries.refuse_unless(key, "gelu_pytorch_tanh")
        said = found["sliding"] or entries.has("layer_types")
        sliding = found["sliding"] if said else every_nth_is_full(found["num_layers"], PERIOD)
        return Gemma3Config(
            **found
            | dict(
                activation="gelu_tanh",
                score_scale=entries.number("query_pre_attn_scalar") ** -0.5,
                sliding=sliding,
                window=entries.whole("sliding_window") if sliding else None,
                local_rotary=_local(entries, found["head_dim"]),
                pooling="mean" if entries.flag("use_bidirectional_attention") else None,
            )
        )

    @classmethod
    def to_huggingface(cls, config: Gemma3Config) -> dict[str, Any]:
        entries = super().to_huggingface(config)
        del entries["hidden_act"]  # what the first Gemma's files have
        return entries | {
            "model_type": "gemma3_text",
            "hidden_activation": "gelu_pytorch_tanh",
            "rope_local_base_freq": config.local_rotary.base,
        }

    @classmethod
    def full_size(cls) -> Gemma3Config:
        """Gemma 3 270M: 18 layers of 640, 4 query heads and one KV head of 256, vocabulary 262144."""
        return Gemma3Config(
            name="Gemma 3 270M shape",
            vocab_size=262144,
            hidden_size=640,
            num_layers=18,
            num_heads=4,
            num_kv_heads=1,
            head_dim=256,
            intermediate_size=2048,
            max_positions=32768,
            rotary=RotaryConfig(256, 1000000.0),
            norm_epsilon=1e-6,
            activation="gelu_tanh",
            window=512,
            sliding=every_nth_is_full(18, PERIOD),
            local_rotary=RotaryConfig(256, LOCAL_BASE),
        )


def _local(entries: Entries, head_dim: int) -> RotaryConfig:
    """The rotary embedding of the layers that slide: of an object of their own, or an entry that gives its base alone."""
    nested = entries.entries.get("rope_parameters") or {}
    own = nested.get("sliding_attention") if isinstance(nested, dict) else None
    if own is None:
        return RotaryConfig(head_dim, entries.number("rope_local_base_freq"))
    found = huggingface.rotary(entries, head_dim, "sliding_attention")
    if found.scaling is not None:
        raise CheckpointError("config.json: the rotary embedding of the layers that slide is scaled; this model runs it as it is.")
    return found
