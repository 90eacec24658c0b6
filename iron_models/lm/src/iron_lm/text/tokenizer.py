"""Text to ids and back: `Tokenizer`, which is one of whatever kind of vocabulary; see `iron_lm.text.opening` for whose."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from iron_core.errors import CheckpointError, UsageError
from iron_lm.checkpoints.reading import quietly
from iron_lm.text.spelling import Spelling, Stream, Undivided, library_spelling


class Tokenizer:
    """Ids of a text and text of ids.

    bos: put first by `encode`, or None. after: what an encoder's text ends with. stop: ids that end an answer. spelling: what ids
    spell, by default as the library's own decoder has it.
    """

    def __init__(
        self,
        library: Any,
        bos: int | None = None,
        stop: tuple[int, ...] = (),
        spelling: Spelling | Undivided | None = None,
        after: tuple[int, ...] = (),
    ) -> None:
        self._library = library
        self.bos, self.after = bos, after
        self.stop = stop
        self._given = spelling
        #: The file it is of, for messages, and how many ids the model has where they may be fewer.
        self.where = "the tokenizer"
        self.limit: int | None = None

    @property
    def vocab_size(self) -> int:
        return int(self._library.get_vocab_size())

    @cached_property
    def spelling(self) -> Spelling | Undivided:
        """What ids spell."""
        found = self._given or library_spelling(self._library)
        return Undivided(partial(self._guarded, found.decode)) if isinstance(found, Undivided) else found

    def _guarded(self, decode: Callable[[list[int]], str], ids: list[int]) -> str:
        with quietly(self.where):
            return decode(ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, the beginning-of-text id first where the model wants one; UsageError if it is no Unicode text."""
        ids = self._ids(text)
        return self._known(ids if self.bos is None else [self.bos, *ids])

    def encode_whole(self, text: str) -> list[int]:
        """As `encode`, with what such a text ends with (`[SEP]`, `<eos>`): as an encoder takes it."""
        return [*self.encode(text), *self.after]

    def encode_marked(self, text: str) -> list[int]:
        """Ids of a text that has its special tokens written out, as a chat template renders it."""
        ids = self._ids(text)
        return self._known(ids if self.bos is None or ids[:1] == [self.bos] else [self.bos, *ids])

    def _known(self, ids: list[int]) -> list[int]:
        """The ids; CheckpointError where the model has no such id."""
        if self.limit is not None and max(ids, default=0) >= self.limit:
            raise CheckpointError(
                f"{self.where}: its token {max(ids)} is beyond the {self.limit} the model has; give the model's own with --tokenizer."
            )
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text within another: nothing is put before it."""
        return self._ids(text)

    def _ids(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:  # bytes of a command line that are not UTF-8 arrive as lone surrogates
            raise UsageError(f"the text is not valid UTF-8 at character {error.start}; give it as UTF-8.") from None
        with quietly(self.where):
            return list(self._library.encode(text, add_special_tokens=False).ids)

    def token(self, id: int) -> str | None:
        """A token as the vocabulary spells it; None if there is no such id."""
        found = self._library.id_to_token(int(id)) if 0 <= int(id) < 1 << 32 else None
        return None if found is None else str(found)

    def decode(self, ids: Any) -> str:
        """Text of ids, special tokens left out: what `stream` gives for them, joined."""
        return self.spelling.text(ids)

    def stream(self) -> Stream:
        """A new text, made by calling it with each next id; see `Stream`."""
        return self.spelling.stream()
