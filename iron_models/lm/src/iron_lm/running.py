"""`Running`: a model loaded and compiled for a backend, whatever it is run for."""

from __future__ import annotations

from typing import Any

from iron_core import Backend
from iron_lm.architecture import Architecture
from iron_lm.decoder_config import DecoderConfig
from iron_lm.loading import Loaded
from iron_lm.text.tokenizer import Tokenizer


class Running:
    """loaded: what is run; compiled: the graph that runs it."""

    def __init__(self, loaded: Loaded, compiled: Any) -> None:
        self.loaded, self.compiled = loaded, compiled

    @property
    def family(self) -> type[Architecture]:
        return self.loaded.family

    @property
    def config(self) -> DecoderConfig:
        """What the checkpoint says of the model."""
        return self.loaded.config

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.loaded.tokenizer

    @property
    def backend(self) -> Backend:
        backend: Backend = self.compiled.backend
        return backend

    def facts(self) -> dict[str, Any]:
        """What runs, and how, as `--json` says it."""
        run = self.loaded.run
        return {
            "checkpoint": self.loaded.recognised,
            **({"path": str(self.loaded.checkpoint.path)} if self.loaded.checkpoint is not None else {}),
            **({"assumed": self.loaded.assumed} if self.loaded.assumed else {}),
            "weights": self.loaded.stored,
            "backend": self.backend.name,
            "dev": self.compiled.dev,
            "dtype": run.dtype,
            **({} if self.config.encodes else {"cache_dtype": run.cache_dtype}),
            "activations": run.activations,
            **({"quantize": run.quantize, "activation_scale": run.activation_scale} if run.quantize else {}),
            "max_seq_len": self.loaded.context,
        }
