"""The files beside weights in Hugging Face's layout that say how text is spelled: those of a folder, or made of a GGUF's vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError
from iron_lm.text.kinds import Gguf
from iron_lm.text.tokenizer import Tokenizer
from iron_lm.text.vocabulary import gguf_tokenizer

#: What they are called.
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "generation_config.json",
)  # fmt: skip
#: Bytes of the largest; Gemma's tokenizer.json has 33 million.
_MOST = 1 << 28
#: What tokenizer_config.json calls a token, by what a GGUF does.
_NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def tokenizer_files(checkpoint: Any) -> dict[str, bytes]:
    """By name, those that a checkpoint has, or that hold what a GGUF says; {} where it has no vocabulary. CheckpointError for a
    vocabulary that makes no tokenizer."""
    if checkpoint.kind == "gguf":
        tokenizer = Gguf.open(None, checkpoint)
        return {} if tokenizer is None else _made(checkpoint, tokenizer)
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    return {name: _read(folder / name) for name in TOKENIZER_FILES if (folder / name).is_file()}


def _read(file: Path) -> bytes:
    size = file.stat().st_size
    if size > _MOST:
        raise CheckpointError(f"{file}: {size} bytes; legal: up to {_MOST}.")
    return file.read_bytes()


def _made(checkpoint: Any, tokenizer: Tokenizer) -> dict[str, bytes]:
    metadata = checkpoint.metadata
    vocabulary = gguf_tokenizer(metadata, str(checkpoint.path))
    special = {token["content"] for token in vocabulary["added_tokens"] if token["special"]}
    named = {name: _token(metadata, tokenizer, kind) for name, kind in _NAMED.items()}
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": tokenizer.bos is not None}
    config |= {name: text for name, text in named.items() if text in special}
    if isinstance(metadata.get("tokenizer.chat_template"), str):
        config["chat_template"] = metadata["tokenizer.chat_template"]
    if tokenizer.bos is not None:
        vocabulary["post_processor"] = _beginning(tokenizer.bos, str(tokenizer.token(tokenizer.bos)))
    ends = {"eos_token_id": list(tokenizer.stop)}
    files = {"tokenizer.json": vocabulary, "tokenizer_config.json": config, "generation_config.json": ends}
    return {name: json.dumps(entries, ensure_ascii=False).encode("utf-8", "surrogatepass") for name, entries in files.items()}


def _token(metadata: dict[str, Any], tokenizer: Tokenizer, kind: str) -> str | None:
    id = metadata.get(f"tokenizer.ggml.{kind}_token_id")
    return tokenizer.token(id) if isinstance(id, int) and id >= 0 else None


def _beginning(id: int, text: str) -> dict[str, Any]:
    """What puts the token that texts begin with in front of them."""
    first, sequence = {"SpecialToken": {"id": text, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    pair = [first, sequence, {"Sequence": {"id": "B", "type_id": 1}}]
    tokens = {text: {"id": text, "ids": [id], "tokens": [text]}}
    return {"type": "TemplateProcessing", "single": [first, sequence], "pair": pair, "special_tokens": tokens}
