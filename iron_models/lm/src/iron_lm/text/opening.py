"""Which tokenizer spells a checkpoint's text, and opening it: the entries of `iron.tokenizers.v1`, Iron's own kinds among them.

An entry is a class with `open(path, checkpoint)`, which gives a `Tokenizing`: of a file, or of the checkpoint where `path` is None. If it
likes, `sniff(path, head)` says which files it opens unasked, and `files` what they are called in a folder of weights.

Whose it is: the one that is asked for, else the one that the checkpoint names, else that of the family, else the one that recognises what
is in the checkpoint or beside it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, overload, runtime_checkable

from iron_core.errors import CheckpointError, PluginError, PluginWarning, UsageError, printable
from iron_core.plugins import foreign
from iron_core.plugins.record import Record
from iron_core.plugins.registry import labelled, registry
from iron_lm.checkpoints.reading import reading
from iron_lm.text.spelling import Spelling, Undivided
from iron_lm.text.tokenizer import Tokenizer
from iron_lm.text.word_pieces import VOCAB_TXT

GROUP = "tokenizers"
#: What names the tokenizer in a checkpoint: an entry of its config.json, or of a GGUF's metadata.
NAMED, NAMED_GGUF = "iron_tokenizer", "iron.tokenizer"
#: What files of Iron's own kinds are called in a folder, the one to prefer first.
_FILES = ("tokenizer.json", "tokenizer.model", VOCAB_TXT)
#: The kind that says what is wrong with a file that nobody recognises.
_LAST = "sentencepiece"


@runtime_checkable
class Tokenizing(Protocol):
    """What an entry's `open` gives, which `Tokenizer` is. Beside these it may have `bos`, the id that texts begin with, `stop`, ids that
    end an answer, `after`, what an encoder's text ends with, `token(id)`, and `spell(id)`, the bytes that an id adds to any text or None:
    with it answers may follow a grammar, and text is made id by id."""

    vocab_size: int

    def encode_plain(self, text: str) -> Sequence[int]:
        """Ids of a text, special tokens written out in it among them; nothing is put before it."""

    def decode(self, ids: Any) -> str:
        """Text of ids, special tokens left out."""


class _Ids:
    """Ids, as the tokenizers library gives them."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


class _Library:
    """What `Tokenizer` asks of a library, of a pack's tokenizer: each answer is looked at, and what fails is the pack's."""

    def __init__(self, made: Any, where: str) -> None:
        self.made, self.where = made, where

    def get_vocab_size(self) -> int:
        return int(self.made.vocab_size)

    def encode(self, text: str, add_special_tokens: bool = False) -> _Ids:
        with labelled(self.made, "to make ids of a text"):
            found = [int(id) for id in self.made.encode_plain(text)]
        wrong = next((id for id in found if not 0 <= id < self.get_vocab_size()), None)
        if wrong is not None:
            raise PluginError(f"{self.where}: encode_plain() gave the id {wrong}; legal: 0 to {self.get_vocab_size() - 1}.")
        return _Ids(found)

    def id_to_token(self, id: int) -> str | None:
        if not 0 <= id < self.get_vocab_size():
            return None
        with labelled(self.made, "to spell an id"):
            return str(self.made.token(id) if hasattr(self.made, "token") else self.made.decode([id]))

    def decode(self, ids: list[int]) -> str:
        with labelled(self.made, "to make a text of ids"):
            return str(self.made.decode(ids))

    def spell(self, id: int, first: bool) -> bytes | None:
        with labelled(self.made, "to spell an id"):
            return self.made.spell(id) if 0 <= id < self.get_vocab_size() else None


@overload
def open_tokenizer(asked: str | Path, checkpoint: Any = None, family: str = "") -> Tokenizer: ...
@overload
def open_tokenizer(asked: None, checkpoint: Any = None, family: str = "") -> Tokenizer | None: ...
def open_tokenizer(asked: str | Path | None, checkpoint: Any = None, family: str = "") -> Tokenizer | None:
    """The tokenizer of a file (or of the folder it is in), of an entry's name, or of NAME=FILE, which that entry reads; else the one that
    the checkpoint names, or its family, else the checkpoint's own, else None.

    A file may be a tokenizer.json, a GGUF, Llama 3's tokenizer.model (tiktoken's ranks), a sentencepiece model, BERT's vocab.txt, or what
    a pack recognises. CheckpointError for a file that is no tokenizer, or a vocabulary of a kind that is not supported.
    """
    with reading(asked if asked is not None else checkpoint.path if checkpoint is not None else ""):
        return _opened(asked, checkpoint, family)


def apart(asked: str | Path | None) -> Path | None:
    """The file or folder that was asked for, beside which there may be more; None where a name was, or nothing."""
    file = _parted(asked)[1]
    return Path(file) if file else None


def _parted(asked: Any) -> tuple[str, Any]:
    """What was asked for as an entry's name and a file, either of which may be missing."""
    if not isinstance(asked, str) or Path(asked).exists():
        return "", asked
    name, equals, file = asked.partition("=")
    return (name, file if equals else None) if name and registry().called(GROUP, name) else ("", asked)


def _opened(asked: str | Path | None, checkpoint: Any, family: str) -> Tokenizer | None:
    name, file = _parted(asked)
    if name:
        return _by_name(name, checkpoint, "", file)
    if file is not None:
        return _from_file(_file(file), checkpoint)
    if checkpoint is None:
        return None
    named = _named(checkpoint)
    if named or family:
        return _by_name(named or family, checkpoint, f"{checkpoint.path}: {'it' if named else 'its family'} names a tokenizer: ")
    if checkpoint.kind == "gguf":
        return _by_name("iron-lm:gguf", checkpoint, "")
    folder = _folder(checkpoint)
    found = _beside(folder) or next((folder / name for _, name in _theirs(folder)), None)
    return _from_file(found, checkpoint) if found is not None else None


def _file(asked: str | Path) -> Path:
    if not isinstance(asked, (str, os.PathLike)) or asked == "":
        raise UsageError(f"tokenizer={asked!r}; legal: a file, a folder that one is in, or the name of one.")
    file = Path(asked)
    found = (_beside(file) or next((file / name for _, name in _theirs(file)), None)) if file.is_dir() else file
    if found is None or not found.is_file():
        names = ", ".join(registry().names(GROUP))
        legal = f"a {', a '.join(_FILES)}, a folder with one, a GGUF, or a name: {names}"
        raise CheckpointError(f"{file}: no such tokenizer. Legal: {legal}.")
    return found


def _named(checkpoint: Any) -> str:
    """The entry that a checkpoint names: its reader's word, else what its files say. CheckpointError for what is no name."""
    said = getattr(getattr(checkpoint, "file", None), "tokenizer", None)
    if said is None:
        gguf, metadata = checkpoint.kind == "gguf", checkpoint.metadata
        entries = metadata if gguf else metadata.get("config")
        said = entries.get(NAMED_GGUF if gguf else NAMED) if isinstance(entries, Mapping) else None
    if said is not None and not isinstance(said, str):
        raise CheckpointError(f"{checkpoint.path}: its tokenizer is {printable(repr(said), 60)}; legal: the name of one.")
    return said or ""


def _folder(checkpoint: Any) -> Path:
    path: Path = checkpoint.path
    return path if path.is_dir() else path.parent


def _beside(folder: Path) -> Path | None:
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def _theirs(folder: Path) -> Iterator[tuple[Record, str]]:
    """Files in a folder that packs' tokenizers are made of, by name."""
    for record in _entries(own=False):
        yield from ((record, name) for name in _files(record) if (folder / name).is_file())


def _files(record: Record) -> tuple[str, ...]:
    found = getattr(record.object, "files", ())
    if not isinstance(found, tuple | list) or not all(isinstance(name, str) and name for name in found):
        raise PluginError(f"tokenizer `{record.name}` of {record.origin}: its files are {foreign.kind_of(found)}; legal: a tuple of names.")
    return tuple(found)


def _entries(own: bool) -> Iterator[Record]:
    """Entries that can be had, Iron's own or the others. What fails is listed as failed, and keeps nobody else from being asked."""
    for name in registry().names(GROUP):
        record = next((one for one in registry().owners(GROUP, name)), None)
        if record is None or record.own != own:
            continue
        try:
            registry().loaded(GROUP, name)
        except PluginError:
            continue
        yield record


def _from_file(file: Path, checkpoint: Any) -> Tokenizer:
    """By what the file holds."""
    with reading(file):
        try:
            with file.open("rb") as opened:
                head = opened.read(256)
        except OSError as error:
            raise CheckpointError(f"{file}: {error.strerror or error}.") from None
        record = next((one for one in _entries(own=True) if one.object.sniff(file, head)), None)
        if record is None:
            theirs = [one for one in _entries(own=False) if _sniffs(one, file, head)]
            if len(theirs) > 1:
                who = " and ".join(f"`{one.name}` of {one.owner}" for one in theirs)
                legal = f"--tokenizer {theirs[0].name}={file}, or {theirs[1].name}=..."
                raise CheckpointError(f"{file}: {who} both recognise it. Legal: {legal}.")
            record = theirs[0] if theirs else registry().loaded(GROUP, _LAST)
        assert record is not None
        tokenizer = _made(record, file, checkpoint)
        assert tokenizer is not None
    tokenizer.where = str(file)
    return tokenizer


def _sniffs(record: Record, file: Path, head: bytes) -> bool:
    if not callable(getattr(record.object, "sniff", None)):
        return False
    try:
        with foreign.guarded():
            says = record.object.sniff(file, head)
            if not isinstance(says, bool):
                raise TypeError(f"it gave {foreign.kind_of(says)}; legal: True or False")
            return says
    except foreign.Raised as raised:
        record.fail(f"its sniff failed: {raised}", raised.error)
        said = f"tokenizer `{record.name}` of {record.origin} is passed over: its sniff failed: {raised}. {record.fix}."
        warnings.warn(said, PluginWarning, stacklevel=2)
        return False


def _by_name(name: str, checkpoint: Any, where: str, given: str | None = None) -> Tokenizer | None:
    record = registry().loaded(GROUP, name)
    if record is None:
        raise CheckpointError(where + registry().missing(GROUP, name))
    file = None if given is None else Path(given)
    if file is not None and not file.is_file():
        raise CheckpointError(f"{file}: no such file, which tokenizer `{name}` shall read.")
    if file is None and checkpoint is not None:
        folder = _folder(checkpoint)
        file = next((folder / one for one in _files(record) if (folder / one).is_file()), None)
    tokenizer = _made(record, file, checkpoint)
    if tokenizer is not None:
        tokenizer.where = f"tokenizer `{name}`" if file is None and not record.own else str(file or checkpoint.path)
    return tokenizer


def _made(record: Record, file: Path | None, checkpoint: Any) -> Tokenizer | None:
    """What an entry opens, as a `Tokenizer`. PluginError for what fails in a pack, or is none."""
    if record.own:
        opened: Tokenizer | None = record.object.open(file, checkpoint)
        return opened
    with labelled(record.object, "to open its tokenizer"):
        made = record.object.open(file, checkpoint)
    if isinstance(made, Tokenizer):
        return made
    where = f"tokenizer `{record.name}` of {record.origin}"
    if not isinstance(made, Tokenizing) or isinstance(made, type):
        wanted = "an object with vocab_size, encode_plain(text) and decode(ids)"
        raise PluginError(f"{where}: open() gave {foreign.kind_of(made)}; legal: {wanted}, or an iron_lm Tokenizer.")
    bos, stop, after = getattr(made, "bos", None), getattr(made, "stop", ()), getattr(made, "after", ())
    ids = [*(() if bos is None else (bos,)), *(stop if isinstance(stop, tuple | list) else [stop]), *after]
    size = made.vocab_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise PluginError(f"{where}: its vocab_size is {foreign.kind_of(size)}; legal: 1 or more.")
    for id in ids:
        if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < size:
            raise PluginError(f"{where}: of its bos, stop and after, {printable(repr(id), 40)} is no id; legal: 0 to {size - 1}.")
    library = _Library(made, where)
    spelling = Spelling(library.spell) if callable(getattr(made, "spell", None)) else Undivided(library.decode)
    return Tokenizer(library, bos, tuple(stop), spelling, tuple(after))
