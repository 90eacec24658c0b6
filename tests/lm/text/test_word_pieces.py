"""BERT's vocab.txt: what it and the settings beside it say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iron_core.errors import CheckpointError
from iron_lm.text.opening import open_tokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "Un", "caf\u00e9", "cafe", "\u4e2d", "\u6587", "<s>", "</s>", ","]


def ids(folder: Path, text: str, pieces: list[str] = PIECES, **settings: Any) -> list[int]:
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    found = open_tokenizer(folder / "vocab.txt")
    assert found is not None
    return found.encode_whole(text)


@pytest.mark.parametrize(("text", "settings", "want"), [
    ("UnaffABLE,", {}, [2, 4, 5, 6, 14, 3]),
    ("Unaffable", {"do_lower_case": False}, [2, 7, 5, 6, 3]),
    ("caf\u00e9", {}, [2, 9, 3]),
    ("caf\u00e9", {"strip_accents": False}, [2, 8, 3]),
    ("\u4e2d\u6587", {}, [2, 10, 11, 3]),
    ("\u4e2d\u6587", {"tokenize_chinese_chars": False}, [2, 1, 3]),
    ("un", {"cls_token": "<s>", "sep_token": "</s>"}, [12, 4, 13]),
    ("un" * 60, {}, [2, 1, 3]),
])  # fmt: skip
def test_a_text_is_the_longest_pieces_of_its_words(tmp_path: Path, text: str, settings: dict[str, Any], want: list[int]) -> None:
    """Lower-cased and without accents unless the settings say otherwise; a word of more than 100 letters is unknown."""
    assert ids(tmp_path, text, **settings) == want


@pytest.mark.parametrize(("pieces", "settings", "said"), [
    (["a", "b"], {}, "no piece \\[UNK\\], its unk_token"),
    (PIECES, {"sep_token": "[END]"}, "no piece \\[END\\], its sep_token"),
    (PIECES, {"do_lower_case": "yes"}, "do_lower_case is 'yes'; legal: true, false"),
])  # fmt: skip
def test_what_makes_no_tokenizer_is_one_line(tmp_path: Path, pieces: list[str], settings: dict[str, Any], said: str) -> None:
    """By the piece or the setting."""
    with pytest.raises(CheckpointError, match=said):
        ids(tmp_path, "a", pieces, **settings)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    """At its byte."""
    (tmp_path / "vocab.txt").write_bytes(b"[UNK]\n\xff\n")
    with pytest.raises(CheckpointError, match="no UTF-8 at byte 6"):
        open_tokenizer(tmp_path / "vocab.txt")
