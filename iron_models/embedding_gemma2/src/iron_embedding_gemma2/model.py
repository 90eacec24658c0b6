"""EmbeddingGemma 2: vectors of texts, clips, images and videos."""

from __future__ import annotations

from typing import Any

import attrs

from iron_core.errors import CheckpointError
from iron_embedding_gemma2 import described, names
from iron_embedding_gemma2.config import AudioConfig, TextConfig, VisionConfig
from iron_embedding_gemma2.text import TextTower
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.entries import Entries
from iron_lm.checkpoints.sentence_transformers import modules
from iron_lm.checkpoints.sources import Names
from iron_lm.decoder_config import DecoderConfig, every_nth_is_full
from iron_lm.family import Family
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run

#: Every sixth layer sees all of a text.
PERIOD = 6


class EmbeddingGemma2(Family):
    """`iron-run embedding_gemma2`."""

    name = "embedding_gemma2"
    summary = "EmbeddingGemma 2, an encoder of texts, clips, images and videos."
    architectures = ("embedding_gemma2", "embedding_gemma2_text")
    Config = TextConfig
    absent = {"rms_norm_eps": 1e-6}
    ignored = dict.fromkeys(("safetensors", "pytorch"), names.BESIDE["text"])

    @classmethod
    def main(cls, argv: list[str]) -> int:
        """With a query it is compared; else as every family's line is."""
        from iron_embedding_gemma2 import search_command  # here: a family that is only asked what it is needs no command line

        return search_command.main(cls.name, argv) if search_command.asked(argv) else super().main(argv)

    @classmethod
    def names(cls, kind: str, config: Any) -> Names:
        return names.text(config)

    @classmethod
    def build(cls, config: TextConfig, run: Run) -> TextTower:
        return TextTower(config, run)

    @classmethod
    def described(cls, checkpoint: Checkpoint) -> tuple[DecoderConfig, Entries]:
        modules(checkpoint)  # refuses what a vector would go through after
        config, entries = super().described(checkpoint)
        return attrs.evolve(config, usual_context=described.USUAL), entries

    @classmethod
    def from_huggingface(cls, entries: Entries) -> TextConfig:
        return described.config_of(entries)

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> TextConfig:
        raise CheckpointError("a GGUF of EmbeddingGemma 2 is not read. Legal: a folder with config.json, safetensors and tokenizer.json.")

    @classmethod
    def to_huggingface(cls, config: TextConfig) -> dict[str, Any]:
        return described.entries_of(config)

    @classmethod
    def full_size(cls) -> TextConfig:
        """The released one: 24 layers of 512, every sixth of which sees all; 740 million numbers with its towers, 271 without."""
        return TextConfig(
            name="EmbeddingGemma 2 shape",
            vocab_size=262144,
            hidden_size=512,
            num_layers=24,
            num_heads=4,
            num_kv_heads=2,
            head_dim=256,
            intermediate_size=2048,
            max_positions=262144,
            rotary=RotaryConfig(512, 1e6),
            local_rotary=RotaryConfig(256, 1e4),
            norm_epsilon=1e-6,
            activation="gelu_tanh",
            window=513,
            sliding=every_nth_is_full(24, PERIOD),
            usual_context=described.USUAL,
            pooling="mean",
            global_head_dim=512,
            global_kv_heads=1,
            signal_size=512,
            output_size=768,
            audio=AudioConfig(),
            vision=VisionConfig(),
        )
