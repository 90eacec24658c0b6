"""Vocabularies made to do harm: what is wrong with one is one short printable line that names the file, in little memory."""

from __future__ import annotations

import json
import re
import struct
import time
import tracemalloc
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.errors import LONGEST, CheckpointError, printable
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.checkpoints.reading import reading
from iron_lm.text import pieces
from iron_lm.text.opening import open_tokenizer
from iron_lm.text.vocabulary import merges_of_scores
from tests.lm.hostile import refusal


def value(v: Any) -> bytes:
    """A metadata value with its type, as GGUF has it."""
    if isinstance(v, tuple):
        return struct.pack("<I", v[0]) + v[1]
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<Ii", 5, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, (str, bytes)):
        raw = v.encode() if isinstance(v, str) else v
        return struct.pack("<IQ", 8, len(raw)) + raw
    kind = value(v[0])[:4] if v else struct.pack("<I", 5)
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(v)) + b"".join(value(x)[4:] for x in v)


def gguf(path: Path, metadata: dict[str, Any]) -> Path:
    """A GGUF of metadata alone."""
    entries = [struct.pack("<Q", len(k.encode())) + k.encode() + value(v) for k, v in metadata.items()]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))
    return path


def spaced(tokens: list[Any], **more: Any) -> dict[str, Any]:
    """Metadata of a sentencepiece vocabulary whose earlier tokens merge first."""
    plain = {"model": "llama", "tokens": tokens, "scores": [float(-i) for i in range(len(tokens))]}
    return {f"tokenizer.ggml.{k}": v for k, v in (plain | more).items()}


def opened(path: Path) -> Any:
    return open_tokenizer(None, Checkpoint.open(path))


def i64(n: int) -> tuple[int, bytes]:
    return 11, struct.pack("<q", n)


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "add_bos in words": ({"add_bos_token": "false"}, "is 'false'; legal: true, false"),
    "types that are halves": ({"token_type": [1.5] * 256}, "token_type"),
    "types that are NaN": ({"token_type": [float("nan")] * 256}, "token_type"),
    "types in words": ({"token_type": ["a"] * 256}, "token_type"),
    "one type": ({"token_type": 5}, "token_type"),
    "types of arrays": ({"token_type": [[1]] * 256}, "token_type"),
    "a merge of one word": ({"merges": ["abc", "x"]}, "merge 0 is 'abc'"),
    "a merge of nothing": ({"merges": ["a "]}, "merge 0 is 'a '"),
    "a merge of what is not there": ({"merges": ["zz yy"]}, "makes no tokenizer"),
    "merges of numbers": ({"merges": [1, 2]}, "do not fit together"),
    "tokens of numbers": ({"tokens": [1] * 256}, "do not fit together"),
    "a splitter of another name": ({"pre": "\x1b[2J\u202eevil" * 1000}, "pre-tokenizer"),
    "a splitter that is a number": ({"pre": 7}, "pre-tokenizer an? int"),
    "splitters": ({"pre": ["a"]}, "pre-tokenizer"),
    "another kind": ({"model": "\x1b]0;title\x07" * 1000}, "tokenizer kind"),
    "kinds": ({"model": ["gpt2"]}, "tokenizer kind"),
    "control tokens of many letters": (
        {"tokens": [f"<{i}>" + "x" * 60_000 for i in range(20)], "token_type": [3] * 20},
        "characters together",
    ),
    "control tokens without end": ({"tokens": [f"<{i}>" for i in range(66_000)], "token_type": [3] * 66_000}, "66000 control"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_byte_level_vocabulary_that_cannot_be(tmp_path: Path, byte_metadata: dict[str, Any], case: str) -> None:
    """Ids, types, merges and names that no vocabulary has."""
    changes, says = CASES[case]
    path = gguf(tmp_path / "bad.gguf", byte_metadata | {f"tokenizer.ggml.{k}": v for k, v in changes.items()})
    said = refusal(path, lambda: opened(path))

    assert re.search(says, said), said


@pytest.mark.parametrize("scores", (["a"] * 3, 5, [float("nan")] * 3, [True] * 3, [0.0] * 2))
def test_scores_that_are_none(tmp_path: Path, scores: Any) -> None:
    """Words, one number, NaN, truth values, too few."""
    path = gguf(tmp_path / "bad.gguf", spaced(["a", "b", "ab"], scores=scores))
    refusal(path, lambda: opened(path))


@pytest.mark.parametrize("id", (-1, -(1 << 63), 256, 1 << 40))
def test_special_ids_beyond_the_vocabulary_are_no_tokens(tmp_path: Path, byte_metadata: dict[str, Any], id: int) -> None:
    """Below zero or beyond 32 bits: as in llama.cpp it is as if they were not there, and the rest works."""
    odd = {f"tokenizer.ggml.{kind}_token_id": i64(id) for kind in ("bos", "eos", "eot", "padding", "unknown")}
    tokenizer = opened(gguf(tmp_path / "odd.gguf", byte_metadata | odd))
    assert tokenizer.token(id) is tokenizer.token(1 << 70) is None
    assert tokenizer.bos is None and tokenizer.decode(tokenizer.encode("hey the")) == "hey the"


def prefixes(n: int) -> list[str]:
    return ["a" * k for k in range(1, n + 1)]


def words(depth: int) -> list[str]:
    """Every word of two letters up to a length: each split of each is a merge."""
    return ["".join(word) for n in range(1, depth + 1) for word in product("ab", repeat=n)]


@pytest.mark.parametrize(
    ("tokens", "loads"),
    [
        (prefixes(800), False),
        (words(12), False),
        (["▁", "a", *(chr(97 + k) * 65000 + str(k) for k in range(9))], True),
        (["▁", *("a" * k + "b" * k for k in range(1, 500))], False),
    ],
    ids=("prefixes", "all words", "long tokens", "many lengths"),
)
def test_a_vocabulary_is_built_in_memory_and_time_of_its_own_size(tmp_path: Path, tokens: list[str], loads: bool) -> None:
    """Tokens made of each other in every way there is: seconds of CPU and 40 times the file's size at most."""
    path = gguf(tmp_path / "big.gguf", spaced(tokens))
    start = time.thread_time()
    tracemalloc.start()
    try:
        if loads:
            opened(path)
        else:
            assert "more ways than any vocabulary" in refusal(path, lambda: opened(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * path.stat().st_size + 20e6, f"{peak / 1e6:.0f} MB for {path.stat().st_size / 1e6:.1f} MB"
    assert time.thread_time() - start < 10


def test_the_merges_are_every_way_to_make_a_token() -> None:
    """As defined, on vocabularies drawn at random: the best-scored token first, then by the parts' places."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        tokens = list(dict.fromkeys("".join(rng.choice(list("abc"), rng.integers(1, 6))) for _ in range(60)))
        scores = [float(s) for s in rng.integers(-20, 0, len(tokens))]
        rank = {token: i for i, token in enumerate(tokens)}
        found = sorted(
            (-score, rank[token[:i]], rank[token[i:]], token[:i], token[i:])
            for token, score in zip(tokens, scores, strict=True)
            for i in range(1, len(token))
            if token[:i] in rank and token[i:] in rank
        )
        assert merges_of_scores(tokens, scores) == [(a, b) for *_, a, b in found]


# -- the boundary ---------------------------------------------------------------------------------


def test_whatever_goes_wrong_in_a_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    """Python's own errors, a library's panic, a message of 100 kB, escape sequences; the cause stays attached."""
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    for error in (
        KeyError("x" * 100_000), RecursionError("deep"), MemoryError(), OverflowError("large"), panic("unwrap on None\nat src/lib.rs"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), OSError(5, "Input/output error"), CheckpointError("\x1b[2J\u202e" * 500),
        ValueError("\ud800"),
    ):  # fmt: skip
        with pytest.raises(CheckpointError) as caught, reading(tmp_path / "model.gguf"):
            raise error
        said = str(caught.value)
        assert said.isprintable() and len(said) <= LONGEST and "model.gguf" in said
        assert caught.value.__cause__ is error


def test_the_boundary_lets_through_what_is_not_the_files(tmp_path: Path) -> None:
    """Ctrl-C, an exit, a mistake of the command line."""
    from iron_core.errors import UsageError

    for error in (KeyboardInterrupt(), SystemExit(3), UsageError("--num-tokens")):
        with pytest.raises(type(error)) as caught, reading(tmp_path / "model.gguf"):
            raise error
        assert caught.value is error


def test_what_is_printable_stays_as_it_is() -> None:
    """Letters of any script stay; controls are escaped; the middle goes where it is long, and ends are kept."""
    assert printable("é 漢字 a\tb\x1b[0m\u202e\ud800") == "é 漢字 a\\tb\\x1b[0m\\u202e\\ud800"
    short = printable("begin" + "\0" * 10**6 + "end", 40)
    assert len(short) == 40 and short.startswith("begin") and short.endswith("end") and " ... " in short
    assert printable(7) == "7"


@pytest.mark.parametrize("where", ("config.json", "model.safetensors.index.json", "tokenizer.json"))
def test_json_that_is_none_names_its_file(tmp_path: Path, where: str) -> None:
    """A megabyte of control characters where JSON should be."""
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    (tmp_path / where).write_text(json.dumps({"a": 1})[:-1] + "\x1b\x07" * 500_000)
    refusal(tmp_path / where, lambda: open_tokenizer(None, Checkpoint.open(tmp_path)))


# -- sentencepiece --------------------------------------------------------------------------------


def varint(n: int) -> bytes:
    return bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80]) + varint(n >> 7)


def pieces_model(*given: tuple[str, float, int]) -> bytes:
    """A sentencepiece model of pieces with their scores and types, as protobuf writes it."""
    model = b""
    for text, score, kind in (("<unk>", 0.0, 2), ("a", -1.0, 1), *given):
        message = b"\n" + varint(len(text.encode())) + text.encode() + struct.pack("<Bf", 0x15, score) + b"\x18" + varint(kind)
        model += b"\n" + varint(len(message)) + message
    return model + b"\x12\x02\x18\x01"  # of type Unigram


def test_special_pieces_are_found_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand control pieces, pieces without a score and user-defined ones; above a number of them the file is refused."""
    path = tmp_path / "tokenizer.model"
    n = 10_000
    path.write_bytes(pieces_model(*((f"<{i}>", 0.0, 3) for i in range(n)), *((f"n{i}", 0.0, 1) for i in range(n)), ("<u>", 0.0, 4)))
    start = time.thread_time()
    tokenizer = open_tokenizer(path)
    assert time.thread_time() - start < 10
    assert tokenizer is not None and tokenizer.encode("<u><7>") == [2 + 2 * n, 2 + 7]
    assert tokenizer.decode([2 + 2 * n, 2 + 7, 2 + n]).strip() == "<u>n0"

    monkeypatch.setattr(pieces, "MOST_ADDED", n)
    assert "more than 10000 special tokens" in refusal(path, lambda: open_tokenizer(path))
