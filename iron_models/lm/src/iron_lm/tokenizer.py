"""Text to ids and back, through the `tokenizers` library; from tokenizer.json or from a GGUF's own vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError, UsageError
from iron_core.image.cache import Cache, digest, sources_digest
from iron_lm.gguf import Strings

#: How a GGUF's `tokenizer.ggml.pre` splits text before merging: regular expressions, each piece then byte-level.
_SPLITS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
_CONTROL, _USER_DEFINED = 3, 4
_STOPS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


class Tokenizer:
    """Ids of a text and text of ids.

    bos: put first by `encode`, or None. stop: ids that end an answer.
    """

    def __init__(self, library: Any, bos: int | None = None, stop: tuple[int, ...] = ()) -> None:
        self._library = library
        self.bos = bos
        self.stop = stop

    @property
    def vocab_size(self) -> int:
        return int(self._library.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Ids of a text, the beginning-of-text id first where the model wants one; UsageError if it is no Unicode text."""
        ids = self._ids(text)
        return ids if self.bos is None else [self.bos, *ids]

    def encode_marked(self, text: str) -> list[int]:
        """Ids of a text that has its special tokens written out, as a chat template renders it."""
        ids = self._ids(text)
        return ids if self.bos is None or ids[:1] == [self.bos] else [self.bos, *ids]

    def _ids(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:  # bytes of a command line that are not UTF-8 arrive as lone surrogates
            raise UsageError(f"the text is not valid UTF-8 at character {error.start}; give it as UTF-8.") from None
        return list(self._library.encode(text, add_special_tokens=False).ids)

    def token(self, id: int) -> str | None:
        """A token as the vocabulary spells it; None if there is no such id."""
        found = self._library.id_to_token(int(id))
        return None if found is None else str(found)

    def decode(self, ids: Any) -> str:
        """Text of ids, special tokens left out."""
        return str(self._library.decode([int(i) for i in ids], skip_special_tokens=True))

    def stream(self) -> Callable[[int], str]:
        """A function from each next id to the text it completes; a character cut by ids is held back until whole."""
        from tokenizers.decoders import DecodeStream

        state = DecodeStream(skip_special_tokens=True)
        return lambda token: state.step(self._library, int(token)) or ""


def open_tokenizer(path: str | Path | None, checkpoint: Any = None) -> Tokenizer | None:
    """The tokenizer of a tokenizer.json (a file, or the folder it is in), else the checkpoint's own, else None.

    CheckpointError for a file that is no tokenizer, or a GGUF vocabulary of a kind that is not supported.
    """
    if path is not None:
        file = Path(path)
        file = file / "tokenizer.json" if file.is_dir() else file
        if not file.exists():
            raise CheckpointError(f"{file}: no such tokenizer.")
        return _from_json(file, checkpoint)
    if checkpoint is None:
        return None
    if checkpoint.kind == "gguf":
        return _from_gguf(checkpoint)
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    beside = folder / "tokenizer.json"
    return _from_json(beside, checkpoint) if beside.exists() else None


def _load(file: Path) -> Any:
    from tokenizers import Tokenizer as Library

    try:
        return Library.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{file}: not a tokenizer.json ({error}).") from None


def _from_json(file: Path, checkpoint: Any) -> Tokenizer:
    library = _load(file)
    config = checkpoint.metadata.get("config", {}) if checkpoint is not None else {}
    stop = config.get("eos_token_id")
    stops = tuple(stop) if isinstance(stop, list) else () if stop is None else (stop,)
    if not all(isinstance(token, int) for token in stops):
        raise CheckpointError(f"{checkpoint.path}: config.json: eos_token_id is {stop!r}; legal: an id, or a list of ids.")
    probe = library.encode("a", add_special_tokens=True).ids
    plain = library.encode("a", add_special_tokens=False).ids
    bos = probe[0] if len(probe) > len(plain) and probe[0] != plain[0] else None
    return Tokenizer(library, bos, stops)


def _from_gguf(checkpoint: Any) -> Tokenizer | None:
    metadata = checkpoint.metadata
    kind = metadata.get("tokenizer.ggml.model")
    if kind in (None, "no_vocab"):
        return None
    if kind != "gpt2":
        raise CheckpointError(f"{checkpoint.path}: tokenizer kind {kind!r}. Legal: 'gpt2'; or give a tokenizer.json with --tokenizer.")
    stat = checkpoint.path.stat()
    key = digest(sources_digest("iron_lm.tokenizer"), str(checkpoint.path.resolve()), stat.st_size, stat.st_mtime_ns)

    def build(folder: Path) -> None:
        file = folder / "tokenizer.json"
        file.write_text(json.dumps(gguf_tokenizer(metadata, str(checkpoint.path))))
        try:
            _load(file)  # what is kept must load
        except CheckpointError as error:
            raise CheckpointError(f"{checkpoint.path}: the vocabulary makes no tokenizer ({error})") from None

    library = _load(Cache("tokenizers").entry(key, build) / "tokenizer.json")
    adds = metadata.get("tokenizer.ggml.add_bos_token", metadata.get("tokenizer.ggml.pre") == "llama-bpe")
    bos = metadata.get("tokenizer.ggml.bos_token_id") if adds else None
    stop = {metadata[k] for k in _STOPS if isinstance(metadata.get(k), int)}
    return Tokenizer(library, bos if isinstance(bos, int) else None, tuple(sorted(stop)))


def gguf_tokenizer(metadata: dict[str, Any], where: str) -> dict[str, Any]:
    """A tokenizer.json object of a GGUF's byte-level BPE vocabulary."""
    pre = str(metadata.get("tokenizer.ggml.pre", "default"))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    if pre in ("smollm", "starcoder", "refact", "command-r"):
        steps = [{"type": "Digits", "individual_digits": True}, byte_level]
    elif pre in ("default", "gpt-2", "gpt2"):
        steps = [byte_level]
    elif pre in _SPLITS:
        split = {"type": "Split", "pattern": {"Regex": _SPLITS[pre]}, "behavior": "Isolated", "invert": False}
        steps = [split, byte_level | {"use_regex": False}]
    else:
        legal = ", ".join(["smollm", "gpt-2", *_SPLITS])
        raise CheckpointError(f"{where}: pre-tokenizer {pre!r}. Legal: {legal}; or give a tokenizer.json with --tokenizer.")
    lists: list[Any] = [metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "merges")]
    types = metadata.get("tokenizer.ggml.token_type", ())
    if not all(isinstance(found, Strings) for found in lists) or len(types) not in (0, len(lists[0])):
        raise CheckpointError(f"{where}: the tokenizer's tokens, merges and token types do not fit together; give one with --tokenizer.")
    tokens, merges = (found.decode() for found in lists)
    added = [
        {
            "id": i, "content": tokens[i], "special": int(kind) == _CONTROL, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False,
        }
        for i, kind in enumerate(types)
        if int(kind) in (_CONTROL, _USER_DEFINED)
    ]  # fmt: skip
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in merges],
            "ignore_merges": pre == "llama-bpe",
        },
    }
