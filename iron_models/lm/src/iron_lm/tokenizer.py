"""Text to ids and back, through the `tokenizers` library; from tokenizer.json or from a GGUF's own vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError, UsageError
from iron_core.image.cache import Cache, digest, sources_digest
from iron_lm.vocabulary import gguf_tokenizer, is_ranks, ranks_tokenizer

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
    """The tokenizer of a file (or of the folder it is in), else the checkpoint's own, else None.

    A file may be a tokenizer.json, a GGUF, Llama 3's tokenizer.model (tiktoken's ranks) or a sentencepiece model.
    CheckpointError for a file that is no tokenizer, or a vocabulary of a kind that is not supported.
    """
    if path is not None:
        file = Path(path)
        found = _beside(file) if file.is_dir() else file
        if found is None or not found.is_file():
            raise CheckpointError(f"{file}: no such tokenizer. Legal: a {', a '.join(_FILES)}, or a folder with one.")
        return _from_file(found, checkpoint)
    if checkpoint is None:
        return None
    if checkpoint.kind == "gguf":
        return _from_gguf(checkpoint)
    found = _beside(checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent)
    return _from_file(found, checkpoint) if found is not None else None


#: What a tokenizer's file is called, the one to prefer first.
_FILES = ("tokenizer.json", "tokenizer.model")


def _beside(folder: Path) -> Path | None:
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def _from_file(file: Path, checkpoint: Any) -> Tokenizer:
    """By what the file holds: a GGUF's vocabulary, tiktoken's ranks, a sentencepiece model, or JSON."""
    try:
        with file.open("rb") as opened:
            head = opened.read(256)
    except OSError as error:
        raise CheckpointError(f"{file}: {error.strerror or error}.") from None
    if head.startswith(b"GGUF"):
        from iron_lm.checkpoint import Checkpoint

        tokenizer = _from_gguf(Checkpoint.open(file))
        if tokenizer is None:
            raise CheckpointError(f"{file}: this GGUF holds no vocabulary.")
        return tokenizer
    if is_ranks(head):
        return _from_ranks(file)
    if not head.lstrip().startswith(b"{"):
        from iron_lm.pieces import open_pieces

        return open_pieces(file)
    return _from_json(file, checkpoint)


def _load(file: Path) -> Any:
    from tokenizers import Tokenizer as Library

    try:
        return Library.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{file}: not a tokenizer.json ({error}).") from None


def _kept(path: Path, make: Callable[[], dict[str, Any]]) -> Any:
    """The library's tokenizer of a vocabulary; its JSON is made once for a file and kept in the cache."""
    stat = path.stat()
    key = digest(sources_digest("iron_lm.vocabulary"), str(path.resolve()), stat.st_size, stat.st_mtime_ns)

    def build(folder: Path) -> None:
        file = folder / "tokenizer.json"
        file.write_text(json.dumps(make()))
        try:
            _load(file)  # what is kept must load
        except CheckpointError as error:
            raise CheckpointError(f"{path}: the vocabulary makes no tokenizer ({error})") from None

    return _load(Cache("tokenizers").entry(key, build) / "tokenizer.json")


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
    library = _kept(checkpoint.path, lambda: gguf_tokenizer(metadata, str(checkpoint.path)))
    adds = metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or metadata.get("tokenizer.ggml.pre") == "llama-bpe")
    bos = metadata.get("tokenizer.ggml.bos_token_id") if adds else None
    stop = {metadata[k] for k in _STOPS if isinstance(metadata.get(k), int)}
    return Tokenizer(library, bos if isinstance(bos, int) else None, tuple(sorted(stop)))


def _from_ranks(file: Path) -> Tokenizer:
    """Llama 3's `tokenizer.model`."""
    library = _kept(file, lambda: ranks_tokenizer(file))
    ids = {name: library.token_to_id(f"<|{name}|>") for name in ("begin_of_text", "end_of_text", "eot_id", "eom_id")}
    return Tokenizer(library, ids.pop("begin_of_text"), tuple(sorted(ids.values())))
