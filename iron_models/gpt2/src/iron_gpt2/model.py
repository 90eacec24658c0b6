"""GPT-2: learned positions, norms that centre, a feed-forward without a gate, biases everywhere."""

from __future__ import annotations

from typing import Any

from iron_lm.checkpoints import gguf_metadata, names
from iron_lm.checkpoints.entries import MOST_LAYERS, Entries
from iron_lm.checkpoints.sources import Either, Name, Names, Source, Split, Transpose
from iron_lm.decoder_config import DecoderConfig
from iron_lm.family import Family
from iron_lm.parts.attention import Attention
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.head import Head
from iron_lm.parts.layer import Layer
from iron_lm.parts.layer_norm import LayerNorm
from iron_lm.parts.mlp import MLP, MLPConfig
from iron_lm.parts.positions import Positions
from iron_lm.run import Run

#: By path within the model: what it is called by transformers, and by llama.cpp.
TABLES = {"embedding.table": ("wte", "token_embd"), "positions.embedding.table": ("wpe", "position_embd")}
NORMS = {
    "norm": ("ln_f", "output_norm"),
    "layers.{i}.mixer_norm": ("h.{i}.ln_1", "blk.{i}.attn_norm"),
    "layers.{i}.ffn_norm": ("h.{i}.ln_2", "blk.{i}.ffn_norm"),
}
MATRICES = {
    "layers.{i}.mixer.o": ("h.{i}.attn.c_proj", "blk.{i}.attn_output"),
    "layers.{i}.ffn.up": ("h.{i}.mlp.c_fc", "blk.{i}.ffn_up"),
    "layers.{i}.ffn.down": ("h.{i}.mlp.c_proj", "blk.{i}.ffn_down"),
}
#: Queries, keys and values.
FUSED = ("h.{i}.attn.c_attn", "blk.{i}.attn_qkv")


class GPT2(Family):
    """`iron-run gpt2`."""

    name = "gpt2"
    summary = "GPT-2 and DistilGPT2."
    architectures = ("gpt2",)
    absent = {"n_positions": 1024, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
    #: Masks, which were once stored with the weights.
    ignored = names.IGNORED | dict.fromkeys(("safetensors", "pytorch"), (*names.BUFFERS, ".attn.bias", ".attn.masked_bias"))

    @classmethod
    def names(cls, kind: str, config: DecoderConfig) -> Names:
        """transformers stores matrices the other way round, and names them with a prefix or without."""
        gguf = kind == "gguf"

        def tensor(names: tuple[str, str], end: str) -> Source:
            return Name(f"{names[1]}.{end}") if gguf else Either(f"transformer.{names[0]}.{end}", f"{names[0]}.{end}")

        def matrix(stored: Source) -> Source:
            return stored if gguf else Transpose(stored)

        rows = (config.num_heads * config.head_dim,) * 3
        found: dict[str, Source | str] = {"head.matrix": "output.weight" if gguf else "lm_head.weight"}
        found |= {path: tensor(names, "weight") for path, names in TABLES.items()}
        found |= {f"{path}.{end}": tensor(names, end) for path, names in NORMS.items() for end in ("weight", "bias")}
        found |= {path: matrix(tensor(names, "weight")) for path, names in MATRICES.items()}
        found |= {f"{path}_bias": tensor(names, "bias") for path, names in MATRICES.items()}
        for part, x in enumerate("qkv"):
            path = f"layers.{{i}}.mixer.{x}"
            found[path] = matrix(Split(tensor(FUSED, "weight"), rows, part, axis=0 if gguf else 1))
            found[f"{path}_bias"] = Split(tensor(FUSED, "bias"), rows, part)
        return found

    @classmethod
    def build(cls, config: DecoderConfig, run: Run) -> Decoder:
        c = config
        mlp = MLPConfig(c.hidden_size, c.intermediate_size, c.activation, bias=True)
        layers = [
            Layer(
                Attention(c.attention(i, bias=True, output_bias=True), run),
                MLP(mlp, run),
                mixer_norm=cls.norm(c),
                ffn_norm=cls.norm(c),
            )
            for i in range(c.num_layers)
        ]
        embedding, positions = Embedding(c.embedding(), run), Positions(c.max_positions, c.hidden_size, run)
        return Decoder(run, embedding, layers, cls.norm(c), Head(c.head(), run, embedding if c.tied else None), positions)

    @classmethod
    def norm(cls, config: DecoderConfig) -> LayerNorm:
        return LayerNorm(config.layer_norm())

    @classmethod
    def from_huggingface(cls, entries: Entries) -> DecoderConfig:
        entries.refuse_unless("activation_function", "gelu_new", "gelu_pytorch_tanh")
        entries.refuse_unless("scale_attn_weights", True)
        entries.refuse_unless("scale_attn_by_inverse_layer_idx", False)
        entries.refuse_unless("add_cross_attention", False)
        entries.keys |= {"hidden_size": "n_embd", "num_heads": "n_head", "num_kv_heads": "n_head", "num_layers": "n_layer"}
        width, heads = entries.whole("n_embd"), entries.whole("n_head")
        return DecoderConfig(
            vocab_size=entries.whole("vocab_size"),
            hidden_size=width,
            num_layers=entries.whole("n_layer", most=MOST_LAYERS),
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=width // heads or 1,
            intermediate_size=entries.whole("n_inner", 4 * width),
            max_positions=entries.whole("n_ctx" if entries.has("n_ctx") and not entries.has("n_positions") else "n_positions"),
            norm_epsilon=entries.number("layer_norm_epsilon"),
            activation="gelu_tanh",
            tied=entries.flag("tie_word_embeddings"),
            name=str(entries.entries.get("_name_or_path") or "gpt2"),
        )

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> DecoderConfig:
        found = gguf_metadata.sizes(entries, tensors)
        return DecoderConfig(**found, norm_epsilon=entries.number("attention.layer_norm_epsilon"), activation="gelu_tanh")

    @classmethod
    def full_size(cls) -> DecoderConfig:
        """GPT-2 124M: 12 layers of 768, 12 heads of 64, vocabulary 50257, 1024 positions."""
        return DecoderConfig(
            name="GPT-2 124M shape",
            vocab_size=50257,
            hidden_size=768,
            num_layers=12,
            num_heads=12,
            num_kv_heads=12,
            head_dim=64,
            intermediate_size=3072,
            max_positions=1024,
            activation="gelu_tanh",
        )
