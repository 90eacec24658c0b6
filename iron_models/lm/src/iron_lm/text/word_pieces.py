"""BERT's vocab.txt, a piece of a word on each line, as the tokenizer that its model was trained with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iron_core.errors import CheckpointError, printable
from iron_lm.text.special_tokens import Companions

#: What such a file is called.
VOCAB_TXT = "vocab.txt"
#: Bytes of one; multilingual BERT's has a million.
_MOST = 1 << 24
#: Special tokens by their names in tokenizer_config.json, as BERT has them where nothing is said.
_SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
#: Of those, what every text needs.
_NEEDED = ("unk_token", "cls_token", "sep_token")
#: Letters of the longest word that is looked up; a longer one is unknown.
_LONGEST = 100


def word_pieces(file: Path, companions: Companions) -> bytes:
    """A tokenizer.json for a vocab.txt and what tokenizer_config.json says beside it, as transformers reads both.

    CheckpointError for a file that is too large, is no text, or lacks a special token; and for a setting that is none.
    """
    size = file.stat().st_size
    if size > _MOST:
        raise CheckpointError(f"{file}: {size} bytes of pieces; legal: up to {_MOST}.")
    try:
        pieces = file.read_text("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file}: no UTF-8 at byte {error.start}; legal: a piece of a word on each line.") from None
    pieces = pieces[:-1] if pieces[-1] == "" else pieces
    vocab = {piece: id for id, piece in enumerate(pieces)}
    named = {name: companions.named.get(name, usual) for name, usual in _SPECIAL.items()}
    for name in _NEEDED:
        if named[name] not in vocab:
            raise CheckpointError(f"{file}: no piece {printable(named[name], 40)}, its {name}; legal: BERT's pieces, one on each line.")
    lower = _flag(file, companions, "do_lower_case", True)
    normalizer = {
        "type": "BertNormalizer", "clean_text": True, "lowercase": lower,
        "handle_chinese_chars": _flag(file, companions, "tokenize_chinese_chars", True),
        "strip_accents": _flag(file, companions, "strip_accents", None),
    }  # fmt: skip
    first, last = named["cls_token"], named["sep_token"]
    return json.dumps({
        "version": "1.0", "added_tokens": [_added(vocab[text], text) for text in sorted({*named.values()}, key=str) if text in vocab],
        "normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": _between(first, last, vocab),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": named["unk_token"], "continuing_subword_prefix": "##",
            "max_input_chars_per_word": _LONGEST, "vocab": vocab,
        },
    }).encode()  # fmt: skip


def _flag(file: Path, companions: Companions, name: str, usual: bool | None) -> bool | None:
    value = companions.config.get(name, usual)
    if value is not usual and not isinstance(value, bool):
        where = file.parent / "tokenizer_config.json"
        raise CheckpointError(f"{where}: {name} is {printable(repr(value), 40)}; legal: true, false.")
    return value


def _added(id: int, text: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": text, "special": True, **flags}


def _between(first: str, last: str, vocab: dict[str, int]) -> dict[str, Any]:
    """What puts a text between the two."""
    one, other = ({"SpecialToken": {"id": text, "type_id": 0}} for text in (first, last))
    single = [one, {"Sequence": {"id": "A", "type_id": 0}}, other]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": last, "type_id": 1}}]
    tokens = {text: {"id": text, "ids": [vocab[text]], "tokens": [text]} for text in (first, last)}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}
