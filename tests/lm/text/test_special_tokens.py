"""Special tokens as the files beside a tokenizer have them: added, named, and ending an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iron_core.errors import CheckpointError
from iron_lm.text.opening import open_tokenizer
from iron_lm.text.special_tokens import ENDS, Companions, known_ends
from iron_lm.text.template import find_template
from iron_lm.text.tokenizer import Tokenizer

WORDS = {w: i for i, w in enumerate(["<unk>", "a", "b", "<s>", "</s>"])}


class Folder:
    """What a folder's checkpoint is to a tokenizer."""

    kind = "safetensors"

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path, self.metadata = path, {"config": config}


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    """folder(config.json's entries, name of another file without its ending -> its content): its tokenizer, of five words."""

    def open_(config: dict[str, Any], **files: Any) -> Tokenizer:
        tokens = [
            {"id": i, "content": w, "special": True} | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for w, i in WORDS.items() if w in ("<s>", "</s>")
        ]  # fmt: skip
        model = {"type": "WordLevel", "vocab": WORDS, "unk_token": "<unk>"}
        whole = {"version": "1.0", "added_tokens": tokens, "model": model, "pre_tokenizer": {"type": "Whitespace"}, "decoder": None}
        for name, content in ({"tokenizer": whole} | files).items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        found = open_tokenizer(None, Folder(tmp_path, config))
        assert found is not None
        return found

    return open_


@pytest.mark.parametrize(
    ("files", "stop"),
    [
        ({}, {2, 4}),
        ({"generation_config": {"eos_token_id": [1, 2]}}, {1, 2, 4}),
        ({"generation_config": {"eos_token_id": 1}}, {1, 4}),  # generation goes by this file where it speaks
        ({"generation_config": {"temperature": 0.6}}, {2, 4}),
        ({"tokenizer_config": {"eos_token": "b"}}, {2, 4}),
        ({"tokenizer_config": {"eos_token": {"content": "a"}}}, {1, 2, 4}),
        ({"special_tokens_map": {"eos_token": "a"}}, {1, 2, 4}),
        ({"tokenizer_config": {"eos_token": "nowhere"}}, {2, 4, 5}),  # added behind the others
        ({"tokenizer_config": {"added_tokens_decoder": {"5": {"content": "<|im_end|>", "special": True}}}}, {2, 4, 5}),
        ({"added_tokens": {"<end_of_turn>": 5}}, {2, 4, 5}),
    ],
)
def test_every_file_that_names_an_end_is_heard(folder: Any, files: dict[str, Any], stop: set[int]) -> None:
    """generation_config.json or else config.json by id, the tokenizer's by their spelling, and known texts among special tokens."""
    assert set(folder({"eos_token_id": 2}, **files).stop) == stop


def test_added_tokens_are_found_whole(folder: Any) -> None:
    """In a text, with ids of their own; special ones are not shown, others are."""
    entries = {"5": {"content": "<|im_start|>", "special": True}, "6": {"content": "<tool>", "special": False, "rstrip": True}}
    tokenizer = folder({}, tokenizer_config={"added_tokens_decoder": entries})
    ids = tokenizer.encode("<|im_start|>a<tool> b")
    assert ids == [5, 1, 6, 2] and tokenizer.decode(ids) == "a <tool> b"


def test_files_of_before_are_read_where_the_newer_word_is_missing(folder: Any) -> None:
    """added_tokens.json and special_tokens_map.json: special is what the map names."""
    tokenizer = folder({}, added_tokens={"<x>": 5, "<y>": 6}, special_tokens_map={"additional_special_tokens": ["<x>"]})
    ids = tokenizer.encode("<x>a<y>")
    assert ids == [5, 1, 6] and tokenizer.decode(ids) == "a <y>"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"generation_config": {"eos_token_id": "end"}}, "generation_config.json: eos_token_id is 'end'; legal: an id"),
        ({"generation_config": {"eos_token_id": [1, -2]}}, "eos_token_id is"),
        ({"tokenizer_config": {"added_tokens_decoder": {"x": {"content": "y"}}}}, "'x' is no token id"),
        ({"tokenizer_config": {"added_tokens_decoder": {"5": "y"}}}, "token '5' has no content"),
        ({"tokenizer_config": {"added_tokens_decoder": [1]}}, "no object of tokens by id"),
        ({"added_tokens": {"<x>": 1 << 40}}, "is no token id; legal"),
        ({"special_tokens_map": [1]}, "special_tokens_map.json: not a JSON object"),
    ],
)
def test_a_file_that_cannot_be_is_named(folder: Any, files: dict[str, Any], says: str) -> None:
    """One line with the file and the entry."""
    with pytest.raises(CheckpointError, match=says) as caught:
        folder({}, **files)
    assert "\n" not in str(caught.value)


def test_ends_are_known_by_text() -> None:
    """Those llama.cpp knows; one that a vocabulary uses otherwise, as others of its tokens tell, is none."""
    assert known_ends({"<|im_end|>": 7, "end": 8}.get) == {"<|im_end|>": 7}
    assert known_ends({"<|end|>": 1, "<|return|>": 2, "<|call|>": 3}.get) == {"<|return|>": 2, "<|call|>": 3}
    assert known_ends({"</s>": 1, "<|tool_response>": 2}.get) == {"<|tool_response>": 2}
    assert len(known_ends({text: i for i, text in enumerate(ENDS)}.get)) == len(ENDS) - 2


def test_a_template_has_the_names_of_either_file(tmp_path: Path) -> None:
    """special_tokens_map.json's where tokenizer_config.json leaves them out."""
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "{{ bos_token }}|{{ eos_token }}é", "bos_token": "<s>"}), encoding="utf-8"
    )
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "</s>"}}), encoding="utf-8")
    found = find_template(None, None, tmp_path)
    assert found is not None and found.render([]) == "<s>|</s>é"
    assert Companions(tmp_path).named == {"bos_token": "<s>", "eos_token": "</s>"}


def test_many_added_tokens_take_no_longer_than_their_number(folder: Any) -> None:
    """Thousands, every second one special: each is found, and is shown or not as it says."""
    words = [f"<{i}>" for i in range(20_000)]
    tokenizer = folder(
        {}, added_tokens={word: 5 + i for i, word in enumerate(words)}, special_tokens_map={"additional_special_tokens": words[::2]}
    )
    ids = tokenizer.encode("<19998><19999>")
    assert ids == [5 + 19_998, 5 + 19_999] and tokenizer.decode(ids) == "<19999>"
