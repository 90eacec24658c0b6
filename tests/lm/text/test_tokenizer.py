"""Text becomes ids and ids text, from a GGUF's own vocabulary and from tokenizer.json."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from iron_core.cache.store import CacheWarning
from iron_core.errors import CheckpointError, UsageError
from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.text import kinds as module
from iron_lm.text.opening import open_tokenizer
from iron_lm.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def bytewise(talking: Path) -> Tokenizer:
    """The byte-level tokenizer of the tiny GGUF."""
    found = open_tokenizer(None, Checkpoint.open(talking))
    assert found is not None
    return found


def test_merges_and_the_first_token_are_the_files(bytewise: Tokenizer) -> None:
    """The beginning-of-text id comes first, merged pairs are one id, and the stop is the file's."""
    assert bytewise.encode("the tea") == [252, ord("t"), 255, 254, ord("e"), ord("a")]
    assert (bytewise.bos, bytewise.stop, bytewise.vocab_size) == (252, (253,), 256)


def test_special_tokens_are_read_and_not_written(bytewise: Tokenizer) -> None:
    """A control token in a text is one id, which decoding leaves out."""
    ids = bytewise.encode("a</s>b")
    assert ids == [252, ord("a"), 253, ord("b")]
    assert bytewise.decode(ids) == "ab"


@settings(max_examples=200)
@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_streaming_never_splits_a_character(bytewise: Tokenizer, text: str) -> None:
    """The pieces of any text join to it, whole characters each, though every id is a byte; a control token in it is none."""
    assume("<s>" not in text and "</s>" not in text)
    stream = bytewise.stream()
    pieces = [stream(i) for i in bytewise.encode(text)]
    if "�" not in text:
        assert not any("�" in piece for piece in pieces)
        assert "".join(pieces) == text == bytewise.decode(bytewise.encode(text))


@settings(max_examples=50)
@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_smollm2_streams_what_it_reads(real: Tokenizer, text: str) -> None:
    """The real vocabulary's pieces join to the text too, wherever it has all of a text's bytes."""
    stream = real.stream()
    ids = real.encode(text)
    if "�" not in real.decode(ids):
        assert "".join(stream(i) for i in ids) == real.decode(ids)


@pytest.fixture(scope="module")
def real(smollm2: Path) -> Tokenizer:
    found = open_tokenizer(None, Checkpoint.open(smollm2))
    assert found is not None
    return found


def test_text_that_is_not_unicode_is_refused(bytewise: Tokenizer) -> None:
    """Bytes of a command line that are not UTF-8 are named by their place."""
    with pytest.raises(UsageError, match="not valid UTF-8 at character 2"):
        bytewise.encode("ok\udcff")


def test_a_vocabulary_is_converted_once(talking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second start takes the tokenizer from the cache."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    checkpoint = Checkpoint.open(talking)
    first = open_tokenizer(None, checkpoint)
    monkeypatch.setattr(module, "gguf_tokenizer", lambda *_: pytest.fail("converted again"))
    second = open_tokenizer(None, checkpoint)
    assert first is not None and second is not None and first.encode("the") == second.encode("the")


def test_another_vocabulary_in_its_place_is_another(
    talking: Path, tiny_gguf: Any, byte_metadata: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header decides, not the file's name, size and time; the same vocabulary in another place is the same."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path / "cache"))
    tokens = list(byte_metadata["tokenizer.ggml.tokens"])
    tokens[ord("x")], tokens[ord("y")] = tokens[ord("y")], tokens[ord("x")]
    other = tiny_gguf(metadata=byte_metadata | {"tokenizer.ggml.tokens": tokens})
    place, found = tmp_path / "model.gguf", []
    for source in (talking, other, talking):
        shutil.copyfile(source, place)
        os.utime(place, (1, 1))
        tokenizer = open_tokenizer(None, Checkpoint.open(place))
        assert tokenizer is not None
        found.append(tokenizer.encode("xy")[-2:])
    assert found == [[ord("x"), ord("y")], [ord("y"), ord("x")], [ord("x"), ord("y")]]
    assert len(list((tmp_path / "cache").glob("iron/tokenizers/*"))) == 2


@pytest.mark.parametrize("damage", ["flip", "cut", "another"])
@pytest.mark.parametrize("name", ["lists", "tokenizer.json"])
def test_a_damaged_tokenizer_is_made_again(
    talking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: str
) -> None:
    """One letter of a token that changed would give other ids. The whole is looked at when a long text needs it."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    checkpoint, long = Checkpoint.open(talking), "the tea" * 1000
    first = open_tokenizer(None, checkpoint)
    (kept,) = tmp_path.glob(f"iron/tokenizers/*/{name}")
    content = kept.read_text()
    t, other, letter = ('"t"', '"\\u0001"', '"u"') if name == "tokenizer.json" else ("\nt\n", "\n\1\n", "\nu\n")
    damaged = {"flip": content.replace(t, other, 1), "cut": content[:-9], "another": content.replace(t, letter, 1)}
    assert damaged[damage] != content
    kept.write_text(damaged[damage])
    with pytest.warns(CacheWarning, match="building it again"):
        second = open_tokenizer(None, checkpoint)
        assert first is not None and second is not None and first.encode(long) == second.encode(long)
    third = open_tokenizer(None, checkpoint)
    assert third is not None
    for text in ("the tea", long):
        assert first.encode(text) == second.encode(text) == third.encode(text)
    assert kept.read_text() == content


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tokenizer.ggml.model": "bert"}, "'bert'.*--tokenizer"),
        ({"tokenizer.ggml.model": "llama"}, "do not fit together"),  # no scores
        ({"tokenizer.ggml.pre": "tekken"}, "'tekken'.*Legal"),
        ({"tokenizer.ggml.merges": None}, "do not fit together"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "do not fit together"),
        ({"tokenizer.ggml.merges": ["nothing-to-merge"]}, "makes no tokenizer"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(
    talking: Path, tiny_gguf: Any, byte_metadata: dict[str, Any], changes: dict[str, Any], says: str
) -> None:
    """Each is one line that names the file, and nothing of it stays in the cache."""
    for _ in range(2):
        with pytest.raises(CheckpointError, match=says) as caught:
            open_tokenizer(None, Checkpoint.open(tiny_gguf(metadata=byte_metadata | changes)))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("pre", "merged"), [(None, ["he"]), ("default", ["he"]), ("gpt-2", ["he", " $", "34"])])
def test_text_is_split_as_llama_cpp_splits_it(tiny_gguf: Any, byte_metadata: dict[str, Any], pre: str | None, merged: list[str]) -> None:
    """Where a GGUF does not say how, marks stand alone and numbers are cut in threes; gpt-2 keeps both together."""
    words = ["he", "Ġ$", "34"]
    tokens = [*byte_metadata["tokenizer.ggml.tokens"][:-3], *words]
    changes = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["h e", "Ġ $", "3 4"]}
    changes |= {"tokenizer.ggml.eos_token_id": 252, "tokenizer.ggml.token_type": [1] * 252 + [3, 1, 1, 1]}
    found = open_tokenizer(None, Checkpoint.open(tiny_gguf(metadata=byte_metadata | changes)))
    assert found is not None
    assert [found.decode([i]) for i in found.encode("he $ 1234") if i > 252] == merged


def test_merges_are_never_left_out_at_random(bytewise: Tokenizer, tmp_path: Path) -> None:
    """A dropout saved in tokenizer.json is for training."""
    bytewise._library.save(str(tmp_path / "tokenizer.json"))
    saved = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    saved["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved), encoding="utf-8")
    found = open_tokenizer(tmp_path)
    assert found is not None and len({tuple(found.encode("the the the the")) for _ in range(20)}) == 1


@pytest.mark.parametrize("metadata", ({}, {"tokenizer.ggml.model": "no_vocab"}, {"tokenizer.ggml.model": "none"}))
def test_a_gguf_without_a_vocabulary_has_no_tokenizer(tiny_gguf: Any, metadata: dict[str, Any]) -> None:
    """Such a model runs on ids."""
    assert open_tokenizer(None, Checkpoint.open(tiny_gguf(metadata=metadata))) is None


def test_a_tokenizer_json_is_found_beside_the_weights(tiny: Any, bytewise: Tokenizer, tmp_path: Path) -> None:
    """A folder's tokenizer.json is taken, its stops from config.json and `</s>` by its text; a file that is none is refused."""
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).write_bytes((tiny.checkpoint.path / name).read_bytes())
    bytewise._library.save(str(tmp_path / "tokenizer.json"))
    found = open_tokenizer(None, Checkpoint.open(tmp_path))
    assert found is not None and found.encode("the") == bytewise.encode("the")[1:] and found.stop == (2, 253)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"eos_token_id": [2, 3]}))
    assert open_tokenizer(None, Checkpoint.open(tmp_path)).stop == (2, 3, 253)  # type: ignore[union-attr]
    (tmp_path / "config.json").write_text(json.dumps(config | {"eos_token_id": "end"}))
    with pytest.raises(CheckpointError, match="eos_token_id is 'end'"):
        open_tokenizer(None, Checkpoint.open(tmp_path))
    with pytest.raises(CheckpointError, match=r"not a tokenizer\.json"):
        open_tokenizer(tiny.checkpoint.path / "config.json")
    with pytest.raises(CheckpointError, match="no such tokenizer"):
        open_tokenizer(tmp_path / "absent.json")
