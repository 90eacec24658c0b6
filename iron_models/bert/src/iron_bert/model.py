"""BERT: attention in both directions, norms of sums, learned places, biases everywhere."""

from __future__ import annotations

from typing import Any

import attrs

from iron_bert.places import Places
from iron_core.errors import CheckpointError
from iron_lm.checkpoints import names
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.entries import MOST_LAYERS, Entries
from iron_lm.checkpoints.sentence_transformers import modules
from iron_lm.checkpoints.sources import Either, Names
from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.fields import counted
from iron_lm.parts.bidirectional import BidirectionalAttention
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.encoder import Encoder
from iron_lm.parts.encoder_layer import PostNormLayer
from iron_lm.parts.layer_norm import LayerNorm
from iron_lm.parts.mlp import MLP, MLPConfig
from iron_lm.run import Run

#: By path within the model, what transformers calls it; in models with a task's head there is `bert.` before it.
TABLES = {
    "embedding.table": "embeddings.word_embeddings.weight",
    "positions.table": "embeddings.position_embeddings.weight",
    "positions.types": "embeddings.token_type_embeddings.weight",
}
NORMS = {
    "positions.norm": "embeddings.LayerNorm",
    "layers.{i}.mixer_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "layers.{i}.ffn_norm": "encoder.layer.{i}.output.LayerNorm",
}
MATRICES = {
    "layers.{i}.mixer.q": "encoder.layer.{i}.attention.self.query",
    "layers.{i}.mixer.k": "encoder.layer.{i}.attention.self.key",
    "layers.{i}.mixer.v": "encoder.layer.{i}.attention.self.value",
    "layers.{i}.mixer.o": "encoder.layer.{i}.attention.output.dense",
    "layers.{i}.ffn.up": "encoder.layer.{i}.intermediate.dense",
    "layers.{i}.ffn.down": "encoder.layer.{i}.output.dense",
}
#: What norms' tensors were called by the first files.
_OLD = {"weight": "gamma", "bias": "beta"}
#: Names of activations in config.json, and in `parts.mlp`.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


@attrs.frozen(kw_only=True)
class BERTConfig(DecoderConfig):
    """types: of tokens, of which a text has the first."""

    types: int = attrs.field(default=2, validator=counted)


class BERT(Family):
    """`iron-run bert`."""

    name = "bert"
    summary = "BERT and MiniLM, encoders of texts."
    architectures = ("bert",)
    Config = BERTConfig
    absent = {
        "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "vocab_size": 30522,
    }  # fmt: skip
    #: Heads of tasks: BERT's own pooler of the first token, and what models were trained with.
    ignored = names.IGNORED | dict.fromkeys(
        ("safetensors", "pytorch"), (*names.BUFFERS, "embeddings.position_ids", "pooler.", "bert.pooler.", "cls.", "classifier.")
    )

    @classmethod
    def names(cls, kind: str, config: Any) -> Names:
        found = {path: _either(name) for path, name in TABLES.items()}
        for path, name in NORMS.items():
            found |= {f"{path}.{end}": _either(f"{name}.{end}", f"{name}.{_OLD[end]}") for end in ("weight", "bias")}
        found |= {path: _either(f"{name}.weight") for path, name in MATRICES.items()}
        found |= {f"{path}_bias": _either(f"{name}.bias") for path, name in MATRICES.items()}
        return found

    @classmethod
    def build(cls, config: BERTConfig, run: Run) -> Encoder:
        c = config
        mlp = MLPConfig(c.hidden_size, c.intermediate_size, c.activation, bias=True)
        layers = [
            PostNormLayer(
                BidirectionalAttention(c.attention(i, bias=True, output_bias=True), run),
                MLP(mlp, run),
                mixer_norm=LayerNorm(c.layer_norm()),
                ffn_norm=LayerNorm(c.layer_norm()),
            )
            for i in range(c.num_layers)
        ]
        places = Places(c.max_positions, c.types, c.layer_norm(), run)
        return Encoder(run, Embedding(c.embedding(), run), layers, positions=places, pooling=c.pooling)

    @classmethod
    def described(cls, checkpoint: Checkpoint) -> tuple[DecoderConfig, Entries]:
        config, entries = super().described(checkpoint)
        return attrs.evolve(config, pooling=modules(checkpoint).pooling or config.pooling), entries

    @classmethod
    def from_huggingface(cls, entries: Entries) -> BERTConfig:
        entries.refuse_unless("hidden_act", *ACTIVATIONS)
        entries.refuse_unless("position_embedding_type", "absolute")
        for key in ("is_decoder", "add_cross_attention"):
            entries.refuse_unless(key, False)
        entries.keys |= {"num_heads": "num_attention_heads", "max_positions": "max_position_embeddings", "types": "type_vocab_size"}
        width, heads = entries.whole("hidden_size"), entries.whole("num_attention_heads")
        if width % heads:
            raise CheckpointError(f"config.json: num_attention_heads is {heads}; legal: a number that divides hidden_size={width}.")
        return BERTConfig(
            vocab_size=entries.whole("vocab_size"),
            hidden_size=width,
            num_layers=entries.whole("num_hidden_layers", most=MOST_LAYERS),
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=width // heads,
            intermediate_size=entries.whole("intermediate_size"),
            max_positions=entries.whole("max_position_embeddings"),
            types=entries.whole("type_vocab_size"),
            norm_epsilon=entries.number("layer_norm_eps"),
            activation=ACTIVATIONS[entries.entries.get("hidden_act") or "gelu"],
            pooling="mean",
            name=str(entries.entries.get("_name_or_path") or "bert"),
        )

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> BERTConfig:
        raise CheckpointError("a GGUF of BERT is not read. Legal: a folder with config.json, safetensors and tokenizer.json.")

    @classmethod
    def full_size(cls) -> BERTConfig:
        """all-MiniLM-L6-v2: 6 layers of 384, 12 heads of 32, vocabulary 30522, 512 places."""
        return BERTConfig(
            name="MiniLM L6 shape",
            vocab_size=30522,
            hidden_size=384,
            num_layers=6,
            num_heads=12,
            num_kv_heads=12,
            head_dim=32,
            intermediate_size=1536,
            max_positions=512,
            norm_epsilon=1e-12,
            activation="gelu",
            pooling="mean",
        )


def _either(*known: str) -> Either:
    """A tensor of one of these names, with `bert.` before it or without."""
    return Either(*(f"{prefix}{name}" for name in known for prefix in ("", "bert.")))
