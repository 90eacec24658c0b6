"""Sentencepiece models (`tokenizer.model` of Llama 2, Gemma, Mistral), through the `sentencepiece` library."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from iron_core.errors import CheckpointError
from iron_lm.text.special_tokens import Added
from iron_lm.text.spelling import byte_of
from iron_lm.text.vocabulary import MOST_ADDED, MOST_LETTERS, SPACE

#: At the end of a model's bytes this sets `normalizer_spec.add_dummy_prefix` to false: protobuf takes the last word of a field.
_NO_PREFIX = b"\x1a\x02\x18\x00"


class Ids:
    """An encoding: its ids."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


class Pieces:
    """A sentencepiece model with the parts of `tokenizers.Tokenizer` that `Tokenizer` uses.

    added: tokens beside the model's pieces, or what is to be known of those, by id. special: texts of special tokens; one that is
    none of the others' gets the next id. always_prefix: text behind a special token gets the space that the model puts before a
    text, too.
    """

    def __init__(
        self, proto: bytes, added: Mapping[int, Added] | None = None, special: Iterable[str] = (), always_prefix: bool = True
    ) -> None:
        self.model, self._inner = _model(proto), _model(proto if always_prefix else proto + _NO_PREFIX)
        self.size = int(self.model.get_piece_size())
        self.prefixed = self.model.encode("a", out_type=str)[:1] not in ([], ["a"])
        ids = list(range(self.size))
        silent = [i for i, c, u in zip(ids, self.model.is_control(ids), self.model.is_unknown(ids), strict=True) if c or u]
        own = {i: Added(self.model.id_to_piece(i)) for i in silent} | _user_defined(self.model, proto, silent, ids)
        #: Tokens found in a text as they are spelled, by id: control, user-defined and added ones.
        self.added = own | dict(added or {})
        #: Their ids by how they are spelled.
        self.special = {token.content: i for i, token in self.added.items()}
        free = self.get_vocab_size()
        for text in special:
            if text not in self.special:
                known = self.token_to_id(text)
                id, free = (free, free + 1) if known is None else (known, free)
                self.added[id], self.special[text] = Added(text), id
        if len(self.added) > MOST_ADDED or sum(len(token.content) for token in self.added.values()) > MOST_LETTERS:
            raise CheckpointError(
                f"more than {MOST_ADDED} special tokens, or of more than {MOST_LETTERS} characters; no vocabulary has them."
            )
        longest_first = sorted(self.added.values(), key=lambda token: len(token.content), reverse=True)
        self._find = re.compile("|".join(map(_pattern, longest_first))) if longest_first else None

    def get_vocab_size(self) -> int:
        return max(self.size, *(i + 1 for i in self.added)) if self.added else self.size

    def id_to_token(self, id: int) -> str | None:
        if id in self.added:
            return self.added[id].content
        return str(self.model.id_to_piece(id)) if 0 <= id < self.size else None

    def token_to_id(self, token: str) -> int | None:
        if token in self.special:
            return self.special[token]
        id = int(self.model.piece_to_id(token))
        return id if self.model.id_to_piece(id) == token else None

    def encode(self, text: str, add_special_tokens: bool = False) -> Ids:
        ids: list[int] = []
        at = 0
        for found in self._find.finditer(text) if self._find else ():
            ids += self._plain(text, at, found.start())
            ids.append(self.special[found[0] if found[0] in self.special else found[0].strip()])
            at = found.end()
        return Ids(ids + self._plain(text, at, len(text)))

    def _plain(self, text: str, start: int, end: int) -> list[int]:
        model = self._inner if start else self.model
        return [int(i) for i in model.encode(text[start:end], out_type=int)] if start < end else []

    def spell(self, id: int, first: bool) -> bytes | None:
        """The bytes an id adds to a text; None for a special token, or none at all."""
        token = self.id_to_token(id)
        if token is None or (id in self.added and self.added[id].special):
            return None
        byte = byte_of(token) if id < self.size and self.model.is_byte(id) else None
        return token.replace(SPACE, " ").encode() if byte is None else byte


def _user_defined(model: Any, proto: bytes, silent: Collection[int], ids: list[int]) -> dict[int, Added]:
    """User-defined pieces, which the library does not tell: those whose message says type 4."""
    others = {*silent, *(i for i, byte in zip(ids, model.is_byte(ids), strict=True) if byte)}
    maybe = {i for i, score in zip(ids, model.get_score(ids), strict=True) if score == 0 and i not in others}
    found = {}
    if maybe:
        messages = (value for number, value in _fields(proto) if number == 1 and isinstance(value, bytes))
        for id, message in enumerate(islice(messages, max(maybe) + 1)):
            # those with spaces the model finds as the text is normalised
            if id in maybe and dict(_fields(message)).get(3) == 4 and SPACE not in model.id_to_piece(id):
                found[id] = Added(model.id_to_piece(id), special=False)
    return found


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message by their numbers, as far as it is one: numbers, and the bytes of what has a length."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
        elif wire in (1, 2, 5):
            length, at = _varint(message, at) if wire == 2 else (8 if wire == 1 else 4, at)
            yield tag >> 3, message[at : at + length]
            at += length
        else:
            return


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number as protobuf writes it, and where it ends."""
    number = shift = 0
    for byte in message[at : at + 10]:
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return number, at


def _pattern(token: Added) -> str:
    """A regular expression that finds a token, with the spaces it takes along."""
    word = re.escape(token.content)
    if token.single_word:
        word = rf"(?<!\w){word}(?!\w)"
    return (r"\s*" if token.lstrip else "") + word + (r"\s*" if token.rstrip else "")


def _model(proto: bytes) -> Any:
    import sentencepiece

    sentencepiece.set_min_log_level(2)  # what it thinks of a piece is the file's to say, and not to the terminal
    model = sentencepiece.SentencePieceProcessor()
    model.LoadFromSerializedProto(proto)
    return model
