"""A short text's own part of a vocabulary gives the ids of the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iron_lm.checkpoints.checkpoint import Checkpoint
from iron_lm.text.excerpt import Excerpts, listed
from iron_lm.text.opening import open_tokenizer
from iron_lm.text.tokenizer import Tokenizer
from iron_lm.text.vocabulary import gguf_tokenizer

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=60) | st.text("the andof<|im_start|>0123 \n", max_size=80)


def opened(path: Path) -> Tokenizer:
    """As any start after the first has it."""
    checkpoint = Checkpoint.open(path)
    open_tokenizer(None, checkpoint)
    found = open_tokenizer(None, checkpoint)
    assert found is not None and isinstance(found._library, Excerpts)
    return found


def library_of(path: Path) -> Any:
    from tokenizers import Tokenizer as Library

    return Library.from_str(json.dumps(gguf_tokenizer(Checkpoint.open(path).metadata, str(path))))


@pytest.fixture(scope="module")
def real(smollm2: Path) -> tuple[Excerpts, Any]:
    """SmolLM2's vocabulary in excerpts, and whole."""
    excerpts = opened(smollm2)._library
    excerpts._left = 1 << 30
    return excerpts, library_of(smollm2)


@settings(max_examples=200)
@given(text=TEXTS)
@example("The capital of France is")
@example("<|im_start|>user\nHello, 1234 wörld 🦙\r\n\t  x<|im_end|>")
@example("")
def test_the_ids_are_those_of_the_whole(real: tuple[Excerpts, Any], text: str) -> None:
    """Whatever the text: special tokens, digits, letters cut by tokens, bytes that no token has."""
    excerpts, whole = real
    assert excerpts.encode(text, add_special_tokens=False).ids == whole.encode(text, add_special_tokens=False).ids


def test_ids_and_tokens_are_those_of_the_whole(real: tuple[Excerpts, Any]) -> None:
    """One by one, those beyond the vocabulary too."""
    excerpts, whole = real
    size = excerpts.get_vocab_size()
    assert size == whole.get_vocab_size()
    assert [excerpts.id_to_token(i) for i in range(size + 2)] == [whole.id_to_token(i) for i in range(size + 2)]
    for token in ("the", "<|im_end|>", "no such token", "Ġthe"):
        assert excerpts.token_to_id(token) == whole.token_to_id(token)


@settings(max_examples=60)
@given(data=st.data())
def test_any_vocabulary_of_pairs(data: st.DataObject) -> None:
    """Merges in any order, several that give one token, tokens that no merge gives, with pieces that are tokens taken whole or not."""
    from tokenizers import Tokenizer as Library

    tokens, merges = list("abc"), list[list[str]]()
    for _ in range(data.draw(st.integers(0, 12))):
        pair = [data.draw(st.sampled_from(tokens)), data.draw(st.sampled_from(tokens))]
        merges.append(pair)
        if "".join(pair) not in tokens:
            tokens.append("".join(pair))
    tokens += [each for each in data.draw(st.lists(st.text("abcd", min_size=1, max_size=4), max_size=4, unique=True)) if each not in tokens]
    merges = data.draw(st.permutations([list(pair) for pair in {tuple(pair) for pair in merges}]))
    model = {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges, "ignore_merges": data.draw(st.booleans())}
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    parts = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [step]}, "decoder": step, "normalizer": None, "post_processor": None}
    made = {"version": "1.0", "added_tokens": [], "model": model, **parts}
    whole, excerpts = Library.from_str(json.dumps(made)), Excerpts(listed(made), pytest.fail)
    text = data.draw(st.text("abcd ", max_size=30))
    assert excerpts.encode(text).ids == whole.encode(text).ids


def test_long_texts_and_many_load_the_whole(smollm2: Path) -> None:
    """Once; short ones leave it where it is."""
    short, long = opened(smollm2), opened(smollm2)
    for n in range(12):
        assert (short._library._library is None) == (n <= 8)
        assert short.encode("Hello there") == [19556, 665]
    text = "Hello there " * 400
    ids = long.encode(text)
    assert long._library._library is not None and long.decode(ids) == text


def test_what_is_no_byte_level_vocabulary_is_loaded_whole(tiny_gguf: Any, byte_metadata: dict[str, Any]) -> None:
    """Sentencepiece's, one with a token twice, and a token with the end of a line in it."""
    made = gguf_tokenizer(Checkpoint.open(tiny_gguf(metadata=byte_metadata)).metadata, "it")
    assert listed(made)
    tokens = made["model"]["vocab"]
    for wrong in (
        made | {"normalizer": {"type": "Prepend", "prepend": "x"}},
        made | {"model": made["model"] | {"vocab": {token: id + (id > 9) for token, id in tokens.items()}}},
        made | {"model": made["model"] | {"vocab": {"\n" if id == 9 else token: id for token, id in tokens.items()}}},
        made | {"model": made["model"] | {"merges": [["h", "e e"]]}},
        made | {"added_tokens": [*made["added_tokens"], {"content": "new", "id": 1000}]},
    ):
        assert listed(wrong) == b""
