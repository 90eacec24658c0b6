"""Ids as text, one mechanism for every kind of tokenizer: the bytes each id spells, decoded as UTF-8 as they come."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any

import attrs

from iron_lm.text.vocabulary import byte_letters

#: (an id, is it the first of the text) -> the bytes it adds; None for one that shows nothing.
Spell = Callable[[int, bool], "bytes | None"]
#: Spellings kept at hand; a text's ids come again and again.
_KEPT = 1 << 13
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


def byte_of(token: str) -> bytes | None:
    """The byte a token such as `<0x0A>` stands for, or None."""
    found = _BYTE.match(token)
    return bytes([int(found[1], 16)]) if found else None


@attrs.frozen
class Spelling:
    """What ids spell. `strip`: as many spaces are left out where a text begins with them."""

    spell: Spell
    strip: int = 0

    def stream(self) -> Stream:
        """A new text, to be made id by id."""
        return Stream(self)

    def text(self, ids: Iterable[int]) -> str:
        """The text of all the ids: what a stream of them gives."""
        stream = self.stream()
        return stream.take(ids) + stream.rest()


class Stream:
    """A text made id by id: call it with each next id for the text that completes, and `rest()` at the end.

    A character cut by ids is held back until it is whole. Bytes that are no UTF-8 show as U+FFFD, one for each longest
    beginning of a character, as Unicode has it; what comes before and after them is not touched.
    """

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._first = True
        self._strip = spelling.strip

    def __call__(self, id: int) -> str:
        piece = self._spelling.spell(int(id), self._first)
        if piece is None:
            return ""
        self._first = False
        text = self._decoder.decode(piece)
        return self._begun(text) if self._strip else text

    def take(self, ids: Iterable[int]) -> str:
        """The text that several ids complete."""
        return "".join(map(self, ids))

    def rest(self) -> str:
        """What was held back, at the end of the text."""
        return self._begun(self._decoder.decode(b"", True))

    def _begun(self, text: str) -> str:
        """The text without the spaces that its beginning leaves out."""
        while self._strip and text:
            self._strip, text = (self._strip - 1, text[1:]) if text[0] == " " else (0, text)
        return text


class Grown(Stream):
    """A stream where no id spells anything by itself: all ids are decoded again, and what the text grew by is given."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0

    def __call__(self, id: int) -> str:
        return self.take((id,))

    def take(self, ids: Iterable[int]) -> str:
        self._ids += map(int, ids)
        return self._grown(self._decode(self._ids).rstrip(" �"))  # what may yet be another space, or a character cut short

    def rest(self) -> str:
        return self._grown(self._decode(self._ids))

    def _grown(self, text: str) -> str:
        new, self._shown = text[self._shown :], max(self._shown, len(text))
        return new


@attrs.frozen
class Undivided:
    """As `Spelling`, for decoders whose text is not made of what each id spells."""

    decode: Callable[[list[int]], str]

    def stream(self) -> Grown:
        return Grown(self.decode)

    def text(self, ids: Iterable[int]) -> str:
        return self.decode([int(i) for i in ids])


def library_spelling(library: Any, silent: Collection[int] | None = None, plain: Collection[int] = ()) -> Spelling | Undivided:
    """How a tokenizer of the `tokenizers` library spells its ids.

    silent: ids that show nothing; by default the library's special tokens. plain: ids whose text is taken as it is written.
    """
    if silent is None:
        silent = {id for id, token in library.get_added_tokens_decoder().items() if token.special}
    decoder = None if library.decoder is None else json.loads(library.decoder.__getstate__())
    taken = _taken_apart(decoder)
    if taken is None:
        return Undivided(lambda ids: str(library.decode(ids, skip_special_tokens=True)))
    steps, last, strip = taken

    @lru_cache(_KEPT)
    def spell(id: int, first: bool) -> bytes | None:
        token = None if id in silent else library.id_to_token(id)
        if token is None:
            return None
        if id in plain:
            return str(token).encode()
        byte = byte_of(token) if last is _byte_fallback else None
        if byte is not None:
            return byte
        for step in steps:
            token = step(token, first)
        return last(token)

    return Spelling(spell, strip)


#: Changes a token's text: (text, is it the first) -> text.
_Change = Callable[[str, bool], str]


def _taken_apart(decoder: dict[str, Any] | None) -> tuple[list[_Change], Callable[[str], bytes], int] | None:
    """A decoder as changes of each token, how its letters become bytes, and the spaces its text's beginning leaves out.

    None for a decoder that does not work token by token.
    """
    if decoder is None:
        return [lambda token, first: token if first else f" {token}"], str.encode, 0
    changes: list[_Change] = []
    last: Callable[[str], bytes] = str.encode
    fused, strip = False, 0
    for part in decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]:
        kind = part["type"]
        if kind == "Fuse":
            fused = True
        elif kind == "ByteFallback" and not fused:
            last = _byte_fallback
        elif kind == "ByteLevel":
            last = _byte_level
        elif kind == "Replace" and len(part["pattern"].get("String", "")) == 1:
            changes.append(_replace(part["pattern"]["String"], part["content"]))
        elif kind == "Strip" and not fused:
            changes.append(_strip(part["content"], part["start"], part["stop"]))
        elif kind == "Strip" and part["content"] == " " and not part["stop"]:
            strip = part["start"]
        elif kind == "Metaspace":
            changes.append(_metaspace(part["replacement"], part.get("prepend_scheme", "always") != "never"))
        else:
            return None
    return changes, last, strip


def _replace(old: str, new: str) -> _Change:
    return lambda token, first: token.replace(old, new)


def _strip(letter: str, start: int, stop: int) -> _Change:
    def change(token: str, first: bool) -> str:
        head = min(start, len(token) - len(token.lstrip(letter)))
        tail = min(stop, len(token[head:]) - len(token[head:].rstrip(letter)))
        return token[head : len(token) - tail]

    return change


def _metaspace(letter: str, prepended: bool) -> _Change:
    return lambda token, first: token.replace(letter, "" if first and prepended else " ")


def _byte_fallback(token: str) -> bytes:
    return token.encode()


_BYTES = {letter: byte for byte, letter in enumerate(byte_letters())}


def _byte_level(token: str) -> bytes:
    """Letters that stand for bytes; a token with any other letter is taken as it is written."""
    try:
        return bytes(map(_BYTES.__getitem__, token))
    except KeyError:
        return token.encode()
