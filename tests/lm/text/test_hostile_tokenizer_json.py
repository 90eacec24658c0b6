"""A tokenizer.json made to do harm: a library's own errors and panics, and sizes it takes at their word, are one line of the file."""

from __future__ import annotations

import base64
import json
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iron_core.errors import CheckpointError
from iron_lm.checkpoints.reading import quietly
from iron_lm.text import tokenizer_json
from iron_lm.text.opening import open_tokenizer
from tests.lm.hostile import refusal


def whole_words(**more: Any) -> bytes:
    """A tokenizer.json of whole words."""
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2}, "unk_token": "[UNK]"}
    plain = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
    }
    return json.dumps(plain | {"model": model} | more).encode()


def test_a_librarys_panic_is_one_line_and_leaves_no_page_behind(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is no Exception, and it writes a backtrace to standard error before it comes."""
    path = tmp_path / "tokenizer.json"
    steps = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    named_otherwise = {"<t>": {"id": "<t>", "ids": [1], "tokens": ["<t>"]}}
    path.write_bytes(
        whole_words(post_processor={"type": "TemplateProcessing", "single": steps, "pair": steps, "special_tokens": named_otherwise})
    )
    refusal(path, lambda: open_tokenizer(path))
    assert capfd.readouterr().err == ""


def test_what_else_is_written_to_standard_error_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    """Only a panic's page is dropped; another writer's words come after the call."""

    with quietly("tokenizer.json"):
        os.write(2, b"from another thread\n")
    assert capfd.readouterr().err == "from another thread\n"
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"), quietly("tokenizer.json"):
        os.write(2, b"thread '<unnamed>' panicked at src/lib.rs\n")
        raise panic("index out of bounds")
    assert capfd.readouterr().err == ""


def test_an_error_that_comes_with_a_text_names_the_file(tmp_path: Path) -> None:
    """A vocabulary whose unknown token is not in it loads, and fails at the first word it does not know."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(whole_words(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}))
    tokenizer = open_tokenizer(path)
    assert tokenizer is not None and tokenizer.encode("a") == [0]
    refusal(path, lambda: tokenizer.encode("zebra"))


def test_a_token_beyond_the_model_is_the_files_fault(tmp_path: Path) -> None:
    """Ids that the embedding has no row for are refused where the text is encoded."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(whole_words())
    tokenizer = open_tokenizer(path)
    assert tokenizer is not None
    tokenizer.limit = 2
    assert tokenizer.encode("a b") == [0, 1]
    assert "token 2 is beyond the 2 the model has" in refusal(path, lambda: tokenizer.encode("zebra"))


def sequence(kind: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: [*steps]}


def replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def charsmap(trie_bytes: int, *replacements: bytes) -> dict[str, Any]:
    """A sentencepiece table that claims a trie of so many bytes, four of which are there."""
    table = struct.pack("<II", trie_bytes, 0) + b"\0".join(replacements)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def added(*contents: str, normalized: bool = True) -> list[dict[str, Any]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": True}
    return [{"id": 3 + i, "content": content, **flags} for i, content in enumerate(contents)]


def template(pieces: list[str], ids: list[int]) -> dict[str, Any]:
    single = [{"Sequence": {"id": "A", "type_id": 0}}, *({"SpecialToken": {"id": id, "type_id": 0}} for id in pieces)]
    special = {"<s>": {"id": "<s>", "ids": ids, "tokens": ["a"] * len(ids)}}
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}


LETTER_OF_EACH_BYTE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GROWING: dict[str, tuple[dict[str, Any], str]] = {
    "replacing": ({"normalizer": sequence("normalizers", *[replace("a", "a" * 100)] * 4)},
        "normalizer makes more than 1024 characters of one"),
    "putting in front": ({"normalizer": sequence("normalizers", *[{"type": "Prepend", "prepend": "a" * 9000}] * 40)}, "characters of one"),
    "decoding": ({"decoder": sequence("decoders", *[replace("a", "a" * 1000)] * 4)}, "decoder makes more than 1024 characters of one"),
    "between all": ({"normalizer": sequence("normalizers", *[{"type": "Replace", "pattern": {"Regex": ""}, "content": "aa"}] * 8)},
        "of one"),
    "bytes of bytes": ({"normalizer": sequence("normalizers", *[{"type": "ByteLevel"}] * 30)}, "normalizer makes"),
    "bytes of bytes, split": ({"pre_tokenizer": sequence("pretokenizers", *[LETTER_OF_EACH_BYTE] * 30)}, "pre_tokenizer makes"),
    "taken apart, put together": ({"normalizer": sequence("normalizers", *[replace("\u0644", "\ufdfa"), {"type": "NFKD"}] * 20)}, "of one"),
    "a table's replacement": ({"normalizer": charsmap(4, b"a", b"b" * 2000)}, "normalizer makes"),
    "a sequence in sequences": (
        {"normalizer": sequence("normalizers", *[sequence("normalizers", replace("a", "aaaaaaaa"))] * 9)}, "normalizer makes"
    ),
    "what goes in front, under another name": ({"normalizer": replace("a", "b" * 2000) | {"prepend": ""}}, "normalizer makes"),
    "in a list": ({"normalizer": ["a" * 9000]}, "no object with a type"),
    "in a list of a sequence": ({"normalizer": {"normalizers": [["a" * 9000]]}}, "no object with a type"),
    "added tokens": (
        {"normalizer": replace("a", "b" * 1000), "added_tokens": added(*(str(i) + "a" * 1000 for i in range(20)))}, "of its added tokens"
    ),
    "a template": ({"post_processor": template(["<s>"] * 100, [1] * 100)}, "adds more than 4096 ids"),
    "a template of templates": ({"post_processor": sequence("processors", *[template(["<s>"] * 3000, [1])] * 2)}, "4096 ids"),
    "a template of lists": (
        {"post_processor": {"single": [{"SpecialToken": ["<s>", 0]}] * 100, "pair": [], "special_tokens": {"<s>": ["<s>", [1] * 100, []]}}},
        "4096 ids",
    ),
    "steps": ({"pre_tokenizer": sequence("pretokenizers", *[{"type": "Whitespace"}] * 200)}, "more than 128 steps"),
    "tokens": ({"added_tokens": added(*map(str, range(66_000)), normalized=False)}, "66000 added tokens"),
    "letters of tokens": ({"added_tokens": added(*(str(i) + "a" * 300_000 for i in range(4)))}, "1048576 characters together"),
}  # fmt: skip


@pytest.mark.parametrize("case", GROWING)
def test_a_text_is_not_made_millions_of_times_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Memory that a library cannot have ends the process; what would ask for it is refused before the library sees it."""
    parts, says = GROWING[case]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(whole_words(**parts))
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=None))
    assert says in refusal(path, lambda: open_tokenizer(path))


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a table longer than it is": ({"normalizer": charsmap(1 << 31, b"a")}, "no table of characters"),
    "a table that is none": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "%"}}, "no table of characters"),
    "a long prefix": ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "continuing_subword_prefix": "#" * 999}}, "more than 256"),
    "a long suffix": ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "#" * 999}}, "more than 256"),
    "merges without their prefix": (
        {"model": {"type": "BPE", "vocab": {"a": 0, "é": 1}, "merges": ["a é"], "continuing_subword_prefix": "x"}}, "begin with 'x'"
    ),
    "merges in pairs without it": (
        {"model": {"type": "BPE", "vocab": {"a": 0, "é": 1}, "merges": [["a", "é"]], "continuing_subword_prefix": "x"}}, "begin with 'x'"
    ),
    "long pieces": ({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a" * 1_100_000, 0.0]]}}, "1048576 bytes and 32 for each"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_ends_the_librarys_process_is_refused_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Sizes and prefixes that the library takes at their word."""
    parts, says = BROKEN[case]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(whole_words(**parts))
    monkeypatch.setitem(sys.modules, "tokenizers", SimpleNamespace(Tokenizer=None))
    assert says in refusal(path, lambda: open_tokenizer(path))


ORDINARY: dict[str, dict[str, Any]] = {
    "ALBERT": {
        "normalizer": sequence(
            "normalizers", replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ),
        "added_tokens": added(*(f"<{i}>" for i in range(1000))),
    },
    "GPT-2": {"pre_tokenizer": LETTER_OF_EACH_BYTE, "decoder": LETTER_OF_EACH_BYTE, "post_processor": template(["<s>"] * 2, [1])},
    "BERT": {"model": {
        "type": "WordPiece", "vocab": {"a": 0, "##b": 1, "[UNK]": 2}, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }},
    "merges with their prefix": {"model": {
        "type": "BPE", "vocab": {"a": 0, "##b": 1, "ab": 2}, "merges": [["a", "##b"]], "continuing_subword_prefix": "##",
    }},
}  # fmt: skip


@pytest.mark.parametrize("case", ORDINARY)
def test_what_tokenizers_have_is_within_the_bounds(tmp_path: Path, case: str) -> None:
    """As the common ones are made."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(whole_words(**ORDINARY[case]))
    tokenizer = open_tokenizer(path)
    assert tokenizer is not None and tokenizer.encode("a") == [0]


def test_a_large_file_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it is sound is kept in the cache by what the file holds: the same opens again, another is looked at."""
    looked = []
    monkeypatch.setattr(tokenizer_json, "_check", lambda file, raw: looked.append(len(raw)))
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "tokenizer.json"
    for more in ("", "", "x"):
        path.write_bytes(whole_words(note="a" * (1 << 20) + more))
        assert tokenizer_json.read_tokenizer(path) == path.read_bytes()
    assert len(looked) == 2


def test_companions_of_a_tokenizer_are_bound_with_it(tmp_path: Path) -> None:
    """Tokens that a file beside it adds are normalised as its own are."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(whole_words(normalizer=replace("a", "b" * 1000)))
    tokens = {str(10 + i): {"content": f"{i}" + "a" * 1000, "normalized": True} for i in range(20)}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": tokens}))
    assert "of its added tokens" in refusal(path, lambda: open_tokenizer(path))


def test_a_pattern_that_the_library_gives_up_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A regular expression that would go on for ever is its panic; here it is one line, with the text that brought it."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(whole_words(normalizer={"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "x"}))
    tokenizer = open_tokenizer(path)
    assert tokenizer is not None
    refusal(path, lambda: tokenizer.encode("a" * 40 + "b"))
    assert capfd.readouterr().err == ""
