"""Sentencepiece models (`tokenizer.model` of Llama 2, Gemma, Mistral), through the `sentencepiece` library."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError
from iron_lm.tokenizer import Tokenizer


class Ids:
    """An encoding: its ids."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


class Pieces:
    """A sentencepiece model with the parts of `tokenizers.Tokenizer` that `Tokenizer` uses."""

    def __init__(self, model: Any) -> None:
        self.model = model
        size = model.get_piece_size()
        #: Control and user-defined pieces are found in a text as they are spelled; sentencepiece finds only the latter.
        self.special = {model.id_to_piece(i): i for i in range(size) if model.is_control(i)}
        spelled = sorted(self.special, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, spelled)) + ")") if spelled else None

    def get_vocab_size(self) -> int:
        return int(self.model.get_piece_size())

    def id_to_token(self, id: int) -> str | None:
        return str(self.model.id_to_piece(id)) if 0 <= id < self.get_vocab_size() else None

    def encode(self, text: str, add_special_tokens: bool = False) -> Ids:
        parts = self._split.split(text) if self._split else [text]
        ids: list[int] = []
        for part in parts:
            if part in self.special:
                ids.append(self.special[part])
            elif part:
                ids += self.model.encode(part, out_type=int)
        return Ids(ids)

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        kept = [i for i in ids if not self.model.is_control(i)] if skip_special_tokens else ids
        return str(self.model.decode(kept))


class PiecesTokenizer(Tokenizer):
    """A Tokenizer over a sentencepiece model."""

    def stream(self) -> Callable[[int], str]:
        """As `Tokenizer.stream`: text is given once the characters it ends in are whole."""
        ids: list[int] = []
        shown = ""

        def step(token: int) -> str:
            nonlocal shown
            ids.append(int(token))
            text = self.decode(ids)
            if text.endswith("\ufffd"):  # bytes of a character that is not whole yet
                return ""
            new, shown = text[len(shown) :], text
            return new

        return step


def open_pieces(file: Path) -> PiecesTokenizer:
    """The tokenizer of a sentencepiece model. CheckpointError for a file that is none."""
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(file.read_bytes())
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{file}: not a tokenizer: neither JSON, tiktoken's ranks, a GGUF nor a sentencepiece model.") from error
    bos, eos = model.bos_id(), model.eos_id()
    return PiecesTokenizer(Pieces(model), bos if bos >= 0 else None, (eos,) if eos >= 0 else ())
