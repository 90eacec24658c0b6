"""`Architecture`: what models of one family are built like, and how their files are read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, ClassVar

from iron_core.declare.authored import authored, ours
from iron_core.errors import CheckpointError, DeclarationError
from iron_core.plugins.foreign import kind_of
from iron_lm.checkpoints import config_json, gguf_metadata, huggingface
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.entries import Entries
from iron_lm.checkpoints.names import GGUF, HUGGINGFACE, IGNORED
from iron_lm.checkpoints.sources import Names
from iron_lm.decoder_config import DecoderConfig
from iron_lm.parts.attention import Attention
from iron_lm.parts.decoder import Decoder
from iron_lm.parts.embedding import Embedding
from iron_lm.parts.encoder import Encoder
from iron_lm.parts.head import Head
from iron_lm.parts.layer import Layer
from iron_lm.parts.mlp import GatedMLP
from iron_lm.parts.norm import Norm
from iron_lm.parts.part import Part
from iron_lm.parts.rotary import Rotary
from iron_lm.parts.sliding_decoder import SlidingDecoder
from iron_lm.run import Run


class Architecture:
    """A subclass gives `name`, `summary`, `architectures` and `full_size()`. Without more it is a Llama: of `norm()`, `mixer()`,
    `layer()` and `build()` it gives the smallest that differs; `names()` where its tensors have other names; its own `Config`,
    `from_huggingface()`, `from_gguf()` and `to_huggingface()` where its files say more, or something else, than decoders' do."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    #: GGUF `general.architecture` and Hugging Face `model_type` values it runs.
    architectures: ClassVar[tuple[str, ...]] = ()
    Config: ClassVar[type[DecoderConfig]] = DecoderConfig
    #: What transformers takes for entries that a config.json of this family leaves out, beside what it takes for any.
    absent: ClassVar[Mapping[str, Any]] = {}
    #: The entry of `iron.tokenizers.v1` that spells the text of its checkpoints, where they name no other; "": what is beside them.
    tokenizer: ClassVar[str] = ""
    #: By kind of checkpoint, what names of tensors begin or end with that the model does without.
    ignored: ClassVar[Mapping[str, tuple[str, ...]]] = IGNORED

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if isinstance(cls.architectures, str):  # in which a name would be looked for letter by letter
            raise DeclarationError(f"{cls.__name__}: architectures={cls.architectures!r}; legal: a tuple of names.")

    # -- what it is ------------------------------------------------------------------------------

    @classmethod
    def names(cls, kind: str, config: Any) -> Names:
        """Where each weight is in a kind of checkpoint ("safetensors", "gguf", ...): path -> name, or another source."""
        return GGUF if kind == "gguf" else HUGGINGFACE

    @classmethod
    def full_size(cls) -> DecoderConfig:
        """The config `--random-weights` runs."""
        raise DeclarationError(f"{cls.__name__} defines no full_size().")

    # -- its graph -------------------------------------------------------------------------------

    @classmethod
    def build(cls, config: Any, run: Run) -> Decoder | Encoder:
        """The model, its weights not given yet: an embedding, layers that share one rotary embedding, a last norm, a head. An Encoder
        where the config encodes."""
        embedding = Embedding(config.embedding(), run)
        rotary = None if config.rotary is None else Rotary(config.rotary, run)
        layers = [cls.asked("layer", Layer, config, run, i, rotary) for i in range(config.num_layers)]
        head = Head(config.head(), run, embedding if config.tied else None)
        decoder = SlidingDecoder if any(config.sliding) else Decoder
        return decoder(run, embedding, layers, cls.asked("norm", Part, config), head)

    @classmethod
    def layer(cls, config: Any, run: Run, i: int, rotary: Rotary | None) -> Layer:
        """The i-th layer: a mixer and a gated feed-forward, each with a norm before it."""
        mixer = cls.asked("mixer", Part, config, run, i, rotary)
        mixer_norm, ffn_norm = (cls.asked("norm", Part, config) for _ in range(2))
        return Layer(mixer, GatedMLP(config.mlp(), run), mixer_norm=mixer_norm, ffn_norm=ffn_norm)

    @classmethod
    def mixer(cls, config: Any, run: Run, i: int, rotary: Rotary | None) -> Part:
        """The i-th layer's attention, or what stands in its place."""
        return Attention(config.attention(i), run, rotary)

    @classmethod
    def norm(cls, config: Any) -> Part:
        """Each norm of the hidden state, a new one every time."""
        return Norm(config.norm())

    # -- what its files say ----------------------------------------------------------------------

    @classmethod
    def from_huggingface(cls, entries: Entries) -> DecoderConfig:
        """The config that a config.json describes."""
        return cls._config(huggingface.decoder(entries))

    @classmethod
    def from_gguf(cls, entries: Entries, tensors: Any) -> DecoderConfig:
        """The config that a GGUF's metadata and tensors describe."""
        return cls._config(gguf_metadata.decoder(entries, tensors))

    @classmethod
    def to_huggingface(cls, config: Any) -> dict[str, Any]:
        """What a config.json says of a config, of which `from_huggingface` makes the same; `config_json` holds it to that."""
        return {"model_type": cls.architectures[0]} | config_json.entries_of(config)

    @classmethod
    def _config(cls, found: dict[str, Any]) -> DecoderConfig:
        with authored(cls, "Config()"):
            return cls.Config(**found)

    @classmethod
    def described(cls, checkpoint: Checkpoint) -> tuple[DecoderConfig, Entries]:
        """The config a checkpoint describes, and the entries that were read for it. CheckpointError for a window that the family did
        not ask for: it would attend to more than the model was trained to."""
        if checkpoint.kind == "gguf":
            entries = gguf_metadata.entries_of(checkpoint.metadata)
            with entries.in_these_words():
                config = cls.asked("from_gguf", DecoderConfig, entries, checkpoint.tensors)
            gguf_metadata.refuse_windows(entries)
            return config, entries
        if "config" not in checkpoint.metadata:
            raise CheckpointError(f"{checkpoint.path}: no config.json beside it; the model's shape is read from there.")
        entries = huggingface.entries_of(checkpoint.metadata["config"], cls.absent)
        with entries.in_these_words():
            config = cls.asked("from_huggingface", DecoderConfig, entries)
        huggingface.refuse_windows(entries)
        return config, entries

    @classmethod
    def asked(cls, method: str, kind: Any, *given: Any) -> Any:
        """What one of the methods above gives. Where another author wrote the family, what fails in its lines is a
        DeclarationError that names them, and so is an answer of another kind; in ours it is for who reads the file."""
        part = f"{method}()"
        # Only what reads a file can fail in our code because of the file.
        with nullcontext() if ours(cls.__module__) else authored(cls, part, deep=not method.startswith("from_")):
            answer = getattr(cls, method)(*given)
        if not isinstance(answer, kind):
            raise DeclarationError(f"{cls.__name__}.{part} gives {kind_of(answer)}; legal: a {kind.__name__}.")
        return answer
