"""The kinds of vocabulary that Iron reads, as entries of `iron.tokenizers.v1`: see `iron_lm.text.opening` for what one is."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from iron_core.cache.entry import About
from iron_core.cache.keys import digest, sources_digest
from iron_core.cache.store import Cache, optional
from iron_core.errors import CheckpointError, printable
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.reading import quietly
from iron_lm.text.excerpt import Excerpts, listed
from iron_lm.text.pieces import Pieces
from iron_lm.text.special_tokens import Companions, known_ends, stops
from iron_lm.text.spelling import Spelling, library_spelling
from iron_lm.text.tokenizer import Tokenizer
from iron_lm.text.tokenizer_json import check_added, read_tokenizer
from iron_lm.text.vocabulary import BYTE, NORMAL, USER_DEFINED, flag, gguf_tokenizer, is_ranks, ranks_tokenizer
from iron_lm.text.word_pieces import VOCAB_TXT, word_pieces

#: Ids in a GGUF's metadata that end an answer; and what llama.cpp takes where a sentencepiece vocabulary names none.
_STOPS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_SENTENCEPIECE_IDS = {"unknown": 0, "bos": 1, "eos": 2}


class Gguf:
    """The vocabulary of a GGUF: of a file of its own, or of the checkpoint."""

    files: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def sniff(path: Path, head: bytes) -> bool:
        return head.startswith(b"GGUF")

    @staticmethod
    def open(path: Path | None, checkpoint: Any) -> Tokenizer | None:
        """None where the checkpoint holds no vocabulary; CheckpointError where the file does not."""
        if path is None:
            if checkpoint is None or checkpoint.kind != "gguf":
                where = "no checkpoint" if checkpoint is None else checkpoint.path
                raise CheckpointError(f"{where}: not a GGUF, whose vocabulary was asked for.")
            return _from_gguf(checkpoint)
        tokenizer = _from_gguf(Checkpoint.open(path, reader="iron-lm:gguf"))
        if tokenizer is None:
            raise CheckpointError(f"{path}: this GGUF holds no vocabulary.")
        return tokenizer


class WordPieces:
    """BERT's vocab.txt."""

    files: ClassVar[tuple[str, ...]] = (VOCAB_TXT,)

    @staticmethod
    def sniff(path: Path, head: bytes) -> bool:
        return path.name == VOCAB_TXT and not Gguf.sniff(path, head)

    @staticmethod
    def open(path: Path | None, checkpoint: Any) -> Tokenizer:
        file = _needed(path, checkpoint, WordPieces)
        return _from_json(file, checkpoint, word_pieces(file, Companions(file.parent)))


class Ranks:
    """Llama 3's `tokenizer.model`: tiktoken's ranks."""

    files: ClassVar[tuple[str, ...]] = ("tokenizer.model",)

    @staticmethod
    def sniff(path: Path, head: bytes) -> bool:
        return path.name != VOCAB_TXT and is_ranks(head)

    @staticmethod
    def open(path: Path | None, checkpoint: Any) -> Tokenizer:
        file = _needed(path, checkpoint, Ranks)
        library = _kept(file, file.read_bytes(), lambda: ranks_tokenizer(file))
        stop = folder_stops(Companions(file.parent), checkpoint, library.token_to_id, library.token_to_id)
        return Tokenizer(library, library.token_to_id("<|begin_of_text|>"), stop)


class Json:
    """Hugging Face's tokenizer.json."""

    files: ClassVar[tuple[str, ...]] = ("tokenizer.json",)

    @staticmethod
    def sniff(path: Path, head: bytes) -> bool:
        return path.name != VOCAB_TXT and head.lstrip().startswith(b"{")

    @staticmethod
    def open(path: Path | None, checkpoint: Any) -> Tokenizer:
        return _from_json(_needed(path, checkpoint, Json), checkpoint)


class SentencePieces:
    """A sentencepiece model, with what the files beside it add."""

    files: ClassVar[tuple[str, ...]] = ("tokenizer.model",)

    @staticmethod
    def sniff(path: Path, head: bytes) -> bool:
        return head.startswith(b"\n") and not any(other.sniff(path, head) for other in (WordPieces, Ranks, Json))

    @staticmethod
    def open(path: Path | None, checkpoint: Any) -> Tokenizer:
        """CheckpointError for a file that is none."""
        return _from_pieces(_needed(path, checkpoint, SentencePieces), checkpoint)


def _needed(path: Path | None, checkpoint: Any, kind: Any) -> Path:
    if path is None:
        where = "no checkpoint" if checkpoint is None else checkpoint.path
        raise CheckpointError(f"{where}: no {' or '.join(kind.files)} beside it, of which the tokenizer that was asked for is made.")
    return path


def _load(file: Path, raw: bytes) -> Any:
    """The library's tokenizer of a tokenizer.json, read or made, which neither cuts a text short, fills it up nor leaves out merges,
    whatever was saved."""
    from tokenizers import Tokenizer as Library

    with quietly(file):
        try:
            library = Library.from_buffer(raw)
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{file}: not a tokenizer.json ({printable(error, 120)}).") from None
    library.no_truncation()
    library.no_padding()
    if getattr(library.model, "dropout", None):
        library.model.dropout = None  # merges left out at random are for training
    return library


def _kept(path: Path, content: bytes, make: Callable[[], dict[str, Any]]) -> Any:
    """The library's tokenizer of a vocabulary, which is made of `content`: loaded when it is needed, where `Excerpts` do without. Its JSON
    is made once and kept in the cache."""
    key = digest(sources_digest("iron_lm.text.vocabulary", "iron_lm.text.special_tokens", "iron_lm.text.excerpt"), content)
    lists = None
    with optional():
        lists = Cache("tokenizers").read(key, "lists")
    if lists:
        return Excerpts(lists, partial(_whole, path, key, make))
    return _whole(path, key, make) if lists is not None else _made(path, key, make)


def _whole(path: Path, key: str, make: Callable[[], dict[str, Any]]) -> Any:
    """All of it, from the cache where that has it still."""
    from tokenizers import Tokenizer as Library

    with optional():
        kept = Cache("tokenizers").read(key, "tokenizer.json")
        if kept is not None:
            return Library.from_buffer(kept)
    return _made(path, key, make)


def _made(path: Path, key: str, make: Callable[[], dict[str, Any]]) -> Any:
    """All of it, made and kept."""
    from tokenizers import Tokenizer as Library

    object = make()
    made = json.dumps(object, ensure_ascii=False).encode("utf-8", "surrogatepass")  # characters as they are: the library reads them faster
    try:
        library = Library.from_buffer(made)
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path}: the vocabulary makes no tokenizer ({printable(error, 120)}).") from None

    def write(folder: Path) -> None:
        (folder / "tokenizer.json").write_bytes(made)
        (folder / "lists").write_bytes(listed(object))

    with optional():
        Cache("tokenizers").entry(key, write, about=About("tokenizer", str(path)))
    return library


def _from_json(file: Path, checkpoint: Any, made: bytes | None = None) -> Tokenizer:
    """made: a tokenizer.json made of what the file holds, which is another."""
    library = _load(file, read_tokenizer(file) if made is None else made)
    companions = Companions(file.parent)
    with quietly(file):
        _complete(library, companions, file)
        probe = library.encode("a", add_special_tokens=True).ids
        plain = library.encode("a", add_special_tokens=False).ids
    bos = probe[0] if len(probe) > len(plain) and probe[0] != plain[0] else None
    more = len(probe) - len(plain) - (bos is not None)
    beside = {token.content: id for id, token in library.get_added_tokens_decoder().items()}
    stop = folder_stops(companions, checkpoint, beside.get, library.token_to_id)
    return Tokenizer(library, bos, stop, after=tuple(probe[-more:]) if more > 0 else ())


def folder_stops(
    companions: Companions, checkpoint: Any, special: Callable[[str], int | None], find: Callable[[str], int | None]
) -> tuple[int, ...]:
    """Ids that end an answer of a folder's model: those its files name, and those known by their text among special tokens.

    `special(text)` gives the id of a token beside the vocabulary's own, `find(text)` that of any.
    """
    own = Companions(checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent) if checkpoint is not None else companions
    said = own.ends(checkpoint.metadata.get("config", {}) if checkpoint is not None else {})
    eos = find(companions.named["eos_token"]) if "eos_token" in companions.named else None
    of_gguf = _gguf_stops(checkpoint.metadata) if checkpoint is not None and checkpoint.kind == "gguf" else ()
    return stops(said, () if eos is None else (eos,), known_ends(special).values(), of_gguf)


def _complete(library: Any, companions: Companions, file: Path) -> None:
    """Add what the files beside a tokenizer.json name and it lacks; their word on what is special counts."""
    from tokenizers import AddedToken

    there = library.get_added_tokens_decoder()
    new = {}
    for id, token in sorted(companions.added.items()):
        known = there.get(id)
        if known is None or (known.content, known.special) != (token.content, token.special):
            flags = {name: getattr(token, name) for name in ("lstrip", "rstrip", "single_word", "normalized", "special")}
            new[token.content] = AddedToken(token.content, **flags)
    texts = {token.content for token in there.values()} | set(new)
    for text in (*companions.named.values(), *companions.listed):
        if text not in texts:
            new[text] = AddedToken(text, special=True, normalized=False)
    normalizer = None if library.normalizer is None else json.loads(library.normalizer.__getstate__())
    check_added(file, [(token.content, token.normalized) for token in (*there.values(), *new.values())], normalizer)
    library.add_tokens([*new.values()])  # at once: each call takes as long as there are tokens


def _from_gguf(checkpoint: Any) -> Tokenizer | None:
    metadata = checkpoint.metadata
    kind = metadata.get("tokenizer.ggml.model")
    if kind in (None, "no_vocab", "none"):
        return None
    library = _kept(checkpoint.path, bytes(checkpoint.file.header), lambda: gguf_tokenizer(metadata, str(checkpoint.path)))
    adds = flag(
        metadata, "tokenizer.ggml.add_bos_token", kind == "llama" or metadata.get("tokenizer.ggml.pre") == "llama-bpe", str(checkpoint.path)
    )
    bos = _gguf_id(metadata, "bos") if adds or kind == "gemma4" else None
    ends = known_ends(library.token_to_id)
    types = np.asarray(metadata.get("tokenizer.ggml.token_type", ()))
    shown = np.isin(types, (NORMAL, USER_DEFINED, BYTE))
    silent = {*np.flatnonzero(~shown).tolist(), *ends.values()}
    plain = {*np.flatnonzero(types == USER_DEFINED).tolist()} - silent
    tokenizer = Tokenizer(library, bos, stops(_gguf_stops(metadata), ends.values()), library_spelling(library, silent, plain))
    tokenizer.where = str(checkpoint.path)
    return tokenizer


def _gguf_stops(metadata: dict[str, Any]) -> tuple[int, ...]:
    """Ids that a GGUF's metadata says end an answer."""
    return tuple(id for name in _STOPS if (id := _gguf_id(metadata, name)) is not None)


def _gguf_id(metadata: dict[str, Any], name: str) -> int | None:
    """A special token's id, or None; as in llama.cpp, one that the vocabulary does not have is as good as none."""
    usual = _SENTENCEPIECE_IDS.get(name) if metadata.get("tokenizer.ggml.model") == "llama" else None
    size = len(metadata.get("tokenizer.ggml.tokens", ()))
    for id in (metadata.get(f"tokenizer.ggml.{name}_token_id"), usual):
        if isinstance(id, int) and not isinstance(id, bool) and 0 <= id < size:
            return id
    return None


def _from_pieces(file: Path, checkpoint: Any) -> Tokenizer:
    """The tokenizer of a sentencepiece model, with what the files beside it add. CheckpointError for a file that is none."""
    companions = Companions(file.parent)
    config = companions.config
    try:
        special = (*companions.named.values(), *companions.listed)
        pieces = Pieces(file.read_bytes(), companions.added, special, config.get("legacy", not config) is True)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{file}: not a tokenizer: neither JSON, tiktoken's ranks, a GGUF nor a sentencepiece model.") from error
    named = companions.named.get("bos_token")
    bos = pieces.token_to_id(named) if named is not None else pieces.model.bos_id()
    adds = config.get("add_bos_token") is not False and bos is not None and bos >= 0
    eos = pieces.model.eos_id()
    stop = folder_stops(companions, checkpoint, pieces.special.get, pieces.token_to_id)
    return Tokenizer(
        pieces, bos if adds else None, tuple(sorted({*stop, *((eos,) if eos >= 0 else ())})), Spelling(pieces.spell, int(pieces.prefixed))
    )
